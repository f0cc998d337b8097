package audioapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/limit"
	"touchline/internal/resample"
	"touchline/internal/ticks"
	"touchline/internal/wav"
	"touchline/media/codec"
)

const (
	// maxField bounds a field of a form, and maxFields their number.
	maxField  = 64 << 10
	maxFields = 200
	// uploadStep is how long a client may take for the next uploadRead bytes of its file, and for all its fields together.
	uploadStep = 15 * time.Second
	uploadRead = 64 << 10
	// uploadPiece is the number of bytes that an upload reserves at once.
	uploadPiece = 16 * uploadRead
	// minSound is the shortest sound, maxChannels the most channels.
	minSound    = 100 * time.Millisecond
	maxChannels = 8
)

// form is a multipart form with a file.
type form struct {
	fields map[string][]string
	file   *os.File // unlinked; nil for none
	size   int64

	translate  string // of the operation: see request
	translator inference.Model
	plain      bool
}

// first returns the first value of a field.
func (f *form) first(name string) string {
	if v := f.fields[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// list returns the values that are not empty of a field whose name may end in [] or [0].
func (f *form) list(name string) (out []string) {
	for _, field := range slices.Sorted(maps.Keys(f.fields)) {
		if rest, ok := strings.CutPrefix(field, name); ok && (rest == "" || listIndex.MatchString(rest)) {
			out = append(out, f.fields[field]...)
		}
	}
	return slices.DeleteFunc(out, func(v string) bool { return v == "" })
}

var listIndex = regexp.MustCompile(`^\[\d*\]$`)

// flag returns a field that is true or false.
func (f *form) flag(name string) (bool, error) {
	v := strings.ToLower(f.first(name))
	switch v {
	case "", "null", "no", "off":
		return false, nil
	case "yes", "on":
		return true, nil
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, bad(name, "expected true or false, got %.40q", v)
	}
	return on, nil
}

func (f *form) close() {
	if f.file != nil {
		_ = f.file.Close() // it is gone with this
	}
}

// readForm reads a form with a file of at most most bytes, which it copies to an unlinked file. It calls take before it reads bytes after
// the first uploadPiece, and stops at an error of take, or when the request's context ends.
func readForm(w http.ResponseWriter, r *http.Request, most int64, take func(n int64) error) (_ *form, err error) {
	if r.ContentLength > most+maxField { // more than the file and usual fields: nothing of it is read
		return nil, tooLarge(most)
	}
	r.Body = http.MaxBytesReader(w, r.Body, most+maxField)
	mr, err := r.MultipartReader()
	if err != nil {
		return nil, &Error{
			Status: http.StatusBadRequest, Code: "invalid_form", Message: "expected multipart/form-data with a file: " + err.Error(),
		}
	}
	f := &form{fields: map[string][]string{}}
	defer func() {
		if err != nil {
			f.close()
			w.Header().Set("Connection", "close") // otherwise the server reads on before it answers
		}
	}()
	control := http.NewResponseController(w)
	// The server watches the connection while it answers: a remaining deadline would look like a client that disconnects.
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	ctx := r.Context()
	defer context.AfterFunc(ctx, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })()
	left := uploadStep
	for range maxFields {
		began := time.Now()
		_ = control.SetReadDeadline(began.Add(left)) // a server without deadlines has none
		if err := formError(nil, context.Cause(ctx), most); err != nil {
			return f, err // the deadline of its end may have been replaced
		}
		part, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		switch {
		case err != nil:
		case part.FormName() == "":
			err = errors.New("a part has no name, or a header that cannot be read")
		case part.FormName() == "file", part.FileName() != "":
			left -= time.Since(began)
			err = f.spool(ctx, part, control, most, take)
		default:
			err = f.field(part)
			left -= time.Since(began)
		}
		if err := formError(err, context.Cause(ctx), most); err != nil {
			return f, err
		}
	}
	return f, &Error{Status: http.StatusBadRequest, Code: "invalid_form", Message: fmt.Sprintf("more than %d fields", maxFields)}
}

// formError is the error of a form whose part was not read with err, or whose request ended by cause; nil without either.
func formError(err, cause error, most int64) error {
	if full, ok := errors.AsType[*limit.FullError](cause); ok {
		return full
	}
	if over := ended(cause); over != nil {
		return over
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if _, ok := errors.AsType[*limit.FullError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(most)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Error{
			Status: http.StatusRequestTimeout, Code: "upload_timeout",
			Message: fmt.Sprintf("the form was not read: its fields together, or a piece of the file, took longer than %v", uploadStep),
		}
	}
	if err != nil {
		return &Error{Status: http.StatusBadRequest, Code: "invalid_form", Message: "the form was not read: " + err.Error()}
	}
	return nil
}

// field reads a field of a form.
func (f *form) field(part *multipart.Part) error {
	name := part.FormName()
	b, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if len(b) > maxField {
		return bad(name, "at most %d bytes", maxField)
	}
	value := strings.TrimSpace(string(b))
	if name == "response_format" {
		value = strings.ToLower(value)
	}
	f.fields[name] = append(f.fields[name], value)
	return err
}

// NewSpool makes an unlinked file for a recording, which closing deletes.
func NewSpool() (*os.File, error) {
	file, err := os.CreateTemp("", "touchline-sound-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// spool copies the file of a form to an unlinked file.
func (f *form) spool(
	ctx context.Context, part *multipart.Part, control *http.ResponseController, most int64, take func(n int64) error,
) error {
	if f.file != nil {
		return bad("file", "one file at a time")
	}
	file, err := NewSpool()
	if err != nil {
		return &Error{Status: http.StatusInsufficientStorage, Code: "no_space", Message: "the file cannot be stored: " + err.Error()}
	}
	f.file = file
	for {
		if f.size > 0 && f.size%uploadPiece == 0 { // the first piece has its space
			if err := take(min(uploadPiece, most-f.size)); err != nil {
				return err
			}
		}
		_ = control.SetReadDeadline(time.Now().Add(uploadStep)) // a server without deadlines has none
		if ctx.Err() != nil {
			return ctx.Err() // the deadline of its end may have been replaced
		}
		n, err := io.CopyN(file, part, min(uploadRead, most+1-f.size))
		if f.size += n; f.size > most {
			return tooLarge(most)
		}
		if errors.Is(err, io.EOF) {
			_, err = file.Seek(0, io.SeekStart)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// Decoder decodes a file of any common format to mono sound at inference.RecognizerRate, up to a maximum length.
type Decoder func(ctx context.Context, file *os.File, most time.Duration) ([]float32, error)

// NewDecoder returns a Decoder that runs touchline-codec; path is as in Options.
func NewDecoder(path string) Decoder {
	return func(ctx context.Context, file *os.File, most time.Duration) (sound []float32, err error) {
		var at tuner[float32]
		err = codec.DecodeSound(ctx, path, file, func(mono []float32, rate int) error {
			more, err := at.tune(mono, rate, inference.RecognizerRate)
			if err != nil {
				return undecodable("%v", err)
			}
			if sound = append(sound, more...); len(sound) > samples(most) {
				return tooLong(most)
			}
			return nil
		})
		if errors.Is(err, codec.ErrNoSound) {
			err = undecodable("%v; it reads sound in MP3, MP4, Ogg, WebM, FLAC, WAV and the like", err)
		}
		switch {
		case err != nil:
			return nil, err
		case at.from == 0:
			return nil, undecodable("it has no sound")
		}
		return append(sound, at.end()...), nil
	}
}

// tooLarge is the error for a file beyond the limit.
func tooLarge(most int64) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Param: "file", Code: "file_too_large",
		Message: fmt.Sprintf("file: at most %d bytes (agent.console.transcription.max_bytes)", most),
	}
}

// tooLong is the error for sound beyond the limit.
func tooLong(most time.Duration) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Param: "file", Code: "audio_too_long",
		Message: fmt.Sprintf("file: at most %v of sound (agent.console.transcription.max_duration)", most),
	}
}

// undecodable is the error for a file that is no sound.
func undecodable(format string, args ...any) *Error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Param: "file", Code: "audio_decode_failed", Type: "invalid_request_error",
		Message: "file: " + fmt.Sprintf(format, args...),
	}
}

// sound decodes the file of a form.
func (f *form) sound(ctx context.Context, decode Decoder, most time.Duration) ([]float32, error) {
	if f.file == nil || f.size == 0 {
		return nil, bad("file", "a file with sound is needed")
	}
	head := make([]byte, 12)
	n, err := f.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var sound []float32
	switch isWAV := bytes.HasPrefix(head[:n], []byte("RIF")) && bytes.HasSuffix(head[:n], []byte("WAVE")); {
	case isWAV:
		sound, err = decodeWAV(f.file, f.size, most)
		if errors.Is(err, wav.ErrFormat) { // compressed, as telephone systems write it
			if decode == nil {
				return nil, undecodable("%v", err)
			}
			sound, err = decode(ctx, f.file, most)
		}
	case decode == nil:
		return nil, undecodable("expected a WAV file")
	default:
		sound, err = decode(ctx, f.file, most)
	}
	if err != nil {
		return nil, err
	}
	return checked(sound)
}

// decodeWAV reads a WAV file of a size.
func decodeWAV(file io.Reader, size int64, most time.Duration) ([]float32, error) {
	f, length, err := wav.ReadHead(file)
	switch {
	case err != nil:
		return nil, err
	case f.Channels > maxChannels:
		return nil, undecodable("at most %d channels, got %d", maxChannels, f.Channels)
	}
	if length == 0 || length > size { // a stream, or a false header
		length = size
	}
	filter, err := resample.NewFilter(f.Rate, inference.RecognizerRate)
	if err != nil {
		return nil, undecodable("%v", err)
	}
	if time.Duration(float64(length)/float64(f.Frame()*f.Rate)*float64(time.Second)) > most+time.Second {
		return nil, tooLong(most)
	}
	conv := resample.New[float32](filter)
	in := io.LimitReader(file, length)
	raw, mono := make([]byte, 4096*f.Frame()), []float32(nil)
	var sound []float32
	for {
		n, err := io.ReadFull(in, raw)
		mono = f.Mono(mono[:0], raw[:n])
		sound = conv.Append(sound, mono)
		if len(sound) > samples(most) {
			return nil, tooLong(most)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return conv.Flush(sound), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// samples returns the number of samples in a duration.
func samples(d time.Duration) int { return int(ticks.Count(d, inference.RecognizerRate)) }

// length returns the duration of n samples.
func length(n int) time.Duration { return ticks.Duration(int64(n), inference.RecognizerRate) }

// checked returns the sound scaled into [-1, 1], or an error for samples that are not finite or sound that is too short.
func checked(sound []float32) ([]float32, error) {
	peak := float32(0)
	for _, v := range sound {
		if v != v || math.IsInf(float64(v), 0) {
			return nil, undecodable("it has samples that are no numbers")
		}
		peak = max(peak, v, -v)
	}
	if peak > 1 {
		for i := range sound {
			sound[i] /= peak
		}
	}
	if d := length(len(sound)); d < minSound {
		return nil, &Error{
			Status: http.StatusBadRequest, Param: "file", Code: "audio_too_short",
			Message: fmt.Sprintf("file: at least %v of sound, got %v", minSound, d.Round(time.Millisecond)),
		}
	}
	return sound, nil
}
