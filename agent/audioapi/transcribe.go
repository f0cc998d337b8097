package audioapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/limit"
	"touchline/internal/wav"
)

const (
	// maxPrompt bounds the context of a request, in bytes.
	maxPrompt = 16 << 10
	// hearTime bounds the transcription of one recording.
	hearTime = 10 * time.Minute
	// surelySilent is the probability of speech below which a recording counts as silent, if no frame reaches it.
	surelySilent = 0.2
	// uploadsPerPlace is the number of requests for each recording that is transcribed or waits: most of them are uploading.
	uploadsPerPlace = 4
	// leastRecordings, leastUploads and leastSessions are those that a token or an address may have at least, unless that is all.
	leastRecordings = 4
	leastUploads    = 8
	leastSessions   = 8
	// decodeRate a second and decodeBurst bound the files of a token that are not WAV: each takes a process, 60 ms of a core at least.
	decodeRate, decodeBurst = 2, 40
)

// TranscriberOptions make a Transcriber.
type TranscriberOptions struct {
	Config     Config
	Recognizer inference.Recognizer
	// Step is the interval of interim texts; 0 is 500 ms.
	Step time.Duration
	// Device describes where the recognizer runs; nil for unknown.
	Device func() Device
	// Run loads and unloads the recognizer until ctx ends; nil for nothing to do.
	Run func(ctx context.Context) error
	// VAD finds speech. The Transcriber closes it.
	VAD *vad.Model
	// Text returns the translation model, or nil if there is none. The function may be nil.
	Text func() inference.Model
	// Decode decodes files that are not WAV; nil refuses them.
	Decode Decoder
	// Metrics of the recognizer; nil for none.
	Metrics prometheus.Collector
	Log     zerolog.Logger
}

// Device is where a recognizer runs.
type Device struct {
	Kind   string `json:"device,omitempty" doc:"cuda, cpu, or remote for a server."`
	Name   string `json:"device_name,omitempty" doc:"Of the GPU or CPU, while the model is loaded."`
	Memory int64  `json:"memory_bytes,omitempty" doc:"Planned memory of the device, while the model is loaded."`
}

// Transcriber is transcription as a service. Safe for concurrent use.
type Transcriber struct {
	opts      TranscriberOptions
	slots     chan struct{} // one for each recording that is transcribed
	waiting   *limit.Seats  // recordings that are transcribed or wait
	uploads   *limit.Seats  // requests with a form
	bytes     *limit.Seats  // of their forms
	sessions  *limit.Seats
	decodes   *limit.Rates           // files that are not WAV
	detention limit.Detention        // of clients beyond a limit
	bursts    *limit.Limiter[string] // sockets that a client opened, see pace
	finals    pendingFinals
	counts    *transcriptionMetrics
	log       zerolog.Logger
}

// NewTranscriber returns a Transcriber.
func NewTranscriber(o TranscriberOptions) *Transcriber {
	c := o.Config
	places := int64(c.Parallel + c.Queue)
	t := &Transcriber{
		waiting:   limit.NewSeats("recordings", limit.Shares(places, leastRecordings)),
		uploads:   limit.NewSeats("uploads", limit.Shares(uploadsPerPlace*places, leastUploads)),
		bytes:     limit.NewSeats("upload_bytes", limit.Shares(places*int64(c.MaxBytes), int64(c.MaxBytes))),
		sessions:  limit.NewSeats("live_sessions", limit.Shares(int64(c.Sessions), leastSessions)),
		decodes:   limit.NewRates("decodes", decodeRate, decodeBurst),
		detention: limit.NewDetention(),
		bursts:    limit.New[string](1/paceBurst.Seconds(), burstsOpen),
		opts:      o, slots: make(chan struct{}, c.Parallel), log: o.Log.With().Str("component", "transcription").Logger(),
	}
	t.counts = newTranscriptionMetrics(t)
	return t
}

// Run serves until ctx ends.
func (t *Transcriber) Run(ctx context.Context) error {
	var err error
	if t.opts.Run != nil {
		err = t.opts.Run(ctx)
	}
	<-ctx.Done()
	return err
}

// ServeTranscriptions answers POST /v1/audio/transcriptions.
func (t *Transcriber) ServeTranscriptions(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(*form) error { return nil })
}

// ServeStream answers POST /v1/audio/transcriptions/stream: an event for each utterance, in the form of another server whose clients
// are in use.
func (t *Transcriber) ServeStream(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(f *form) error {
		for name, value := range map[string]string{
			"response_format": "json", "stream": "true", "chunking_strategy": "auto",
		} {
			f.fields[name] = []string{cmp.Or(f.first(name), value)}
		}
		if on, err := f.flag("stream"); f.first("response_format") != "json" || err != nil || !on {
			return bad("response_format", "this stream has one form; leave it out, with stream")
		}
		f.plain = true
		return nil
	})
}

// ServeSubtitles answers POST /v1/audio/subtitles: srt, or vtt.
func (t *Transcriber) ServeSubtitles(w http.ResponseWriter, r *http.Request) {
	t.answer(w, r, func(f *form) error {
		f.fields["response_format"] = []string{cmp.Or(f.first("response_format"), "srt")}
		if v := f.first("response_format"); v != "srt" && v != "vtt" {
			return bad("response_format", "expected srt or vtt, got %.40q", v)
		}
		return nil
	})
}

