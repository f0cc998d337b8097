//go:build integration

package agent_test

import (
	"context"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/fanout"
	"touchline/media/ingest"
	"touchline/media/packet"
	"touchline/media/sound"
	"touchline/media/window"
)

// boundary is a moment at which a counter wraps or overflows, or the calendar turns. Clocks begin with the bubble, at midnight UTC of
// 1 January 2000.
type boundary struct {
	name string
	at   time.Duration
	// sounds: the camera has sound, which costs more than its pictures here.
	sounds bool
	// speaks: a microphone is open since the clocks began.
	speaks bool
	// hours and zone of an alert rule, which is active from active to inactive, counted from the boundary; "" for always.
	hours, zone      string
	active, inactive time.Duration
}

// Bounds of a run around a boundary.
const (
	before, after = 12 * time.Minute, 10 * time.Minute
	settled       = time.Minute      // the first part, in which D settles
	full          = 11 * time.Minute // then the delay line's history of 16384 pictures is full
	weekFPS       = 25
)

// overflow is when a count of a clock, multiplied by a second, exceeds 63 bits.
func overflow(rate int64) time.Duration {
	return ticks.Duration(math.MaxInt64/int64(time.Second), rate)
}

func boundaries() []boundary {
	utc := func(y int, m time.Month, d, hour int) time.Duration {
		return time.Date(y, m, d, hour, 0, 0, 0, time.UTC).Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	const five, hour = 5 * time.Minute, time.Hour
	return []boundary{
		{name: "RTP's 16 and 32 bits", at: before, sounds: true},
		{name: "33 bits of PTS", at: ticks.Duration(1<<33, media.VideoClockRate)},
		{name: "28 hours of pictures", at: overflow(media.VideoClockRate)},
		{name: "53 hours of sound", at: overflow(sound.Rate), sounds: true},
		{name: "160 hours of speech", at: overflow(inference.RecognizerRate), speaks: true},
		{name: "31 bits of milliseconds", at: 1 << 31 * time.Millisecond},
		{name: "32 bits of milliseconds", at: 1 << 32 * time.Millisecond, sounds: true},
		{name: "midnight", at: utc(2000, 1, 2, 0), hours: "23:55-00:05", zone: "UTC", active: -five, inactive: five},
		{name: "summer time", at: utc(2000, 3, 26, 1), hours: "01:55-03:05", zone: "Europe/Madrid", active: -five, inactive: five},
		{name: "winter time", at: utc(2000, 10, 29, 1), hours: "02:55-03:05", zone: "Europe/Madrid", active: -five, inactive: hour + five},
		{name: "a year", at: utc(2001, 1, 1, 0), hours: "23:55-00:05", zone: "UTC", active: -five, inactive: five},
	}
}

// TestBoundaries runs a room from twelve minutes before each boundary to ten minutes after it, with clocks that began long before.
// Nothing may be noticed: comments are aligned, pictures and sound go on, memory and goroutines stay.
func TestBoundaries(t *testing.T) {
	for _, b := range boundaries() {
		t.Run(b.name, func(t *testing.T) {
			var records []look.Record
			synctest.Test(t, func(t *testing.T) { records = aroundBoundary(t, b) })
			stored(t, records)
		})
	}
}

// aroundBoundary returns the records of the room.
func aroundBoundary(t *testing.T, b boundary) []look.Record {
	t.Helper()
	began := time.Now()
	edge := began.Add(b.at)
	w := newWire(weekFPS, b.at, b.sounds)
	w.run(b.at - before)
	room := newWeekRoom(t, w, alert.Rule{When: "a person enters", By: alert.ByFacts, Hours: b.hours, Zone: b.zone}, nil)
	var m *microphone
	if b.speaks {
		m = newMicrophone(room, began)
	}
	time.Sleep(settled)
	room.book.begin()
	w.begin()
	time.Sleep(full - settled)
	first := measured()
	time.Sleep(time.Until(edge.Add(after)))
	last := measured()
	if b.speaks {
		m.stop()
		require.Equal(t, int((before+after)/speechEvery), m.texts)
		require.Zero(t, m.wrong, "utterances at another time than they were said")
	}
	room.stop()

	t.Logf("heap %.2f, %.2f MB, %d goroutines, %d comments", first.heap, last.heap, last.goroutines, len(room.book.records))
	require.LessOrEqual(t, last.heap, first.heap+1, "MB")
	require.LessOrEqual(t, last.goroutines, first.goroutines)
	records := room.book.aligned(t)
	require.Greater(t, len(records), 150)
	w.check(t)
	var on [2]int
	for _, a := range room.book.raised {
		off := a.Sub(edge)
		if b.hours != "" {
			require.True(t, off >= b.active && off <= b.inactive, "alert at %v, %v from the boundary", a, off)
		}
		if off < 0 {
			on[0]++
		} else {
			on[1]++
		}
	}
	require.GreaterOrEqual(t, on[0], 2, "alerts before the boundary")
	require.GreaterOrEqual(t, on[1], 2, "alerts after the boundary")
	require.Equal(t, on[0]+on[1], room.book.committed)
	return records
}

// memory is the live memory in MB, and the goroutines.
type memory struct {
	heap       float64
	goroutines int
}

// measured takes twenty seconds: the goroutines are the fewest in that time, as answers and announcements have some of their own.
func measured() memory {
	least := runtime.NumGoroutine()
	for range 80 {
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		least = min(least, runtime.NumGoroutine())
	}
	runtime.GC()
	runtime.GC() // the first one moves pools to their victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{float64(m.HeapAlloc) / 1e6, least}
}

// stored writes records with their times to a SQLite store, and reads them back in their order.
func stored(t *testing.T, records []look.Record) {
	t.Helper()
	cfg := history.DefaultConfig()
	cfg.Store, cfg.Path, cfg.MaxAge = history.StoreSQLite, filepath.Join(t.TempDir(), "records.db"), 0
	log, err := history.Open(cfg, zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	room := log.Room("match", "bot")
	for _, r := range records {
		room.Record(r)
	}
	cancel()
	require.NoError(t, <-done)
	reader, err := history.OpenReader(t.Context(), cfg.Path)
	require.NoError(t, err)
	defer reader.Close()
	i := 0
	for e, err := range reader.Entries(t.Context(), history.Query{Room: "match"}) {
		require.NoError(t, err)
		require.Less(t, i, len(records))
		require.Equal(t, records[i].Cycle, e.Record.Cycle)
		require.WithinDuration(t, records[i].StartedAt, e.Record.StartedAt, 0)
		i++
	}
	require.Len(t, records, i)
}

// weekRoom is a room for long runs, whose parts keep only what is compared.
type weekRoom struct {
	*rig

	book *book
	stop func()
}

// newWeekRoom starts a Session that watches w, with a rule that a detector decides.
func newWeekRoom(t *testing.T, w *wire, rule alert.Rule, change func(*agent.Options)) *weekRoom {
	t.Helper()
	room := &weekRoom{book: &book{}}
	set := rules(t, rule)
	set.Accept(func(r alert.RuleText) (bool, error) { return r.By == alert.ByFacts, nil })
	sounds, stopSound := context.WithCancel(t.Context())
	room.rig = newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
		return agenttest.Answer{Latency: 700 * time.Millisecond, Text: "Comment " + strconv.Itoa(n) + " of a long run.", Speech: 2 * time.Second}
	}, func(o *agent.Options) {
		o.Input, o.Video, o.Texts, o.Alerts = w, w.pictures, []agent.TextOutput{room.book}, set
		o.Commit = func(a alert.Alert, _ *window.Frame) { room.book.commit(a) }
		o.OpenSensor = func(looked func(bool)) (inference.Sensor, error) { return &detector{looked: looked}, nil }
		scripted(o).Forgets, o.Audio.(*agenttest.Voice).Forgets = true, true
		if change != nil {
			change(o)
		}
	})
	var done sync.WaitGroup
	if w.sounds {
		done.Go(func() { w.play(sounds) })
	}
	room.stop = func() {
		stopSound()
		done.Wait()
		room.rig.stop()
	}
	return room
}

