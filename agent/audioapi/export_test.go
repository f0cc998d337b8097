package audioapi

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
)

// Speech is how utterances are found.
func Speech() vad.Config { return speechConfig() }

// Captions lays out a transcript: "START END LINE/LINE".
func Captions(parts []inference.Transcript) (out []string) {
	for _, c := range captions(parts) {
		out = append(out, fmt.Sprintf("%v %v %s", seconds(c.Start), seconds(c.End), strings.Join(c.Lines, "/")))
	}
	return out
}

// DecodeWAV decodes a file.
func DecodeWAV(file []byte, most time.Duration) ([]float32, error) {
	return decodeWAV(bytes.NewReader(file), int64(len(file)), most)
}

// G711 decodes a sample of each law.
func G711(u, a byte) (fromULaw, fromALaw float32) {
	decode := func(format string, b byte) float32 {
		in, _ := newIntake(format, 0) // known formats
		in.sound([]byte{b})
		return in.mono[0]
	}
	return decode(ulaw, u), decode(alaw, a)
}

// Agreed is what two texts have in common.
func Agreed(a, b string) string { return agreed(a, b) }

// SoundWithin bounds the wait for the first sound, if d is not 0.
func (h *Handler) SoundWithin(d time.Duration) { h.soundTime = cmp.Or(d, h.soundTime) }

// TagOf is tagOf.
func TagOf(name string) (string, bool) { return tagOf(name) }

// ItemsAfterClears returns the number of items of a realtime session after n utterances, of which each was cleared, but for the first,
// which waits for its text.
func ItemsAfterClears(n int) int {
	v := &realtime{socket: &socket{gone: true}, id: "sess_" + strings.Repeat("x", 26), items: map[int]*realItem{}}
	v.heard(live.Event{Kind: live.StartOfSpeech, Utterance: 1})
	v.heard(live.Event{Kind: live.EndOfSpeech, Utterance: 1})
	for i := range n {
		v.heard(live.Event{Kind: live.StartOfSpeech, Utterance: 2 + i})
		v.heard(live.Event{Kind: live.Interim, Utterance: 2 + i, Text: "a word"})
	}
	return len(v.items)
}

// Put stores a final text for the return of a client of a link, and Take takes them.
func (t *Transcriber) Put(link, client, id, text string) {
	t.finals.put(returning{client, id, link}, text, time.Now())
}

// Take returns the final texts for a client.
func (t *Transcriber) Take(link, client, id string) []string {
	return t.finals.take(returning{client, id, link}, time.Now())
}

// Tune converts pieces of sound, one of each rate, and returns the number of computed filters.
func Tune(piece []float32, rates ...int) (sound []float32, filters int, err error) {
	var at tuner[float32]
	for _, rate := range rates {
		more, err := at.tune(piece, rate, inference.RecognizerRate)
		if err != nil {
			return sound, len(at.filters), err
		}
		sound = append(sound, more...)
	}
	return append(sound, at.end()...), len(at.filters), nil
}
