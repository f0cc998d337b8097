package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
)

// cycleMetrics count cycles by their records.
type cycleMetrics struct {
	alignment prometheus.Histogram
	stages    *prometheus.HistogramVec
	cycles    *prometheus.CounterVec
	repeats   prometheus.Counter
	late      prometheus.Counter
	spoken    prometheus.Counter
	tokens    prometheus.Counter
}

func newCycleMetrics() *cycleMetrics {
	return &cycleMetrics{
		alignment: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "touchline_alignment_error_seconds",
			Help: "Distance between the start of a comment and the delayed picture of the frame it is about.",
			Buckets: []float64{
				.005, .01, .02, .03, .04, .06, .08, .1, .15, .25, .5, 1, 2, 5, 10,
			},
		}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "touchline_cycle_stage_seconds",
			Help: "Time of a stage of a cycle. inference: the model's work. first_word, first_audio, ready: " +
				"from the newest frame's arrival. audio: the speech's length.",
			Buckets: []float64{.05, .1, .2, .3, .4, .6, .8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 20},
		}, []string{"stage"}),
		cycles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_cycles_total", Help: "Cycles by outcome.",
		}, []string{"outcome"}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_comments_late_total", Help: "Comments that started more than 0.1 s after their picture.",
		}),
		repeats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_repeats_total", Help: "Answers that repeated one of the last comments.",
		}),
		spoken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_speech_seconds_total", Help: "Audible speech.",
		}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_tokens_total", Help: "Text tokens from the model, where it streams tokens.",
		}),
	}
}

// observe counts one cycle and skips invalid figures.
func (m *cycleMetrics) observe(r look.Record) {
	m.cycles.WithLabelValues(outcomeLabel(r.Outcome)).Inc()
	m.tokens.Add(float64(max(r.Tokens, 0)))
	if sane(r.AudioSec) {
		m.spoken.Add(r.AudioSec)
	}
	if r.Aligned && sane(math.Abs(r.AlignmentError)) {
		m.alignment.Observe(math.Abs(r.AlignmentError))
	}
	if r.Repeats != "" {
		m.repeats.Inc()
	}
	if r.Late {
		m.late.Inc()
	}
	for _, s := range []struct {
		name string
		v    float64
	}{
		{"inference", r.InferenceSec},
		{"first_word", r.FirstWordSec},
		{"first_audio", r.FirstAudioSec},
		{"ready", r.ReadySec},
		{"audio", r.AudioSec},
	} {
		if s.v > 0 && sane(s.v) {
			m.stages.WithLabelValues(s.name).Observe(s.v)
		}
	}
}

func sane(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

// outcomeLabel bounds the values of the label.
func outcomeLabel(o string) string {
	switch o {
	case look.OutcomeSpoken, look.OutcomeShown, look.OutcomeSilent, look.OutcomeSkipped,
		look.OutcomeRepeated,
		look.OutcomeDropped, look.OutcomeCut, look.OutcomeFailed:
		return o
	default:
		return "other"
	}
}

func (m *cycleMetrics) collect(ch chan<- prometheus.Metric) {
	metrics.Bundle{m.alignment, m.stages, m.cycles, m.repeats, m.late, m.spoken, m.tokens}.Collect(ch)
}

// Bounds of the label "room".
const (
	// labelledRooms bounds the rooms with their own series; the other rooms are added up.
	labelledRooms = 50
	// maxRoomLabel bounds the label's value, in bytes, because names come from outside.
	maxRoomLabel = 80
	// otherRooms is the label of the other rooms together.
	otherRooms = "other"
)

// roomLabel returns the label of a room: its name. A long name is cut and gets a hash.
func roomLabel(name string) string {
	if len(name) <= maxRoomLabel {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxRoomLabel-17], "") + "-" + hex.EncodeToString(sum[:8])
}

// collect sends the metrics of all rooms. The first 50 rooms have their own series with the label "room"; the others together have
// room="other". A single room has no label.
func (r *Rooms) collect(ch chan<- prometheus.Metric) {
	list := r.list()
	if r.single {
		for _, h := range list {
			r.isolate(h, func() { h.collect(ch) })
		}
		return
	}
	r.collectCount(ch, len(list))
	r.mu.Lock()
	rest := r.restPast
	r.mu.Unlock()
	labelled := func(room string, collect metrics.Func) {
		prometheus.WrapCollectorWith(prometheus.Labels{"room": room}, collect).Collect(ch)
	}
	for _, h := range list {
		if h.label == otherRooms {
			r.isolate(h, func() { rest.add(h) })
		} else {
			r.isolate(h, func() { labelled(h.label, h.collect) })
		}
	}
	if r.crowded.Load() {
		labelled(otherRooms, func(ch chan<- prometheus.Metric) { collectFigures(ch, r.rest, rest) })
	}
}