// answer answers a request with a file. change checks and changes its fields.
func (t *Transcriber) answer(w http.ResponseWriter, r *http.Request, change func(*form) error) {
	err := t.serve(w, r, change)
	e, ok := errors.AsType[*Error](err)
	// The server ends the context after a read deadline too.
	late := ok && (e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests)
	over := ended(context.Cause(r.Context()))
	switch {
	case err == nil || r.Context().Err() != nil && !late && over == nil: // or the client has disconnected
		return
	case !ok:
		t.log.Warn().Err(err).Msg("recording not transcribed")
		e = problem(err)
	}
	t.counts.refused.WithLabelValues(cmp.Or(e.Code, "error")).Inc()
	if e.Status == http.StatusTooManyRequests {
		t.detention.Wait(r.Context())
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // that of the request may have passed
	e.Write(w)
}

// problem is an error of the recognizer in OpenAI's form.
func problem(err error) *Error {
	_, full := errors.AsType[*limit.FullError](err)
	over := ended(err)
	switch {
	case over != nil:
		return over
	case full: // it had to leave its place
		return beyond(err.Error())
	case errors.Is(err, inference.ErrNoWordTimes):
		return bad("timestamp_granularities", "%v", inference.ErrNoWordTimes)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTooSlow):
		return &Error{Status: http.StatusGatewayTimeout, Type: "server_error", Code: "transcription_timeout", Message: err.Error()}
	}
	return &Error{Status: http.StatusServiceUnavailable, Type: "server_error", Code: "transcription_failed", Message: err.Error()}
}

// errTooSlow ends a transcription that exceeds hearTime.
var errTooSlow = fmt.Errorf("the recording was not transcribed within %v", hearTime)

// failed ends a stream that has begun with an error; else it returns the error.
func (t *Transcriber) failed(out *textStream, err error) error {
	if e, ok := errors.AsType[*Error](err); !ok && out.fail(problem(err)) || ok && out.fail(e) {
		t.log.Warn().Err(err).Msg("recording not transcribed")
		return nil
	}
	return err
}

