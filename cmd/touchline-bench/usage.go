package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"touchline/internal/ticks"
)

// clockTicks a second in /proc/PID/stat; USER_HZ is 100 on every Linux that Go runs on.
const clockTicks = 100

// usage is the resources of a process, with its children or without.
type usage struct {
	at  time.Time
	CPU time.Duration // user and system, ended children included
	RSS int64         // bytes, of running processes
	// Files is the part of RSS that maps program files. The kernel shares and reclaims these pages; how many count
	// depends on how a file came into its cache.
	Files int64
	took  time.Duration // of a difference
}

// since returns the CPU time since an earlier usage, and the memory now.
func (u usage) since(before usage) usage {
	u.CPU, u.took = u.CPU-before.CPU, u.at.Sub(before.at)
	return u
}

// share returns the CPU of a difference, in percent of a core.
func (u usage) share() float64 { return 100 * u.CPU.Seconds() / u.took.Seconds() }

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }

// usageOf reads the usage of a process from /proc, with its running children or without.
func usageOf(r *run, pid int, children bool) usage {
	u, err := readUsage(pid, children)
	r.Check(err)
	return u
}

// usageDuring returns the CPU of a process and its children for a while, and their memory at the end.
func usageDuring(r *run, pid int, length time.Duration) usage {
	before := usageOf(r, pid, true)
	r.Wait(length)
	return usageOf(r, pid, true).since(before)
}

func readUsage(pid int, children bool) (usage, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	statm, failed := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err = errors.Join(err, failed); err != nil {
		return usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	// The second field, the name in brackets, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, cstime, rss = 11, 14, 21 // fields after the name (proc(5)); from utime to cstime are times
	pages := strings.Fields(string(statm))
	if len(fields) <= rss || len(pages) < 3 {
		return usage{}, fmt.Errorf("read the usage of process %d: expected more than %d fields in stat, got %d", pid, rss, len(fields))
	}
	num := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // the kernel writes numbers
		return n
	}
	size := int64(os.Getpagesize())
	u := usage{at: time.Now(), RSS: num(fields[rss]) * size, Files: num(pages[2]) * size}
	for _, field := range fields[utime : cstime+1] {
		u.CPU += ticks.Duration(num(field), clockTicks)
	}
	if !children {
		return u, nil
	}
	pids, err := childrenOf(pid)
	for _, child := range pids {
		if c, err := readUsage(child, true); err == nil { // else it has ended
			u.CPU, u.RSS, u.Files = u.CPU+c.CPU, u.RSS+c.RSS, u.Files+c.Files
		}
	}
	return u, err
}

// childrenOf returns the running children of all threads of a process.
func childrenOf(pid int) ([]int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", pid, err)
	}
	var pids []int
	for _, t := range tasks {
		b, _ := os.ReadFile(t) // the thread may have ended
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, nil
}

// loadAverage returns the load of the last minute and five minutes, from /proc/loadavg.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return "unknown"
	}
	return fields[0] + " in a minute, " + fields[1] + " in five"
}
