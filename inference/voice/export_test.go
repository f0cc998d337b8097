package voice

// ParseWAV is the reader of the programs' sound.
func ParseWAV(b []byte) (rate int, pcm []int16, err error) { return parseWAV(b) }

// Split cuts a text that comes in the deltas given.
func Split(deltas ...string) []string {
	var s splitter
	var pieces []string
	for _, d := range deltas {
		pieces = append(pieces, s.push(d)...)
	}
	return append(pieces, s.end()...)
}

// Script is what a program is given to read for a text.
func Script(text string) string { return script(tokenize(text)) }
