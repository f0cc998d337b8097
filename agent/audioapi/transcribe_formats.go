package audioapi

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"touchline/inference"
)

// usage is the "usage" of an answer: the sound that was read and the text that was written.
type usage struct {
	Type    string       `json:"type"`
	Seconds *float64     `json:"seconds,omitempty"`
	Input   *int         `json:"input_tokens,omitempty"`
	Output  *int         `json:"output_tokens,omitempty"`
	Total   *int         `json:"total_tokens,omitempty"`
	Detail  *inputTokens `json:"input_token_details,omitempty"`
}

type inputTokens struct {
	Audio int `json:"audio_tokens"`
	Text  int `json:"text_tokens"`
}

func usageOf(parts []inference.Transcript, sound time.Duration) usage {
	var audio, tokens int
	for _, p := range parts {
		audio, tokens = audio+p.Audio, tokens+p.Tokens
	}
	return usageFor(audio, tokens, sound)
}

// usageFor returns the usage in tokens where they are known, else in seconds.
func usageFor(audio, tokens int, sound time.Duration) usage {
	if audio == 0 {
		return usage{Type: "duration", Seconds: new(math.Ceil(sound.Seconds()))}
	}
	return usage{
		Type: "tokens", Input: new(audio), Output: new(tokens), Total: new(audio + tokens), Detail: &inputTokens{Audio: audio},
	}
}

// Transcription is the answer of POST /v1/audio/transcriptions as json; verbose_json has more.
type Transcription struct {
	Text       string      `json:"text"`
	Languages  []language  `json:"languages,omitempty"`
	Usage      usage       `json:"usage"`
	Language   string      `json:"language,omitempty" doc:"The first of languages."`
	Timestamps []timestamp `json:"timestamps,omitempty" doc:"With return_timestamps: words, or utterances without their times."`
}

// language is a detected language.
type language struct {
	Code string `json:"code"`
}

