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

// RecognizerRate is the sample rate of all audio for recognizers: mono, float32 in [-1, 1].
const RecognizerRate = 16000

// Recognizer converts speech to text. It is safe for concurrent use.
type Recognizer interface {
	// Recognizes returns its capabilities.
	Recognizes() Recognizes
	// Transcribe transcribes a whole recording and yields its parts in order. A part may occur
	// several times with a longer text before its final one; a final part never changes. The
	// sequence ends after the last final part, or with a non-nil error as its last element.
	// Breaking out of the loop cancels the work.
	Transcribe(ctx context.Context, sound []float32, h Hearing) iter.Seq2[Transcript, error]
	// Listen starts one live utterance.
	Listen(ctx context.Context, h Hearing) (Utterance, error)
	// Align returns the times of the words of a known text in a recording, or ErrNoWordTimes.
	Align(ctx context.Context, sound []float32, text, language string) ([]Word, error)
	// Status returns the loading state, as Model.Status.
	Status() Status
	// Close waits for running work and releases the memory.
	Close() error
}

// Translator is an optional interface of a Recognizer that also translates speech in other languages to English.
type Translator interface {
	// Translate is Transcribe with texts in English.
	Translate(ctx context.Context, sound []float32, h Hearing) iter.Seq2[Transcript, error]
}

// Recognizes describes the capabilities of a recognizer.
type Recognizes struct {
	// Model is its name.
	Model string
	// Interim is the model of the interim texts, if another one writes them; a caller ends the wait for them with the utterance.
	Interim string
	// Languages are its BCP 47 tags; empty means unknown.
	Languages []string
	// WordTimes means that final parts can have words; Partials that an utterance returns interim texts.
	WordTimes, Partials bool
	// OrdersOnly means that it recognizes spoken orders only: the text of any other speech is "".
	OrdersOnly bool
}

// Hearing has the parameters of a transcription.
type Hearing struct {
	// Language is the BCP 47 tag of the speech; "" lets the recognizer detect it.
	Language string
	// Context is free text that helps with names and terms. It is untrusted: a recognizer does not
	// interpret control tokens in it.
	Context string
	// WordTimes requests the words of each final part.
	WordTimes bool
	// Temperature is the sampling temperature; 0 means greedy decoding.
	Temperature float64
	// WakeWords start a sentence for the commentator. Addressed means that this utterance is for the commentator without one: the speaker
	// uses push-to-talk, or said a wake word just before. Both help a recognizer of orders.
	WakeWords []string
	Addressed bool
	// Live means that a person waits while speaking: it takes precedence over recordings.
	Live bool
	// First takes precedence over other live speech in a recognizer that runs few at once: the speaker may instruct.
	First bool
}

// Transcript is the text of a part of a recording or of an utterance.
type Transcript struct {
	// Text is without markers; "" if there was no speech.
	Text string
	// Language is the BCP 47 tag that was detected or requested; "" if unknown.
	Language string
	// Start and End bound the part in the recording, from its first sample.
	Start, End time.Duration
	// Words are the words of a final part, if requested.
	Words []Word
	// Final means that this text will not change.
	Final bool
	// Audio and Tokens count the input and output: rows of audio and text tokens; 0 if unknown.
	Audio, Tokens int
}

// Word is one word of the text, with its times from the first sample of the recording.
type Word struct {
	Text       string
	Start, End time.Duration
}

// Utterance is one stretch of live speech. It is not safe for concurrent use: a caller that receives audio faster than the answers
// collects it meanwhile, so that each call has all new audio.
type Utterance interface {
	// Hear adds audio and returns the text of the utterance so far, not final. Finals of other utterances take precedence.
	Hear(ctx context.Context, sound []float32) (Transcript, error)
	// Finish adds the last audio and returns the final text.
	Finish(ctx context.Context, sound []float32) (Transcript, error)
	// Close releases the utterance, finished or not. It may be called during Hear or Finish, and cancels them.
	Close() error
}

// ErrNoWordTimes is returned if word times are requested from a recognizer without an aligner.
var ErrNoWordTimes = errors.New("this model gives no times of words")

// JoinTranscripts joins the texts of parts: with a space, except next to scripts without spaces.
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

// unspaced reports whether the rune's script is written without spaces between words.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) ||
		r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xffef
}