// book keeps the records and the times of alerts since begin.
type book struct {
	mu        sync.Mutex
	on        bool
	every     int // of so many records one is kept; 0 for all
	comments  int
	worst     time.Duration // alignment
	unaligned int
	records   []look.Record
	raised    []time.Time
	committed int
}

func (b *book) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = true
}

func (*book) Caption(agent.Caption) {}
func (*book) State(agent.Status)    {}

func (b *book) Record(r look.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on || r.Outcome != look.OutcomeSpoken {
		return
	}
	b.comments++
	switch off := time.Duration(r.AlignmentError * float64(time.Second)).Abs(); {
	case r.Announced != "" || r.Alert != "": // it has no picture
	case !r.Aligned:
		b.unaligned++
	default:
		b.worst = max(b.worst, off)
	}
	if b.comments%max(b.every, 1) == 0 {
		b.records = append(b.records, r)
	}
}

func (b *book) Alert(a alert.Alert, _ *window.Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on && a.Phase == alert.PhaseNew {
		b.raised = append(b.raised, a.At)
	}
}

func (b *book) commit(a alert.Alert) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on && a.Phase == alert.PhaseNew {
		b.committed++
	}
}

// aligned returns the records; each comment began with its picture.
func (b *book) aligned(t *testing.T) []look.Record {
	t.Helper()
	require.Zero(t, b.unaligned)
	require.Zero(t, b.worst)
	return b.records
}

