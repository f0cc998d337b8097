package sphinx

import (
	"fmt"
	"strconv"
	"strings"
)

// maxFrames bounds the frames of a result: ten minutes.
const maxFrames = 10 * 60 * frameRate

// segment is a range of frames with its word and acoustic score: 0 is best.
type segment struct {
	word       string
	start, end int // frames
	score      int
}

// parseSegments parses a line of pocketsphinx_batch -hypseg: "name S n T n A n L n", then for each word its first frame, its
// acoustic score, another score and the word, and at last the number of frames. A word may have spaces. Without words nothing
// was found.
func parseSegments(line string) ([]segment, error) {
	const head = 9
	f := strings.Fields(line)
	if len(f) < head || f[1] != "S" || f[3] != "T" || f[5] != "A" || f[7] != "L" {
		return nil, fmt.Errorf("expected scores and words, got %.80q", line)
	}
	var out []segment
	for f = f[head:]; len(f) > 1; {
		start, err1 := strconv.Atoi(f[0])
		score, err2 := strconv.Atoi(f[1])
		if len(f) < 5 || err1 != nil || err2 != nil || start < -1 || start > maxFrames {
			return nil, fmt.Errorf("expected a frame, scores and a word, got %.80q", strings.Join(f, " "))
		}
		f = f[3:]
		n := 0
		for n < len(f) {
			if _, err := strconv.Atoi(f[n]); err == nil {
				break
			}
			n++
		}
		if n == 0 || n == len(f) {
			return nil, fmt.Errorf("expected a word and a frame after it, got %.80q", strings.Join(f, " "))
		}
		end, _ := strconv.Atoi(f[n]) // it is a number
		if end < start || end > maxFrames {
			return nil, fmt.Errorf("expected a frame after %d, got %d", start, end)
		}
		out = append(out, segment{strings.Join(f[:n], " "), max(0, start), max(0, end), score})
		f = f[n:]
	}
	return out, nil
}

// text returns the word without the number of its pronunciation: "the" of "the(2)".
func (s segment) text() string {
	w, _, _ := strings.Cut(s.word, "(")
	return w
}

// silent reports whether the segment is a pause.
func (s segment) silent() bool {
	return strings.HasPrefix(s.word, "<") || strings.HasPrefix(s.word, "(") || s.word == "SIL"
}

// spread returns the score of each frame: the score of its segment, divided evenly.
func spread(segments []segment) []float64 {
	if len(segments) == 0 {
		return nil
	}
	out := make([]float64, segments[len(segments)-1].end)
	for _, s := range segments {
		for i := s.start; i < min(s.end, len(out)); i++ {
			out[i] = float64(s.score) / float64(s.end-s.start)
		}
	}
	return out
}
