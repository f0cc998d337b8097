package main

import (
	"fmt"
	"time"

	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
)

// crowdedRooms are the numbers of rooms of crowded.
func crowdedRooms() []int { return []int{16, 32, 48, 64} }

// crowded measures a worker with more and more rooms of 320x180 on two cores, whose model is scripted: what gives first.
func crowded(r *run) {
	clip, err := stage.MakeClip(r.Context(), media.H264, 320, 180, 15, 250_000, 1)
	r.Check(err)
	for _, n := range crowdedRooms() {
		r.Part(func() { crowdOf(r, n, clip).figures(r, n) })
	}
	r.Note("load of the machine", "%s", loadAverage())
}

// crowdedWorker is what a worker with many rooms did.
type crowdedWorker struct {
	usage           usage
	minutes         float64
	spoken, dropped int
	silent          int // rooms without a comment
	late            int
	aligned, pauses []time.Duration
}

func crowdOf(r *run, rooms int, clip *stage.Clip) (w crowdedWorker) {
	model := newModelServer(1, longText, 400*time.Millisecond, time.Second)
	r.Cleanup(model.close)
	at := roomsWithCameras(r, rooms, false, stage.Options{Width: 320, Height: 180, Clip: clip})
	store := r.folder()
	p := worker(r, at, twoCores, append(model.settings(), "TOUCHLINE_INFERENCE_REMOTE_PARALLEL=64",
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store,
	))
	r.Wait(3 * settleTime) // the delays of the pictures grow by a tenth of a second each second
	from := time.Now()
	w.usage = usageDuring(r, p.cmd.Process.Pid, r.flags.Cost)
	to := time.Now()
	w.minutes = to.Sub(from).Minutes()
	p.stop()
	reader, err := history.OpenReader(r.Context(), store)
	r.Check(err)
	r.Cleanup(func() { r.Fail(reader.Close()) })
	last := map[string]time.Time{} // end of a room's comment
	for e, err := range reader.Entries(r.Context(), history.Query{Everything: true}) {
		r.Check(err)
		rec := e.Record
		if rec.InferenceStart.Before(from) || rec.StartedAt.After(to) {
			continue
		}
		switch {
		case rec.Outcome == look.OutcomeDropped:
			w.dropped++
		case rec.Aligned && (rec.Outcome == look.OutcomeSpoken || rec.Outcome == look.OutcomeShown):
			w.spoken++
			w.aligned = append(w.aligned, seconds(rec.AlignmentError).Abs())
			if rec.Late {
				w.late++
			}
			if end, ok := last[e.Room]; ok {
				w.pauses = append(w.pauses, rec.StartedAt.Sub(end))
			}
			last[e.Room] = rec.EndedAt
		}
	}
	w.silent = rooms - len(last)
	return w
}

func (w crowdedWorker) figures(r *run, rooms int) {
	in := func(what string) string { return fmt.Sprintf("%d rooms: %s", rooms, what) }
	r.Note(in("CPU and memory of the worker"), "%.0f %% of a core, %.0f MB", w.usage.share(), mega(w.usage.RSS))
	r.Note(in("comments of a room in a minute"), "%.1f", float64(w.spoken)/w.minutes/float64(rooms))
	r.Note(in("pause between comments, p50; p95"), "%.1f; %.1f s", quantile.Of(w.pauses, 0.5).Seconds(), quantile.Of(w.pauses, 0.95).Seconds())
	r.Note(in("alignment p50; worst"), "%.1f; %.1f ms", bench.MS(quantile.Of(w.aligned, 0.5)), bench.MS(quantile.Of(w.aligned, 1)))
	r.AtMost(in("alignment p95"), bench.MS(quantile.Of(w.aligned, 0.95)), 100, "ms")
	r.Note(in("late (over 100 ms), dropped"), "%d, %d of %d", w.late, w.dropped, w.spoken+w.dropped)
	r.AtMost(in("without a comment"), float64(w.silent), 0, "")
}
