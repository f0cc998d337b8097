// Package mel computes mel spectrograms, the input of the speech networks: energies in
// bands of frequencies, frame by frame. It has three kinds:
//
//   - Speaker: Kaldi's, for the network of speaker embeddings (CAM++).
//   - Speech: Whisper's with 128 bands, for speech recognition (Qwen3-ASR) and for the
//     speech tokens of a reference voice. Each sound is computed separately, without the
//     last frame, and padded by reflection only.
//   - Prompt: resampled to 24 kHz, for the network that turns tokens into speech.
//
// CheckReference and CutReference prepare the sound of a reference voice.
//
// Input is mono at 16 kHz, from -1 to 1. Computation is in float64, so that the results differ
// from the official float32 code by its rounding only: largest differences on speech 7e-4
// (Speaker), 4e-5 (Speech), 3e-4 (Prompt); 1e-6 from the same code in float64. One
// second of sound takes 0.4 ms (Speaker, Speech) or 0.8 ms (Prompt) on one core of an
// AMD EPYC, half of it in the transforms: 2 µs for 400 points, 10 µs for 1920.
//
// It runs no model. Only SpeechRows uses several cores.
package mel

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"touchline/internal/resample"
)

// The number of bands of a frame.
const (
	SpeakerBins = 80
	SpeechBins  = 128
	PromptBins  = 80
)

// Rate is the sample rate of all input, in Hz.
const Rate = 16000

// promptRate is the sample rate of the transforms of Prompt.
const promptRate = 24000

// piece is the number of samples that a Stream processes at once.
const piece = 4096

// kind has the parameters of one kind of features.
type kind struct {
	size, hop int // of frames, in samples
	points    int // of the transform: frames are padded with zeros
	pad       int // samples reflected at both ends; 0: only whole frames
	window    []float64
	emphasis  float64 // share of the previous sample that is subtracted; if not 0, of the frame without its mean
	root      float64 // if not 0, the bands are of magnitudes, with this added to their squares
	bands     []band
	floor     float64
	log       float64 // factor of the natural logarithm
}

// band is a weighted sum of frequencies.
type band struct {
	first  int
	weight []float64
}

// Stream computes the frames of one sound that arrives in pieces. The result does not depend on the
// size of the pieces. It allocates nothing per frame. It is not safe for concurrent use.
type Stream struct {
	kind
	fft          *transform
	frame, power []float64
	buf          []float32 // from the next frame on
	end          []float32 // of Tail
	begun        bool      // the beginning is reflected
	samples      int
	frames       int
}

// NewStream prepares the stream of features of Speech, before their scaling.
func NewStream() *Stream { return newStream(speechKind()) }

func newStream(k kind) *Stream {
	return &Stream{
		kind: k, fft: newTransform(k.points), frame: make([]float64, k.points), power: make([]float64, k.points/2+1),
		buf: make([]float32, 0, 2*k.pad+k.size+piece), end: make([]float32, 0, k.pad+k.size),
	}
}

// Reset begins a new sound.
func (s *Stream) Reset() {
	s.buf, s.begun, s.samples, s.frames = s.buf[:0], false, 0, 0
}

// Append adds samples and appends the rows of the frames that are complete to dst: each
// row has one logarithm per band. A frame is complete with the last sample of its window.
func (s *Stream) Append(dst, samples []float32) []float32 {
	s.samples += len(samples)
	for len(samples) > 0 {
		n := min(len(samples), piece)
		s.buf = append(s.buf, samples[:n]...)
		samples = samples[n:]
		if s.begin() {
			dst = s.run(dst)
		}
	}
	return dst
}

// begin reflects the beginning once there is enough of it.
func (s *Stream) begin() bool {
	n := len(s.buf)
	if s.begun || n <= s.pad {
		return s.begun
	}
	s.buf = s.buf[:n+s.pad]
	copy(s.buf[s.pad:], s.buf[:n])
	for i := range s.pad {
		s.buf[i] = s.buf[2*s.pad-i]
	}
	s.begun = true
	return true
}

func (s *Stream) run(dst []float32) []float32 {
	at := 0
	for ; at+s.size <= len(s.buf); at += s.hop {
		dst = s.row(dst, s.buf[at:][:s.size])
		s.frames++
	}
	s.buf = s.buf[:copy(s.buf, s.buf[at:])]
	return dst
}

// Tail appends the rows that complete the sound if it ends here, and leaves the Stream unchanged.
// For Speech it is at most one row, and none before the 201st sample.
func (s *Stream) Tail(dst []float32) []float32 {
	if !s.begun || s.pad == 0 {
		return dst
	}
	s.end = append(s.end[:0], s.buf...)
	last := len(s.end) - 1
	for i := range s.pad {
		s.end = append(s.end, s.end[last-1-i])
	}
	for i := range s.samples/s.hop - s.frames {
		dst = s.row(dst, s.end[i*s.hop:][:s.size])
	}
	return dst
}

