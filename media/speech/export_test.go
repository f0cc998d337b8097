package speech

// Encoder is the interface of encoders.
type Encoder = encoder

// NewWithEncoder makes a Writer with an encoder.
func NewWithEncoder(o Options, enc Encoder) (*Writer, error) { return newWriter(o, enc) }

// Stats are the running totals of a Writer, and the number of utterances started and not over.
type Stats struct {
	counters
	Waiting int
}

// Stats returns the totals so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{counters: w.stats, Waiting: len(w.queue)}
}

// Lookahead is the encoder's, in samples.
const Lookahead = lookahead
