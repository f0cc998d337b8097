package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
)

// held counts the resources of a process.
type held struct {
	goroutines, files, sockets int
	heap                       uint64
	rss                        int64
}

func heldNow() (held, error) {
	runtime.GC()
	runtime.GC() // for objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u, err := usageOf(os.Getpid())
	if err != nil {
		return held{}, err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return held{}, fmt.Errorf("list open files: %w", err)
	}
	h := held{goroutines: runtime.NumGoroutine(), files: len(fds), heap: m.HeapAlloc, rss: u.RSS}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			h.sockets++
		}
	}
	return h, nil
}

// connectWait bounds the wait for the first picture of a round.
const connectWait = 10 * time.Second

// warmRounds is the number of rounds before the first count.
const warmRounds = 20

// measureRounds connects and disconnects a WHIP sender again and again. Each round sends until its picture reaches the
// room's participant, and ends by DELETE, every fourth by silence. After rest it compares the process's resources,
// senders included, with those at the start.
func measureRounds(ctx context.Context, rounds int, rest time.Duration, log zerolog.Logger) ([]row, error) {
	s, err := stage.New(ctx, stage.Options{NoBot: true, NoCamera: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	clip, err := stage.MakeClip(ctx, media.H264, 320, 180, restartRate, 300_000, 4)
	if err != nil {
		return nil, err
	}
	one, err := prepareRounds(ctx, s, clip.Units())
	if err != nil {
		return nil, err
	}
	for i := range warmRounds {
		if err := one(i); err != nil {
			return nil, fmt.Errorf("warm-up round %d: %w", i+1, err)
		}
	}
	if err := stage.Wait(ctx, rest); err != nil {
		return nil, err
	}
	before, err := heldNow()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range rounds {
		// The last round ends as the last warm-up round did, so that equal states are compared.
		if err := one(i + warmRounds - rounds%4 + 4); err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	took := time.Since(began)
	if err := stage.Wait(ctx, rest); err != nil {
		return nil, err
	}
	after, err := heldNow()
	if err != nil {
		return nil, err
	}
	const mega = 1 << 20
	return []row{
		note("rounds of connecting and leaving", fmt.Sprintf("%d in %v, %.0f ms each", rounds, took.Round(time.Second),
			ms(took)/float64(max(rounds, 1)))),
		atMost("goroutines more than at the start, "+strconv.Itoa(before.goroutines), float64(after.goroutines-before.goroutines), 10, ""),
		atMost("open files more than at the start, "+strconv.Itoa(before.files), float64(after.files-before.files), 4, ""),
		atMost("sockets more than at the start, "+strconv.Itoa(before.sockets), float64(after.sockets-before.sockets), 4, ""),
		atMost(fmt.Sprintf("memory in use more than at the start, %.0f MiB", float64(before.heap)/mega),
			float64(int64(after.heap)-int64(before.heap))/mega, 16, "MiB"), //nolint:gosec // far below 2^63
		note("resident memory at the start and at the end", fmt.Sprintf("%d MiB, %d MiB", before.rss>>20, after.rss>>20)),
	}, s.Errors()
}

// prepareRounds serves WHIP in the stage's room and returns a function that runs round i.
func prepareRounds(ctx context.Context, s *stage.Stage, units [][]byte) (func(i int) error, error) {
	var frames atomic.Uint64
	at, err := stageWHIP(ctx, s, func() { frames.Add(1) })
	if err != nil {
		return nil, err
	}
	token, err := conn.CameraToken(s.Keys, conn.Person{Room: "rounds", Identity: "camera"})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(i int) error {
		x, err := whipclient.Dial(ctx, whipclient.Options{
			URL: at.WHIP + "rounds", Token: token, Codec: media.H264, Units: units, FPS: restartRate, Client: client,
		})
		if err != nil {
			return err
		}
		had := frames.Load()
		err = errors.Join(x.Send(0), x.Send(1), x.Send(2)) // a key frame and two more
		for begin := time.Now(); err == nil && frames.Load() == had; {
			if time.Since(begin) > connectWait {
				err = errors.New("no picture in the room after 10 s")
			} else {
				err = stage.Wait(ctx, time.Millisecond)
			}
		}
		if err != nil {
			x.Vanish()
			return err
		}
		if i%4 == 3 {
			x.Vanish() // the next one with the same key takes its place
			return nil
		}
		return x.Close(ctx)
	}, nil
}
