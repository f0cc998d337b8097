package hub

// ContentRange parses the header's value.
func ContentRange(v string) (first, last, size int64, err error) { return contentRange(v) }
