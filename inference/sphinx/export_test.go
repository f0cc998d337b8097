package sphinx

// Segments returns the words of a line of results and their ends.
func Segments(line string) (words []string, ends []int, err error) {
	list, err := parseSegments(line)
	for _, s := range list {
		words, ends = append(words, s.text()), append(ends, s.end)
	}
	spread(list)
	compare(list, list)
	return words, ends, err
}

// Grammar is grammar.
func Grammar(wake, orders []string, addressed bool) string { return grammar(wake, orders, addressed) }
