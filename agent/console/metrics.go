package console

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"touchline/agent"
)

// cycleMetrics are learned from the records as they pass. It is a collector.
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
			Name: "touchline_cycles_total", Help: "Cycles by what became of them.",
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

// observe counts one cycle. Figures that make no sense are left out.
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

func (m *cycleMetrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.alignment, m.stages, m.cycles, m.late, m.spoken, m.tokens}
}

// Describe lists the metrics.
func (m *cycleMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.parts() {
		c.Describe(ch)
	}
}

// Collect writes them.
func (m *cycleMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.parts() {
		c.Collect(ch)
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// hubCollector counts a Hub's readers at the moment of the scrape.
type hubCollector struct{ hub *Hub }

// Describe leaves it to Collect: the metrics are checked as they come.
func (c hubCollector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the Hub.
func (c hubCollector) Collect(ch chan<- prometheus.Metric) {
	readers := desc("touchline_sse_readers", "Open readers of server-sent events.", "endpoint")
	lost := desc("touchline_sse_lost_items_total", "Items that slow readers lost.", "endpoint")
	for k, name := range map[readerKind]string{eventReader: "events", streamReader: "stream"} {
		ch <- prometheus.MustNewConstMetric(readers, prometheus.GaugeValue, float64(c.hub.readers(k)), name)
		ch <- prometheus.MustNewConstMetric(lost, prometheus.CounterValue, float64(c.hub.lostItems(k)), name)
	}
	ch <- prometheus.MustNewConstMetric(desc("touchline_seen_frames_dropped_total",
		"Pictures of looks that were not kept because encoding fell behind."),
		prometheus.CounterValue, float64(c.hub.frames.dropped.Load()))
}

// serverMetrics are the console's own and, by the snapshot, the bot's.
type serverMetrics struct {
	server   *Server
	requests *prometheus.CounterVec
}

func newServerMetrics(s *Server) (*serverMetrics, error) {
	m := &serverMetrics{
		server: s,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "touchline_http_requests_total", Help: "Finished requests by route and status.",
		}, []string{"route", "status"}),
	}
	for _, c := range append(s.hub.Collectors(), m, m.requests) {
		if err := s.opts.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register the console's metrics: %w", err)
		}
	}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := s.opts.Registry.Register(c)
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

// Describe leaves it to Collect: the metrics are checked as they come.
func (m *serverMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the server and the bot.
func (m *serverMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.server
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(desc(name, help), prometheus.GaugeValue, v)
	}
	counter := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(desc(name, help), prometheus.CounterValue, v)
	}
	gauge("touchline_mjpeg_viewers", "Open readers of /api/mjpeg.", float64(s.mjpeg.count()))
	counter("touchline_mjpeg_dropped_frames_total", "Pictures that slow readers of /api/mjpeg did not get.",
		float64(s.mjpeg.lost()))
	gauge("touchline_audio_listeners", "Open readers of /api/audio-stream.", float64(s.audio.Load()))
	if s.opts.RoomViewers != nil {
		gauge("touchline_room_viewers", "People in the room.", float64(s.opts.RoomViewers()))
	}
	if s.opts.Bot == nil {
		return
	}
	snap := s.opts.Bot.Snapshot()
	gauge("touchline_model_loaded", "1 when the model is loaded.", yes(snap.ModelLoaded))
	gauge("touchline_capture_running", "1 when frames came in the last 2 s.", yes(snap.CaptureRunning))
	gauge("touchline_speech_enabled", "1 when speech is on.", yes(snap.TTSEnabled))
	gauge("touchline_delay_seconds", "How far the delayed picture is behind.", snap.Delay)
	gauge("touchline_delay_target_seconds", "Where the delay is going.", snap.TargetDelay)
	if snap.AlignmentLast != -1 || snap.AlignmentP95 != -1 { // -1: none was measured
		gauge("touchline_alignment_last_seconds", "Alignment error of the last comment.", snap.AlignmentLast)
		gauge("touchline_alignment_p95_seconds", "95th percentile of the alignment error over the last 100 comments.",
			snap.AlignmentP95)
	}
	gauge("touchline_frames_buffered", "Pictures in the window.", float64(snap.FramesBuffered))
	gauge("touchline_source_fps", "Measured frame rate of the watched track.", snap.Source.FPS)
	gauge("touchline_source_width_pixels", "Width of the watched track.", float64(snap.Source.Width))
	gauge("touchline_source_height_pixels", "Height of the watched track.", float64(snap.Source.Height))
	state := desc("touchline_agent_state", "1 for the state the agent is in.", "state")
	for _, name := range []string{
		agent.StateInitializing, agent.StateIdle, agent.StateListening, agent.StateThinking, agent.StateSpeaking,
	} {
		ch <- prometheus.MustNewConstMetric(state, prometheus.GaugeValue, yes(name == snap.Status.State), name)
	}
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// promLog takes the metrics handler's complaints.
type promLog struct{ log zerolog.Logger }

// Println logs one.
func (l promLog) Println(v ...any) { l.log.Warn().Interface("text", v).Msg("metrics") }
