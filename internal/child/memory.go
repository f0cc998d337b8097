package child

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is how often the memory of all programs is measured.
	lookEvery = 250 * time.Millisecond
	// ownMemory is what this process itself may use before the budget shrinks, but at most a leastPart of the limit. The chart's memory limit
	// has it, too.
	ownMemory = 512 << 20
	// leastPart of the machine's memory is the programs', however much this process uses.
	leastPart = 4
)

// ErrMemory is wrapped by the error of a program that was ended because all programs together used more memory than their budget.
var ErrMemory = errors.New("ended as the largest program, as all together use too much memory")

// children are the programs that run. Their limits are of address space or reserved memory, of which little is used: a sum of limits would
// refuse normal use. So what they use is measured, and the largest ends if it is too much.
type children struct {
	limit func() uint64 // of this process and all programs
	own   func() uint64 // what this process uses

	mu         sync.Mutex
	programs   map[int]*program // by process id
	stop, done chan struct{}    // of the goroutine that looks; it runs while there are programs
	ended      uint64
}

// program is a process that runs, or a script with all processes of its group.
type program struct {
	script bool
	err    error // why it was ended
}

// all is one for this process, as memory is.
var all = children{ //nolint:gochecknoglobals // mirrors a fact of the process
	limit:    sync.OnceValue(func() uint64 { return memoryOf(os.DirFS("/")) }),
	own:      func() uint64 { return resident("self") },
	programs: map[int]*program{},
}

// Memory returns what all programs use and may use together, in bytes, and how many were ended because that was too much.
func Memory() (used, budget, ended uint64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, n := range all.useLocked() {
		used += n
	}
	return used, all.budget(), all.ended
}

func (c *children) add(pid int, script bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs[pid] = &program{script: script}
	if len(c.programs) > 1 {
		return
	}
	stop, done := make(chan struct{}), make(chan struct{})
	c.stop, c.done = stop, done
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.look()
			case <-stop:
				return
			}
		}
	}()
}

// remove forgets a program that has ended, before its id is used anew. It returns why look ended it, if it did.
func (c *children) remove(pid int) error {
	c.mu.Lock()
	err := c.programs[pid].err
	delete(c.programs, pid)
	last, stop, done := len(c.programs) == 0, c.stop, c.done
	c.mu.Unlock()
	if last {
		close(stop)
		<-done
	}
	return err
}

// look ends the largest programs until the others fit the budget.
func (c *children) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	use, sum := c.useLocked(), uint64(0)
	for _, n := range use {
		sum += n
	}
	for budget := c.budget(); sum > budget && len(use) > 0; {
		largest, most := 0, uint64(0)
		for pid, n := range use {
			if n >= most {
				largest, most = pid, n
			}
		}
		const mib = 1 << 20
		c.programs[largest].err = fmt.Errorf("%w: %d of %d MiB, this one %d", ErrMemory, sum/mib, budget/mib, most/mib)
		_ = unix.Kill(-largest, unix.SIGKILL)
		c.ended++
		sum -= most
		delete(use, largest)
	}
}

// budget is what the programs may use together: what this process leaves of the limit.
func (c *children) budget() uint64 {
	limit := c.limit()
	return limit - min(max(min(ownMemory, limit/leastPart), c.own()), limit-limit/leastPart)
}

// useLocked returns what each program uses, without those that look has ended.
func (c *children) useLocked() map[int]uint64 {
	use, scripts := make(map[int]uint64, len(c.programs)), false
	for pid, p := range c.programs {
		switch {
		case p.err != nil:
		case p.script:
			use[pid], scripts = 0, true
		default:
			use[pid] = resident(strconv.Itoa(pid))
		}
	}
	if !scripts {
		return use
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // state, parent, group
		if len(fields) < 3 {
			continue
		}
		group, _ := strconv.Atoi(fields[2])
		if p := c.programs[group]; p != nil && p.script && p.err == nil {
			use[group] += resident(e.Name())
		}
	}
	return use
}

// resident returns the memory of a process that no other one shares and no file has, in bytes; 0 if it has ended.
func resident(pid string) (n uint64) {
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		kb, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		n += kb << 10
	}
	return n
}

// memoryOf returns the memory of the machine, or of the container or service if that has a limit. root is the root of the file system.
func memoryOf(root fs.FS) uint64 {
	most, kb := uint64(math.MaxInt64), uint64(0)
	text, _ := fs.ReadFile(root, "proc/meminfo")
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err == nil {
		most = kb << 10
	}
	text, _ = fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if slices.Contains(strings.Split(fields[1], ","), "memory") { // version 1
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		// A container sees its own group as the root, perhaps with the path of the machine's.
		for group, up := path.Clean("/"+fields[2]), ""; group != up; up, group = group, path.Dir(group) {
			text, _ := fs.ReadFile(root, path.Join(mount, group, file))
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
				most = min(most, n)
			}
		}
	}
	return most
}
