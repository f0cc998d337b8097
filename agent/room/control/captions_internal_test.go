package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/livekit/server-sdk-go/v2/e2ee"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
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
	s := &presence{}
	c := NewCaptions(s, false, zerolog.Nop())
	room := lksdk.NewRoom(nil)
	c.room = func() *lksdk.Room { return room }
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
				c.Record(look.Record{Cycle: uint64(n)})
				want[segment] = text
				c.Alert(alert.Alert{ID: segment}, nil)
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

// TestHeardOverflow: more words of people than the queue holds lose no final text, and mix up nobody's.
func TestHeardOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const people, words = captionQueue + 10, 30
		got, _ := postCaptions(t, func(c *Captions) {
			for word := range words {
				for who := range people {
					c.Heard(agent.Heard{
						Segment: fmt.Sprint("s", who), Identity: fmt.Sprint("p", who), Caption: true,
						Text: fmt.Sprintf("p%d says %d", who, word), Final: word == words-1,
					})
				}
			}
			for i := range captionQueue {
				c.Record(look.Record{Cycle: uint64(i)})
			}
		})
		finals := map[string]bool{}
		for _, text := range got.text {
			var who, word int
			_, err := fmt.Sscanf(text, "p%d says %d", &who, &word)
			require.NoError(t, err)
			if word == words-1 {
				finals[fmt.Sprint("p", who)] = true
			}
		}
		require.Len(t, finals, people)
		require.Len(t, got.ended, len(got.text), "every stream ends")
	})
}

// TestHeardWithoutAnAgentsToken: the server would put the bot's name under the words; that is said once.
func TestHeardWithoutAnAgentsToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		got, _ := postCaptions(t, func(c *Captions) {
			c.sup = &presence{mute: true}
			c.log = zerolog.New(zerolog.SyncWriter(&log))
			for n := range 3 {
				c.Heard(agent.Heard{Segment: strconv.Itoa(n), Identity: "ann", Text: "Hello.", Caption: true, Final: true})
			}
		})
		require.Empty(t, got.text)
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		require.Contains(t, log.String(), "the token is not an agent's")
	})
}

// TestTracklessCaptions: the older packets wait until there is a track to name, with the newest text of each segment, and streams do not.
func TestTracklessCaptions(t *testing.T) {
	t.Parallel()
	s := &presence{}
	c := NewCaptions(s, false, zerolog.Nop())
	room := lksdk.NewRoom(nil)
	c.room = func() *lksdk.Room { return room }
	var segments, streams []string
	c.post = func(_ *lksdk.Room, p *livekit.DataPacket) error {
		require.NoError(t, checkPacket(p))
		if old := p.GetTranscription(); old != nil {
			segments = append(segments, old.GetTrackId()+" "+old.GetSegments()[0].GetText())
		}
		if h := p.GetStreamHeader(); h != nil {
			streams = append(streams, h.GetStreamId())
			_, named := h.GetAttributes()[attrTrack]
			require.False(t, named, "the track of a text is the picture")
		}
		return nil
	}
	for _, step := range []agent.Caption{
		{Segment: "a", Text: "A"}, {Segment: "a", Text: "A throw-in.", Final: true}, {Segment: "b", Text: "A goal.", Final: true},
	} {
		c.Caption(step)
	}
	c.Heard(agent.Heard{Segment: "h", Identity: "ann", Text: "Hello.", Caption: true, Final: true})
	c.publish(t.Context())
	require.Equal(t, []string{"a", "b", "h-1"}, streams)
	require.Empty(t, segments)
	s.voice = "TR_voice"
	c.Caption(agent.Caption{Segment: "c", Text: "Half-time.", Final: true})
	c.publish(t.Context())
	require.Equal(t, []string{"TR_voice A throw-in.", "TR_voice A goal.", "TR_voice Half-time."}, segments)
}

// TestEncryptedCaptions: in an encrypted room, everything goes out in packets that LiveKit's library encrypts.
func TestEncryptedCaptions(t *testing.T) {
	t.Parallel()
	c := NewCaptions(&presence{voice: "TR_voice", encrypted: true}, true, zerolog.Nop())
	room := lksdk.NewRoom(nil)
	c.room = func() *lksdk.Room { return room }
	packets := 0
	c.post = func(_ *lksdk.Room, p *livekit.DataPacket) error {
		packets++
		require.NotNil(t, e2ee.DataPacketValueToPayload(p), "%v", p)
		return nil
	}
	c.Caption(agent.Caption{Segment: "a", Text: "A throw-in.", Final: true})
	c.Heard(agent.Heard{Segment: "h", Identity: "ann", Track: "TR_ann", Text: "Hello.", Caption: true, Final: true})
	c.Record(look.Record{Text: "A throw-in."})
	c.Order(command.OrderEvent{})
	c.Alert(alert.Alert{}, nil)
	c.publish(t.Context())
	require.Equal(t, 3+3+3+3, packets)
}

// TestCheckPacket: packets that a client library cannot take are not sent.
func TestCheckPacket(t *testing.T) {
	t.Parallel()
	transcription := func(identity, track string) *livekit.DataPacket {
		return &livekit.DataPacket{Value: &livekit.DataPacket_Transcription{Transcription: &livekit.Transcription{
			TranscribedParticipantIdentity: identity, TrackId: track,
		}}}
	}
	for _, ok := range []*livekit.DataPacket{
		transcription("ann", "TR_1"), streamHeader("s", topicChat, nil, time.Unix(0, 0)), streamChunk("s", 0, "é"), streamTrailer("s", nil),
		userPacket(TopicCycle, []byte("{}")),
	} {
		require.NoError(t, checkPacket(ok))
	}
	for name, bad := range map[string]*livekit.DataPacket{
		"no track": transcription("ann", ""), "not a track": transcription("ann", "PA_1"), "nobody": transcription("", "TR_1"),
		"no stream": streamHeader("", topicChat, nil, time.Unix(0, 0)), "no topic": streamHeader("s", "", nil, time.Unix(0, 0)),
		"no kind":       {Value: &livekit.DataPacket_StreamHeader{StreamHeader: &livekit.DataStream_Header{StreamId: "s", Topic: "t"}}},
		"half a letter": streamChunk("s", 0, "\xc3"), "chunk of none": streamChunk("", 0, "a"), "end of none": streamTrailer("", nil),
		"large": streamChunk("s", 0, strings.Repeat("a", maxPacket)), "empty": {},
	} {
		require.Error(t, checkPacket(bad), name)
	}
}