// isolate reads one room. It logs a panic of its bot, which does not affect other rooms.
func (r *Rooms) isolate(h *roomEntry, read func()) {
	err := rescue.Call(func() error {
		read()
		return nil
	})
	if err != nil {
		r.log.Error().Err(err).Str("room", h.Name).Msg("room metrics failed")
	}
}

// Totals returns the metrics of all present and past rooms together, without room names.
func (r *Rooms) Totals() prometheus.Collector {
	return metrics.Func(func(ch chan<- prometheus.Metric) {
		list := r.list()
		r.collectCount(ch, len(list))
		r.mu.Lock()
		sum := r.allPast
		r.mu.Unlock()
		for _, h := range list {
			r.isolate(h, func() { sum.add(h) })
		}
		collectFigures(ch, r.all, sum)
	})
}

// collectCount sends the metrics of the process.
func (r *Rooms) collectCount(ch chan<- prometheus.Metric, n int) {
	out := metrics.Writer{Out: ch}
	out.Gauge("touchline_rooms", "Rooms with a commentator of this process.", float64(n))
	out.Gauge("touchline_sse_readers_of_all_rooms", "Open readers of the events of all rooms.",
		float64(r.events.Readers(events.Named)))
	out.Counter("touchline_sse_lost_items_of_all_rooms_total", "Items that those readers lost.",
		float64(r.events.Lost(events.Named)))
}

// collect sends the metrics of the room's hub and bot.
func (h *roomEntry) collect(ch chan<- prometheus.Metric) {
	var f figures
	f.add(h)
	collectFigures(ch, h.cycles, f)
	if h.Bot == nil {
		return
	}
	out := metrics.Writer{Out: ch}
	source := h.Bot.Snapshot().Source
	out.Gauge("touchline_source_fps", "Measured frame rate of the watched track.", source.FPS)
	out.Gauge("touchline_source_width_pixels", "Width of the watched track.", float64(source.Width))
	out.Gauge("touchline_source_height_pixels", "Height of the watched track.", float64(source.Height))
	if h.Metrics != nil {
		h.Metrics.Collect(ch)
	}
}

// counts are the counters of a room.
type counts struct {
	lost          [events.Formats]float64
	framesDropped float64
	mjpegDropped  float64
	audioLost     float64
}

func (c *counts) add(h *roomEntry) {
	for k := range events.Formats {
		c.lost[k] += float64(h.Hub.Lost(k))
	}
	c.framesDropped += float64(h.Hub.FramesDropped())
	c.mjpegDropped += float64(h.mjpeg.dropped.Load())
	c.audioLost += float64(h.audioLost.Load())
}

// figures are the metrics of one room or of several: sums, and the largest delay and alignment.
type figures struct {
	counts
	readers                 [events.Formats]float64
	mjpeg                   float64
	listeners, viewers      float64
	counted                 int // rooms with a count of viewers
	bots                    int // rooms with a bot
	loaded, capture, speech float64
	buffered                float64
	states                  [5]float64 // by agentStates
	delay, target           float64
	measured                bool // some room has an alignment
	alignLast, alignP95     float64
}

// agentStates are LiveKit's.
func agentStates() [5]string {
	return [5]string{
		agent.StateInitializing, agent.StateIdle, agent.StateListening, agent.StateThinking, agent.StateSpeaking,
	}
}

