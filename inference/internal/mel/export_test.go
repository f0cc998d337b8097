package mel

// Power returns the power spectrum of a frame by the package's transform.
func Power(frame []float64) []float64 {
	p := make([]float64, len(frame)/2+1)
	newTransform(len(frame)).power(p, frame)
	return p
}

// Transform prepares a function that writes power spectra of frames of a number of points.
func Transform(points int) func(power, frame []float64) { return newTransform(points).power }

// NewSpeakerStream is the stream of Speaker, with the means.
func NewSpeakerStream() *Stream { return newStream(speakerKind()) }

// NewPromptStream is the stream of Prompt.
func NewPromptStream() *Stream { return newStream(promptKind()) }
