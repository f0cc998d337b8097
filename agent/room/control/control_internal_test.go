package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/livekit/protocol/auth"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/look"
	"touchline/agent/region"
	"touchline/agent/room/conn"
)

// quietBot counts its calls.
type quietBot struct {
	agent.Steerer

	comments []look.Record
	calls    []string
}

func (b *quietBot) History() []look.Record {
	b.calls = append(b.calls, "history")
	return b.comments
}
func (b *quietBot) Stop(by string)           { b.calls = append(b.calls, "stop by "+by) }
func (b *quietBot) Snapshot() agent.Snapshot { return agent.Snapshot{} }

func floodedControl(t *testing.T, bot *quietBot, log zerolog.Logger) *Control {
	t.Helper()
	keys := conn.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	c := New(Config{Identities: []string{"boss"}}, keys, bot, nil, nil, log)
	c.Attach(&presence{})
	c.pending = func(*lksdk.Room) uint64 { return 0 }
	return c
}

// ask runs an RPC request up to its answer.
func ask(c *Control, who caller, method, token string) error {
	now := time.Now()
	if err := c.admit(&who, nil, now); err != nil {
		return err
	}
	if err := c.authorise(&who, method, token, now); err != nil {
		return err
	}
	_, err := c.do(method, params{}, who)
	return err
}

// TestEveryRight walks the table of rights: every method with each right alone, from the participant's attribute and from a
// token.
func TestEveryRight(t *testing.T) {
	t.Parallel()
	c := floodedControl(t, &quietBot{}, zerolog.Nop())
	c.Unlimit()
	c.cfg.RoleAttribute, c.cfg.RoleValue = "role", "moderator"
	now := time.Now()
	const revoked = "00000000000000ff"
	c.keys.Links = access.NewLinks(nil, func(string, json.RawMessage) {}, now)
	require.NoError(t, c.keys.Links.Revoke("match", revoked, "", now))
	for _, method := range methods() {
		needed := access.Needed(method)
		require.NotEqual(t, access.Everything, needed, "%s: give it a row in agent/access", method)
		for right := access.Watch; right <= access.Transcribe; right <<= 1 {
			token, err := access.Sign(c.keys, access.Grant{
				Rooms: []string{"match"}, Rights: right, Expires: now.Add(time.Hour),
			}, now)
			require.NoError(t, err)
			elsewhere, err := access.Sign(c.keys, access.Grant{
				Rooms: []string{"elsewhere"}, Rights: right, Expires: now.Add(time.Hour),
			}, now)
			require.NoError(t, err)
			attribute := map[string]string{AttributeRights: right.String()}
			until := func(d time.Duration) map[string]string {
				return Attributes(c.keys, access.Grant{Rights: right, Expires: now.Add(d)})
			}
			role := func(d time.Duration) map[string]string {
				out := Attributes(c.keys, access.Grant{Expires: now.Add(d)})
				out["role"] = "moderator"
				return out
			}
			link := func(id string) map[string]string {
				return Attributes(c.keys, access.Grant{Rights: right, Links: []string{"0000000000000001", id}})
			}
			earlier := map[string]string{AttributeRights: right.String(), attributeLink: "spring/0000000000000001"}
			broken := map[string]string{AttributeRights: right.String(), attributeUntil: "soon"}
			for name, tt := range map[string]struct {
				who   caller
				token string
				may   bool
			}{
				"attribute":     {caller{identity: "a", known: true, attributes: attribute}, "", right.Allow(needed)},
				"for a minute":  {caller{identity: "a", known: true, attributes: until(time.Minute)}, "", right.Allow(needed)},
				"by a link":     {caller{identity: "a", known: true, attributes: link("0000000000000002")}, "", right.Allow(needed)},
				"revoked":       {caller{identity: "a", known: true, attributes: link(revoked)}, "", false},
				"generation":    {caller{identity: "a", known: true, attributes: earlier}, "", false},
				"expired":       {caller{identity: "a", known: true, attributes: until(0)}, "", false},
				"role":          {caller{identity: "a", known: true, attributes: role(time.Minute)}, "", access.AllInRoom.Allow(needed)},
				"role expired":  {caller{identity: "a", known: true, attributes: role(0)}, "", false},
				"never valid":   {caller{identity: "a", known: true, attributes: broken}, "", false},
				"its own":       {caller{identity: "a", known: true, attributes: attribute, ownAttributes: true}, "", false},
				"not there":     {caller{identity: "a", attributes: attribute}, "", false},
				"token":         {caller{identity: "a", known: true, ownAttributes: true}, token, right.Allow(needed)},
				"of other room": {caller{identity: "a", known: true}, elsewhere, false},
			} {
				require.NoError(t, c.admit(&tt.who, nil, now))
				err := c.authorise(&tt.who, method, tt.token, now)
				require.Equal(t, tt.may, err == nil, "%s with %s by %s: %v", method, right, name, err)
			}
		}
	}
	require.Nil(t, Attributes(c.keys, access.Grant{Rights: access.Process}))
	require.Equal(t, map[string]string{AttributeRights: "watch"}, Attributes(c.keys, access.Grant{Rights: access.Watch}), "a viewer may call status and rules")
	require.Equal(t, map[string]string{AttributeRights: "watch,rules"}, Attributes(c.keys, access.Grant{Rights: access.Watch | access.Rules | access.Process}))
}

