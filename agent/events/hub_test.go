package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/internal/clocktest"
	"touchline/media"
	"touchline/media/window"
)

func record(cycle uint64, outcome, text string) look.Record {
	return look.Record{Type: "cycle_end", Cycle: cycle, Outcome: outcome, Text: text, FrameIDs: []uint64{cycle}}
}

func picture(w, h int, red byte) media.VideoFrame {
	f := media.VideoFrame{Width: w, Height: h, Pix: make([]byte, w*h*3)}
	for i := 0; i < len(f.Pix); i += 3 {
		f.Pix[i] = red
	}
	return f
}

func TestHubWithoutRunNeverBlocks(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	for i := range uint64(2000) {
		hub.State(agent.Status{})
		hub.Caption(agent.Caption{Delta: "x"})
		hub.Record(record(i, "shown", "x"))
		hub.Frames(i, []window.Frame{{ID: i, VideoFrame: picture(64, 36, 1)}})
	}
	require.Len(t, hub.History(), 20)
	require.Zero(t, events.Waiting(hub), "pictures that cannot be asked for are not kept")
}

// TestPicturesAfterRunAgain: a hub that runs again, as after a panic, keeps pictures again.
func TestPicturesAfterRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := events.NewHub(events.Options{History: 2})
		for id := range uint64(2) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- hub.Run(ctx) }()
			synctest.Wait()
			hub.Frames(id, []window.Frame{{ID: id, VideoFrame: picture(1280, 720, 90)}})
			synctest.Wait()
			data, ok := hub.Frame(id)
			require.True(t, ok, "run %d", id)
			require.NotEmpty(t, data)
			stop()
			require.NoError(t, <-ended)
		}
	})
}

// event is one server-sent event.
type event struct{ id, name, data string }

func parse(t *testing.T, raw []byte) event {
	t.Helper()
	var e event
	var data []string
	text, ok := strings.CutSuffix(string(raw), "\n\n")
	require.True(t, ok, "%q", raw)
	for line := range strings.SplitSeq(text, "\n") {
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		default:
			require.Fail(t, "unknown field", "%q", line)
		}
	}
	e.data = strings.Join(data, "\n")
	return e
}

// FuzzDataLines: any text is read back whole, with every kind of line end as one.
func FuzzDataLines(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb", "a\r\nb\rc\n", "\n\n", "data: x", ": y", "event: evil\n\nid: 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := parse(t, events.DataLines(text))
		require.Equal(t, event{data: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)}, got)
	})
}

func TestSlowReader(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r, history := hub.Subscribe(events.Named, 0, false)
	require.Empty(t, history)
	hub.Publish(events.Event{Name: "snapshot", Data: []byte(`{"n":1}`), Key: "snapshot"})
	for i := range uint64(events.QueueSize + 2) {
		hub.Record(record(i, "silent", ""))
	}
	hub.Publish(events.Event{Name: "snapshot", Data: []byte(`{"n":2}`), Key: "snapshot"}, events.Event{Name: "snapshot", Data: []byte(`{"n":3}`), Key: "snapshot"})
	<-r.Ready()
	b := r.Take()
	require.True(t, b.Stale, "the first snapshot is gone")
	require.False(t, b.Ended)
	require.Len(t, b.Events, events.QueueSize+1)
	require.Equal(t, event{name: "lost", data: `{"count":3}`}, parse(t, b.Events[0]))
	var rec look.Record
	require.NoError(t, json.Unmarshal([]byte(parse(t, b.Events[1]).data), &rec))
	require.Equal(t, uint64(3), rec.Cycle)
	require.True(t, bytes.HasSuffix(b.Events[events.QueueSize], []byte("data: {\"n\":3}\n\n")), "the newer snapshot alone")
	require.Equal(t, uint64(3), hub.Lost(events.Named))
	require.Empty(t, r.Take().Events)
	r.Close()
	require.Zero(t, hub.Readers(events.Named))
}