// row appends the features of one frame.
func (s *Stream) row(dst, in []float32) []float32 {
	s.weigh(in)
	s.fft.power(s.power, s.frame)
	if s.root != 0 {
		for i, v := range s.power {
			s.power[i] = math.Sqrt(v + s.root)
		}
	}
	for _, b := range s.bands {
		sum := 0.0
		power := s.power[b.first:][:len(b.weight)]
		for i, w := range b.weight {
			sum += w * power[i]
		}
		dst = append(dst, float32(s.log*math.Log(max(sum, s.floor))))
	}
	return dst
}

// weigh copies a frame and applies the window.
func (s *Stream) weigh(in []float32) {
	frame := s.frame[:len(in)]
	if s.emphasis == 0 {
		for i, w := range s.window[:len(in)] {
			frame[i] = w * float64(in[i])
		}
		return
	}
	mean := 0.0
	for _, v := range in {
		mean += float64(v)
	}
	mean /= float64(len(in))
	before := float64(in[0]) - mean
	for i, w := range s.window[:len(in)] {
		v := float64(in[i]) - mean
		frame[i] = w * (v - s.emphasis*before)
		before = v
	}
}

// whole computes all rows of a sound.
func whole(k kind, samples []float32) []float32 {
	s := newStream(k)
	return s.Tail(s.Append(make([]float32, 0, len(samples)/k.hop*len(k.bands)), samples))
}

func enough(samples []float32, least int) error {
	if len(samples) < least {
		return fmt.Errorf("features of %d samples: at least %d are needed", len(samples), least)
	}
	return nil
}

// Speaker returns Kaldi's features, without their mean over time, as
// [frames, SpeakerBins]: a frame of 25 ms each 10 ms. It fails below 25 ms.
func Speaker(samples []float32) ([]float32, error) {
	if err := enough(samples, 400); err != nil {
		return nil, err
	}
	rows := whole(speakerKind(), samples)
	for b := range SpeakerBins {
		sum := 0.0
		for i := b; i < len(rows); i += SpeakerBins {
			sum += float64(rows[i])
		}
		mean := sum / float64(len(rows)/SpeakerBins)
		for i := b; i < len(rows); i += SpeakerBins {
			rows[i] = float32(float64(rows[i]) - mean)
		}
	}
	return rows, nil
}

// SpeechRows returns the output of a Stream for a whole sound of at least 201 samples, computed on at most cores cores.
func SpeechRows(samples []float32, cores int) []float32 {
	const least = 100 // frames for a core
	k := speechKind()
	frames := len(samples) / k.hop
	cores = max(min(cores, frames/least), 1)
	rows := make([]float32, frames*len(k.bands))
	var wg sync.WaitGroup
	for i := range cores {
		from, to := frames*i/cores, frames*(i+1)/cores
		wg.Go(func() {
			// A frame has the samples around its beginning. The first frames of a piece would see its reflected edge.
			begin := max(from-2, 0)
			end := min(to*k.hop+k.pad, len(samples))
			s := newStream(k)
			part := s.Append(make([]float32, 0, (to-begin+2)*len(k.bands)), samples[begin*k.hop:end])
			if end == len(samples) {
				part = s.Tail(part)
			}
			copy(rows[from*len(k.bands):to*len(k.bands)], part[(from-begin)*len(k.bands):])
		})
	}
	wg.Wait()
	return rows
}

// Speech returns Whisper's features as [SpeechBins, frames]: a frame for each whole 10 ms. It fails
// below 201 samples. For Qwen3-ASR, pad sound of less than half a second with zeros to 8000
// samples.
func Speech(samples []float32) ([]float32, error) {
	if err := enough(samples, 201); err != nil {
		return nil, err
	}
	rows := whole(speechKind(), samples)
	dst := make([]float32, len(rows))
	Scale(dst, len(rows)/SpeechBins, rows, slices.Max(rows))
	return dst, nil
}

// Scale converts rows of a Stream to the features of Speech: values are limited to at least peak -
// 8, where peak is the largest value of all rows of the sound. Bin b of row i goes to
// dst[b*stride+i].
func Scale(dst []float32, stride int, rows []float32, peak float32) {
	floor := peak - 8
	for i := 0; len(rows) >= SpeechBins; i++ {
		for b, v := range rows[:SpeechBins] {
			dst[b*stride+i] = (max(v, floor) + 4) / 4
		}
		rows = rows[SpeechBins:]
	}
}

// Prompt returns the features of a reference voice as [2*tokens, PromptBins]: a frame for each
// whole 20 ms. tokens is the number of its speech tokens; to match it, the last frame is repeated,
// or frames are dropped. The sound is at 16 kHz, as for the other features, and is converted to 24
// kHz as the official code does. It fails below 481 samples.
func Prompt(samples []float32, tokens int) ([]float32, error) {
	if err := enough(samples, 481); err != nil {
		return nil, err
	}
	f, err := resample.NewTorchFilter(Rate, promptRate)
	if err != nil {
		return nil, err
	}
	up := resample.New[float32](f)
	rows := whole(promptKind(), up.Flush(up.Append(nil, samples)))
	want := 2 * tokens * PromptBins
	for len(rows) < want {
		rows = append(rows, rows[len(rows)-PromptBins:]...)
	}
	return rows[:want], nil
}