func (f *figures) add(h *roomEntry) {
	f.counts.add(h)
	for k := range events.Formats {
		f.readers[k] += float64(h.Hub.Readers(k))
	}
	f.mjpeg += float64(h.mjpeg.parts.Len())
	f.listeners += float64(h.audio.Load())
	if h.Viewers != nil {
		f.viewers += float64(h.Viewers())
		f.counted++
	}
	if h.Bot == nil {
		return
	}
	f.bots++
	snap := h.Bot.Snapshot()
	f.loaded += metrics.Flag(snap.ModelLoaded)
	f.capture += metrics.Flag(snap.CaptureRunning)
	f.speech += metrics.Flag(snap.TTSEnabled)
	f.buffered += float64(snap.FramesBuffered)
	for i, name := range agentStates() {
		f.states[i] += metrics.Flag(name == snap.Status.State)
	}
	f.delay, f.target = max(f.delay, snap.Delay), max(f.target, snap.TargetDelay)
	if snap.AlignmentLast != -1 || snap.AlignmentP95 != -1 { // -1: none was measured
		f.measured = true
		f.alignLast, f.alignP95 = max(f.alignLast, snap.AlignmentLast), max(f.alignP95, snap.AlignmentP95)
	}
}

// collectFigures sends the cycles and figures of one room or of several.
func collectFigures(ch chan<- prometheus.Metric, cycles *cycleMetrics, t figures) {
	cycles.collect(ch)
	out := metrics.Writer{Out: ch}
	for k, name := range map[events.Format]string{events.Named: "events", events.Plain: "stream"} {
		out.Gauge("touchline_sse_readers", "Open readers of server-sent events.", t.readers[k], "endpoint", name)
		out.Counter("touchline_sse_lost_items_total", "Items that slow readers lost.", t.lost[k], "endpoint", name)
	}
	out.Counter("touchline_seen_frames_dropped_total",
		"Pictures of cycles that were not stored because encoding fell behind.", t.framesDropped)
	out.Gauge("touchline_mjpeg_viewers", "Open readers of /api/mjpeg.", t.mjpeg)
	out.Counter("touchline_mjpeg_dropped_frames_total", "Pictures that slow readers of /api/mjpeg did not get.", t.mjpegDropped)
	out.Gauge("touchline_audio_listeners", "Open readers of /api/audio-stream.", t.listeners)
	out.Counter("touchline_audio_lost_frames_total",
		"Frames of 20 ms that readers of /api/audio-stream did not get, as they or the machine were too slow.", t.audioLost)
	if t.counted > 0 {
		out.Gauge("touchline_room_viewers", "People in the room.", t.viewers)
	}
	if t.bots == 0 {
		return
	}
	out.Gauge("touchline_model_loaded", "1 when the model is loaded.", t.loaded)
	out.Gauge("touchline_capture_running", "1 when frames came in the last 2 s.", t.capture)
	out.Gauge("touchline_speech_enabled", "1 when speech is on.", t.speech)
	out.Gauge("touchline_frames_buffered", "Pictures in the window.", t.buffered)
	out.Gauge("touchline_delay_seconds", "Delay of the picture.", t.delay)
	out.Gauge("touchline_delay_target_seconds", "Target of the delay.", t.target)
	if t.measured {
		out.Gauge("touchline_alignment_last_seconds", "Alignment error of the last comment.", t.alignLast)
		out.Gauge("touchline_alignment_p95_seconds",
			"95th percentile of the alignment error over the last 100 comments.", t.alignP95)
	}
	for i, name := range agentStates() {
		out.Gauge("touchline_agent_state", "1 for the state the agent is in.", t.states[i], "state", name)
	}
}

// registerMetrics registers the metrics of the rooms and the process. It returns the counters of finished requests, and of those that
// ended with their links.
func registerMetrics(rooms *Rooms, reg *prometheus.Registry) (requests *prometheus.CounterVec, expired prometheus.Counter, err error) {
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "touchline_http_requests_total", Help: "Finished requests by route and status.",
	}, []string{"route", "status"})
	expired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "touchline_http_expired_total", Help: "Streams and sockets that ended because their link expired or was revoked.",
	})
	if err := errors.Join(reg.Register(requests), reg.Register(expired), reg.Register(metrics.Func(rooms.collect))); err != nil {
		return nil, nil, fmt.Errorf("register the console's metrics: %w", err)
	}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := reg.Register(c)
		// The caller may have registered them.
		if _, known := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !known {
			return nil, nil, fmt.Errorf("register the process's metrics: %w", err)
		}
	}
	return requests, expired, nil
}

// promLog logs errors of the metrics handler.
type promLog struct{ log zerolog.Logger }

// Println logs an error.
func (l promLog) Println(v ...any) { l.log.Warn().Interface("text", v).Msg("metrics failed") }
