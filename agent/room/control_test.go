//go:build integration

package room_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/room"
	"touchline/agent/room/control"
)

// person joins with any grants and keeps the control replies.
type person struct {
	room *lksdk.Room

	mu      sync.Mutex
	replies []map[string]any
}

func joinPerson(
	t *testing.T, s *server, identity string, kind livekit.ParticipantInfo_Kind, attributes map[string]string, ownMetadata bool,
) *person {
	t.Helper()
	grant := &auth.VideoGrant{RoomJoin: true, Room: "match", Agent: kind == livekit.ParticipantInfo_AGENT}
	grant.SetCanPublishData(true)
	grant.SetCanSubscribe(true)
	grant.SetCanUpdateOwnMetadata(ownMetadata)
	token, err := auth.NewAccessToken(s.APIKey(), s.APISecret()).SetIdentity(identity).SetKind(kind).
		SetAttributes(attributes).SetVideoGrant(grant).SetValidFor(time.Hour).ToJWT()
	require.NoError(t, err)
	p := &person{}
	cb := lksdk.NewRoomCallback()
	cb.OnDataPacket = func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
		u, ok := data.(*lksdk.UserDataPacket)
		if !ok || u.Topic != control.TopicControlReply {
			return
		}
		var r map[string]any
		if json.Unmarshal(u.Payload, &r) == nil {
			p.mu.Lock()
			p.replies = append(p.replies, r)
			p.mu.Unlock()
		}
	}
	p.room = lksdk.NewRoom(cb)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.room.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(p.room.Disconnect)
	return p
}

func (p *person) rpc(method, payload string) (string, error) {
	answer, err := p.room.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{
		DestinationIdentity: "bot", Method: method, Payload: payload,
	})
	if err != nil {
		return "", err
	}
	return *answer, nil
}

// repeat makes a call that changes nothing until it is answered. The client library expects an answer only after it has sent the call, so
// that it may lose one; and the server drops messages to a participant whose data channel is not open yet.
func (p *person) repeat(t *testing.T, method, payload string) (answer string, err error) {
	t.Helper()
	eventually(t, func() bool {
		answer, err = p.rpc(method, payload)
		var failed *lksdk.RpcError
		return !errors.As(err, &failed) || failed.Code != lksdk.RpcConnectionTimeout
	}, method+" is answered")
	return answer, err
}

// reach waits until the bot gets what a person sends.
func (p *person) reach(t *testing.T) {
	t.Helper()
	_, _ = p.repeat(t, "touchline.status", "") // it may be refused
}

// ask sends a message on the data topic and waits for its reply.
func (p *person) ask(t *testing.T, message string) map[string]any {
	t.Helper()
	p.mu.Lock()
	before := len(p.replies)
	p.mu.Unlock()
	packet := lksdk.UserData([]byte(message))
	packet.Topic = control.TopicControl
	require.NoError(t, p.room.LocalParticipant.PublishDataPacket(packet, lksdk.WithDataPublishReliable(true)))
	var reply map[string]any
	eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.replies) > before {
			reply = p.replies[before]
		}
		return reply != nil
	}, "no reply to "+message)
	return reply
}

func adminToken(t *testing.T, key, secret, roomName string, admin bool, life time.Duration) string {
	t.Helper()
	token, err := auth.NewAccessToken(key, secret).SetIdentity("anyone").
		SetVideoGrant(&auth.VideoGrant{RoomAdmin: admin, Room: roomName}).SetValidFor(life).ToJWT()
	require.NoError(t, err)
	return token
}