// detector sees a person in each odd minute.
type detector struct {
	looked func(news bool)
	last   atomic.Pointer[inference.Frame]
}

func (d *detector) Observe(f inference.Frame) {
	f.Pix = nil
	d.last.Store(&f)
	d.looked(false)
}

func (d *detector) Judge(rules []string, _ []inference.Region) (inference.Judgement, bool) {
	f := d.last.Load()
	if f == nil {
		return inference.Judgement{}, false
	}
	holds := time.Now().Minute()%2 == 1
	out := inference.Judgement{PTS: f.PTS, Epoch: f.Epoch}
	for range rules {
		out.Findings = append(out.Findings, inference.Finding{Holds: holds, Reason: "A person comes in.", PTS: f.PTS})
	}
	return out, true
}

func (d *detector) Facts() (inference.Facts, bool) {
	f := d.last.Load()
	if f == nil {
		return inference.Facts{}, false
	}
	return inference.Facts{PTS: f.PTS, Epoch: f.Epoch, Things: "1 person"}, true
}

func (*detector) Close() error { return nil }

// wire is a camera with sound whose RTP packets come through the receiving parts of a room, and a viewer of the delayed picture behind
// the sending ones. All of their clocks begin when it is made. It implements agent.VideoInput.
type wire struct {
	fps      int
	began    time.Time
	n        int64 // of the next picture
	packer   *packet.Packer
	packets  *ingest.Assembler
	base     uint32 // RTP time of the beginning, of pictures
	pictures *fanout.Pictures
	viewer   *viewer

	sounds    bool // the camera has sound
	line      *sound.Line
	receiver  *sound.Receiver
	soundBase uint32
	soundSeq  uint16 // of the next packet
}

// soundEvery is the length of a packet of sound.
const soundEvery = 20 * time.Millisecond

// newWire makes a wire whose RTP numbers wrap at a time.
func newWire(fps int, wraps time.Duration, sounds bool) *wire {
	base := -uint32(ticks.Count(wraps, media.VideoClockRate)) // it wraps
	run := uint16((wraps-before)/time.Hour) + 1               // a picture and a packet of sound each hour
	seq := -run - uint16(before.Seconds())*uint16(fps)
	w := &wire{fps: fps, began: time.Now(), base: base, packer: packet.NewPacker(seq, base), line: sound.NewLine(20*time.Second, 6)}
	w.sounds, w.soundBase = sounds, -uint32(ticks.Count(wraps, sound.Rate)) // it wraps
	w.soundSeq = -run - uint16(before/soundEvery)
	w.packets = ingest.New(ingest.Options{Codec: media.VP8})
	w.viewer = &viewer{rewriter: packet.NewRewriter(seq, base), packets: ingest.New(ingest.Options{Codec: media.VP8})}
	w.pictures = fanout.NewPictures(fanout.Options{
		Room: w.viewer, Before: func(f delay.OutFrame) { w.line.Picture(f.Arrival, f.NTP, f.Due) },
	})
	w.receiver, _ = sound.NewReceiver(w.line, sound.Rate) // a rate that Opus has
	return w
}

// run lets a time pass in which a picture and a packet of sound come each hour.
func (w *wire) run(length time.Duration) {
	for end := w.began.Add(length); ; {
		w.n = ticks.Count(time.Since(w.began), int64(w.fps))
		for _, f := range w.take() {
			_, _ = w.viewer.WriteFrame(delay.OutFrame{EncodedFrame: f, Due: time.Now()}) // check finds what is missing
		}
		if w.sounds {
			w.hear()
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, time.Hour))
	}
}

