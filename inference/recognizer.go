package inference

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// RecognizerRate is the sample rate of all sound that recognizers hear: mono,
// float32 in [-1, 1].
const RecognizerRate = 16000

// Recognizer turns speech into text. Safe for concurrent use.
type Recognizer interface {
	// Recognizes says what it can do.
	Recognizes() Recognizes
	// Transcribe hears a whole recording and yields its parts in order. A part may
	// come several times with a longer text before its final one; a final part
	// is never changed. The sequence ends after the last final part, or with a non-nil
	// error as its last element. Breaking out of the loop cancels the work.
	Transcribe(ctx context.Context, sound []float32, h Hearing) iter.Seq2[Transcript, error]
	// Listen begins one live utterance.
	Listen(ctx context.Context, h Hearing) (Utterance, error)
	// Align returns the times of the words of a known text in a recording, or ErrNoWordTimes.
	Align(ctx context.Context, sound []float32, text, language string) ([]Word, error)
	// Status reports loading, as that of a Model.
	Status() Status
	// Close waits for what runs and releases the memory.
	Close() error
}

// Translator is an optional interface of a Recognizer that also writes in English what is said in another language.
type Translator interface {
	// Translate is Transcribe with texts in English.
	Translate(ctx context.Context, sound []float32, h Hearing) iter.Seq2[Transcript, error]
}

// Recognizes is what a recognizer can do.
type Recognizes struct {
	// Model is its name.
	Model string
	// Languages are its BCP 47 tags; empty means unknown.
	Languages []string
	// WordTimes says that final parts can have words; Partials that an utterance answers before its end.
	WordTimes, Partials bool
	// OrdersOnly says that it knows spoken orders and nothing else: the text of any other speech is "".
	OrdersOnly bool
}

// Hearing says how to hear.
type Hearing struct {
	// Language is the BCP 47 tag of what is spoken; "" lets the recognizer find it.
	Language string
	// Context is free text that helps with names and terms. Untrusted: a recognizer
	// takes nothing in it for a control token.
	Context string
	// WordTimes asks for the words of each final part.
	WordTimes bool
	// Temperature of the draws; 0 always takes the best.
	Temperature float64
	// WakeWords begin what is meant for the commentator, and Addressed says that this is meant for it without one: somebody pushes
	// to talk, or said a wake word alone just before. They help a recognizer of orders.
	WakeWords []string
	Addressed bool
	// Live says that somebody waits while speaking: it goes before recordings.
	Live bool
}

// Transcript is the text of a part of a recording or of an utterance.
type Transcript struct {
	// Text without markers; "" where nothing was said.
	Text string
	// Language is the BCP 47 tag that was heard or asked for; "" where it is not known.
	Language string
	// Start and End bound the part in the recording, from its first sample.
	Start, End time.Duration
	// Words of a final part, where they were asked for.
	Words []Word
	// Final says that this text is not going to change.
	Final bool
	// Audio and Tokens count what was read and written: rows of sound and text tokens. 0 where it is not known.
	Audio, Tokens int
}

// Word is one word as it stands in the text, with its times from the first sample of the recording.
type Word struct {
	Text       string
	Start, End time.Duration
}

// Utterance is one stretch of live speech. Not safe for concurrent use: who speaks faster than it
// answers gathers the sound meanwhile, so the newest state is always heard next.
type Utterance interface {
	// Hear adds sound and returns the text of all of it so far, not final. It waits behind the
	// finals of others.
	Hear(ctx context.Context, sound []float32) (Transcript, error)
	// Finish adds the last sound and returns the final text.
	Finish(ctx context.Context, sound []float32) (Transcript, error)
	// Close releases the utterance, finished or not. It may be called while Hear or Finish run, and cancels them.
	Close() error
}

// ErrNoWordTimes is returned for word times that are asked of a recognizer without an aligner.
var ErrNoWordTimes = errors.New("this model gives no times of words")

// JoinTranscripts joins the texts of parts: with a space, except beside scripts that are written without.
func JoinTranscripts(parts ...string) string {
	var b strings.Builder
	var last rune
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		first, _ := utf8.DecodeRuneInString(part)
		if b.Len() > 0 && !unspaced(last) && !unspaced(first) {
			b.WriteByte(' ')
		}
		b.WriteString(part)
		last, _ = utf8.DecodeLastRuneInString(part)
	}
	return b.String()
}

// unspaced says that words of the rune's script are written without spaces between them.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) ||
		r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xffef
}