// TestFloodOfRequests: few requests of a flood for the history are answered, and moderators are not affected.
func TestFloodOfRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		bot := &quietBot{}
		c := floodedControl(t, bot, zerolog.New(zerolog.SyncWriter(&log)))
		stranger := func(n int) caller { return caller{identity: fmt.Sprint("stranger", n), known: true, subscribes: true} }
		for range 1000 {
			if err := ask(c, stranger(0), methodHistory, ""); err != nil {
				require.ErrorIs(t, err, errBusy)
			}
		}
		require.Len(t, bot.calls, historyBurst)
		for n := range 1000 {
			_ = ask(c, stranger(n), methodHistory, "") // some are refused
		}
		require.Len(t, bot.calls, strangersBurst-2, "of all strangers together, two of whose requests were over the history limit")
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "refusals are logged at a bounded rate")
		require.Equal(t, Refusals{Limited: uint64(2000 - len(bot.calls))}, c.Refused())

		bot.calls = nil
		boss := caller{identity: "boss", known: true}
		require.NoError(t, ask(c, boss, methodStop, ""))
		token, err := auth.NewAccessToken(c.keys.APIKey, c.keys.APISecret).
			SetVideoGrant(&auth.VideoGrant{RoomAdmin: true, Room: "match"}).SetValidFor(time.Hour).ToJWT()
		require.NoError(t, err)
		require.NoError(t, ask(c, stranger(2000), methodStop, token))
		require.Equal(t, []string{"stop by room: boss", "stop by room: stranger2000"}, bot.calls)

		time.Sleep(time.Minute)
		require.NoError(t, ask(c, stranger(0), methodHistory, ""), "the flood is over")
	})
}

// TestFullDataChannel: requests of strangers add nothing to a full data channel.
func TestFullDataChannel(t *testing.T) {
	t.Parallel()
	bot := &quietBot{}
	c := floodedControl(t, bot, zerolog.Nop())
	c.pending = func(*lksdk.Room) uint64 { return maxPending + 1 }
	require.ErrorIs(t, ask(c, caller{identity: "ann", known: true, subscribes: true}, methodHistory, ""), errBusy)
	require.NoError(t, ask(c, caller{identity: "boss", known: true}, methodStop, ""))
}

// TestModeratorByToken: a participant whose token steers has a moderator's limits, but each request still needs its token.
func TestModeratorByToken(t *testing.T) {
	t.Parallel()
	bot := &quietBot{}
	c := floodedControl(t, bot, zerolog.Nop())
	token, err := auth.NewAccessToken(c.keys.APIKey, c.keys.APISecret).
		SetVideoGrant(&auth.VideoGrant{RoomAdmin: true, Room: "match"}).SetValidFor(time.Hour).ToJWT()
	require.NoError(t, err)
	who := caller{identity: "ann", known: true, subscribes: true}
	for n := range moderatorBurst {
		require.NoError(t, ask(c, who, methodStop, token), "request %d", n)
	}
	c.moderators = nil
	require.ErrorIs(t, ask(c, who, methodStop, ""), errRefused)
	require.Len(t, bot.calls, moderatorBurst)
	stranger := caller{identity: "bob", known: true, subscribes: true}
	require.ErrorIs(t, ask(c, stranger, methodStop, "no token"), errRefused)
	_, trusted := c.trusts(stranger, time.Now())
	require.False(t, trusted)
	require.Equal(t, Refusals{Denied: 2}, c.Refused())
}