// TestKeptAlerts: the last alerts are kept with their last phase; a deleted one is gone with its frame.
func TestKeptAlerts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := events.NewHub(events.Options{History: 1})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hub.Run(ctx) }()
		synctest.Wait()
		for i := range uint64(events.KeptAlerts + 2) {
			a := alert.Alert{ID: fmt.Sprint("r1-", i), Phase: alert.PhaseNew, Reason: "begins", FrameID: i, At: time.Now()}
			hub.Alert(a, &window.Frame{ID: i, VideoFrame: picture(64, 36, 90)})
			synctest.Wait()
		}
		phase := func(id, phase, by, why string) {
			hub.Alert(alert.Alert{ID: id, Phase: phase, AckedBy: by, Reason: why, At: time.Unix(9, 0)}, nil)
		}
		phase("r1-101", alert.PhaseCleared, "", "ends")
		phase("r1-101", alert.PhaseAcked, "ana", "")
		phase("r1-101", alert.PhaseShown, "", "")
		phase("r1-0", alert.PhaseCleared, "", "") // no longer kept
		kept := hub.Alerts()
		require.Len(t, kept, events.KeptAlerts)
		last := kept[len(kept)-1]
		require.Equal(t, []any{"r1-101", alert.PhaseCleared, "ana", "begins", "ends", time.Unix(9, 0)},
			[]any{last.ID, last.Phase, last.AckedBy, last.Reason, last.ClearedReason, last.ClearedAt})
		_, ok := hub.Frame(101)
		require.True(t, ok)
		require.True(t, hub.DeleteAlert("r1-101"))
		require.False(t, hub.DeleteAlert("r1-101"))
		phase("r1-101", alert.PhaseCleared, "", "")
		require.Len(t, hub.Alerts(), events.KeptAlerts-1)
		_, ok = hub.Frame(101)
		require.False(t, ok)

		// Another run goes on with them. Its own frames have the same numbers.
		stored := map[string]events.KeptAlert{}
		keep := func(id string, a *events.KeptAlert) {
			delete(stored, id)
			if a != nil {
				stored[id] = *a
			}
		}
		hub.KeepAlerts(hub.Alerts(), keep, time.Now())
		hub.Alert(alert.Alert{ID: "r2-1", Phase: alert.PhaseNew, FrameID: 7, At: time.Now()}, &window.Frame{ID: 7, VideoFrame: picture(64, 36, 90)})
		fresh, ok := hub.AlertFrame(t.Context(), "r2-1")
		require.True(t, ok, "it waits for the encoder")
		synctest.Wait()
		require.Len(t, stored, 1)
		require.Equal(t, stored["r2-1"].JPEG, fresh)
		_, ok = hub.AlertFrame(t.Context(), "r9-1")
		require.False(t, ok)
		later := events.NewHub(events.Options{History: 1})
		later.KeepAlerts(slices.Collect(maps.Values(stored)), keep, time.Now())
		data, ok := later.AlertFrame(t.Context(), "r2-1")
		require.True(t, ok)
		require.Equal(t, stored["r2-1"].JPEG, data)
		_, ok = later.Frame(7)
		require.False(t, ok)
		require.Nil(t, later.Alerts()[0].JPEG)
		require.True(t, later.DeleteAlert("r2-1"))
		require.Empty(t, stored)
		stop()
		require.NoError(t, <-ended)
	})
}

// TestAlerts: phases go to the readers, and the frame of a new alert is kept for a while, however many comments follow.
func TestAlerts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := events.NewHub(events.Options{History: 1})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hub.Run(ctx) }()
		synctest.Wait()
		r, _ := hub.Subscribe(events.Named, 0, false)
		defer r.Close()
		a := alert.Alert{Type: "alert", ID: "r1-x", Phase: alert.PhaseNew, FrameID: 900, At: time.Now()}
		hub.Alert(a, &window.Frame{ID: 900, VideoFrame: picture(1280, 720, 90)})
		a.Phase = alert.PhaseCleared
		hub.Alert(a, nil)
		batch := r.Take().Events
		require.Len(t, batch, 2)
		got := parse(t, batch[1])
		require.Equal(t, "alert", got.name)
		require.NotEmpty(t, got.id)
		require.Contains(t, got.data, `"phase":"cleared"`)
		for id := range uint64(30) {
			hub.Frames(id, []window.Frame{{ID: id, VideoFrame: picture(64, 36, 1)}})
			synctest.Wait()
		}
		data, ok := hub.Frame(900)
		require.True(t, ok)
		require.NotEmpty(t, data)
		time.Sleep(events.AlertAge)
		_, ok = hub.Frame(900)
		require.True(t, ok)
		time.Sleep(time.Second)
		_, ok = hub.Frame(900)
		require.False(t, ok, "too old")

		noise := media.VideoFrame{Width: 448, Height: 448, Pix: make([]byte, 448*448*3)}
		for i := range noise.Pix {
			noise.Pix[i] = byte(i * i >> 3)
		}
		for id := range uint64(120) {
			a.ID, a.Phase, a.FrameID, a.At = fmt.Sprint("r2-", id), alert.PhaseNew, 1000+id, time.Now()
			hub.Alert(a, &window.Frame{ID: 1000 + id, VideoFrame: noise})
			synctest.Wait()
		}
		kept := 0
		for id := range uint64(120) {
			if data, ok := hub.Frame(1000 + id); ok {
				kept += len(data)
			}
		}
		require.Greater(t, kept, events.AlertBytes/2)
		require.LessOrEqual(t, kept, events.AlertBytes)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestRoomsEventsAreNamed(t *testing.T) {
	t.Parallel()
	all, hub := events.NewHub(events.Options{}), events.NewHub(events.Options{})
	var observed []string
	hub.Bind(`pitch "1"`, all, func(r look.Record) { observed = append(observed, r.Outcome) })
	for _, h := range []*events.Hub{all, hub} {
		r, _ := h.Subscribe(events.Named, 0, false)
		defer r.Close()
		hub.Record(record(1, "silent", ""))
		got := parse(t, r.Take().Events[0])
		require.Equal(t, "record", got.name)
		require.True(t, strings.HasPrefix(got.data, `{"room":"pitch \"1\"",`), got.data)
	}
	require.Equal(t, []string{"silent", "silent"}, observed)
	require.JSONEq(t, `{"error":"json: unsupported value: NaN"}`, string(events.JSON(look.Record{AudioSec: math.NaN()})))
}

