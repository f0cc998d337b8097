package bot

import (
	"github.com/prometheus/client_golang/prometheus"

	"touchline/inference/minicpmo"
	"touchline/inference/residency"
)

// metricPrefix of the built-in model's metrics.
const metricPrefix = "touchline_engine_"

// localMetrics are those of the built-in model that a keeper has loaded.
type localMetrics struct{ keeper *residency.Keeper }

// Describe sends nothing: there are no metrics while no model is loaded, and
// Collect checks them.
func (m localMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The counters start again when the
// model is loaded again.
func (m localMetrics) Collect(ch chan<- prometheus.Metric) {
	model, ok := m.keeper.Loaded().(interface{ Stats() minicpmo.Stats })
	if !ok {
		return
	}
	s := model.Stats()
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
		ch <- histogram(metricPrefix+d.name, d.help, d.d)
	}
	value := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names []string
		if len(labels) > 0 {
			names, labels = labels[:1], labels[1:]
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(metricPrefix+name, help, names, nil), kind, v, labels...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	value(counter, "prompt_tokens_total", "Tokens fed, those of pictures included.", float64(s.Prompt))
	value(counter, "tokens_total", "Tokens generated; its rate is tokens a second, of all rooms.", float64(s.Tokens))
	for set, n := range s.Steps {
		value(counter, "steps_total", "Decoding runs by the weights that they used.", float64(n), "weights", set)
	}
	const pictures = "Pictures of the prompts: hit (embedded before) or miss."
	value(counter, "pictures_total", pictures, float64(s.Hits), "cache", "hit")
	value(counter, "pictures_total", pictures, float64(s.Misses), "cache", "miss")
	value(counter, "pictures_early_total", "Pictures asked for that had been embedded when they were sampled.", float64(s.Early))
	value(gauge, "pictures_cached", "Embedded pictures that are kept.", float64(s.Cached))
	for outcome, n := range map[string]uint64{
		"done": s.Done, "cancelled": s.Cancelled, "failed": s.Failed, "overloaded": s.Overloaded,
	} {
		value(counter, "answers_total", "Answers by how they ended; overloaded ones were refused.", float64(n), "outcome", outcome)
	}
	value(counter, "failed_runs_total", "Runs of the device that failed.", float64(s.FailedRuns))
	value(counter, "whole_rows_total", "Tokens for which all logits had to be read, not the largest alone.", float64(s.WholeRows))
	value(counter, "busy_seconds_total", "Time the device worked.", s.Busy.Seconds())
	value(gauge, "slots", "Answers that can be generated at once.", float64(s.SlotsAll))
	value(gauge, "slots_used", "Answers being generated.", float64(s.Slots))
	value(gauge, "slots_used_max", "The most answers that were generated at once.", float64(s.SlotsMost))
	value(gauge, "queue_length", "Answers that wait for a slot.", float64(s.Waiting))
	value(gauge, "second_weights_from", "Answers at once from which the second set of weights decodes; 0 is never.", float64(s.Switch))
	const memory = "Memory of the device: planned for the model, used by loading it, free afterwards."
	value(gauge, "memory_bytes", memory, float64(s.MemoryPlanned), "kind", "planned")
	if s.MemoryUsed > 0 { // not known on a CPU
		value(gauge, "memory_bytes", memory, float64(s.MemoryUsed), "kind", "used")
	}
	value(gauge, "memory_bytes", memory, float64(s.MemoryFree), "kind", "free")
}

// bucketLimit is how many buckets of a histogram are worth a series each.
const bucketLimit = 24

// histogram writes a distribution; of many fine buckets every so many are put together.
func histogram(name, help string, d minicpmo.Distribution) prometheus.Metric {
	together := (len(d.Bounds) + bucketLimit - 1) / bucketLimit
	buckets := make(map[float64]uint64, bucketLimit)
	var sum uint64
	for i, bound := range d.Bounds {
		sum += d.Counts[i]
		if (i+1)%together == 0 {
			buckets[bound] = sum
		}
	}
	return prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, nil, nil), d.Count, d.Sum, buckets)
}
