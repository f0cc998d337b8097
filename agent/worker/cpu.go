package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"
)

// clockTicks is the unit of /proc/stat in 1/s, the same on all platforms of Go.
const clockTicks = 100

// CPU measures the load of this machine, or of this container if it has a CPU limit (cgroup v2, then v1). Linux only.
type CPU struct {
	root fs.FS

	mu     sync.Mutex
	cores  float64
	source func() (used time.Duration, err error)
	meter  Meter
	at     time.Time
	load   float64
}

// NewCPU finds the counters below root, the root of the file system (os.DirFS("/")).
// cores is the number of cores of this process without a limit of the container.
func NewCPU(root fs.FS, cores float64) (*CPU, error) {
	c := &CPU{root: root, cores: cores}
	if bound, ok := c.cgroup2(); ok {
		c.cores, c.source = bound, c.cgroup2Used
	} else if bound, ok := c.cgroup1(); ok {
		c.cores, c.source = bound, c.cgroup1Used
	} else {
		c.source = c.machineUsed
	}
	if c.cores <= 0 {
		return nil, fmt.Errorf("the number of cores must be above 0, is %g", c.cores)
	}
	if _, err := c.source(); err != nil {
		return nil, fmt.Errorf("measure the CPU: %w", err)
	}
	return c, nil
}

// Load returns the share of the cores in use over the last seconds, 0 to 1. The result
// is cached for half a second.
func (c *CPU) Load(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && now.Sub(c.at) < 500*time.Millisecond {
		return c.load
	}
	if used, err := c.source(); err == nil {
		c.at, c.load = now, min(c.meter.Rate(now, used)/c.cores, 1)
	}
	return c.load
}

// cgroup2 returns the CPU limit of a container, in cores.
func (c *CPU) cgroup2() (float64, bool) {
	text, err := fs.ReadFile(c.root, "sys/fs/cgroup/cpu.max")
	if err != nil {
		return 0, false
	}
	return ratio(strings.Fields(string(text)))
}

func (c *CPU) cgroup2Used() (time.Duration, error) {
	text, err := fs.ReadFile(c.root, "sys/fs/cgroup/cpu.stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return number(value, time.Microsecond)
		}
	}
	return 0, errors.New("expected usage_usec in cpu.stat, found none")
}

// cgroup1Folder has limits and use in the older layout.
const cgroup1Folder = "sys/fs/cgroup/cpu,cpuacct/"

func (c *CPU) cgroup1() (float64, bool) {
	quota, err := fs.ReadFile(c.root, cgroup1Folder+"cpu.cfs_quota_us")
	if err != nil {
		return 0, false
	}
	period, err := fs.ReadFile(c.root, cgroup1Folder+"cpu.cfs_period_us")
	if err != nil {
		return 0, false
	}
	return ratio([]string{strings.TrimSpace(string(quota)), strings.TrimSpace(string(period))})
}

func (c *CPU) cgroup1Used() (time.Duration, error) {
	text, err := fs.ReadFile(c.root, cgroup1Folder+"cpuacct.usage")
	if err != nil {
		return 0, err
	}
	return number(string(text), time.Nanosecond)
}

// ratio parses quota and period; false without a limit ("max", -1).
func ratio(f []string) (float64, bool) {
	if len(f) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseFloat(f[0], 64)
	period, perr := strconv.ParseFloat(f[1], 64)
	if err != nil || perr != nil || quota <= 0 || period <= 0 {
		return 0, false
	}
	return quota / period, true
}

// machineUsed returns the CPU time of all processes: the first line of /proc/stat
// without idle and waiting time.
func (c *CPU) machineUsed() (time.Duration, error) {
	text, err := fs.ReadFile(c.root, "proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	f := strings.Fields(string(line)) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(f) < 8 || f[0] != "cpu" {
		return 0, fmt.Errorf("expected the counters of all cores in /proc/stat, got %q", line)
	}
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		d, err := number(f[i], time.Second/clockTicks)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

func number(s string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("expected a whole number, got %q", s)
	}
	return time.Duration(n) * unit, nil
}
