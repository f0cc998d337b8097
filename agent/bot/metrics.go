package bot

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/qwen3asr"
	"touchline/inference/remote"
	"touchline/internal/metrics"
)

// metricPrefix of the built-in model's metrics.
const metricPrefix = "touchline_engine_"

// collectEngine collects the metrics of the built-in model while it is loaded. The counters
// start again when the model is loaded again.
func collectEngine(loaded inference.Model, ch chan<- prometheus.Metric) {
	out, unused := metrics.Writer{Out: ch, Prefix: metricPrefix}, 0
	switch model := loaded.(type) {
	case interface {
		Each(func(gpu int, e *minicpmo.Engine))
	}:
		model.Each(func(gpu int, e *minicpmo.Engine) {
			if e == nil {
				unused++
				return
			}
			out := out
			out.Labels = prometheus.Labels{"gpu": strconv.Itoa(gpu)}
			collectStats(out, e.Stats())
		})
	case interface{ Stats() minicpmo.Stats }:
		collectStats(out, model.Stats())
	default:
		return
	}
	out.Gauge("gpus_unused", "Of several GPUs those that do not answer: they load, did not open, or were lost.", float64(unused))
}

// collectStats collects the metrics of one device.
func collectStats(out metrics.Writer, s minicpmo.Stats) {
	for _, d := range []struct {
		name, help string
		d          minicpmo.Distribution
	}{
		{"queue_wait_seconds", "From the arrival of a cycle at the engine to its slot.", s.Wait},
		{"first_token_seconds", "From the arrival of a cycle at the engine to its first token.", s.FirstToken},
		{"answer_seconds", "From the arrival of a cycle at the engine to its last token.", s.Answer},
		{"preprocess_seconds", "Preparing one picture, on one core.", s.Preprocess},
		{"vision_seconds", "One run of the vision tower.", s.Vision},
		{"prefill_seconds", "One run that feeds a prompt or a part of it.", s.Prefill},
		{"step_seconds", "One run that decodes a token of each answer under way.", s.Step},
		{"token_gap_seconds", "Between two tokens of an answer.", s.Gap},
		{"host_seconds", "From the end of one decoding run to the call of the next.", s.Host},
		{"batch_size", "Answers decoded by one run.", s.Batch},
		{"vision_images", "Pictures embedded by one run.", s.Images},
	} {
		out.Out <- histogram(out, d.name, d.help, d.d)
	}
	out.Counter("prompt_tokens_total", "Tokens fed, those of pictures included.", float64(s.Prompt))
	out.Counter("tokens_total", "Tokens generated; its rate is tokens a second, of all rooms.", float64(s.Tokens))
	for set, n := range s.Steps {
		out.Counter("steps_total", "Decoding runs by the weights that they used.", float64(n), "weights", set)
	}
	const pictures = "Pictures of the prompts: hit (embedded before) or miss."
	out.Counter("pictures_total", pictures, float64(s.Hits), "cache", "hit")
	out.Counter("pictures_total", pictures, float64(s.Misses), "cache", "miss")
	out.Counter("pictures_early_total", "Pictures asked for that had been embedded when they were sampled.", float64(s.Early))
	out.Gauge("pictures_cached", "Embedded pictures that are kept.", float64(s.Cached))
	const prompts = "Prompts whose beginning was copied (hit) or not (miss)."
	out.Counter("prompts_total", prompts, float64(s.PrefixHits), "prefix", "hit")
	out.Counter("prompts_total", prompts, float64(s.PrefixMisses), "prefix", "miss")
	out.Counter("prompt_tokens_saved_total", "Tokens of prompts that were copied instead of fed.", float64(s.PrefixTokens))
	for outcome, n := range map[string]uint64{
		"done": s.Done, "cancelled": s.Cancelled, "failed": s.Failed, "overloaded": s.Overloaded,
	} {
		out.Counter("answers_total", "Answers by how they ended; overloaded ones were refused.", float64(n), "outcome", outcome)
	}
	out.Counter("failed_runs_total", "Runs of the device that failed.", float64(s.FailedRuns))
	out.Counter("whole_rows_total", "Tokens for which all logits had to be read, not the largest alone.", float64(s.WholeRows))
	out.Counter("busy_seconds_total", "Time the device worked.", s.Busy.Seconds())
	out.Gauge("slots", "Answers that can be generated at once.", float64(s.SlotsAll))
	out.Gauge("slots_used", "Answers being generated.", float64(s.Slots))
	out.Gauge("slots_used_max", "The most answers that were generated at once.", float64(s.SlotsMost))
	out.Gauge("queue_length", "Answers that wait for a slot.", float64(s.Waiting))
	if s.VoiceSlotsAll > 0 {
		out.Gauge("voice_slots", "Answers that the model's own voice can speak at once.", float64(s.VoiceSlotsAll))
		out.Counter("voice_busy_seconds_total", "Time the device worked for the model's own voice.", s.VoiceBusy.Seconds())
		out.Gauge("voice_slots_used", "Answers being spoken by the model's own voice.", float64(s.VoiceSlots))
		const turns = "Answers whose end the model's own voice did not say: long (its slot was full) or lost (it failed)."
		out.Counter("voice_cut_total", turns, float64(s.LongTurns), "reason", "long")
		out.Counter("voice_cut_total", turns, float64(s.LostTurns), "reason", "lost")
	}
	collectDevice(out, s)
}

