package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/alert"
	"touchline/agent/region"
	"touchline/agent/room/conn"
	"touchline/internal/limit"
	"touchline/internal/rescue"
	"touchline/media/signaling"
)

// Topics of the control messages.
const (
	// TopicControl carries requests: {"id", "method", "params", "token"}.
	TopicControl = "touchline.control"
	// TopicControlReply carries the replies to the sender: {"id", "ok", "result", "error"}.
	TopicControlReply = "touchline.control.reply"
	// RPCPrefix is the prefix of the RPC methods. The rest of their names are the methods of TopicControl.
	RPCPrefix = "touchline."
)

// errRefused is the answer to callers without the right.
var errRefused = errors.New("refused: it takes a listed identity, the configured role, the right in the attribute " + AttributeRights +
	", a shared link's token with the right, or an access token with roomAdmin for this room")

// AttributeRights is the attribute that lists the rights of a participant, separated by commas. It is valid only if the
// participant cannot set its own attributes.
const AttributeRights = "touchline.rights"

// attributeUntil is the attribute with the end of a participant's rights, in seconds since 1970. It is valid as AttributeRights is.
const attributeUntil = "touchline.rights_until"

// attributeLink is the attribute with the links that a participant's rights depend on; see access.Keys.Mark. It is valid as
// AttributeRights is.
const attributeLink = "touchline.link"

