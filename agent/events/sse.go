package events

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// SSE formats a server-sent event.
func SSE(name string, data []byte) []byte {
	return slices.Concat([]byte("event: "+name+"\n"), dataLines(string(data)))
}

// dataLines formats an unnamed event: each line of the text has a data line.
func dataLines(text string) []byte {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var b bytes.Buffer
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("data: ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// withRoom adds the room's name to a JSON object.
func withRoom(room string, object []byte) []byte {
	if room == "" || len(object) < 3 {
		return object
	}
	return slices.Concat([]byte(`{"room":`), JSON(room), []byte(","), object[1:])
}

// JSON encodes a value of package agent. A value that JSON cannot express, such as NaN, becomes {"error": "..."}.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return b
}
