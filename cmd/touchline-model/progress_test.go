package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBar(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	b := &bar{out: &out, now: func() time.Time { return now }}
	b.Step("part", 0, 2000, 0, 0)
	b.Step("part", 500, 2000, 0, 0) // too soon for a line
	now = now.Add(lineInterval)
	b.Step("part", 1000, 2000, 50, 20*time.Second)
	b.Note("a word")
	b.Step("part", 2000, 2000, 50, 0)
	b.End()
	require.Equal(t, "  0 %  0 B of 2.0 kB  part\n 50 %  1.0 kB of 2.0 kB  50 B/s  20s left  part\na word\n"+
		"100 %  2.0 kB of 2.0 kB  50 B/s  part\n", out.String())

	out.Reset()
	b = &bar{out: &out, terminal: true, now: func() time.Time { return now }}
	b.Step("", 1, 2, 0, 0)
	b.Note("a word")
	b.End()
	require.Equal(t, "\r\x1b[K███████████████░░░░░░░░░░░░░░░  50 %  1 B of 2 B\r\x1b[Ka word\n\n", out.String())
}