// TestHeard: interim texts replace each other, final ones stay whatever else comes, and only readers with the right get any.
func TestHeard(t *testing.T) {
	t.Parallel()
	all, hub := events.NewHub(events.Options{}), events.NewHub(events.Options{})
	hub.Bind("pitch", all)
	wall, _ := all.Subscribe(events.Named, 0, true)
	defer wall.Close()
	r, _ := hub.Subscribe(events.Named, 0, true)
	defer r.Close()
	deaf, _ := hub.Subscribe(events.Named, 0, false)
	defer deaf.Close()
	texts := func(b events.Batch) (list []string) {
		for _, e := range b.Events {
			got := parse(t, e)
			require.Equal(t, "heard", got.name)
			var h struct {
				Room string
				agent.Heard
			}
			require.NoError(t, json.Unmarshal([]byte(got.data), &h))
			require.Equal(t, "pitch", h.Room)
			list = append(list, h.Text)
		}
		return list
	}
	said := func(segment, text string, final bool) agent.Heard {
		return agent.Heard{Segment: segment, Identity: "ann", Text: text, Final: final, Caption: true}
	}
	hub.Heard(said("a", "hello", false))
	hub.Heard(said("b", "who", false))
	hub.Heard(said("a", "hello there", false))
	hub.Heard(said("b", "who is it?", true))
	batch := r.Take()
	require.Equal(t, []string{"hello there", "who is it?"}, texts(batch))
	require.Empty(t, parse(t, batch.Events[0]).id, "an interim text is a snapshot")
	require.NotEmpty(t, parse(t, batch.Events[1]).id)
	require.Equal(t, []string{"hello there", "who is it?"}, texts(wall.Take()))
	require.Empty(t, deaf.Take().Events)

	// A slow reader keeps the final texts.
	hub.Heard(said("a", "hello there, all", true))
	for i := range uint64(events.QueueSize - 1) {
		hub.Record(record(i, "silent", ""))
	}
	hub.Heard(said("c", "one", false))
	hub.Heard(said("c", "one two", false))
	slow := r.Take()
	require.Len(t, slow.Events, events.QueueSize)
	require.Contains(t, string(slow.Events[0]), "hello there, all")

	// Who joins gets the last ones, each once.
	for i := range 2 * events.HeardSize {
		hub.Heard(said(fmt.Sprint("s", i), fmt.Sprint("words ", i), true))
	}
	late, _ := hub.Subscribe(events.Named, 0, true)
	defer late.Close()
	list := texts(late.Take())
	require.Len(t, list, events.HeardSize)
	require.Equal(t, "words 20", list[0])
	hub.Heard(said("s39", "", true))
	other, _ := hub.Subscribe(events.Named, 0, true)
	defer other.Close()
	require.Len(t, texts(other.Take()), events.HeardSize-1, "one was taken back")
	none, _ := hub.Subscribe(events.Named, 0, false)
	defer none.Close()
	require.Empty(t, none.Take().Events)

	// What one person said is taken back: on open pages, for those that open, and for those that reconnect.
	bens := said("ben 1", "my secret", true)
	bens.Identity = "ben"
	hub.Heard(bens)
	late.Take()
	hub.ForgetHeard("ben")
	require.Equal(t, []string{""}, texts(late.Take()))
	fresh, _ := hub.Subscribe(events.Named, 0, true)
	defer fresh.Close()
	require.Len(t, texts(fresh.Take()), events.HeardSize-1, "all but his")
	back, _ := hub.Subscribe(events.Named, uint64(events.HeardSize), true)
	defer back.Close()
	for _, e := range back.Take().Events {
		require.NotContains(t, string(e), "secret")
	}
	hub.ForgetHeard("")
	empty, _ := hub.Subscribe(events.Named, 0, true)
	defer empty.Close()
	require.Empty(t, texts(empty.Take()))
}

