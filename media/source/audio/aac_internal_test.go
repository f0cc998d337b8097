package audio

import (
	"bytes"
	"testing"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/stretchr/testify/require"

	"touchline/media/source"
)

// FuzzAAC passes a camera's access units on to ffmpeg, and reads the stream that ffmpeg makes of them.
func FuzzAAC(f *testing.F) {
	f.Add([]byte{0x12, 0x10}, []byte{1, 2, 3}, uint32(1<<32-1), bytes.Repeat([]byte{0x47}, 376))
	f.Add([]byte{}, []byte{}, uint32(0), []byte{0x47, 0x40, 0, 0x10})
	f.Fuzz(func(t *testing.T, config, unit []byte, timestamp uint32, made []byte) {
		a := &AAC{clock: 48000, now: time.Now, in: make(chan []byte, queue), out: func(source.Opus) {}}
		var c mpeg4audio.AudioSpecificConfig
		if c.Unmarshal(config) == nil {
			a.Write(c, [][]byte{unit, unit}, timestamp)
			a.Write(c, [][]byte{unit}, timestamp+2048)
			_ = Last(c, 2, timestamp, 48000)
		}
		require.Error(t, a.read(bytes.NewReader(made)), "it ends")
	})
}
