package file

import (
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"touchline/internal/child"
	"touchline/media/source"
)

// vague lines of ffmpeg repeat that something failed, prefix is the part of ffmpeg that wrote a line.
var (
	vague = regexp.MustCompile(`Invalid data found when processing input$|Conversion failed!$|^Error opening input files?[ :]|` +
		`^Last message repeated|Nothing was written into output|^Error (initializing|opening) output|^Task finished|` +
		`does not contain any stream$|incorrect parameters such as bit_rate|^Error when loading first segment`)
	prefix = regexp.MustCompile(`^(\[[^]]*\] *)+`)
)

// noIndex is ffmpeg's line about an MP4 that has not been finished, and about anything with that name.
const noIndex = "moov atom not found"

// unfinished reports whether ffmpeg failed on a file that begins as an MP4 does (ISO 14496-12, section 4.3), and is no HEIF picture, which
// has no such index (ISO 23008-12, section 10).
func (in input) unfinished(stderr *tail) bool {
	if in.info == nil || !strings.Contains(stderr.text(), noIndex) {
		return false
	}
	f, err := os.Open(strings.TrimPrefix(in.url, "file:"))
	if err != nil {
		return false
	}
	defer f.Close()
	var head [12]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && slices.Contains([]string{"ftyp", "mdat", "moov", "wide", "free", "skip"}, string(head[4:8])) &&
		!slices.Contains([]string{"heic", "heix", "hevc", "mif1", "msf1", "avif", "avis"}, string(head[8:]))
}

// remedies complete a line of ffmpeg.
var remedies = []struct{ line, remedy string }{ //nolint:gochecknoglobals // a table
	{noIndex, "the file is incomplete: its index is missing, as in a recording that has not ended or a copy that was cut off"},
	{"not on whitelist", "a playlist on disk may name files only; give the address itself"},
	{"Protocol not found", "a playlist on disk may name files only; give the address itself"},
	{"Unable to open key file", "its pictures are encrypted, and ffmpeg cannot get the key (DRM)"},
	{"partial file", "the server cannot seek and the index is at the end of the file; write it with -movflags faststart"},
	{"No space left", "free some space"},
}

// useful returns the line of ffmpeg's messages that names the cause: the last one that is not vague; "" for none.
func useful(text string, in input) (line string) {
	for l := range strings.Lines(text) {
		l = prefix.ReplaceAllString(strings.TrimSpace(l), "")
		if l = strings.TrimPrefix(l, in.url+": "); l != "" && !vague.MatchString(l) {
			line = l
		}
	}
	return line
}

// explain returns the error of the proxy, or else the useful line of ffmpeg and what to do.
func (c *Clip) explain(in input, what string, err error, stderr *tail) error {
	if failed := in.failure(); failed != nil {
		return source.Errorf(what+": %w", failed)
	}
	text := stderr.text()
	if errors.Is(err, child.ErrMemory) {
		text = ""
	}
	line := useful(text, in)
	if line == noIndex && in.info != nil && !in.unfinished(stderr) {
		line = ""
	}
	if strings.TrimSpace(text) == "" {
		return source.Errorf(what+": %w", err)
	}
	remedy := ""
	if line == "" || strings.Contains(text, "Invalid data found when processing input") {
		remedy = "it is no video or picture that ffmpeg can read"
	}
	for _, r := range remedies {
		if strings.Contains(line, r.line) {
			remedy = r.remedy
			break
		}
	}
	if line != "" && remedy != "" {
		line += "; "
	}
	line += remedy
	if u := c.opts.Address.URL; u != nil {
		line = strings.ReplaceAll(line, "http://"+pseudoHost, u.Scheme+"://"+u.Host)
	}
	return source.Errorf(what+": %s", strings.ReplaceAll(line, "file:"+c.opts.Address.Path, c.opts.Address.String()))
}

// tail keeps the end of a program's output.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if n := len(t.last) - most; n > 0 {
		t.last = t.last[n:]
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
