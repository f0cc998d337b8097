package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/cutout"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/source"
)

const (
	// togetherRooms share two cores.
	togetherRooms = 8
	togetherTime  = 2 * time.Minute
	// arrivalMost is the longest time in which a comment on an arrival counts.
	arrivalMost = 10 * time.Second
	// halfIn is the time until half of the photo of sightWalk is in the picture.
	halfIn = 550 * time.Millisecond
)

// roomsTold is what the rooms of one process told.
type roomsTold struct {
	usage usage
	words []time.Duration   // from an event in the delayed picture to the first word
	told  [][]time.Duration // by room, from each arrival before the camera to the first word; arrivalMost if it was not told
}

// sightTogether measures eight rooms on two cores, in each of which a person comes and goes, with scene and with sight.
func sightTogether(r *run) {
	var scene, sight roomsTold
	r.Part(func() { scene = roomsTogether(r, "scene") })
	r.Part(func() { sight = roomsTogether(r, "sight") })
	var all, medians []time.Duration
	missed := 0
	for _, told := range sight.told {
		all, medians = append(all, told...), append(medians, quantile.Of(told, 0.5))
		for _, d := range told {
			if d >= arrivalMost {
				missed++
			}
		}
	}
	r.Note("eight rooms on two cores: CPU with scene, with sight", "%.0f, %.0f %% of a core", scene.usage.share(), sight.usage.share())
	r.Note("eight rooms: arrivals, of them not told", "%d, %d", len(all), missed)
	r.AtMost("eight rooms: arrival before the camera to the first word, median of the slowest room", slices.Max(medians).Seconds(), 4, "s")
	r.Note("the same of all rooms, median; p95", "%.1f s; %.1f s", quantile.Of(all, 0.5).Seconds(), quantile.Of(all, 0.95).Seconds())
	r.Note("eight rooms with scene: event in the delayed picture to the first word, median; p95", "%.0f ms; %.0f ms",
		bench.MS(quantile.Of(scene.words, 0.5)), bench.MS(quantile.Of(scene.words, 0.95)))
	r.AtMost("eight rooms with sight, the same, median", bench.MS(quantile.Of(sight.words, 0.5)), 1000, "ms")
	r.AtMost("eight rooms with sight, the same, p95", bench.MS(quantile.Of(sight.words, 0.95)), 2000, "ms")
	r.Note("load of the machine", "%s", loadAverage())
}

// roomsTogether runs an agent worker with an engine on two cores, with a camera, a bot and a viewer in each room.
func roomsTogether(r *run, engine string) (res roomsTold) {
	walk := sightWalk()
	clip := walkClip(r, walk)
	s := r.stage(stage.Options{NoBot: true, NoCamera: true, Clip: clip})
	at, store := locationOf(s), r.folder()
	var began []time.Time // of each camera
	for i := range togetherRooms {
		at.Rooms = append(at.Rooms, fmt.Sprintf("%s-%d", stage.RoomName, i))
		r.Check(s.AddReplayedCamera(at.Rooms[i], false))
		began = append(began, time.Now())
		_, err := s.AddViewerTo(at.Rooms[i])
		r.Check(err)
		r.Wait(time.Second) // people do not come to all rooms at once
	}
	p := worker(r, at, twoCores, []string{
		engineSetting + engine, "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + store,
	})
	r.Wait(settleTime)
	from := time.Now()
	res.usage = usageDuring(r, p.cmd.Process.Pid, togetherTime)
	until := time.Now().Add(-arrivalMost)
	p.stop()
	comments := alignedComments(r, store)
	for _, e := range comments {
		if e.Record.StartedAt.After(from) {
			res.words = append(res.words, seconds(e.Record.AlignmentError))
		}
	}
	if len(res.words) == 0 {
		r.Check(fmt.Errorf("no comment of the engine %s", engine))
	}
	length := ticks.Duration(int64(len(clip.Frames)), cutout.FPS)
	for i, name := range at.Rooms {
		var told []time.Duration
		for arrival := began[i].Add(walk.Enter + halfIn); arrival.Before(until); arrival = arrival.Add(length) {
			if arrival.After(from) {
				told = append(told, arrivalTold(comments, name, arrival))
			}
		}
		res.told = append(res.told, told)
	}
	return res
}

// arrivalTold returns the time from an arrival in a room to the first word about one.
func arrivalTold(comments []history.Entry, room string, arrival time.Time) time.Duration {
	took := arrivalMost
	for _, e := range comments {
		comes := slices.ContainsFunc(e.Record.Facts, func(f look.Fact) bool {
			return strings.HasPrefix(f.Text, "enter") || strings.HasPrefix(f.Text, "appear")
		})
		if d := e.Record.StartedAt.Sub(arrival); e.Room == room && comes && d > 0 {
			took = min(took, d)
		}
	}
	return took
}

// walkClip makes the clip of a walk, a few seconds longer.
func walkClip(r *run, walk cutout.Walk) *stage.Clip {
	path, length := filepath.Join(r.folder(), "clip.mp4"), walk.End()+7*time.Second
	r.Check(cutout.Write(r.Context(), path, length, walk))
	clip := &stage.Clip{FPS: cutout.FPS}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	err := open(r, path).Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
		if len(clip.Frames) == int(ticks.Count(length, cutout.FPS)) {
			stop()
			return
		}
		clip.Frames = append(clip.Frames, f)
	}})
	if len(clip.Frames) == 0 {
		r.Check(fmt.Errorf("read the clip: %w", err))
	}
	return clip
}
