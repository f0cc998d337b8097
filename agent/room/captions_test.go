//go:build integration

package room_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
)

// streamed is a text stream as a front end gets it.
type streamed struct {
	topic, text string
	attributes  map[string]string
}

// captionReader is a stock LiveKit client that collects the captions.
type captionReader struct {
	mu      sync.Mutex
	streams []streamed
	legacy  []*lksdk.TranscriptionSegment
	records []agent.Record
}

func joinCaptionReader(t *testing.T, s *server) *captionReader {
	t.Helper()
	r := &captionReader{}
	cb := lksdk.NewRoomCallback()
	cb.OnTranscriptionReceived = func(segments []*lksdk.TranscriptionSegment, _ lksdk.Participant, _ lksdk.TrackPublication) {
		r.mu.Lock()
		r.legacy = append(r.legacy, segments...)
		r.mu.Unlock()
	}
	cb.OnDataPacket = func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
		var rec agent.Record
		if u, ok := data.(*lksdk.UserDataPacket); ok && u.Topic == room.TopicCycle && json.Unmarshal(u.Payload, &rec) == nil {
			r.mu.Lock()
			r.records = append(r.records, rec)
			r.mu.Unlock()
		}
	}
	person := lksdk.NewRoom(cb)
	for _, topic := range []string{"lk.transcription", "lk.chat"} {
		require.NoError(t, person.RegisterTextStreamHandler(topic, func(tr *lksdk.TextStreamReader, _ string) {
			text := tr.ReadAll()
			r.mu.Lock()
			r.streams = append(r.streams, streamed{topic, text, tr.Info.Attributes})
			r.mu.Unlock()
		}))
	}
	token, err := room.ViewerToken(s.keys(), room.Person{Room: "match", Identity: "reader"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, person.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(person.Disconnect)
	return r
}

func (r *captionReader) got() (streams []streamed, legacy []*lksdk.TranscriptionSegment, records []agent.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(streams, r.streams...), append(legacy, r.legacy...), append(records, r.records...)
}

func TestCaptions(t *testing.T) {
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := room.NewCaptions(bot, true, testLog(t))
	run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
	eventually(t, func() bool { return bot.CurrentRoom() != nil && bot.VoiceSID() != "" }, "the bot is in the room")
	r := joinCaptionReader(t, s)
	eventually(t, func() bool { return bot.CurrentRoom().GetParticipantByIdentity("reader") != nil }, "the bot sees the reader")

	// Word by word with the voice, then a comment that is only text.
	text := ""
	for _, delta := range []string{"Red", " breaks", " down the left."} {
		text += delta
		captions.Caption(agent.Caption{Segment: "a", Cycle: 1, Delta: delta, Text: text, Spoken: true})
	}
	captions.Caption(agent.Caption{Segment: "a", Cycle: 1, Text: text, Spoken: true, Final: true})
	captions.Caption(agent.Caption{Segment: "b", Cycle: 2, Delta: "A throw-in.", Text: "A throw-in.", Final: true, Language: "en-GB"})
	captions.Record(agent.Record{Type: "cycle_end", Cycle: 1, Text: text, AlignmentError: 0.031, StartedAt: time.Unix(1, 5)})

	eventually(t, func() bool {
		streams, legacy, records := r.got()
		return len(streams) == 4 && len(legacy) == 5 && len(records) == 1
	}, "two captions, their chat copies, the older packets and the record")
	streams, legacy, records := r.got()
	byKey := map[string]streamed{}
	for _, st := range streams {
		byKey[st.topic+" "+st.text] = st
	}
	require.Contains(t, byKey, "lk.chat "+text)
	require.Contains(t, byKey, "lk.chat A throw-in.")
	spoken := byKey["lk.transcription "+text]
	require.Equal(t, map[string]string{
		"lk.segment_id": "a", "lk.transcription_final": "true", "lk.transcribed_track_id": bot.VoiceSID(),
	}, spoken.attributes)
	require.Equal(t, "b", byKey["lk.transcription A throw-in."].attributes["lk.segment_id"])
	require.Equal(t, "en-GB", byKey["lk.transcription A throw-in."].attributes[room.AttributeLanguage])
	require.NotEqual(t, bot.VoiceSID(), byKey["lk.transcription A throw-in."].attributes["lk.transcribed_track_id"])

	require.Equal(t, "Red", legacy[0].Text)
	require.False(t, legacy[0].Final)
	require.Equal(t, text, legacy[3].Text)
	require.True(t, legacy[3].Final)
	require.Equal(t, agent.Record{
		Type: "cycle_end", Cycle: 1, Text: text, AlignmentError: 0.031, StartedAt: time.Unix(1, 5).In(records[0].StartedAt.Location()),
	}, records[0])
}

// TestCaptionsOverlap ends an utterance after the next one has begun: each stays
// one stream with its own words, begun once.
func TestCaptionsOverlap(t *testing.T) {
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := room.NewCaptions(bot, false, testLog(t))
	run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
	eventually(t, func() bool { return bot.CurrentRoom() != nil }, "the bot is in the room")
	r := joinCaptionReader(t, s)
	eventually(t, func() bool { return bot.CurrentRoom().GetParticipantByIdentity("reader") != nil }, "the bot sees the reader")

	captions.Caption(agent.Caption{Segment: "a", Delta: "Red", Text: "Red"})
	captions.Caption(agent.Caption{Segment: "a", Delta: " shoots.", Text: "Red shoots."})
	captions.Caption(agent.Caption{Segment: "b", Delta: "Saved", Text: "Saved"})
	captions.Caption(agent.Caption{Segment: "a", Text: "Red shoots.", Final: true})
	captions.Caption(agent.Caption{Segment: "b", Delta: "!", Text: "Saved!"})
	captions.Caption(agent.Caption{Segment: "b", Text: "Saved!", Final: true})

	eventually(t, func() bool {
		streams, legacy, _ := r.got()
		return len(streams) >= 2 && len(legacy) == 6
	}, "two captions")
	streams, _, _ := r.got()
	texts := map[string]string{}
	for _, st := range streams {
		texts[st.attributes["lk.segment_id"]] = st.text
	}
	require.Len(t, streams, 2)
	require.Equal(t, map[string]string{"a": "Red shoots.", "b": "Saved!"}, texts)
}
