package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/events"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
)

// cycleMetrics count the cycles by their records. It is a collector.
type cycleMetrics struct {
	alignment prometheus.Histogram
	stages    *prometheus.HistogramVec
	cycles    *prometheus.CounterVec
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
		spoken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_speech_seconds_total", Help: "Audible speech.",
		}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "touchline_tokens_total", Help: "Text tokens from the model, where it streams tokens.",
		}),
	}
}

// observe counts one cycle. Invalid figures are left out.
func (m *cycleMetrics) observe(r agent.Record) {
	m.cycles.WithLabelValues(outcomeLabel(r.Outcome)).Inc()
	m.tokens.Add(float64(max(r.Tokens, 0)))
	if sane(r.AudioSec) {
		m.spoken.Add(r.AudioSec)
	}
	if r.Aligned && sane(math.Abs(r.AlignmentError)) {
		m.alignment.Observe(math.Abs(r.AlignmentError))
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

// outcomeLabel keeps the label's values few.
func outcomeLabel(o string) string {
	switch o {
	case agent.OutcomeSpoken, agent.OutcomeShown, agent.OutcomeSilent, agent.OutcomeSkipped,
		agent.OutcomeDropped, agent.OutcomeCut, agent.OutcomeFailed:
		return o
	default:
		return "other"
	}
}

func (m *cycleMetrics) parts() metrics.Bundle {
	return metrics.Bundle{m.alignment, m.stages, m.cycles, m.late, m.spoken, m.tokens}
}

// Describe implements prometheus.Collector.
func (m *cycleMetrics) Describe(ch chan<- *prometheus.Desc) { m.parts().Describe(ch) }

// Collect implements prometheus.Collector.
func (m *cycleMetrics) Collect(ch chan<- prometheus.Metric) { m.parts().Collect(ch) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Bounds of the label "room".
const (
	// labelledRooms is how many rooms have series of their own at once; the others are added up.
	labelledRooms = 50
	// maxRoomLabel bounds the label's value, in bytes: names come from outside.
	maxRoomLabel = 80
	// otherRooms is the label of the rooms beyond.
	otherRooms = "other"
)

// roomLabel is a room's name as a label's value: a long one is cut and gets a hash.
func roomLabel(name string) string {
	if len(name) <= maxRoomLabel {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxRoomLabel-17], "") + "-" + hex.EncodeToString(sum[:8])
}

// Describe leaves it to Collect: which series there are depends on the rooms.
func (r *Rooms) Describe(chan<- *prometheus.Desc) {}

// Collect writes the metrics of all rooms. Each of the first 50 has series of its own, by the label
// "room"; the rest together have room="other". Where there is only one, there is no label.
func (r *Rooms) Collect(ch chan<- prometheus.Metric) {
	list := r.list()
	if r.single {
		for _, h := range list {
			r.guarded(h, func() { h.Collect(ch) })
		}
		return
	}
	r.collectCount(ch, len(list))
	r.mu.Lock()
	rest := r.restPast
	r.mu.Unlock()
	for _, h := range list {
		if h.label == otherRooms {
			r.guarded(h, func() { rest.add(h) })
			continue
		}
		r.guarded(h, func() { prometheus.WrapCollectorWith(prometheus.Labels{"room": h.label}, h).Collect(ch) })
	}
	if r.crowded.Load() {
		prometheus.WrapCollectorWith(prometheus.Labels{"room": otherRooms}, together{r.rest, rest}).Collect(ch)
	}
}

// guarded reads one room; a panic of its bot is logged and leaves the others alone.
func (r *Rooms) guarded(h *hosted, read func()) {
	err := rescue.Call(func() error {
		read()
		return nil
	})
	if err != nil {
		r.log.Error().Err(err).Str("room", h.Name).Msg("room metrics failed")
	}
}

// Totals are the metrics of all rooms together, which name no room.
func (r *Rooms) Totals() prometheus.Collector { return totals{r} }

type totals struct{ rooms *Rooms }

// Describe leaves it to Collect, as there.
func (totals) Describe(chan<- *prometheus.Desc) {}

// Collect adds up the rooms that there are and those that there were.
func (t totals) Collect(ch chan<- prometheus.Metric) {
	list := t.rooms.list()
	t.rooms.collectCount(ch, len(list))
	t.rooms.mu.Lock()
	sum := t.rooms.allPast
	t.rooms.mu.Unlock()
	for _, h := range list {
		t.rooms.guarded(h, func() { sum.add(h) })
	}
	together{t.rooms.all, sum}.Collect(ch)
}

// collectCount writes the metrics of the process.
func (r *Rooms) collectCount(ch chan<- prometheus.Metric, n int) {
	ch <- prometheus.MustNewConstMetric(desc("touchline_rooms", "Rooms with a commentator of this process."),
		prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(desc("touchline_sse_readers_of_all_rooms", "Open readers of the events of all rooms."),
		prometheus.GaugeValue, float64(r.events.Readers(events.Named)))
	ch <- prometheus.MustNewConstMetric(desc("touchline_sse_lost_items_of_all_rooms_total", "Items that those readers lost."),
		prometheus.CounterValue, float64(r.events.Lost(events.Named)))
}

// Describe leaves it to Collect: the metrics are checked as they come.
func (h *hosted) Describe(chan<- *prometheus.Desc) {}

// Collect reads the room's hub and bot.
func (h *hosted) Collect(ch chan<- prometheus.Metric) {
	var f figures
	f.add(h)
	together{h.cycles, f}.Collect(ch)
	if h.Bot == nil {
		return
	}
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(desc(name, help), prometheus.GaugeValue, v)
	}
	source := h.Bot.Snapshot().Source
	gauge("touchline_source_fps", "Measured frame rate of the watched track.", source.FPS)
	gauge("touchline_source_width_pixels", "Width of the watched track.", float64(source.Width))
	gauge("touchline_source_height_pixels", "Height of the watched track.", float64(source.Height))
	if h.Metrics != nil {
		h.Metrics.Collect(ch)
	}
}

// counts are what only grows.
type counts struct {
	lost          [events.Formats]float64
	framesDropped float64
	mjpegDropped  float64
}

// add reads one room.
func (c *counts) add(h *hosted) {
	for k := range events.Formats {
		c.lost[k] += float64(h.Hub.Lost(k))
	}
	c.framesDropped += float64(h.Hub.FramesDropped())
	c.mjpegDropped += float64(h.mjpeg.lost())
}

// figures are those of one room or of several: sums, and of delays and
// alignment the largest.
type figures struct {
	counts
	readers                 [events.Formats]float64
	mjpeg                   float64
	listeners, viewers      float64
	counted                 int // rooms that count their viewers
	bots                    int // rooms with a bot
	loaded, capture, speech float64
	buffered                float64
	states                  [5]float64 // by agentStates
	delay, target           float64
	measured                bool // the alignment of some comment
	alignLast, alignP95     float64
}

// agentStates are LiveKit's.
func agentStates() [5]string {
	return [5]string{
		agent.StateInitializing, agent.StateIdle, agent.StateListening, agent.StateThinking, agent.StateSpeaking,
	}
}

// add reads one room.
func (f *figures) add(h *hosted) {
	f.counts.add(h)
	for k := range events.Formats {
		f.readers[k] += float64(h.Hub.Readers(k))
	}
	f.mjpeg += float64(h.mjpeg.count())
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
	f.loaded += yes(snap.ModelLoaded)
	f.capture += yes(snap.CaptureRunning)
	f.speech += yes(snap.TTSEnabled)
	f.buffered += float64(snap.FramesBuffered)
	for i, name := range agentStates() {
		f.states[i] += yes(name == snap.Status.State)
	}
	f.delay, f.target = max(f.delay, snap.Delay), max(f.target, snap.TargetDelay)
	if snap.AlignmentLast != -1 || snap.AlignmentP95 != -1 { // -1: none was measured
		f.measured = true
		f.alignLast, f.alignP95 = max(f.alignLast, snap.AlignmentLast), max(f.alignP95, snap.AlignmentP95)
	}
}

// together are the cycles and figures of one room or of several.
type together struct {
	cycles *cycleMetrics
	figures
}

// Describe leaves it to Collect: the metrics are checked as they come.
func (t together) Describe(chan<- *prometheus.Desc) {}

// Collect writes them.
func (t together) Collect(ch chan<- prometheus.Metric) {
	t.cycles.Collect(ch)
	write := func(kind prometheus.ValueType, name, help string, v float64, label ...string) {
		names := label[:len(label)/2]
		ch <- prometheus.MustNewConstMetric(desc(name, help, names...), kind, v, label[len(names):]...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	for k, name := range map[events.Format]string{events.Named: "events", events.Plain: "stream"} {
		write(gauge, "touchline_sse_readers", "Open readers of server-sent events.", t.readers[k], "endpoint", name)
		write(counter, "touchline_sse_lost_items_total", "Items that slow readers lost.", t.lost[k], "endpoint", name)
	}
	write(counter, "touchline_seen_frames_dropped_total",
		"Pictures of cycles that were not stored because encoding fell behind.", t.framesDropped)
	write(gauge, "touchline_mjpeg_viewers", "Open readers of /api/mjpeg.", t.mjpeg)
	write(counter, "touchline_mjpeg_dropped_frames_total", "Pictures that slow readers of /api/mjpeg did not get.", t.mjpegDropped)
	write(gauge, "touchline_audio_listeners", "Open readers of /api/audio-stream.", t.listeners)
	if t.counted > 0 {
		write(gauge, "touchline_room_viewers", "People in the room.", t.viewers)
	}
	if t.bots == 0 {
		return
	}
	write(gauge, "touchline_model_loaded", "1 when the model is loaded.", t.loaded)
	write(gauge, "touchline_capture_running", "1 when frames came in the last 2 s.", t.capture)
	write(gauge, "touchline_speech_enabled", "1 when speech is on.", t.speech)
	write(gauge, "touchline_frames_buffered", "Pictures in the window.", t.buffered)
	write(gauge, "touchline_delay_seconds", "Delay of the picture.", t.delay)
	write(gauge, "touchline_delay_target_seconds", "Target of the delay.", t.target)
	if t.measured {
		write(gauge, "touchline_alignment_last_seconds", "Alignment error of the last comment.", t.alignLast)
		write(gauge, "touchline_alignment_p95_seconds",
			"95th percentile of the alignment error over the last 100 comments.", t.alignP95)
	}
	for i, name := range agentStates() {
		write(gauge, "touchline_agent_state", "1 for the state the agent is in.", t.states[i], "state", name)
	}
}

// serverMetrics are the console's own.
type serverMetrics struct{ requests *prometheus.CounterVec }

func newServerMetrics(rooms *Rooms, reg *prometheus.Registry) (*serverMetrics, error) {
	m := &serverMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_http_requests_total", Help: "Finished requests by route and status.",
		}, []string{"route", "status"}),
	}
	if err := errors.Join(reg.Register(m.requests), reg.Register(rooms)); err != nil {
		return nil, fmt.Errorf("register the console's metrics: %w", err)
	}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := reg.Register(c)
		// The registry is shared: the process's own may be there already.
		if _, known := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !known {
			return nil, fmt.Errorf("register the process's metrics: %w", err)
		}
	}
	return m, nil
}

// request counts one finished request.
func (m *serverMetrics) request(route string, status int) {
	if status == 0 {
		status = http.StatusOK
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// promLog logs the metrics handler's errors.
type promLog struct{ log zerolog.Logger }

// Println logs one.
func (l promLog) Println(v ...any) { l.log.Warn().Interface("text", v).Msg("metrics failed") }
