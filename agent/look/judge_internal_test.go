package look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/window"
)

// A picture of the source before, which comes late, does not keep out those of another source with smaller times.
func TestJudgeKeepsPicturesOfOneSource(t *testing.T) {
	j := &judge{keeps: true, pictures: album{most: judgedPictures}}
	picture := func(epoch uint32, pts time.Duration) window.Frame {
		return window.Frame{ID: uint64(epoch), VideoFrame: media.VideoFrame{Epoch: epoch, PTS: pts}}
	}
	j.observe(picture(1, time.Hour))
	j.observe(picture(2, time.Second))
	j.look(2, time.Second)
	kept, ok := j.pictures.at(time.Second)
	require.True(t, ok)
	require.EqualValues(t, 2, kept.Epoch)
	j.observe(picture(1, time.Second))
	j.look(2, time.Second)
	require.Len(t, j.pictures.last(judgedPictures), 1, "of another source")
	j.keep(false)
	require.Empty(t, j.pictures.last(judgedPictures))
}