// languagesOf returns the languages of parts, in the order of their first words.
func languagesOf(parts ...inference.Transcript) (out []language) {
	for _, p := range parts {
		if l := (language{p.Language}); p.Text != "" && p.Language != "" && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// timestamp is a word or an utterance with its time.
type timestamp struct {
	Text  string  `json:"text"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

func timestampsOf(parts []inference.Transcript) (out []timestamp) {
	for _, p := range parts {
		words := p.Words
		if len(words) == 0 && p.Text != "" {
			words = []inference.Word{{Text: p.Text, Start: p.Start, End: p.End}}
		}
		for _, w := range words {
			out = append(out, timestamp{w.Text, seconds(w.Start), seconds(w.End)})
		}
	}
	return out
}

// diarized is the response_format with speakers. All speech is attributed to one speaker.
const diarized = "diarized_json"

// diarization is an answer as diarized_json.
type diarization struct {
	Task     string    `json:"task"`
	Duration float64   `json:"duration"`
	Text     string    `json:"text"`
	Segments []segment `json:"segments"`
	Usage    usage     `json:"usage"`
}

// segment is one utterance of a speaker, in a diarization or as an event.
type segment struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Start   float64 `json:"start"`
	End     float64 `json:"end"`
	Text    string  `json:"text"`
	Speaker string  `json:"speaker"`
}

func segmentOf(p inference.Transcript, n int) segment {
	return segment{"transcript.text.segment", "seg_" + strconv.Itoa(n), seconds(p.Start), seconds(p.End), p.Text, "A"}
}

func diarizationOf(parts []inference.Transcript, sound time.Duration) diarization {
	d := diarization{
		Task: "transcribe", Duration: seconds(sound), Text: whole(parts), Segments: []segment{}, Usage: usageOf(parts, sound),
	}
	for _, p := range parts {
		if p.Text != "" {
			d.Segments = append(d.Segments, segmentOf(p, len(d.Segments)))
		}
	}
	return d
}

// verbose is an answer as verbose_json.
type verbose struct {
	Task     string           `json:"task"`
	Language string           `json:"language"`
	Duration float64          `json:"duration"`
	Text     string           `json:"text"`
	Words    []verboseWord    `json:"words,omitempty"`
	Segments []verboseSegment `json:"segments,omitzero"`
	Usage    usage            `json:"usage"`
}

type verboseWord struct {
	Word  string  `json:"word"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

// verboseSegment has all fields that typed clients require. Log probabilities and tokens are not known.
type verboseSegment struct {
	ID          int     `json:"id"`
	Seek        int     `json:"seek"`
	Start       float64 `json:"start"`
	End         float64 `json:"end"`
	Text        string  `json:"text"`
	Tokens      []int   `json:"tokens"`
	Temperature float64 `json:"temperature"`
	AvgLogprob  float64 `json:"avg_logprob"`
	Compression float64 `json:"compression_ratio"`
	NoSpeech    float64 `json:"no_speech_prob"`
}

// whole is the text of all parts.
func whole(parts []inference.Transcript) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return inference.JoinTranscripts(texts...)
}

// written returns the parts in the form of the request, with its content type.
func written(o request, parts []inference.Transcript, sound time.Duration) (kind string, body []byte) {
	switch o.format {
	case "text":
		return "text/plain; charset=utf-8", []byte(whole(parts) + "\n")
	case "srt":
		return "application/x-subrip; charset=utf-8", []byte(srt(parts))
	case "vtt":
		return "text/vtt; charset=utf-8", []byte(vtt(parts))
	case "verbose_json":
		body, _ = json.Marshal(verboseOf(o, parts, sound)) // strings and finite numbers always marshal
	case diarized:
		body, _ = json.Marshal(diarizationOf(parts, sound)) // as above
	default:
		t := Transcription{Text: whole(parts), Languages: languagesOf(parts...), Usage: usageOf(parts, sound)}
		if len(t.Languages) > 0 {
			t.Language = t.Languages[0].Code
		}
		if o.stamps {
			t.Timestamps = timestampsOf(parts)
		}
		body, _ = json.Marshal(t) // as above
	}
	return "application/json; charset=utf-8", body
}

// write answers in the form of the request.
func write(w http.ResponseWriter, o request, parts []inference.Transcript, sound time.Duration) {
	kind, body := written(o, parts, sound)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) //nolint:gosec // JSON, text or subtitles; a failed write means that the client has disconnected
}

// seconds rounds a time for JSON.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

func verboseOf(o request, parts []inference.Transcript, sound time.Duration) verbose {
	v := verbose{Task: "transcribe", Duration: seconds(sound), Text: whole(parts), Usage: usageOf(parts, sound)}
	if o.translate != "" {
		v.Task = "translate"
	}
	tag := o.hearing.Language
	for _, p := range parts {
		tag = cmp.Or(tag, p.Language)
	}
	v.Language = inference.LanguageName(tag)
	if o.segments {
		v.Segments = []verboseSegment{}
	}
	for _, p := range parts {
		if o.words {
			for _, w := range p.Words {
				v.Words = append(v.Words, verboseWord{w.Text, seconds(w.Start), seconds(w.End)})
			}
		}
		if o.segments && p.Text != "" {
			v.Segments = append(v.Segments, verboseSegment{
				ID: len(v.Segments), Seek: int(p.Start / (10 * time.Millisecond)), Start: seconds(p.Start), End: seconds(p.End), Text: p.Text,
				Tokens: []int{}, Temperature: o.hearing.Temperature, Compression: compression(p.Text),
			})
		}
	}
	return v
}

// compression is the ratio by which zlib shortens a text. A high ratio shows repetitions.
func compression(text string) float64 {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // a buffer takes all
	_ = z.Close()                // as above
	return math.Round(float64(len(text))/float64(b.Len())*1000) / 1000
}
