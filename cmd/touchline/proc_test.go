//go:build integration && !nodemo

package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// family returns a process and its descendants, from /proc.
func family(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it ended
		}
		// pid (name with anything in it) state ppid ...
		rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, _ := strconv.Atoi(rest[1])
		children[parent] = append(children[parent], id)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:])), "Z")
}

// socket is a reachable socket: listening TCP, or UDP.
type socket struct {
	Net   string
	Local netip.AddrPort
}

// sockets lists the reachable sockets of some processes.
func sockets(pids []int) ([]socket, error) {
	ours := map[string]bool{}
	for _, pid := range pids {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			target, _ := os.Readlink(fd)
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var out []socket
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		table, err := os.ReadFile("/proc/net/" + name)
		if err != nil {
			continue // a machine without IPv6
		}
		for _, line := range strings.Split(string(table), "\n")[1:] {
			f := strings.Fields(line)
			const listening = "0A"
			if len(f) < 10 || !ours[f[9]] || strings.HasPrefix(name, "tcp") && f[3] != listening {
				continue
			}
			at, err := parseProcAddr(f[1])
			if err != nil {
				return nil, fmt.Errorf("read /proc/net/%s: %w", name, err)
			}
			out = append(out, socket{Net: name, Local: at})
		}
	}
	return out, nil
}

// parseProcAddr parses an address of /proc: words of 32 bits in the machine's
// order (little-endian here), a colon, the port.
func parseProcAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("expected an address in hex, got %q", s)
	}
	for w := 0; w < len(b); w += 4 {
		b[w], b[w+1], b[w+2], b[w+3] = b[w+3], b[w+2], b[w+1], b[w]
	}
	ip, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("expected an address and a port in hex, got %q", s)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}
