package room

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
)

// posted is the text that front ends assemble from the packets of captions.
type posted struct {
	text    map[string]string // by stream
	ended   map[string]bool
	records int
	alerts  int
}

// postCaptions runs captions over the items of fill, and returns the posted packets.
func postCaptions(t *testing.T, fill func(c *Captions)) (posted, *Captions) {
	t.Helper()
	got := posted{text: map[string]string{}, ended: map[string]bool{}}
	s, err := New(Options{
		URL: "ws://livekit.invalid", Keys: Keys{APIKey: "key", APISecret: "secret"}, Room: "match", Identity: "bot", Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	s.conn.room.Store(lksdk.NewRoom(nil))
	c := NewCaptions(s, false, zerolog.Nop())
	c.post = func(_ *lksdk.Room, p *livekit.DataPacket) error {
		if chunk := p.GetStreamChunk(); chunk != nil {
			got.text[chunk.GetStreamId()] += string(chunk.GetContent())
		}
		if trailer := p.GetStreamTrailer(); trailer != nil {
			got.ended[trailer.GetStreamId()] = true
		}
		if user := p.GetUser(); user != nil && user.GetTopic() == TopicAlert {
			got.alerts++
		} else if user != nil {
			got.records++
		}
		return nil
	}
	fill(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	return got, c
}

// TestCaptionsOverflow: more steps than the queue holds leave no word out and close every stream.
func TestCaptionsOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		want := map[string]string{}
		got, c := postCaptions(t, func(c *Captions) {
			for n := range 40 {
				segment, text := fmt.Sprint("s", n), ""
				for i := range captionQueue / 20 {
					word := fmt.Sprintf("%d-%d ", n, i)
					text += word
					c.Caption(agent.Caption{Segment: segment, Delta: word, Text: text})
				}
				c.Caption(agent.Caption{Segment: segment, Text: text, Final: true})
				c.Record(agent.Record{Cycle: uint64(n)})
				want[segment] = text
				c.Alert(agent.Alert{ID: segment}, nil)
			}
		})
		require.Equal(t, 40, got.alerts)
		require.Equal(t, want, got.text)
		require.Len(t, got.ended, 40)
		require.LessOrEqual(t, got.records, 40)
		require.NotZero(t, c.Lost(), "steps were merged, and that is counted")
	})
}

// TestCaptionOfOneLongSegment: later steps of a segment take the place of those that wait.
func TestCaptionOfOneLongSegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := ""
		got, _ := postCaptions(t, func(c *Captions) {
			for i := range 3 * captionQueue {
				word := fmt.Sprint(i, " ")
				text += word
				c.Caption(agent.Caption{Segment: "a", Delta: word, Text: text})
			}
			c.Caption(agent.Caption{Segment: "a", Text: text, Final: true})
		})
		require.Equal(t, map[string]string{"a": text}, got.text)
		require.True(t, got.ended["a"])
	})
}
