package audioapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"touchline/internal/resample"
	"touchline/internal/rescue"
	"touchline/internal/wav"
	"touchline/media/codec"
)

// rate is the sample rate of all formats but Opus, in Hz, as at OpenAI.
const rate = 24000

// encoder writes mono sound in a format.
type encoder interface {
	// Rate of the samples, Hz.
	Rate() int
	// Encode encodes samples. The output may be written later.
	Encode(pcm []int16) error
	// Close writes buffered output, unless the encoder's context has ended, and waits for the encoder's process.
	Close() error
}

// format is a response_format.
type format struct {
	kind string // content type
	open func(ctx context.Context, path string, out io.Writer) (encoder, error)
}

// formats returns the formats by name.
func formats() map[string]*format {
	return map[string]*format{
		"pcm": {"audio/pcm", func(_ context.Context, _ string, out io.Writer) (encoder, error) { return &raw{out: out}, nil }},
		"wav": {"audio/wav", func(_ context.Context, _ string, out io.Writer) (encoder, error) {
			return &raw{out: out, head: wav.Head(math.MaxUint32, rate)}, nil // players read it to the end
		}},
		"opus": {"audio/ogg", func(_ context.Context, _ string, out io.Writer) (encoder, error) {
			return newOgg(out)
		}},
		"mp3": {"audio/mpeg", func(ctx context.Context, path string, out io.Writer) (encoder, error) {
			return newPiped(ctx, path, codec.MP3, out), nil
		}},
		"aac": {"audio/aac", func(ctx context.Context, path string, out io.Writer) (encoder, error) {
			return newPiped(ctx, path, codec.AAC, out), nil
		}},
	}
}

// raw writes a header, then the samples unchanged.
type raw struct {
	out  io.Writer
	head []byte
}

// Rate implements encoder.
func (*raw) Rate() int { return rate }

// Encode implements encoder.
func (r *raw) Encode(pcm []int16) error {
	if len(pcm) == 0 {
		return nil
	}
	b := r.head
	r.head = nil
	_, err := r.out.Write(s16le(b, pcm))
	return err
}

// Close implements encoder.
func (*raw) Close() error { return nil }

// s16le appends samples to b.
func s16le(b []byte, pcm []int16) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, pcm) // has a fixed size
	return b
}

// piped encodes in a codec process.
type piped struct {
	in   *io.PipeWriter
	done chan error
}

func newPiped(ctx context.Context, path string, f codec.SoundFormat, out io.Writer) *piped {
	read, write := io.Pipe()
	p := &piped{in: write, done: make(chan error, 1)}
	go func() {
		err := rescue.Call(func() error { return codec.EncodeSound(ctx, path, f, rate, read, out) })
		why := err
		if why == nil {
			why = io.ErrClosedPipe
		}
		_ = read.CloseWithError(why) // a writer learns why
		p.done <- err
		close(p.done) // after a failed Close, speak closes it again
	}()
	return p
}

// Rate implements encoder.
func (*piped) Rate() int { return rate }

// Encode implements encoder.
func (p *piped) Encode(pcm []int16) error {
	if len(pcm) == 0 {
		return nil
	}
	_, err := p.in.Write(s16le(nil, pcm))
	return err
}

// Close implements encoder. It returns after the process has ended.
func (p *piped) Close() error {
	_ = p.in.Close() // of a pipe: never fails
	return <-p.done
}

// maxRates bounds the rates of one sound. Each costs a filter, which takes up to 0.7 s to compute.
const maxRates = 4

// tuner resamples sound to one rate. The rate of its input may change.
type tuner[T int16 | float32] struct {
	from    int
	conv    *resample.Resampler[T]
	filters map[int]*resample.Filter // by the rate of the input
}

// tune returns the samples that are ready.
func (t *tuner[T]) tune(pcm []T, from, to int) ([]T, error) {
	var out []T
	if from != t.from {
		out = t.end()
		t.from, t.conv = from, nil
		if from != to {
			f, err := t.filter(from, to)
			if err != nil {
				return nil, err
			}
			t.conv = resample.New[T](f)
		}
	}
	if t.conv == nil {
		return append(out, pcm...), nil
	}
	return t.conv.Append(out, pcm), nil
}

// filter returns the filter of a rate, which is computed once.
func (t *tuner[T]) filter(from, to int) (*resample.Filter, error) {
	if f := t.filters[from]; f != nil {
		return f, nil
	}
	if len(t.filters) == maxRates {
		return nil, fmt.Errorf("the sound has more than %d sample rates", maxRates)
	}
	f, err := resample.NewFilter(from, to)
	if err == nil {
		if t.filters == nil {
			t.filters = map[int]*resample.Filter{}
		}
		t.filters[from] = f
	}
	return f, err
}

// end returns the last samples.
func (t *tuner[T]) end() []T {
	if t.conv == nil {
		return nil
	}
	return t.conv.Flush(nil)
}

// stream is the body of an answer. Its headers are sent with the first sound.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	kind    string
	sse     bool
	begun   atomic.Bool
}

// begin sends the headers once.
func (s *stream) begin() {
	if s.begun.Swap(true) {
		return
	}
	kind := s.kind
	if s.sse {
		kind = "text/event-stream"
	}
	s.w.Header().Set("Content-Type", kind)
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer. It sends sound immediately.
func (s *stream) Write(p []byte) (int, error) {
	if s.sse {
		err := s.event(map[string]any{"type": "speech.audio.delta", "audio": base64.StdEncoding.EncodeToString(p)})
		return len(p), err
	}
	return len(p), s.send(p)
}

func (s *stream) send(p []byte) error {
	s.begin()
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime)) // a writer without deadlines has none
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *stream) event(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send(append(append([]byte("data: "), b...), "\n\n"...))
}

// end ends a complete answer. Tokens are not counted.
func (s *stream) end() {
	if s.sse {
		usage := map[string]int{"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
		_ = s.event(map[string]any{"type": "speech.audio.done", "usage": usage}) // the client may have disconnected
	}
}

// fail ends a started answer so that the client notices that it is incomplete. It returns false before the start.
func (s *stream) fail(err error) bool {
	if !s.begun.Load() {
		return false
	}
	if s.sse {
		_ = s.event(map[string]any{"type": "error", "error": &Error{Message: err.Error(), Type: "server_error", Code: "voice_failed"}})
		return true
	}
	panic(http.ErrAbortHandler)
}
