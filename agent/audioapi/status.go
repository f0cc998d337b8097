package audioapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/metrics"
)

// ModelList is the answer of GET /v1/models.
type ModelList struct {
	Object string      `json:"object"`
	Data   []ModelItem `json:"data"`
}

// ModelItem is one model.
type ModelItem struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
}

// ServeModels answers GET /v1/models.
func (t *Transcriber) ServeModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, ModelList{Object: "list", Data: []ModelItem{modelItem(t.opts.Recognizer.Recognizes().Model)}})
}

// ServeModel answers GET /v1/models/ID with the model that has or stands for that name.
func (t *Transcriber) ServeModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if e, ok := errors.AsType[*Error](t.model(id)); ok {
		e.Write(w)
		return
	}
	writeJSON(w, modelItem(id))
}

func modelItem(id string) ModelItem { return ModelItem{ID: id, Object: "model", Owner: "touchline"} }

// TranscriptionHealth is the answer of GET /health.
type TranscriptionHealth struct {
	Status   string `json:"status" doc:"ok, loading or failed."`
	Loaded   bool   `json:"model_loaded"`
	Model    string `json:"model_id"`
	Detail   string `json:"detail,omitempty"`
	Speech   string `json:"vad" doc:"silero, or loudness where its file is missing."`
	Why      string `json:"vad_detail,omitempty"`
	Sessions int64  `json:"sessions"`
	Requests int64  `json:"requests" doc:"Recordings that are heard or wait."`
	Device
}

// Health returns the state.
func (t *Transcriber) Health() TranscriptionHealth {
	s := t.opts.Recognizer.Status()
	h := TranscriptionHealth{
		Status: "ok", Loaded: s.Phase == inference.PhaseReady, Model: t.opts.Recognizer.Recognizes().Model, Detail: s.Detail,
		Speech: t.opts.VAD.String(), Sessions: t.sessions.Taken(), Requests: t.waiting.Taken(),
	}
	switch s.Phase {
	case inference.PhaseFailed:
		h.Status = "failed"
	case inference.PhaseLoading:
		h.Status = "loading"
	default:
	}
	if t.opts.Device != nil {
		h.Device = t.opts.Device()
	}
	if err := t.opts.VAD.Err(); err != nil {
		h.Why = err.Error()
	}
	return h
}

// ServeHealth answers GET /health.
func (t *Transcriber) ServeHealth(w http.ResponseWriter, _ *http.Request) { writeJSON(w, t.Health()) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v) // a failed write means that the client has disconnected
}

// transcriptionMetrics are the metrics of a Transcriber.
type transcriptionMetrics struct {
	metrics.Bundle
	refused                *prometheus.CounterVec
	words                  prometheus.Counter
	sound, took            prometheus.Counter
	judged, speech, slowed prometheus.Counter
	failures               prometheus.Counter
	lag                    prometheus.Histogram
}

func newTranscriptionMetrics(t *Transcriber) *transcriptionMetrics {
	const prefix = "touchline_transcription_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	m := &transcriptionMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "errors_total", Help: "Recordings and live sessions that were refused or failed, by the code of the error.",
		}, []string{"code"}),
		words:    counter("words_total", "Words of final texts."),
		sound:    counter("sound_seconds_total", "Sound of transcribed recordings."),
		took:     counter("busy_seconds_total", "Time that the recordings took; its rate by that of the sound is the real-time factor."),
		judged:   counter("judged_seconds_total", "Sound that was searched for speech."),
		slowed:   counter("slowed_seconds_total", "Time for which messages of live sockets beyond their rate waited."),
		speech:   counter("speech_seconds_total", "Speech that was found in it."),
		failures: counter("failed_utterances_total", "Live utterances without a text."),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "lag_seconds", Help: "Time from the end of a live utterance to its final text.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30},
		}),
	}
	m.Bundle = metrics.Bundle{
		m.refused, m.words, m.sound, m.took, m.judged, m.speech, m.slowed, m.failures, m.lag, t.waiting, t.uploads, t.bytes, t.sessions,
		t.decodes,
		metrics.Gauge(prefix+"requests", "Recordings that are heard or wait.", func() float64 { return float64(t.waiting.Taken()) }),
		metrics.Gauge(prefix+"queue", "Recordings that wait.", func() float64 {
			return max(0, float64(t.waiting.Taken())-float64(len(t.slots)))
		}),
		metrics.Gauge(prefix+"pending_finals", "Final texts that wait for the return of a client.", t.finals.count),
		metrics.Gauge(prefix+"sessions", "Live sessions.", func() float64 { return float64(t.sessions.Taken()) }),
	}
	return m
}

func (m *transcriptionMetrics) done(sound, took time.Duration) {
	m.sound.Add(sound.Seconds())
	m.took.Add(took.Seconds())
}

func (m *transcriptionMetrics) share(frames, speech int64) {
	m.judged.Add(length(int(frames) * vad.FrameSamples).Seconds())
	m.speech.Add(length(int(speech) * vad.FrameSamples).Seconds())
}

// Metrics returns the metrics, including the recognizer's.
func (t *Transcriber) Metrics() prometheus.Collector {
	if t.opts.Metrics == nil {
		return t.counts
	}
	return metrics.Func(metrics.Bundle{t.counts, t.opts.Metrics}.Collect)
}

// live counts an event of a live session.
func (m *transcriptionMetrics) live(e live.Event) {
	switch e.Kind {
	case live.Final:
		m.lag.Observe(e.Lag.Seconds())
		m.words.Add(float64(len(strings.Fields(e.Text))))
	case live.Failed:
		m.failures.Inc()
	case live.StartOfSpeech, live.Interim, live.EndOfSpeech:
	}
}

// Status reports the loading of the recognizer.
func (t *Transcriber) Status() inference.Status { return t.opts.Recognizer.Status() }