// TestRequestsOfOneLink: the identities of one link, and of those that its holder made, have the requests of one moderator together; so
// have participants by their requests' tokens. Viewers by one link have those of all strangers.
func TestRequestsOfOneLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := floodedControl(t, &quietBot{}, zerolog.Nop())
		by := func(identity string, rights access.Rights, links ...string) caller {
			return caller{identity: identity, known: true, attributes: Attributes(c.keys, access.Grant{Rights: rights, Links: links})}
		}
		answered := func(most int, ask func(i int) error) (n int) {
			for i := range 10 * most {
				if err := ask(i); err == nil {
					n++
				} else {
					require.ErrorIs(t, err, errBusy)
				}
			}
			return n
		}
		steering := func(i int) error {
			links := []string{"0000000000000001"}
			if i%2 == 1 { // a link that its holder made
				links = []string{fmt.Sprintf("%016x", i+100), "0000000000000001"}
			}
			return ask(c, by(fmt.Sprint("steers", i%10), access.AllInRoom, links...), methodStop, "")
		}
		require.Equal(t, moderatorBurst, answered(moderatorBurst, steering))
		require.NoError(t, ask(c, by("boss", access.AllInRoom), methodStop, ""))
		require.NoError(t, ask(c, by("steers0", access.AllInRoom, "0000000000000002"), methodStop, ""), "another link")
		time.Sleep(time.Second)
		require.Equal(t, moderatorRate, answered(moderatorRate, steering))

		token, err := access.Sign(c.keys, access.Grant{Rooms: []string{"match"}, Rights: access.AllInRoom, Expires: time.Now().Add(time.Hour)}, time.Now())
		require.NoError(t, err)
		for i := range 10 { // the first request of each is a stranger's
			require.NoError(t, ask(c, caller{identity: fmt.Sprint("token", i), known: true}, methodStop, token))
		}
		require.Equal(t, moderatorBurst, answered(moderatorBurst, func(i int) error {
			return ask(c, caller{identity: fmt.Sprint("token", i%10), known: true}, methodStop, token)
		}))

		watching := func(i int) error {
			return ask(c, by(fmt.Sprint("watches", i), access.Watch, "0000000000000003"), methodStatus, "")
		}
		require.Equal(t, strangersBurst, answered(strangersBurst, watching))
		require.NoError(t, ask(c, by("a viewer", access.Watch, "0000000000000004"), methodStatus, ""))
	})
}

// TestModeratorsFirst: messages of moderators are neither dropped for those of others nor answered after them.
func TestModeratorsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bot := &quietBot{}
		c := floodedControl(t, bot, zerolog.Nop())
		c.Unlimit()
		room := lksdk.NewRoom(nil)
		for range 10 * controlQueue {
			c.enqueue(inbound{room: room, who: caller{identity: "ann", known: true, subscribes: true}}, []byte(`{"method":"history"}`), time.Now())
		}
		c.enqueue(inbound{room: room, who: caller{identity: "boss", known: true}}, []byte(`{"method":"stop"}`), time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Hour) // the library waits for a connection before each answer
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, "stop by room: boss", bot.calls[0])
		require.Len(t, bot.calls, 1+controlQueue)
	})
}

// TestHistoryIsCached: the JSON is made once for each comment.
func TestHistoryIsCached(t *testing.T) {
	t.Parallel()
	bot := &quietBot{comments: []look.Record{{Cycle: 1, Text: "Red scores.", EndedAt: time.Unix(1, 0)}}}
	c := floodedControl(t, bot, zerolog.Nop())
	first, err := c.history(nil)
	require.NoError(t, err)
	again, err := c.history(nil)
	require.NoError(t, err)
	require.Same(t, &first[0], &again[0])
	require.JSONEq(t, string(first), string(again))

	limited, err := c.history(new(1))
	require.NoError(t, err)
	require.NotSame(t, &first[0], &limited[0])
	bot.comments = append(bot.comments, look.Record{Cycle: 2, Text: "Blue too.", EndedAt: time.Unix(2, 0)})
	later, err := c.history(new(1))
	require.NoError(t, err)
	require.Contains(t, string(later), "Blue too.")
	require.NotContains(t, string(later), "Red")
}

// TestHandlerOf: the library keeps the handler of a data channel where the gate looks for it.
func TestHandlerOf(t *testing.T) {
	t.Parallel()
	pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pc.Close()) }()
	dc, err := pc.CreateDataChannel("x", nil)
	require.NoError(t, err)
	require.Nil(t, handlerOf(dc))
	called := false
	dc.OnMessage(func(webrtc.DataChannelMessage) { called = true })
	handlerOf(dc)(webrtc.DataChannelMessage{})
	require.True(t, called)
}