// serve handles a request up to its answer.
func (t *Transcriber) serve(w http.ResponseWriter, r *http.Request, change func(*form) error) error {
	if !limit.ClientOf(r.Context()).Operator && t.waiting.Taken() >= t.places() { // its upload would be wasted
		return t.full(w, nil)
	}
	ctx, upload, err := t.uploads.Take(r.Context(), "", 1)
	if err != nil {
		return busy(w, err.Error())
	}
	defer upload.Leave()
	most := int64(t.opts.Config.MaxBytes)
	ctx, space, err := t.bytes.Take(ctx, "", min(uploadPiece, most)) // at least, so that many empty ones are bounded too
	if err != nil {
		return busy(w, limit.Why(err, errNoSpace))
	}
	defer space.Leave()
	f, err := readForm(w, r.WithContext(ctx), most, space.Grow)
	if _, ok := errors.AsType[*limit.FullError](err); ok {
		return busy(w, limit.Why(err, errNoSpace))
	}
	if err != nil {
		return err
	}
	defer f.close()
	if err := change(f); err != nil {
		return err
	}
	o, err := t.requestOf(f)
	if err != nil {
		return err
	}
	o.plain = f.plain
	if err := t.decodable(ctx, w, f); err != nil {
		return err
	}
	ctx, place, err := t.waiting.Take(ctx, "", 1)
	if err != nil {
		return t.full(w, err)
	}
	defer place.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, hearTime, errTooSlow)
	defer cancel()
	defer live.Hold(t.opts.Recognizer)()
	if err := t.turn(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { <-t.slots }()
	sound, err := f.sound(ctx, t.opts.Decode, t.opts.Config.MaxDuration)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	began := time.Now()
	out := &textStream{stream: stream{w: w, control: http.NewResponseController(w), sse: true}, request: o}
	parts, err := t.hear(ctx, sound, o, out.part)
	if err != nil {
		return t.failed(out, cmp.Or(context.Cause(ctx), err))
	}
	t.counts.done(length(len(sound)), time.Since(began))
	if o.stream {
		out.done(usageOf(parts, length(len(sound))))
		return nil
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a writer without deadlines has none
	write(w, o, parts, length(len(sound)))
	return nil
}

// decodable returns an error for a file that takes a process beyond the client's rate, before it takes a place.
func (t *Transcriber) decodable(ctx context.Context, w http.ResponseWriter, f *form) error {
	if t.opts.Decode == nil || f.size == 0 {
		return nil
	}
	if _, _, err := wav.ReadHead(io.NewSectionReader(f.file, 0, f.size)); err == nil {
		return nil
	}
	if wait, ok := t.decodes.Allow(limit.ClientOf(ctx), time.Now()); !ok {
		return later(w, "too many recordings that are not WAV", int(wait.Seconds())+1)
	}
	return nil
}

// span is a range of samples of a recording.
type span struct{ from, to int }

// spans returns the parts of a recording to transcribe: its utterances, or else all of it unless it is silent.
func (t *Transcriber) spans(ctx context.Context, sound []float32, o request) (out []span, err error) {
	d, err := t.opts.VAD.Detector()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	speech := false
	watched := detectorFunc(func(frame []float32) (float64, error) {
		p, err := d.Detect(frame)
		speech = speech || p >= surelySilent
		return p, errors.Join(err, ctx.Err())
	})
	var c vad.Config
	if o.split != nil {
		c = *o.split
	}
	s := vad.NewStream(watched, c, func(e vad.Event) {
		switch e.Kind {
		case vad.Began:
			out = append(out, span{int(e.At), 0})
		case vad.Ended:
			out[len(out)-1].to = min(int(e.At), len(sound))
		case vad.Heard:
		}
	})
	if err := errors.Join(s.Write(sound), s.Flush()); err != nil {
		return nil, err
	}
	t.counts.share(s.Share())
	if o.split != nil {
		return out, nil
	}
	if !speech {
		return nil, nil
	}
	return []span{{0, len(sound)}}, nil
}

// detectorFunc is a vad.Detector without resources.
type detectorFunc func(frame []float32) (float64, error)

// Detect implements vad.Detector.
func (f detectorFunc) Detect(frame []float32) (float64, error) { return f(frame) }

// Close implements vad.Detector.
func (detectorFunc) Close() error { return nil }

// hear transcribes a recording and calls each with every final part, and for a plain stream with interim ones. Subtitles of a recognizer
// that turns out to have no times of words begin and end at pauses.
func (t *Transcriber) hear(ctx context.Context, sound []float32, o request, each func(inference.Transcript) error,
) (parts []inference.Transcript, err error) {
	parts, err = t.hearOnce(ctx, sound, o, each)
	if errors.Is(err, inference.ErrNoWordTimes) && !o.words && len(parts) == 0 {
		o.hearing.WordTimes = false
		if o.split == nil {
			o.split = new(speechConfig())
		}
		return t.hearOnce(ctx, sound, o, each)
	}
	return parts, err
}

func (t *Transcriber) hearOnce(ctx context.Context, sound []float32, o request, each func(inference.Transcript) error,
) (parts []inference.Transcript, err error) {
	spans, err := t.spans(ctx, sound, o)
	if err != nil {
		return nil, err
	}
	do := t.opts.Recognizer.Transcribe
	if translator, ok := t.opts.Recognizer.(inference.Translator); ok && o.translate != "" && o.text == nil {
		do = translator.Translate
	} else if o.plain && t.opts.Recognizer.Recognizes().Partials && o.text == nil {
		do = t.growing
	}
	for _, s := range spans {
		from := length(s.from)
		for p, err := range do(ctx, sound[s.from:s.to], o.hearing) {
			if err != nil {
				return parts, err
			}
			if !p.Final {
				if err := each(p); err != nil {
					return parts, err
				}
				continue
			}
			if o.text != nil {
				if p, err = translated(ctx, o.text, p, o.translate); err != nil {
					return parts, err
				}
			}
			p.Start, p.End = p.Start+from, p.End+from
			p.Words = slices.Clone(p.Words)
			for i := range p.Words {
				p.Words[i].Start += from
				p.Words[i].End += from
			}
			parts = append(parts, p)
			t.counts.words.Add(float64(len(strings.Fields(p.Text))))
			if err := each(p); err != nil {
				return parts, err
			}
		}
	}
	return parts, nil
}

// growing transcribes an utterance like Recognizer.Transcribe, with an interim text after each second of sound.
func (t *Transcriber) growing(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		u, err := t.opts.Recognizer.Listen(ctx, h)
		if err != nil {
			yield(inference.Transcript{}, err)
			return
		}
		defer u.Close()
		last := ""
		for piece := samples(time.Second); len(sound) > piece; sound = sound[piece:] {
			p, err := u.Hear(ctx, sound[:piece])
			p.Final = false
			if err != nil || p.Text != last {
				if last = p.Text; !yield(p, err) || err != nil {
					return
				}
			}
		}
		p, err := u.Finish(ctx, sound)
		p.Final = err == nil
		yield(p, err)
	}
}

// File transcribes a file by the fields of POST /v1/audio/transcriptions, and returns the body of the answer. Run must be running.
// It calls progress with the transcribed and the total duration.
func (t *Transcriber) File(ctx context.Context, file *os.File, fields map[string][]string, progress func(heard, all time.Duration),
) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f := &form{fields: fields, file: file, size: info.Size()}
	o, err := t.requestOf(f)
	if err != nil {
		return nil, err
	}
	defer live.Hold(t.opts.Recognizer)()
	sound, err := f.sound(ctx, t.opts.Decode, t.opts.Config.MaxDuration)
	if err != nil {
		return nil, err
	}
	all := length(len(sound))
	progress(0, all)
	parts, err := t.hear(ctx, sound, o, func(p inference.Transcript) error {
		if p.Final {
			progress(min(p.End, all), all)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	progress(all, all)
	_, body := written(o, parts, all)
	return body, nil
}