// Attributes returns the attributes of a participant with the rights, the end and the links of a grant. It returns nil for a
// participant without rights, whose presence does not end either.
func Attributes(keys conn.Keys, by access.Grant) map[string]string {
	out := map[string]string{}
	if rights := by.Rights & access.AllInRoom; rights != 0 {
		out[AttributeRights] = rights.String()
	}
	if !by.Expires.IsZero() {
		out[attributeUntil] = strconv.FormatInt(by.Expires.Unix(), 10)
	}
	if len(by.Links) > 0 {
		out[attributeLink] = keys.Mark(by.Links)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// errUnread is the answer to callers that may not subscribe.
var errUnread = fmt.Errorf("%w; the history is also for participants that may subscribe", errRefused)

// errBusy is the answer to requests beyond the limits.
var errBusy = errors.New("too many requests; try again in a few seconds")

// errStale is the answer to requests that may be from before a standstill of the process.
var errStale = fmt.Errorf("%w; this process stood still", errBusy)

// The limits of requests: how many a second, and how many at once.
const (
	// For each moderator, a participant with any right but watching. Those by one link count as one.
	moderatorRate, moderatorBurst = 20, 40
	// For each stranger, which is any other participant, for those by one link, and for all together that lack a right.
	strangerRate, strangerBurst   = 2, 5
	strangersRate, strangersBurst = 50, 100
	// For each stranger's requests for the history.
	historyRate, historyBurst = 0.5, 3
	// maxPending is the number of bytes waiting for the data channel above which requests of strangers are refused.
	maxPending = 256 << 10
	// refusalEvery is the interval of log lines about refused requests.
	refusalEvery = 10 * time.Second
)

// maxRequest bounds a control message, in bytes; RPC payloads are bounded by LiveKit at 15 kB.
const maxRequest = 16 << 10

// Control lets participants steer from inside the room. A listed identity, the role attribute of a participant that cannot set its
// own attributes, and an access token with roomAdmin for this room, signed with the bot's key, give all rights. AttributeRights and
// tokens of package access give the listed rights.
//
// Text streams never steer, because agents can send them under another identity.
type Control struct {
	cfg  Config
	keys conn.Keys
	bot  agent.Steerer
	// rules of the room; nil without.
	rules *alert.Set
	// regions of the room; nil without.
	regions *region.Set
	log     zerolog.Logger
	sup     Room // set by Attach

	moderators             *limit.Limiter[moderator]
	strangers, histories   *limit.Limiter[string]   // by identity
	links                  *limit.Limiter[string]   // strangers of one link together
	all                    *limit.Limiter[struct{}] // strangers together
	pending                func(room *lksdk.Room) uint64
	refusals               conn.WarnLimiter
	limited, denied, stale atomic.Uint64 // see Refused
	flood                  *floodLimiter // set by Attach
	still                  limit.Standstill

	// Messages on TopicControl wait for Run: those from moderators in first, all others in rest.
	first, rest chan inbound

	trustedMu sync.Mutex
	trusted   map[string]trust // by participant whose token steered

	cacheMu sync.Mutex
	cache   cachedHistory
}

// moderator has a bucket of requests: a link, or a participant without one.
type moderator struct{ link, identity string }

// inbound is one admitted message on TopicControl.
type inbound struct {
	room *lksdk.Room
	req  request
	who  caller
	came time.Time
	err  error // the answer, if it is an error
}

// controlQueue bounds the waiting messages of each queue. Further messages are dropped.
const controlQueue = 32

// New returns a Control for a room. keys verify the tokens in requests; without a secret, no token is accepted. rules and
// regions may be nil. The caller starts Run.
func New(cfg Config, keys conn.Keys, bot agent.Steerer, rules *alert.Set, regions *region.Set, log zerolog.Logger) *Control {
	return &Control{
		cfg: cfg, keys: keys, bot: bot, rules: rules, regions: regions,
		log:        log.With().Str("component", "control").Logger(),
		moderators: limit.New[moderator](moderatorRate, moderatorBurst),
		strangers:  limit.New[string](strangerRate, strangerBurst),
		histories:  limit.New[string](historyRate, historyBurst),
		links:      limit.New[string](strangersRate, strangersBurst),
		all:        limit.New[struct{}](strangersRate, strangersBurst),
		pending:    pendingBytes,
		refusals:   conn.WarnLimiter{Every: refusalEvery},
		trusted:    map[string]trust{},
		first:      make(chan inbound, controlQueue),
		rest:       make(chan inbound, controlQueue),
	}
}

// Room is the presence of the bot in a room.
type Room interface {
	RoomName() string
	Identity() string
	// CurrentRoom returns the present connection, nil between connections.
	CurrentRoom() *lksdk.Room
	// VoiceSID and VideoSID return the present ids of the voice and of the delayed picture.
	VoiceSID() string
	VideoSID() string
	SetState(s agent.Status)
	// Instructors lists the participants that may instruct the commentator.
	Instructors(room *lksdk.Room) []string
	// Readers lists the participants that may read what people say. It returns true if all of the room may.
	Readers(room *lksdk.Room) (identities []string, all bool)
	// Transcribes reports whether the server lets the bot send text in the name of others.
	Transcribes() bool
	// Encrypted reports whether everything that the bot publishes is end-to-end encrypted.
	Encrypted() bool
	// Fail ends the run with the panic of a callback.
	Fail(err error)
}

// Attach makes c the control of a room, before it connects. Call Register and Data for each connection.
func (c *Control) Attach(sup Room) {
	c.sup = sup
	c.flood = &floodLimiter{
		requests: newFloodRates(floodRate, floodBurst), sealed: newFloodRates(sealedRate, sealedBurst),
		fail: sup.Fail, encrypted: sup.Encrypted,
		link: func(room *lksdk.Room, identity string) string {
			return c.linkOf(callerOf(room.GetParticipantByIdentity(identity), identity), time.Now())
		},
		trusted: func(room *lksdk.Room, identity string) bool {
			return steers(c.rightsOf(callerOf(room.GetParticipantByIdentity(identity), identity), time.Now()))
		},
	}
}

// Check limits the RPC requests on the present data channel of a room. It is called all the time while the bot is in the room.
func (c *Control) Check(room *lksdk.Room) {
	c.still.Check(time.Now())
	c.flood.check(room)
}

// Rights returns what a participant may do.
func (c *Control) Rights(p *lksdk.RemoteParticipant, now time.Time) access.Rights {
	return c.rightsOf(callerOf(p, p.Identity()), now)
}

// Reads reports whether a participant may read what people say: with listed rights, only if the right is one of them; without, only if
// it may subscribe, which a camera may not.
func (c *Control) Reads(p *lksdk.RemoteParticipant, now time.Time) bool {
	_, listed := p.Attributes()[AttributeRights]
	return !listed && p.Permissions().GetCanSubscribe() || c.Rights(p, now).Allow(access.Needed("heard"))
}

// Link returns the id of the link that a participant's own comes from; "" for none, and for one that may set its own attributes.
func (c *Control) Link(p *lksdk.RemoteParticipant, now time.Time) string {
	return c.linkOf(callerOf(p, p.Identity()), now)
}

func (c *Control) linkOf(who caller, now time.Time) string {
	if !who.known || who.ownAttributes {
		return ""
	}
	return RootLink(c.keys, who.attributes, now)
}

// Ended returns the reason why a participant's rights have ended, and with them its presence in the room; nil if they have not.
func (c *Control) Ended(p *lksdk.RemoteParticipant, now time.Time) error {
	who := callerOf(p, p.Identity())
	if slices.Contains(c.cfg.Identities, who.identity) || who.ownAttributes {
		return nil
	}
	return c.ended(who, now)
}

// Unlimit removes the limits of requests, for tests.
func (c *Control) Unlimit() {
	c.moderators, c.strangers, c.histories, c.links, c.all = nil, nil, nil, nil, nil
}

// Register registers the RPC methods of a room before it is joined.
func (c *Control) Register(room *lksdk.Room) {
	c.still.Reset(time.Now())
	for _, m := range methods() {
		err := room.RegisterRpcMethod(RPCPrefix+m, func(in lksdk.RpcInvocationData) (string, error) {
			defer rescue.Guard(c.sup.Fail)
			result, err := c.rpc(room, in, m)
			if err != nil {
				code, _ := codes(err)
				return "", lksdk.NewRpcError(code, err.Error(), nil)
			}
			b, err := json.Marshal(result)
			if err != nil {
				return "", fmt.Errorf("write the answer: %w", err)
			}
			return string(b), nil
		})
		if err != nil {
			c.log.Error().Err(err).Str("method", m).Msg("RPC method not registered")
		}
	}
}

func (c *Control) rpc(room *lksdk.Room, in lksdk.RpcInvocationData, method string) (any, error) {
	now := time.Now()
	who := callerOf(room.GetParticipantByIdentity(in.CallerIdentity), in.CallerIdentity)
	if err := c.admit(&who, room, now); err != nil {
		return nil, err
	}
	p, err := readParams([]byte(in.Payload))
	if err != nil {
		return nil, err
	}
	if err := c.authorise(&who, method, p.Token, now); err != nil {
		return nil, err
	}
	return c.do(method, p, who)
}

// Data takes messages on the data topic; it does not block.
func (c *Control) Data(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
	u, ok := packet.(*lksdk.UserDataPacket)
	if !ok || u.Topic != TopicControl {
		return
	}
	if room := c.sup.CurrentRoom(); room != nil && from.SenderIdentity != "" {
		c.enqueue(inbound{room: room, who: callerOf(from.Sender, from.SenderIdentity)}, u.Payload, time.Now())
	}
}

func (c *Control) enqueue(m inbound, payload []byte, now time.Time) {
	m.came = now
	if c.admit(&m.who, m.room, now) != nil {
		return // answers to a flood would be a flood too
	}
	if m.err = decode(payload, &m.req); m.err == nil {
		token := m.req.Token
		if p, err := readParams(m.req.Params); err == nil && p.Token != "" {
			token = p.Token
		}
		m.err = c.authorise(&m.who, m.req.Method, token, now)
	}
	queue := c.rest
	if steers(m.who.rights) {
		queue = c.first
	}
	select {
	case queue <- m:
	default:
		_ = c.refuse(m.who.identity, m.req.Method, errBusy) // the queue is full: no answer
	}
}

// admit applies the limits of a participant before its request is parsed, and sets who.rights by identity, role and attribute.
func (c *Control) admit(who *caller, room *lksdk.Room, now time.Time) error {
	if c.still.Stale(now, now) {
		return c.refuse(who.identity, "", errStale)
	}
	who.rights = c.rightsOf(*who, now)
	by, trusted := c.trusts(*who, now)
	link := cmp.Or(by.link, c.linkOf(*who, now)) // its holder may join under any number of identities
	ok := false
	switch moderates := trusted || steers(who.rights); {
	case moderates && link != "":
		_, ok = c.moderators.Allow(moderator{link: link}, now)
	case moderates:
		_, ok = c.moderators.Allow(moderator{identity: who.identity}, now)
	case c.pending(room) <= maxPending:
		if _, ok = c.strangers.Allow(who.identity, now); ok && link != "" {
			_, ok = c.links.Allow(link, now)
		}
	}
	if !ok {
		return c.refuse(who.identity, "", errBusy)
	}
	return nil
}

// authorise returns nil if an admitted caller may call the method.
func (c *Control) authorise(who *caller, method, token string, now time.Time) error {
	needed := access.Needed(method)
	if token != "" && !who.rights.Allow(needed) {
		rights, link := c.tokenRights(token, now)
		who.rights |= rights
		c.trust(*who, link, now)
	}
	if who.rights.Allow(needed) || who.rights.Allow(access.AllInRoom) { // a moderator learns that a method does not exist
		return nil
	}
	if _, ok := c.all.Allow(struct{}{}, now); !ok {
		return c.refuse(who.identity, method, errBusy)
	}
	switch {
	case method != methodHistory:
		return c.refuse(who.identity, method, errRefused)
	case !who.subscribes:
		return c.refuse(who.identity, method, errUnread)
	}
	if _, ok := c.histories.Allow(who.identity, now); !ok {
		return c.refuse(who.identity, method, errBusy)
	}
	return nil
}

// trustFor is how long a participant has a moderator's limits after a valid token; maxTrusted bounds their number.
const (
	trustFor   = 10 * time.Minute
	maxTrusted = 1000
)

// trust is until when a participant has the limits of a moderator, and the link of its token; "" for none.
type trust struct {
	until time.Time
	link  string
}

// trust gives a participant whose token steers the limits of a moderator for a while. Its rights still need the token.
func (c *Control) trust(who caller, link string, now time.Time) {
	if !who.known || !steers(who.rights) {
		return
	}
	c.trustedMu.Lock()
	defer c.trustedMu.Unlock()
	maps.DeleteFunc(c.trusted, func(_ string, t trust) bool { return now.After(t.until) })
	if len(c.trusted) < maxTrusted {
		c.trusted[who.identity] = trust{now.Add(trustFor), link}
	}
}

func (c *Control) trusts(who caller, now time.Time) (t trust, ok bool) {
	c.trustedMu.Lock()
	defer c.trustedMu.Unlock()
	if t, ok = c.trusted[who.identity]; !ok || !who.known || !now.Before(t.until) {
		return trust{}, false
	}
	return t, true
}

// refuse counts refusals, logs them at a bounded rate, and returns err.
func (c *Control) refuse(from, method string, err error) error {
	switch {
	case errors.Is(err, errStale):
		c.stale.Add(1)
	case errors.Is(err, errBusy):
		c.limited.Add(1)
	default:
		c.denied.Add(1)
	}
	log := c.log.With().Str("from", from).Str("method", method).Logger()
	c.refusals.Warn(log, c.limited.Load()+c.denied.Load()+c.stale.Load(), err, "control request refused")
	return err
}

// Refusals counts requests of participants that had no effect.
type Refusals struct {
	Limited uint64 // beyond a limit
	Denied  uint64 // without the right
	Dropped uint64 // before the client library would answer them
	Stale   uint64 // from before a standstill of the process
}

// Refused returns the number of requests that had no effect.
func (c *Control) Refused() Refusals {
	out := Refusals{Limited: c.limited.Load(), Denied: c.denied.Load(), Stale: c.stale.Load()}
	if c.flood != nil {
		out.Dropped = c.flood.dropped.Load()
	}
	return out
}

// Run answers the messages of the data topic until ctx ends.
func (c *Control) Run(ctx context.Context) error {
	for {
		select {
		case m := <-c.first:
			c.reply(m)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-c.first:
			c.reply(m)
		case m := <-c.rest:
			c.reply(m)
		}
	}
}

func (c *Control) reply(m inbound) {
	if m.err == nil && c.still.Stale(m.came, time.Now()) {
		m.err = c.refuse(m.who.identity, m.req.Method, errStale)
	}
	b, err := json.Marshal(c.answer(m))
	if err != nil {
		c.log.Error().Err(err).Msg("control answer not written")
		return
	}
	if err := post(m.room, userPacket(TopicControlReply, b, m.who.identity)); err != nil {
		c.log.Debug().Err(err).Msg("control answer not sent")
	}
}

// caller is a participant that sends a request.
type caller struct {
	identity      string
	known         bool // the server shows this participant
	attributes    map[string]string
	ownAttributes bool // it can set its own attributes
	subscribes    bool // it may subscribe to the comments
	rights        access.Rights
}

// steers reports whether rights allow any change.
func steers(r access.Rights) bool { return r&^access.Watch != 0 }

func callerOf(sender *lksdk.RemoteParticipant, from string) caller {
	who := caller{identity: from}
	if sender != nil {
		who.attributes = sender.Attributes()
		perm := sender.Permissions()
		// With unknown permissions, the role is not trusted.
		who.ownAttributes = perm == nil || perm.GetCanUpdateMetadata()
		who.subscribes = perm.GetCanSubscribe()
		who.known = true
	}
	return who
}

// RightOf returns the right of a LiveKit token by the links in its attributes, for a session outside of the room. The error is that of
// LinkOf, as signaling.ErrNoToken.
func RightOf(keys conn.Keys, attributes map[string]string, now time.Time) (signaling.Right, error) {
	link, err := LinkOf(keys, attributes, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", signaling.ErrNoToken, err)
	}
	return func(over func(string)) (stop func()) {
		return keys.Links.Watch(link, time.Now, func(err error) { over(err.Error()) })
	}, nil
}

// AttributeRevoked is the attribute of a bot with the revoked links of the room.
const AttributeRevoked = "touchline.revoked"

// LearnRevoked takes the revoked links of a room from the attributes of its bots.
func LearnRevoked(links *access.Links, name string, room *lksdk.Room, now time.Time) {
	for _, p := range room.GetRemoteParticipants() {
		if p.Kind() == lksdk.ParticipantAgent {
			links.Learn(name, p.Attributes()[AttributeRevoked], now)
		}
	}
}

// LinkOf returns the end and the links in the attributes of a participant. It returns access.ErrExpired or access.ErrRevoked if its
// rights have ended. An end that cannot be read is over.
func LinkOf(keys conn.Keys, attributes map[string]string, now time.Time) (link access.Grant, err error) {
	if v, ok := attributes[attributeUntil]; ok {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if link.Expires = time.Unix(seconds, 0); err != nil || !now.Before(link.Expires) {
			return link, access.ErrExpired
		}
	}
	if mark, ok := attributes[attributeLink]; ok {
		link.Links, err = keys.Marked(mark)
	}
	return link, err
}

// RootLink returns the id of the link that those in the attributes of a participant come from; "" for none or an ended one.
func RootLink(keys conn.Keys, attributes map[string]string, now time.Time) string {
	link, err := LinkOf(keys, attributes, now)
	if err != nil {
		return ""
	}
	return link.Root()
}

// ended returns the reason why a caller's rights have ended; nil if they have not.
func (c *Control) ended(who caller, now time.Time) error {
	_, err := LinkOf(c.keys, who.attributes, now)
	return err
}

// rightsOf returns the rights of a caller by its identity and attributes.
func (c *Control) rightsOf(who caller, now time.Time) access.Rights {
	switch {
	case !who.known:
		return 0
	case who.identity != "" && slices.Contains(c.cfg.Identities, who.identity):
		return access.AllInRoom
	case who.ownAttributes, c.ended(who, now) != nil:
		return 0
	}
	if v, ok := who.attributes[c.cfg.RoleAttribute]; ok && c.cfg.RoleAttribute != "" && v == c.cfg.RoleValue {
		return access.AllInRoom
	}
	rights, err := access.Parse(strings.Split(who.attributes[AttributeRights], ","))
	if err != nil {
		return 0
	}
	return rights
}

// tokenRights returns the rights of a token: all for a LiveKit token with roomAdmin for this room, or the rights of a shared link, and the
// one that it comes from.
func (c *Control) tokenRights(token string, now time.Time) (rights access.Rights, link string) {
	claims, err := conn.Verify(c.keys, token)
	if err == nil && claims.Video != nil && claims.Video.RoomAdmin && claims.Video.Room == c.sup.RoomName() {
		return access.AllInRoom, ""
	}
	grant, err := access.Verify(c.keys, token, now)
	if err != nil {
		return 0, ""
	}
	return grant.In(c.sup.RoomName()), grant.Root()
}