// TestForgottenRoom: a deletion in one room deletes nothing in another whose name begins with the same word, and their texts do not
// replace each other, also for readers of all rooms.
func TestForgottenRoom(t *testing.T) {
	t.Parallel()
	all, rooms := events.NewHub(events.Options{}), map[string]*events.Hub{}
	reader, _ := all.Subscribe(events.Named, 0, true)
	defer reader.Close()
	for room, segment := range map[string]string{"pitch": "west 1", "pitch west": "1"} {
		rooms[room] = events.NewHub(events.Options{})
		rooms[room].Bind(room, all)
		rooms[room].Heard(agent.Heard{Segment: "0", Identity: "ben", Text: "first words", Final: true}) // a reader has it
		rooms[room].Heard(agent.Heard{Segment: segment, Identity: "ben", Text: "words in " + room, Final: true})
	}
	require.Len(t, reader.Take().Events, 4)
	last := events.LastID(all)
	rooms["pitch"].ForgetHeard("")
	again, _ := all.Subscribe(events.Named, last-3, true)
	defer again.Close()
	list := string(bytes.Join(again.Take().Events, nil))
	require.Contains(t, list, "words in pitch west")
	require.NotContains(t, list, `words in pitch"`)
}

// TestForgottenInstructions: with what a person said, instructions of that person go from the comments, and from events for readers that
// reconnect.
func TestForgottenInstructions(t *testing.T) {
	t.Parallel()
	all, hub := events.NewHub(events.Options{History: -1}), events.NewHub(events.Options{History: -1})
	hub.Bind("pitch", all)
	hub.Record(record(9, "silent", "")) // a reader has it
	for i, by := range []string{"room: ben", "room: ann", "the page"} {
		r := record(uint64(i+1), "shown", "Goal!")
		r.Instruction, r.InstructionBy = `only "`+by+`"`, by
		hub.Record(r)
	}
	hub.Remember([]look.Record{{Outcome: look.OutcomeShown, Text: "Before.", Instruction: "of whom?"}})
	instructions := func() (list []string) {
		for _, r := range hub.History() {
			list = append(list, r.Instruction)
		}
		return list
	}
	require.Equal(t, []string{"of whom?", `only "room: ben"`, `only "room: ann"`, `only "the page"`}, instructions())
	hub.ForgetHeard("ben")
	require.Equal(t, []string{"", "", `only "room: ann"`, `only "the page"`}, instructions())
	for _, h := range []*events.Hub{hub, all} {
		again, _ := h.Subscribe(events.Named, events.LastID(h)-3, true)
		defer again.Close()
		list := again.Take().Events
		require.Len(t, list, 3)
		require.NotContains(t, string(list[0]), "only")
		require.Contains(t, string(list[0]), `"text":"Goal!"`)
		require.Contains(t, string(list[1]), `only \"room: ann\"`)
	}
	hub.ForgetHeard("")
	require.Equal(t, []string{"", "", "", `only "the page"`}, instructions())
}

// TestAlertsAndTheWallClock: the pictures of alerts of an earlier run are kept for a day, whichever way the wall clock is set.
func TestAlertsAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		for _, made := range []time.Duration{-time.Hour, time.Minute, 31 * 24 * time.Hour} { // the clock may have been fast then
			now := time.Now()
			hub, at, begin := events.NewHub(events.Options{}), now.Add(made).Round(0).UTC(), now.Add(min(0, made))
			hub.KeepAlerts([]events.KeptAlert{{Alert: alert.Alert{ID: "r1-1", At: at}, JPEG: []byte{1}}}, func(string, *events.KeptAlert) {}, now)
			require.NotNil(t, events.FrameAt(hub, "r1-1", clocktest.Step(begin.Add(events.AlertAge-time.Second), step)), "%v %v", step, made)
			require.True(t, at.Equal(hub.Alerts()[0].At))
			require.Nil(t, events.FrameAt(hub, "r1-1", clocktest.Step(begin.Add(events.AlertAge+time.Second), step)), "%v %v", step, made)
		}
	}
}
