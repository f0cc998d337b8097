package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"touchline/internal/e2e/netfault"
	"touchline/internal/e2e/stage"
)

// fault is one kind of fault around the bot of a stage.
type fault struct {
	name string
	// inject causes the fault and returns once the cause is gone.
	inject func()
}

// faults returns all kinds of faults, with lengths drawn for one round.
func (k *soak) faults() []fault {
	s := k.stage
	network := func(name string, imp netfault.Impairment) fault {
		return fault{name, func() {
			s.Network.Set(imp)
			defer s.Network.Set(netfault.Impairment{})
			k.Wait(k.pick(25*time.Second, 40*time.Second, 2*time.Second))
		}}
	}
	engine := func(name string, m mood) fault {
		length := k.pick(6*time.Second, 12*time.Second, 1500*time.Millisecond)
		return fault{name, func() {
			k.model.mood.Store(int32(m))
			defer k.model.mood.Store(int32(moodWell))
			k.Wait(length)
		}}
	}
	serverOff, cameraOff := k.pick(3*time.Second, 12*time.Second, 2*time.Second), k.pick(3*time.Second, 10*time.Second, 2*time.Second)
	seed := k.rand.Uint64() // of the camera's next match
	return []fault{
		{"server stopped", func() {
			k.restarts++
			s.StopServer()
			k.Wait(serverOff)
			k.Check(s.RestartServer(k.Context()))
		}},
		network("5 % of packets lost", netfault.Impairment{Loss: 0.05}),
		network("5 % of packets 40 ms out of order", netfault.Impairment{Reorder: 0.05, HoldBack: 40 * time.Millisecond}),
		network("jitter of 200 ms", netfault.Impairment{Jitter: 200 * time.Millisecond}),
		{"codec process killed", func() { k.Check(killDecoder()) }},
		engine("engine answers 500", moodRefuse),
		engine("engine hangs", moodHang),
		engine("engine closes in the middle", moodBreak),
		{"camera gone", func() {
			s.StopCamera()
			k.Wait(cameraOff)
			_, err := s.AddCamera("camera", seed)
			k.Check(err)
		}},
		{"viewers come and go", func() {
			for range 3 {
				v, leave := k.viewer()
				k.seesPicture(v)
				k.Wait(k.pick(time.Second, 8*time.Second, 100*time.Millisecond))
				leave()
			}
		}},
		{"one of two viewers stalls", func() { k.stalledViewer(k.pick(10*time.Second, 15*time.Second, 2*time.Second)) }},
	}
}

// viewer adds a viewer that decodes nothing.
func (k *soak) viewer() (v *stage.Viewer, leave func()) {
	v, leave, err := k.stage.AddViewer(true)
	k.Check(err)
	return v, leave
}

// killDecoder kills the bot's codec process: of this process's children the first one started.
func killDecoder() error {
	pids, err := childrenOf(os.Getpid())
	if err != nil {
		return err
	}
	slices.Sort(pids)
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
		if strings.HasPrefix(string(name), "touchline-code") {    // names are cut at 15 characters
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return errors.New("no codec process among the children of this process")
}

// stalledViewer lets one of two viewers stop reading, and keeps the longest gap between pictures at the other.
func (k *soak) stalledViewer(length time.Duration) {
	v, leave := k.viewer()
	defer leave()
	other, leaveOther := k.viewer()
	defer leaveOther()
	k.seesPicture(v)
	k.seesPicture(other)
	other.Stall()
	from := time.Now()
	k.Wait(length)
	var last time.Time
	for _, p := range v.Seen().Pictures {
		if p.At.Before(from) {
			continue
		}
		if !last.IsZero() {
			k.gap = max(k.gap, p.At.Sub(last))
		}
		last = p.At
	}
	if last.IsZero() {
		k.Check(errors.New("no picture at the viewer that reads"))
	}
}