// TestHeardIsBounded: a text longer than a packet is cut between letters.
func TestHeardIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, _ := postCaptions(t, func(c *Captions) {
			c.Heard(agent.Heard{Segment: "a", Identity: "ann", Text: "x" + strings.Repeat("é", maxPayload), Caption: true, Final: true})
		})
		require.Equal(t, map[string]string{"a-1": "x" + strings.Repeat("é", maxPayload/2-1)}, got.text)
	})
}

// alertRoom runs captions, with what fill offers before, into a connection that comes and goes. It returns the phases that arrived.
func alertRoom(t *testing.T, fill func(c *Captions), f func(c *Captions, connect func(bool), refuse *atomic.Bool),
) (arrived []string, c *Captions) {
	t.Helper()
	s := &presence{}
	c = NewCaptions(s, false, zerolog.Nop())
	var refuse atomic.Bool
	var room atomic.Pointer[lksdk.Room]
	c.room = room.Load
	fill(c)
	c.post = func(_ *lksdk.Room, p *livekit.DataPacket) error {
		if refuse.Load() {
			return errors.New("not connected")
		}
		var a alert.Alert
		if user := p.GetUser(); user.GetTopic() == TopicAlert && json.Unmarshal(user.GetPayload(), &a) == nil {
			arrived = append(arrived, a.ID+" "+a.Phase)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	f(c, func(in bool) {
		if room.Store(nil); in {
			room.Store(lksdk.NewRoom(nil))
		}
	}, &refuse)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	return arrived, c
}

// TestAlertsOutliveAReconnect: the phases of alerts that fall into a reconnect reach the room afterwards, in order; other items do not.
func TestAlertsOutliveAReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrived, c := alertRoom(t, func(*Captions) {}, func(c *Captions, connect func(bool), refuse *atomic.Bool) {
			connect(true)
			c.Alert(alert.Alert{ID: "a", Phase: alert.PhaseNew}, nil)
			synctest.Wait()
			connect(false)
			c.Caption(agent.Caption{Segment: "s", Text: "A throw-in.", Final: true})
			c.Alert(alert.Alert{ID: "a", Phase: alert.PhaseCleared}, nil)
			time.Sleep(time.Hour)
			c.Alert(alert.Alert{ID: "b", Phase: alert.PhaseNew}, nil)
			synctest.Wait()
			connect(true)
			refuse.Store(true) // the library connects again by itself
			c.Alert(alert.Alert{ID: "c", Phase: alert.PhaseNew}, nil)
			time.Sleep(alertPatience / 2)
			refuse.Store(false)
			time.Sleep(2 * time.Second)
		})
		require.Equal(t, []string{"a new", "a cleared", "b new", "c new"}, arrived)
		require.Zero(t, c.Lost())
	})
}

// TestAlertsThatWaitAreBounded: of more alerts than the queue holds the newest are kept, and the loss is counted. Final texts go first.
func TestAlertsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrived, c := alertRoom(t, func(c *Captions) {
			for n := range finalQueue + 10 {
				c.Caption(agent.Caption{Segment: strconv.Itoa(n), Final: true})
			}
			require.Len(t, c.queue, finalQueue)
			for n := range finalQueue + 20 {
				c.Alert(alert.Alert{ID: strconv.Itoa(n)}, nil)
			}
		}, func(_ *Captions, connect func(bool), _ *atomic.Bool) {
			connect(true)
			time.Sleep(2 * time.Second)
		})
		require.Len(t, arrived, finalQueue)
		require.Equal(t, "20 ", arrived[0])
		require.EqualValues(t, finalQueue+30, c.Lost())
		require.EqualValues(t, 20, c.lostAlerts.Load())
	})
}

// TestAnAlertThatIsNeverTaken: it does not stop the captions for good.
func TestAnAlertThatIsNeverTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrived, c := alertRoom(t, func(*Captions) {}, func(c *Captions, connect func(bool), refuse *atomic.Bool) {
			connect(true)
			refuse.Store(true)
			c.Alert(alert.Alert{ID: "a"}, nil)
			time.Sleep(alertPatience + 2*time.Second)
			refuse.Store(false)
			c.Alert(alert.Alert{ID: "b"}, nil)
			time.Sleep(time.Second)
		})
		require.Equal(t, []string{"b "}, arrived)
		require.EqualValues(t, 1, c.Lost())
	})
}

// TestForgottenCaptions: deleted speech that is queued is published without words.
func TestForgottenCaptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, _ := postCaptions(t, func(c *Captions) {
			for _, who := range []string{"ann", "ben"} {
				c.Heard(agent.Heard{Segment: who, Identity: who, Text: who + " said", Caption: true, Final: true, Order: &agent.SpokenOrder{}})
			}
			c.ForgetHeard("ann")
		})
		require.Equal(t, []string{"ben said"}, slices.Collect(maps.Values(got.text)))
		require.Equal(t, 1, got.records, "the order of the other")
	})
}