// signed makes a JWT of any claims.
func signed(secret, claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	body := enc([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return body + "." + enc(mac.Sum(nil))
}

func TestControl(t *testing.T) {
	s := startServer(t)
	st := &agenttest.Steered{}
	rules, err := alert.NewSet(alert.Config{})
	require.NoError(t, err)
	asked := control.New(control.Config{
		Identities: []string{"boss"}, RoleAttribute: "role", RoleValue: "producer",
	}, s.keys(), st, rules, nil, testLog(t))
	asked.Unlimit()
	bot := startBot(t, s, func(o *room.Options) { o.Control = asked })
	run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
	eventually(t, func() bool { return bot.CurrentRoom() != nil }, "the bot is in the room")

	standard := livekit.ParticipantInfo_STANDARD
	producer := map[string]string{"role": "producer"}
	boss := joinPerson(t, s, "boss", standard, nil, false)
	guest := joinPerson(t, s, "guest", standard, nil, false)
	sure := joinPerson(t, s, "sure", standard, producer, false)
	self := joinPerson(t, s, "self", standard, producer, true) // it could have given itself the role
	forger := joinPerson(t, s, "forger", livekit.ParticipantInfo_AGENT, nil, true)
	seen := func(identity string) func() bool {
		return func() bool { return bot.CurrentRoom().GetParticipantByIdentity(identity) != nil }
	}
	for _, id := range []string{"boss", "guest", "sure", "self", "forger"} {
		eventually(t, seen(id), id+" is seen by the bot")
	}
	for _, p := range []*person{boss, guest, sure, self, forger} {
		p.reach(t)
	}

	t.Run("moderators", func(t *testing.T) {
		answer, err := boss.rpc("touchline.set_instruction", `{"instruction":"the goalkeeper"}`)
		require.NoError(t, err)
		require.Contains(t, answer, `"engine":"test"`)
		require.Equal(t, true, sure.ask(t, `{"id":"7","method":"set_profile","params":{"profile":"sports"}}`)["ok"])
		require.Equal(t, true, boss.ask(t, `{"method":"update_settings","params":{"settings":{"speech":false}}}`)["ok"])
		require.Equal(t, true, boss.ask(t, `{"method":"stop"}`)["ok"])
		require.Equal(t, true, boss.ask(t, `{"method":"start","params":{"source":"camera:x"}}`)["ok"])
		_, err = boss.rpc("touchline.say", `{"text":"Half time.","reason":"desk","interrupt":true}`)
		require.NoError(t, err)
		_, err = boss.repeat(t, "touchline.say", `{"text":"busy"}`)
		require.ErrorContains(t, err, "speech queue is full")
		admin := adminToken(t, s.APIKey(), s.APISecret(), "match", true, time.Hour)
		require.Equal(t, true, guest.ask(t, `{"method":"clear_instruction","token":"`+admin+`"}`)["ok"])
		byHand := signed(s.APISecret(), fmt.Sprintf(
			`{"iss":%q,"exp":%d,"video":{"roomAdmin":true,"room":"match"}}`, s.APIKey(), time.Now().Add(time.Hour).Unix()))
		require.Equal(t, true, guest.ask(t, `{"method":"status","token":"`+byHand+`"}`)["ok"])
		_, err = guest.rpc("touchline.select_source", `{"source":"camera:y","token":"`+admin+`"}`)
		require.NoError(t, err)
		require.Equal(t, []string{
			"instruction the goalkeeper by room: boss", "profile sports by room: sure", "settings by room: boss",
			"stop by room: boss", "start camera:x by room: boss", `say "Half time." (desk, true) by room: boss`, "clear by room: guest", "source camera:y by room: guest",
		}, st.Orders())
	})

	t.Run("rules", func(t *testing.T) {
		call := func(method, payload string) string {
			t.Helper()
			answer, err := boss.rpc("touchline."+method, payload)
			require.NoError(t, err)
			return answer
		}
		require.Contains(t, call("add_rule", `{"rule":{"when":"a goal is scored","level":"critical"}}`), `{"id":"r1","when":"a goal is scored"`)
		require.Contains(t, call("replace_rule", `{"id":"r1","rule":{"when":"the pan smokes"}}`), `"when":"the pan smokes","level":"warning"`)
		require.Contains(t, call("snooze_rule", `{"id":"r1","for":"10m"}`), `"snoozed_by":"room: boss"`)
		require.Contains(t, call("rules", ""), `{"rules":[{"id":"r1"`)
		reply := sure.ask(t, `{"id":"8","method":"rules","params":{"after":"r1"}}`)
		require.Equal(t, map[string]any{"rules": []any{}, "more": false}, reply["result"])

		require.NoError(t, rules.Test("r1", time.Now()))
		fired := rules.Expire(time.Now())
		call("ack_alert", `{"alert":"`+fired[0].ID+`"}`)
		require.Equal(t, "room: boss", rules.Expire(time.Now())[0].AckedBy)

		for payload, want := range map[string]string{
			`{"rule":{"when":"","level":"loud"}}`: "level: must be info",
			`{}`:                                  `expected the parameter "rule"`,
			`{"rule":{"when":"x","color":1}}`:     "color",
		} {
			_, err := boss.repeat(t, "touchline.add_rule", payload)
			require.ErrorContains(t, err, want)
		}
		_, err := boss.repeat(t, "touchline.snooze_rule", `{"id":"r9","for":"1m"}`)
		require.ErrorContains(t, err, "no such alert rule")

		long := strings.Repeat("守", 200)
		for range 15 {
			added := boss.ask(t, `{"method":"add_rule","params":{"rule":{"when":"`+long+`","name":"`+long[:3*64]+`"}}}`)
			require.Equal(t, true, added["ok"])
		}
		answer, err := boss.repeat(t, "touchline.rules", "")
		require.NoError(t, err)
		require.Less(t, len(answer), 15<<10)
		require.Contains(t, answer, `"more":true`)
		require.Contains(t, call("remove_rule", `{"id":"r1"}`), `{"rules":[{"id":"r2"`)
	})

	before := len(st.Orders())
	refused := func(t *testing.T, reply map[string]any) {
		t.Helper()
		require.Equal(t, false, reply["ok"])
		require.Equal(t, "forbidden", reply["error"].(map[string]any)["code"])
	}
	stop := func(token string) string { return `{"method":"stop","token":"` + token + `"}` }

	t.Run("strangers", func(t *testing.T) {
		_, err := guest.repeat(t, "touchline.stop", "")
		var rpcErr *lksdk.RpcError
		require.ErrorAs(t, err, &rpcErr)
		require.Equal(t, lksdk.RpcErrorCode(403), rpcErr.Code)
		refused(t, guest.ask(t, `{"method":"stop"}`))
		for _, method := range []string{"rules", "add_rule", "replace_rule", "remove_rule", "snooze_rule", "ack_alert"} {
			refused(t, guest.ask(t, `{"method":"`+method+`"}`))
		}
		refused(t, self.ask(t, `{"method":"stop"}`))
		require.NotEmpty(t, forger.room.LocalParticipant.Identity())
	})
	t.Run("forged tokens", func(t *testing.T) {
		other := strings.Repeat("x", 40)
		refused(t, guest.ask(t, stop(adminToken(t, s.APIKey(), other, "match", true, time.Hour))))
		refused(t, guest.ask(t, stop(adminToken(t, "otherkey", s.APISecret(), "match", true, time.Hour))))
		refused(t, guest.ask(t, stop(adminToken(t, s.APIKey(), s.APISecret(), "elsewhere", true, time.Hour))))
		refused(t, guest.ask(t, stop(adminToken(t, s.APIKey(), s.APISecret(), "", true, time.Hour))))
		refused(t, guest.ask(t, stop(adminToken(t, s.APIKey(), s.APISecret(), "match", false, time.Hour))))
		refused(t, guest.ask(t, stop(signed(s.APISecret(), fmt.Sprintf(
			`{"iss":%q,"exp":%d,"video":{"roomAdmin":true,"room":"match"}}`, s.APIKey(), time.Now().Add(-time.Hour).Unix())))))
		refused(t, guest.ask(t, stop("rubbish")))
		// The algorithm "none" and a body of one's own.
		refused(t, guest.ask(t, stop("eyJhbGciOiJub25lIn0.eyJ2aWRlbyI6eyJyb29tQWRtaW4iOnRydWUsInJvb20iOiJtYXRjaCJ9fQ.")))
	})
	t.Run("forged senders", func(t *testing.T) {
		// An agent names another as the sender, in every place that has one.
		forged := &livekit.DataPacket{ParticipantIdentity: "boss", Value: &livekit.DataPacket_User{User: &livekit.UserPacket{
			Payload: []byte(`{"method":"stop"}`), Topic: new(control.TopicControl),
			ParticipantIdentity: "boss", //nolint:staticcheck // deprecated, and a forger does not mind
		}}}
		require.NoError(t, forger.room.LocalParticipant.PublishDataPacket(rawForged{forged}, lksdk.WithDataPublishReliable(true)))
		refused(t, forger.ask(t, `{"method":"stop"}`)) // by then the forged one was seen as well
		// A text stream on the control topic, and one on the chat, in another's name.
		for _, topic := range []string{control.TopicControl, "lk.chat"} {
			for _, p := range textStream("s-"+topic, topic, `{"method":"stop"}`) {
				p.ParticipantIdentity = "boss"
				require.NoError(t, forger.room.LocalParticipant.PublishDataPacket(rawForged{p}, lksdk.WithDataPublishReliable(true)))
			}
		}
		refused(t, forger.ask(t, `{"method":"stop"}`))
	})
	t.Run("bad requests of moderators", func(t *testing.T) {
		for _, message := range []string{
			`{`, `[]`, `{"method":"stop"} {}`, `{"method":"stop","colour":1}`, `{"method":"fly"}`,
			`{"method":"set_instruction"}`,
			`{"method":"set_instruction","params":{"instruction":7}}`, `{"method":"update_settings","params":{"settings":{"speed":1}}}`,
			`{"method":"set_instruction","params":{"instruction":"` + strings.Repeat("x", 14000) + `", "nonsense": 1}}`,
		} {
			reply := boss.ask(t, message)
			require.Equal(t, false, reply["ok"], message)
			require.Equal(t, "bad_request", reply["error"].(map[string]any)["code"], message)
			require.NotEmpty(t, reply["error"].(map[string]any)["message"])
		}
		_, err := boss.repeat(t, "touchline.fly", "{}")
		require.Error(t, err)
	})
	require.Len(t, st.Orders(), before, "only moderators steered")
}

// TestHistory: a late joiner that may subscribe may request the earlier comments.
func TestHistory(t *testing.T) {
	s := startServer(t)
	st := &agenttest.Steered{}
	asked := control.New(control.Config{}, s.keys(), st, nil, nil, testLog(t))
	asked.Unlimit()
	bot := startBot(t, s, func(o *room.Options) { o.Control = asked })
	run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
	eventually(t, func() bool { return bot.CurrentRoom() != nil }, "the bot is in the room")
	late := joinPerson(t, s, "late", livekit.ParticipantInfo_STANDARD, nil, false)
	token, err := auth.NewAccessToken(s.APIKey(), s.APISecret()).SetIdentity("deaf").SetVideoGrant(
		&auth.VideoGrant{RoomJoin: true, Room: "match", CanSubscribe: new(false), CanPublishData: new(true)}).ToJWT()
	require.NoError(t, err)
	deaf := &person{room: lksdk.NewRoom(lksdk.NewRoomCallback())}
	require.NoError(t, deaf.room.JoinWithContextAndToken(t.Context(), s.URL(), token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
	t.Cleanup(deaf.room.Disconnect)
	for _, id := range []string{"late", "deaf"} {
		eventually(t, func() bool { return bot.CurrentRoom().GetParticipantByIdentity(id) != nil }, id+" is seen by the bot")
	}
	late.reach(t)
	ask := func(payload string) (h control.History) {
		t.Helper()
		answer, err := late.repeat(t, "touchline.history", payload)
		require.NoError(t, err)
		require.LessOrEqual(t, len(answer), 15<<10)
		require.NoError(t, json.Unmarshal([]byte(answer), &h))
		return h
	}
	require.Equal(t, control.History{Comments: []control.PastComment{}}, ask(""))

	at := time.Now().UTC().Truncate(time.Millisecond)
	for i := range uint64(500) {
		st.Record(look.Record{
			Cycle: i, Outcome: look.OutcomeSpoken, Text: fmt.Sprintf("<Goal> %d %s", i, strings.Repeat("ü", int(i%97))),
			StartedAt: at, EndedAt: at.Add(time.Second), FrameIDs: []uint64{1, 2, 3},
		})
	}
	h := ask("")
	require.True(t, h.More)
	require.Greater(t, len(h.Comments), 40)
	records := st.History()
	for i, c := range h.Comments {
		want := records[len(records)-len(h.Comments)+i]
		require.Equal(t, control.PastComment{Cycle: want.Cycle, Text: want.Text, Outcome: "spoken", StartedAt: at, EndedAt: at.Add(time.Second)}, c)
	}
	h = ask(`{"limit":2}`)
	require.Equal(t, []uint64{498, 499}, []uint64{h.Comments[0].Cycle, h.Comments[1].Cycle})
	require.Len(t, h.Comments, 2)
	require.True(t, h.More)
	reply := late.ask(t, `{"id":"1","method":"history","params":{"limit":1}}`)
	require.Equal(t, true, reply["ok"])
	require.Len(t, reply["result"].(map[string]any)["comments"], 1)
	_, err = late.repeat(t, "touchline.history", `{"limit":0}`)
	require.ErrorContains(t, err, "limit")

	var refused *lksdk.RpcError
	_, err = deaf.repeat(t, "touchline.history", "")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, lksdk.RpcErrorCode(403), refused.Code)
	_, err = late.repeat(t, "touchline.stop", "")
	require.ErrorAs(t, err, &refused)
	require.Empty(t, st.Orders(), "reading is no steering")
}

// TestRPCFlood sends thousands of requests at once, also for an unknown method: few are acknowledged or
// answered, and a moderator is served meanwhile.
func TestRPCFlood(t *testing.T) {
	s := startServer(t)
	st := &agenttest.Steered{}
	asked := control.New(control.Config{Identities: []string{"boss"}}, s.keys(), st, nil, nil, testLog(t))
	bot := startBot(t, s, func(o *room.Options) { o.Control = asked })
	run(t, func(ctx context.Context) error { _ = asked.Run(ctx); return nil })
	eventually(t, func() bool { return bot.CurrentRoom() != nil }, "the bot is in the room")
	boss := joinPerson(t, s, "boss", livekit.ParticipantInfo_STANDARD, nil, false)
	flooder := joinPerson(t, s, "flooder", livekit.ParticipantInfo_STANDARD, nil, false)
	for _, id := range []string{"boss", "flooder"} {
		eventually(t, func() bool { return bot.CurrentRoom().GetParticipantByIdentity(id) != nil }, id+" is seen by the bot")
	}
	flooder.reach(t)
	answers, began := room.CountRPCAnswers(flooder.room), time.Now()
	for n := range 3000 {
		method := "touchline.history"
		if n%2 == 0 {
			method = "no.such.method"
		}
		require.NoError(t, flooder.room.LocalParticipant.PublishDataPacket(rawForged{&livekit.DataPacket{
			DestinationIdentities: []string{"bot"},
			Value: &livekit.DataPacket_RpcRequest{RpcRequest: &livekit.RpcRequest{
				Id: fmt.Sprint("flood-", n), Method: method, Version: 1, ResponseTimeoutMs: 1000,
			}},
		}}, lksdk.WithDataPublishReliable(true), lksdk.WithDataPublishDestination([]string{"bot"})))
	}
	_, err := boss.rpc("touchline.stop", "")
	require.NoError(t, err)
	require.Equal(t, []string{"stop by room: boss"}, st.Orders())
	// Ten requests a second are acknowledged and answered, and a busy machine sends 3000 for long.
	require.Less(t, answers.Load(), 300+int64(20*time.Since(began).Seconds()))
}

// TestFloodOfAnswers: any participant can send answers to calls that the bot did not make, and encrypted packets in a room without a key.
// The client library would log each; none reaches it.
func TestFloodOfAnswers(t *testing.T) {
	s := startServer(t)
	var logged atomic.Int64
	log := testLog(t).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, line string) {
		if strings.Contains(line, "unexpected RPC request") || strings.Contains(line, "encrypted data packet") {
			logged.Add(1)
		}
	}))
	asked := control.New(control.Config{}, s.keys(), &agenttest.Steered{}, nil, nil, log)
	bot := startBot(t, s, func(o *room.Options) { o.Control, o.Log = asked, log })
	eventually(t, func() bool { return bot.CurrentRoom() != nil }, "the bot is in the room")
	flooder := joinPerson(t, s, "flooder", livekit.ParticipantInfo_STANDARD, nil, false)
	eventually(t, func() bool { return bot.CurrentRoom().GetParticipantByIdentity("flooder") != nil }, "the flooder is seen by the bot")
	flooder.reach(t)
	packets := []*livekit.DataPacket{
		{Value: &livekit.DataPacket_RpcAck{RpcAck: &livekit.RpcAck{RequestId: "x"}}},
		{Value: &livekit.DataPacket_RpcResponse{RpcResponse: &livekit.RpcResponse{RequestId: "x", Value: &livekit.RpcResponse_Payload{}}}},
		{Value: &livekit.DataPacket_EncryptedPacket{EncryptedPacket: &livekit.EncryptedPacket{EncryptedValue: []byte("x")}}},
	}
	send := func(packet *livekit.DataPacket, reliable bool) {
		_ = flooder.room.LocalParticipant.PublishDataPacket(rawForged{packet}, lksdk.WithDataPublishReliable(reliable))
	}
	eventually(t, func() bool { // a lossy packet may be lost, or come before the limiter
		send(packets[0], false)
		return asked.Refused().Dropped > 0
	}, "a lossy answer is dropped")
	before, early := asked.Refused().Dropped, logged.Load()
	for range 100 {
		for _, packet := range packets {
			send(packet, true)
		}
	}
	eventually(t, func() bool { return asked.Refused().Dropped >= before+300 }, "all are dropped")
	require.Equal(t, early, logged.Load())
}

type rawForged struct{ *livekit.DataPacket }

func (r rawForged) ToProto() *livekit.DataPacket { return r.DataPacket }

func textStream(id, topic, text string) []*livekit.DataPacket {
	return []*livekit.DataPacket{
		{Value: &livekit.DataPacket_StreamHeader{StreamHeader: &livekit.DataStream_Header{
			StreamId: id, Topic: topic, MimeType: "text/plain", Timestamp: 1,
			ContentHeader: &livekit.DataStream_Header_TextHeader{TextHeader: &livekit.DataStream_TextHeader{}},
		}}},
		{Value: &livekit.DataPacket_StreamChunk{StreamChunk: &livekit.DataStream_Chunk{StreamId: id, Content: []byte(text)}}},
		{Value: &livekit.DataPacket_StreamTrailer{StreamTrailer: &livekit.DataStream_Trailer{StreamId: id}}},
	}
}