// begin forgets what was measured so far.
func (w *wire) begin() {
	w.viewer.mu.Lock()
	defer w.viewer.mu.Unlock()
	w.viewer.seen, w.viewer.late, w.viewer.off, w.viewer.missed = 0, 0, 0, 0
}

// take sends the next picture, a key frame each second, and returns what has arrived.
func (w *wire) take() (out []media.EncodedFrame) {
	now := time.Now()
	data := []byte{1, 0, 0, 0}
	key := w.n%int64(w.fps) == 0 || now.Sub(w.began) < time.Second
	if key {
		data = []byte{0, 0, 0, 0x9d, 1, 0x2a, 128, 2, 104, 1} // 640x360
	}
	f := media.EncodedFrame{Codec: media.VP8, KeyFrame: key, PTS: ticks.Duration(w.n, int64(w.fps)), Data: data}
	packets, err := w.packer.Packets(f, now)
	if err != nil {
		panic(err)
	}
	for _, p := range packets {
		w.packets.SenderReport(now, p.Timestamp)
		out = append(out, w.packets.Push(p, now)...)
	}
	w.n++
	return out
}

func (w *wire) ReadFrame(ctx context.Context) (media.EncodedFrame, error) {
	for {
		select {
		case <-ctx.Done():
			return media.EncodedFrame{}, ctx.Err()
		case <-time.After(time.Until(w.began.Add(ticks.Duration(w.n, int64(w.fps))))):
		}
		if got := w.take(); len(got) == 1 {
			return got[0], nil
		}
	}
}

func (*wire) RequestKeyFrame() {}

// hear receives a packet of silence, which belongs to now.
func (w *wire) hear() {
	now := time.Now()
	at := w.soundBase + uint32(ticks.Count(now.Sub(w.began), sound.Rate)) // it wraps
	p := &rtp.Packet{Header: rtp.Header{SequenceNumber: w.soundSeq, Timestamp: at}, Payload: []byte{0xf8, 0xff, 0xfe}}
	w.soundSeq++
	w.receiver.WriteRTP(p, now)
	w.receiver.SenderReport(now, at)
}

// play receives and plays the sound of the camera until ctx ends.
func (w *wire) play(ctx context.Context) {
	tick := time.NewTicker(soundEvery)
	defer tick.Stop()
	pcm := make([]int16, ticks.Count(soundEvery, sound.Rate))
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.hear()
			w.line.Read(now, pcm, false)
		}
	}
}

// check compares what the viewer saw and heard since begin with what was sent.
func (w *wire) check(t *testing.T) {
	t.Helper()
	stats, v := w.packets.Stats(), w.viewer
	require.Zero(t, stats.Restarts)
	require.Zero(t, stats.Lost+stats.Broken+stats.Waiting)
	require.Zero(t, v.packets.Stats().Restarts)
	require.Zero(t, v.missed, "pictures")
	require.Zero(t, v.late)
	require.LessOrEqual(t, v.off, time.Second/media.VideoClockRate, "the viewer's clock")
	require.Greater(t, v.seen, 25000*w.fps/weekFPS)
	if !w.sounds {
		return
	}
	heard := w.line.Stats()
	require.LessOrEqual(t, heard.Offset.Abs(), 5*time.Millisecond, "sound after picture")
	require.True(t, heard.Reports)
	require.Zero(t, heard.Late)
	got := w.receiver.Stats()
	require.Zero(t, got.Lost+got.Concealed+got.Bad)
}

// viewer receives the delayed picture.
type viewer struct {
	rewriter *packet.Rewriter
	packets  *ingest.Assembler

	mu           sync.Mutex
	first        time.Time // due of the first picture
	seen, missed int
	late, off    time.Duration // largest delay after due, and largest difference of the clocks
}

// WriteFrame implements agent.VideoOutput.
func (v *viewer) WriteFrame(f delay.OutFrame) (time.Time, error) {
	now := time.Now()
	packets, err := v.rewriter.Packets(f.EncodedFrame, f.Due)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.first.IsZero() {
		v.first = f.Due
	}
	var got []media.EncodedFrame
	for _, p := range packets {
		got = append(got, v.packets.Push(p, now)...)
	}
	if len(got) != 1 {
		v.missed++
		return now, err
	}
	v.seen++
	v.late = max(v.late, now.Sub(f.Due))
	v.off = max(v.off, (got[0].PTS - f.Due.Sub(v.first)).Abs())
	return now, err
}