// collectDevice collects the metrics of how the model uses its device.
func collectDevice(out metrics.Writer, s minicpmo.Stats) {
	const own = "1 when own CUDA kernels run the decode steps of few answers; reason says why it is 0, the status more about it."
	out.Gauge("own_kernels", own, metrics.Flag(s.OwnKernels), "reason", s.NoOwnKernels)
	out.Gauge("second_weights_from", "Answers at once from which the second set of weights decodes; 0 is never.", float64(s.Switch))
	const memory = "Memory of the device: planned for the model, used by loading it, free afterwards."
	out.Gauge("memory_bytes", memory, float64(s.MemoryPlanned), "kind", "planned")
	if s.MemoryUsed > 0 { // not known on a CPU
		out.Gauge("memory_bytes", memory, float64(s.MemoryUsed), "kind", "used")
	}
	out.Gauge("memory_bytes", memory, float64(s.MemoryFree), "kind", "free")
}

// collectRemote sends the metrics of a model server while it answers.
func collectRemote(loaded inference.Model, ch chan<- prometheus.Metric) {
	model, ok := loaded.(*remote.Model)
	if !ok {
		return
	}
	limit, running, waiting := model.Load()
	out := metrics.Writer{Out: ch, Prefix: metricPrefix}
	out.Gauge("remote_parallel", "Requests that may be sent to the model server at once; it adapts.", float64(limit))
	out.Gauge("remote_requests", "Requests under way and waiting for the model server.", float64(running), "state", "running")
	out.Gauge("remote_requests", "Requests under way and waiting for the model server.", float64(waiting), "state", "waiting")
}

// collectRecognizer sends the metrics of the model of speech recognition while it is loaded. The counters start again when it is
// loaded again.
func collectRecognizer(r *engine.Recognizer, name string, ch chan<- prometheus.Metric) {
	model, ok := r.Loaded().(*qwen3asr.Engine)
	if !ok {
		return
	}
	s := model.Stats()
	out := metrics.Writer{Out: ch, Prefix: "touchline_recognizer_" + name}
	const answers = "Answers of the model: of speech that ended, of speech that goes on, of parts of recordings, and alignments."
	for kind, n := range map[string]uint64{"final": s.Finals, "partial": s.Partials, "file": s.Files} {
		out.Counter("answers_total", answers, float64(n), "kind", kind)
	}
	const lost = "Answers without a result, by the reason; overloaded ones were refused."
	for reason, n := range map[string]uint64{"cancelled": s.Cancelled, "failed": s.Failed, "overloaded": s.Overloaded} {
		out.Counter("lost_answers_total", lost, float64(n), "reason", reason)
	}
	out.Counter("windows_total", "Encoded windows of sound, of 8 s at most.", float64(s.Windows))
	out.Counter("encodes_total", "Runs of the encoder.", float64(s.Encodes))
	out.Counter("prompt_tokens_total", "Tokens fed, those of sound included.", float64(s.Prompt))
	out.Counter("tokens_total", "Tokens generated.", float64(s.Tokens))
	out.Counter("steps_total", "Decoding runs.", float64(s.Steps))
	out.Gauge("slots", "Answers that can be generated at once.", float64(s.Slots))
	out.Gauge("busy_slots", "Answers that are generated now.", float64(s.Busy))
	out.Gauge("queue_length", "Answers that wait.", float64(s.Waiting))
	out.Gauge("memory_bytes", "Planned memory of the device.", float64(s.MemoryPlanned))
}

// bucketLimit bounds the buckets of a histogram; each is a series.
const bucketLimit = 24

// histogram converts a distribution. It merges neighbouring buckets beyond bucketLimit.
func histogram(out metrics.Writer, name, help string, d minicpmo.Distribution) prometheus.Metric {
	together := (len(d.Bounds) + bucketLimit - 1) / bucketLimit
	buckets := make(map[float64]uint64, bucketLimit)
	var sum uint64
	for i, bound := range d.Bounds {
		sum += d.Counts[i]
		if (i+1)%together == 0 {
			buckets[bound] = sum
		}
	}
	return prometheus.MustNewConstHistogram(prometheus.NewDesc(out.Prefix+name, help, nil, out.Labels), d.Count, d.Sum, buckets)
}
