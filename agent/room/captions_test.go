//go:build integration

package room_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/agenttest"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
)

// streamed is a text stream as a front end gets it.
type streamed struct {
	topic, text, from string
	attributes        map[string]string
}

// captionReader is a stock LiveKit client that collects the captions.
type captionReader struct {
	room *lksdk.Room

	mu       sync.Mutex
	streams  []streamed
	legacy   []*lksdk.TranscriptionSegment
	legacyOf []string // participant and track of each
	records  []look.Record
	heard    []agent.Heard
}

func joinCaptionReader(t *testing.T, s *server) *captionReader {
	t.Helper()
	return joinCaptionReaderAs(t, s, conn.Person{Room: "match", Identity: "reader"})
}

func joinCaptionReaderAs(t *testing.T, s *server, who conn.Person) *captionReader {
	t.Helper()
	token, err := conn.ViewerToken(s.keys(), who)
	require.NoError(t, err)
	return joinCaptionReaderBy(t, s, token)
}

func joinCaptionReaderBy(t *testing.T, s *server, token string) *captionReader {
	t.Helper()
	r := &captionReader{}
	cb := lksdk.NewRoomCallback()
	cb.OnTranscriptionReceived = func(segments []*lksdk.TranscriptionSegment, p lksdk.Participant, pub lksdk.TrackPublication) {
		r.mu.Lock()
		r.legacy = append(r.legacy, segments...)
		if pub, ok := pub.(*lksdk.RemoteTrackPublication); ok && pub != nil {
			r.legacyOf = append(r.legacyOf, p.Identity()+" "+pub.SID())
		}
		r.mu.Unlock()
	}
	cb.OnDataPacket = func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
		var rec look.Record
		if u, ok := data.(*lksdk.UserDataPacket); ok && u.Topic == control.TopicCycle && json.Unmarshal(u.Payload, &rec) == nil {
			r.mu.Lock()
			r.records = append(r.records, rec)
			r.mu.Unlock()
		}
		var h struct {
			Type string `json:"type"`
			agent.Heard
		}
		if u, ok := data.(*lksdk.UserDataPacket); ok && u.Topic == control.TopicControl && json.Unmarshal(u.Payload, &h) == nil && h.Type == "heard" {
			r.mu.Lock()
			r.heard = append(r.heard, h.Heard)
			r.mu.Unlock()
		}
	}
	person := lksdk.NewRoom(cb)
	r.room = person
	for _, topic := range []string{"lk.transcription", "lk.chat"} {
		require.NoError(t, person.RegisterTextStreamHandler(topic, func(tr *lksdk.TextStreamReader, from string) {
			text := tr.ReadAll()
			r.mu.Lock()
			r.streams = append(r.streams, streamed{topic, text, from, tr.Info.Attributes})
			r.mu.Unlock()
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, person.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(person.Disconnect)
	return r
}

// knows reports whether the reader sees a track.
func (r *captionReader) knows(identity, sid string) bool {
	p := r.room.GetParticipantByIdentity(identity)
	return p != nil && slices.ContainsFunc(p.TrackPublications(), func(pub lksdk.TrackPublication) bool { return pub.SID() == sid })
}

func (r *captionReader) got() (streams []streamed, legacy []*lksdk.TranscriptionSegment, records []look.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(streams, r.streams...), append(legacy, r.legacy...), append(records, r.records...)
}

func TestCaptions(t *testing.T) {
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := control.NewCaptions(bot, true, testLog(t))
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
	captions.Record(look.Record{Type: "cycle_end", Cycle: 1, Text: text, AlignmentError: 0.031, StartedAt: time.Unix(1, 5)})

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
	require.Equal(t, "en-GB", byKey["lk.transcription A throw-in."].attributes[control.AttributeLanguage])
	require.NotEqual(t, bot.VoiceSID(), byKey["lk.transcription A throw-in."].attributes["lk.transcribed_track_id"])

	require.Equal(t, "Red", legacy[0].Text)
	require.False(t, legacy[0].Final)
	require.Equal(t, text, legacy[3].Text)
	require.True(t, legacy[3].Final)
	require.Equal(t, look.Record{
		Type: "cycle_end", Cycle: 1, Text: text, AlignmentError: 0.031, StartedAt: time.Unix(1, 5).In(records[0].StartedAt.Location()),
	}, records[0])
}

// TestCaptionsOverlap ends an utterance after the next one has begun: each stays
// one stream with its own words, begun once.
func TestCaptionsOverlap(t *testing.T) {
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := control.NewCaptions(bot, false, testLog(t))
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

// TestHeard: what somebody says arrives in the speaker's name, as LiveKit's agents send it. The results of spoken orders reach those who may
// instruct, and the words only those who may read them, and the speaker.
func TestHeard(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	asked := control.New(control.Config{}, s.keys(), &agenttest.Steered{}, nil, nil, testLog(t))
	bot := startBot(t, s, func(o *room.Options) { o.Control = asked })
	captions := control.NewCaptions(bot, true, testLog(t))
	run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
	r := joinCaptionReader(t, s)
	boss := joinCaptionReaderAs(t, s, conn.Person{Room: "match", Identity: "boss", Attributes: control.Attributes(conn.Keys{}, access.Grant{Rights: access.Instruct})})
	chief := joinCaptionReaderAs(t, s, conn.Person{
		Room: "match", Identity: "chief", Attributes: control.Attributes(conn.Keys{}, access.Grant{Rights: access.Instruct | access.Transcribe}),
	})
	watch := joinCaptionReaderAs(t, s, conn.Person{Room: "match", Identity: "watch", Attributes: control.Attributes(conn.Keys{}, access.Grant{Rights: access.Watch})})
	may := joinCaptionReaderAs(t, s, conn.Person{
		Room: "match", Identity: "may", Attributes: control.Attributes(conn.Keys{}, access.Grant{Rights: access.Watch | access.Transcribe}),
	})
	// A camera's token lists no rights. LiveKit sends it data though it may not subscribe.
	token, err := conn.CameraToken(s.keys(), conn.Person{Room: "match", Identity: "camera"})
	require.NoError(t, err)
	camera := joinCaptionReaderBy(t, s, token)
	ann := joinSpeaker(t, s, speakerToken(t, s, "ann", 0), 2, webrtc.MimeTypeOpus, voicePace)
	eventually(t, func() bool {
		in := bot.CurrentRoom()
		return in != nil && in.GetParticipantByIdentity("ann") != nil && len(in.GetRemoteParticipants()) == 7
	}, "the bot sees all")
	eventually(t, func() bool { return r.knows("ann", ann.pub.SID()) && may.knows("ann", ann.pub.SID()) }, "they see the microphone")

	track := ann.pub.SID()
	say := func(text string, final bool, order *agent.SpokenOrder) {
		captions.Heard(agent.Heard{
			Segment: "SG_1", Identity: "ann", Track: track, Text: text, Language: "en", Final: final, Caption: true, Order: order,
		})
	}
	arrived := func(n int) {
		eventually(t, func() bool {
			streams, legacy, _ := r.got()
			allowed, older, _ := may.got()
			return len(streams) == n && len(legacy) == n && len(allowed) == n && len(older) == n
		}, "a text")
	}
	say("Hey", false, nil)
	arrived(1)
	say("Hey touchline", false, nil)
	arrived(2)
	say("Hey Touchline, shorter.", true, &agent.SpokenOrder{Text: "shorter", Command: command.Shorter})
	arrived(3)
	captions.Heard(agent.Heard{Segment: "SG_2", Identity: "ann", Text: "Hey Touchline, longer.", Final: true, Order: &agent.SpokenOrder{Text: "longer"}})

	streams, legacy, _ := r.got()
	for i, text := range []string{"Hey", "Hey touchline", "Hey Touchline, shorter."} {
		require.Equal(t, streamed{"lk.transcription", text, "ann", map[string]string{
			"lk.segment_id": "SG_1", "lk.transcription_final": strconv.FormatBool(i == 2), "lk.transcribed_track_id": track,
			control.AttributeLanguage: "en",
		}}, streams[i])
		require.Equal(t, text, legacy[i].Text)
		require.Equal(t, i == 2, legacy[i].Final)
		require.Equal(t, "en", legacy[i].Language)
		require.Equal(t, "SG_1", legacy[i].ID)
	}
	captions.Heard(agent.Heard{
		Segment: "SG_3", Identity: "boss", Text: "Hey Touchline, stop.", Final: true, Caption: true, Order: &agent.SpokenOrder{Text: "stop", Refused: "no"},
	})
	told := func(r *captionReader) (out []agent.Heard) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return append(out, r.heard...)
	}
	eventually(t, func() bool { return len(told(boss)) == 3 && len(told(chief)) == 3 }, "all orders")
	full, results := told(chief), told(boss)
	require.Equal(t, "Hey Touchline, shorter.", full[0].Text)
	require.Equal(t, "longer", full[1].Order.Text)
	require.Equal(t, agent.Heard{
		Segment: "SG_1", Identity: "ann", Track: track, Final: true, Caption: true, Order: &agent.SpokenOrder{Command: command.Shorter},
	}, results[0], "without the words")
	require.Empty(t, results[1].Text+results[1].Order.Text)
	require.Equal(t, "Hey Touchline, stop.", results[2].Text, "its own")
	require.Equal(t, "no", results[2].Order.Refused)
	eventually(t, func() bool { streams, _, _ := boss.got(); return len(streams) == 1 }, "its own words")
	streams, _, _ = boss.got()
	require.Equal(t, "Hey Touchline, stop.", streams[0].text)
	eventually(t, func() bool { streams, _, _ := r.got(); return len(streams) == 4 }, "the last order")
	streams, _, _ = r.got()
	require.NotContains(t, []string{streams[0].text, streams[1].text, streams[2].text, streams[3].text}, "Hey Touchline, longer.", "an order alone is no caption")
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.heard, "a viewer gets no orders")
	require.Equal(t, []string{"ann " + track, "ann " + track, "ann " + track}, r.legacyOf)

	captions.Caption(agent.Caption{Segment: "c", Text: "Saved!", Final: true})
	for _, without := range []*captionReader{watch, camera} {
		eventually(t, func() bool { streams, _, _ := without.got(); return len(streams) > 0 }, "a comment")
		streams, legacy, _ = without.got()
		for _, s := range streams {
			require.Equal(t, "Saved!", s.text, "no words of people")
		}
		for _, l := range legacy {
			require.Equal(t, "Saved!", l.Text)
		}
	}
}
