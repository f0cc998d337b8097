package speech

// Encoder is the interface of encoders.
type Encoder = encoder

// NewWithEncoder makes a Writer with an encoder.
func NewWithEncoder(o Options, enc Encoder) (*Writer, error) { return newWriter(o, enc) }

// Lookahead is the encoder's, in samples.
const Lookahead = lookahead

// NewResampler prepares a conversion from rate.
func NewResampler(rate int) (*Resampler, error) {
	f, err := newFilter(rate)
	if err != nil {
		return nil, err
	}
	return newResampler(f), nil
}