// talkingBot hears people.
type talkingBot struct {
	quietBot

	held map[string]bool
}

func (b *talkingBot) Talk(identity string, held bool) error {
	if identity == "mute" {
		return errors.New("no microphone")
	}
	b.held[identity] = held
	return nil
}

func TestTalk(t *testing.T) {
	t.Parallel()
	hold := func(b agent.Steerer, identity, payload string) (any, error) {
		c := New(Config{}, conn.Keys{}, b, nil, nil, zerolog.Nop())
		p, err := readParams([]byte(payload))
		require.NoError(t, err)
		return c.do("talk", p, caller{identity: identity})
	}
	_, err := hold(&quietBot{}, "ann", `{"held":true}`)
	require.ErrorIs(t, err, errDeaf)
	rpc, code := codes(err)
	require.EqualValues(t, 400, rpc)
	require.Equal(t, "bad_request", code)

	b := &talkingBot{held: map[string]bool{}}
	for _, held := range []bool{true, false} {
		got, err := hold(b, "ann", fmt.Sprintf(`{"held":%v}`, held))
		require.NoError(t, err)
		require.Equal(t, talking{held}, got)
		require.Equal(t, map[string]bool{"ann": held}, b.held)
	}
	_, err = hold(b, "ann", "")
	require.ErrorContains(t, err, `"held"`)
	_, err = hold(b, "mute", `{"held":true}`)
	require.ErrorContains(t, err, "no microphone")
}

// TestRegions: the methods change the regions of the room and answer with all, as many as fit.
func TestRegions(t *testing.T) {
	t.Parallel()
	do := func(c *Control, method, payload string) (RegionList, error) {
		p, err := readParams([]byte(payload))
		require.NoError(t, err)
		got, err := c.do(method, p, caller{identity: "ann"})
		list, _ := got.(RegionList)
		return list, err
	}
	_, err := do(New(Config{}, conn.Keys{}, &quietBot{}, nil, nil, zerolog.Nop()), "regions", "")
	require.ErrorIs(t, err, errNoRegions)

	set, err := region.NewSet(region.Config{})
	require.NoError(t, err)
	users := []string{"visitors"}
	set.Attach(nil, func(string) []string { return users }, nil)
	c := New(Config{}, conn.Keys{}, &quietBot{}, nil, set, zerolog.Nop())
	_, err = do(c, "put_region", `{"name":"door"}`)
	require.EqualError(t, err, `put_region: expected the parameter "region"`)
	_, err = do(c, "remove_region", ``)
	require.EqualError(t, err, `remove_region: expected the parameter "name"`)
	_, err = do(c, "put_region", `{"name":"door","region":{"kind":"hole","aspect":1.5,"points":[[0,0],[1,0],[0,1]]}}`)
	require.ErrorContains(t, err, "kind: must be mask, zone or line")
	var list RegionList
	for i := range region.MaxRegions {
		corners := ""
		for j := range 16 {
			corners += fmt.Sprintf("[%.12f,%.12f],", float64(j)/17+0.001, float64(j*j)/400+0.001)
		}
		list, err = do(c, "put_region", fmt.Sprintf(`{"name":"door %d","region":{"kind":"mask","aspect":1.5,"points":[%s]}}`, i, strings.TrimSuffix(corners, ",")))
		require.NoError(t, err)
	}
	require.True(t, list.More)
	require.Equal(t, "room: ann", list.Regions[0].By)
	seen := len(list.Regions)
	for list.More {
		list, err = do(c, "regions", fmt.Sprintf(`{"after":%q}`, list.Regions[len(list.Regions)-1].Name))
		require.NoError(t, err)
		seen += len(list.Regions)
	}
	require.Equal(t, region.MaxRegions, seen)
	_, err = do(c, "confirm_regions", "")
	require.ErrorIs(t, err, region.ErrNoPicture)
	_, err = do(c, "remove_region", `{"name":"door 1"}`)
	require.NoError(t, err)
	_, err = do(c, "put_region", `{"name":"yard","region":{"kind":"zone","aspect":1.5,"points":[[0,0],[1,0],[0,1]]}}`)
	require.NoError(t, err)
	_, err = do(c, "remove_region", `{"name":"yard"}`)
	require.EqualError(t, err, `remove_region: "yard": alert rules name it; change or remove them first: visitors`)
	users = nil
	list, err = do(c, "clear_regions", "")
	require.NoError(t, err)
	require.Empty(t, list.Regions)
}
