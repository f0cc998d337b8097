package room

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/auth"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/internal/limit"
	"touchline/internal/rescue"
)

// Topics of the control messages.
const (
	// TopicControl takes {"id", "method", "params", "token"}.
	TopicControl = "touchline.control"
	// TopicControlReply answers the sender {"id", "ok", "result", "error"}.
	TopicControlReply = "touchline.control.reply"
	// RPCPrefix begins the names of the RPC methods; what follows is a method of TopicControl.
	RPCPrefix = "touchline."
)

// Our RPC error codes; those from 1001 to 1999 are LiveKit's.
const (
	rpcBad     = 400
	rpcRefused = 403
	rpcBusy    = 429
)

// replyCode returns the code of a reply on TopicControlReply.
func replyCode(rpc lksdk.RpcErrorCode) string {
	switch rpc {
	case rpcRefused:
		return "forbidden"
	case rpcBusy:
		return "rate_limited"
	default:
		return "bad_request"
	}
}

func rpcCode(err error) lksdk.RpcErrorCode {
	switch {
	case errors.Is(err, errRefused):
		return rpcRefused
	case errors.Is(err, errBusy):
		return rpcBusy
	default:
		return rpcBad
	}
}

// Methods that the room can call, by RPC as "touchline.NAME" and on TopicControl as NAME.
const (
	methodStatus           = "status"
	methodSetInstruction   = "set_instruction"
	methodClearInstruction = "clear_instruction"
	methodSetProfile       = "set_profile"
	methodUpdate           = "update_settings"
	methodStart            = "start"
	methodStop             = "stop"
	methodSource           = "select_source"
	methodHistory          = "history" // for all participants that may subscribe
)

func methods() []string {
	return []string{
		methodStatus, methodSetInstruction, methodClearInstruction, methodSetProfile,
		methodUpdate, methodStart, methodStop, methodSource, methodHistory,
	}
}

// errRefused answers callers without the right, without a reason that would help
// to guess.
var errRefused = errors.New("steering refused: it takes a listed identity, the configured role, " +
	"or an access token with roomAdmin for this room")

// errUnread answers callers that may not subscribe.
var errUnread = fmt.Errorf("%w; the history is also for participants that may subscribe", errRefused)

// errBusy is the answer to requests beyond the limits.
var errBusy = errors.New("too many requests; try again in a few seconds")

// The limits of requests: how many a second, and how many at once.
const (
	// For each moderator, which is a participant that may steer.
	moderatorRate, moderatorBurst = 20, 40
	// For each stranger, which is any other participant, and for all of them together.
	strangerRate, strangerBurst   = 2, 5
	strangersRate, strangersBurst = 50, 100
	// For each stranger's requests for the history.
	historyRate, historyBurst = 0.5, 3
	// maxPending is how many bytes may wait for the data channel until requests of strangers are refused.
	maxPending = 256 << 10
	// refusalEvery spaces the log lines of refused requests.
	refusalEvery = 10 * time.Second
)

// maxRequest bounds a control message, in bytes; RPC payloads are bounded by LiveKit at 15 kB.
const maxRequest = 16 << 10

// Control lets participants steer from inside the room. The right comes from a
// listed identity, from the role attribute if the participant cannot set its own
// attributes, or from an access token with roomAdmin for this room, signed with
// our key.
//
// Text streams never steer: agents can send them under another identity.
type Control struct {
	cfg  ControlConfig
	keys Keys
	bot  agent.Steerer
	log  zerolog.Logger
	sup  *Supervisor // set by attach

	moderators, strangers, histories *limit.Limiter[string]
	all                              *limit.Limiter[struct{}] // strangers together
	pending                          func(room *lksdk.Room) uint64
	refusals                         warnLimiter
	refused                          atomic.Uint64
	gate                             *floodGate // set by attach

	// Messages on TopicControl wait for Run, those of moderators in first.
	first, rest chan inbound

	cacheMu sync.Mutex
	cache   cachedHistory
}

// inbound is one message on TopicControl, admitted.
type inbound struct {
	room *lksdk.Room
	req  request
	who  caller
	err  error // why it fails
}

// controlQueue is how many messages may wait in each queue; more are dropped.
const controlQueue = 32

// NewControl returns a Control for Options.Control. keys verify the tokens in
// requests; without a secret none is accepted. Run must run.
func NewControl(cfg ControlConfig, keys Keys, bot agent.Steerer, log zerolog.Logger) *Control {
	return &Control{
		cfg: cfg, keys: keys, bot: bot,
		log:        log.With().Str("component", "control").Logger(),
		moderators: limit.New[string](moderatorRate, moderatorBurst),
		strangers:  limit.New[string](strangerRate, strangerBurst),
		histories:  limit.New[string](historyRate, historyBurst),
		all:        limit.New[struct{}](strangersRate, strangersBurst),
		pending:    pendingBytes,
		refusals:   warnLimiter{every: refusalEvery},
		first:      make(chan inbound, controlQueue),
		rest:       make(chan inbound, controlQueue),
	}
}

// attach makes c the control of a supervisor's connections.
func (c *Control) attach(sup *Supervisor) Hooks {
	c.sup = sup
	c.gate = newFloodGate(func(room *lksdk.Room, identity string) bool {
		return c.listed(callerOf(room.GetParticipantByIdentity(identity), identity))
	}, sup.conn.fail)
	return Hooks{Created: c.register, Data: c.data}
}

func (c *Control) register(room *lksdk.Room) {
	for _, m := range methods() {
		err := room.RegisterRpcMethod(RPCPrefix+m, func(in lksdk.RpcInvocationData) (string, error) {
			defer rescue.Guard(c.sup.conn.fail)
			result, err := c.rpc(room, in, m)
			if err != nil {
				return "", lksdk.NewRpcError(rpcCode(err), err.Error(), nil)
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

// data takes messages on the data topic; it does not block.
func (c *Control) data(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
	u, ok := packet.(*lksdk.UserDataPacket)
	if !ok || u.Topic != TopicControl {
		return
	}
	if room := c.sup.CurrentRoom(); room != nil && from.SenderIdentity != "" {
		c.enqueue(inbound{room: room, who: callerOf(from.Sender, from.SenderIdentity)}, u.Payload, time.Now())
	}
}

func (c *Control) enqueue(m inbound, payload []byte, now time.Time) {
	if c.admit(&m.who, m.room, now) != nil {
		return // an answer to each message of a flood would be one as well
	}
	if m.err = decode(payload, &m.req); m.err == nil {
		token := m.req.Token
		if p, err := readParams(m.req.Params); err == nil && p.Token != "" {
			token = p.Token
		}
		m.err = c.authorise(&m.who, m.req.Method, token, now)
	}
	queue := c.rest
	if m.who.steers {
		queue = c.first
	}
	select {
	case queue <- m:
	default:
		_ = c.refuse(m.who.identity, m.req.Method, errBusy) // the queue is full: no answer
	}
}

// admit applies the limits for each participant, before the request is read, and sets who.steers by identity or role.
func (c *Control) admit(who *caller, room *lksdk.Room, now time.Time) error {
	if who.steers = c.listed(*who); who.steers {
		if _, ok := c.moderators.Allow(who.identity, now); !ok {
			return c.refuse(who.identity, "", errBusy)
		}
		return nil
	}
	if _, ok := c.strangers.Allow(who.identity, now); !ok || c.pending(room) > maxPending {
		return c.refuse(who.identity, "", errBusy)
	}
	return nil
}

// authorise returns nil if an admitted caller may call the method.
func (c *Control) authorise(who *caller, method, token string, now time.Time) error {
	if !who.steers && token != "" {
		who.steers = c.adminToken(token)
	}
	if who.steers {
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

// refuse logs refusals at a bounded rate, and returns err.
func (c *Control) refuse(from, method string, err error) error {
	log := c.log.With().Str("from", from).Str("method", method).Logger()
	c.refusals.warn(log, c.refused.Add(1), err, "control request refused")
	return err
}

// request is a message on TopicControl.
type request struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Token  string          `json:"token"`
}

// reply answers one.
type reply struct {
	ID     string      `json:"id"`
	OK     bool        `json:"ok"`
	Result any         `json:"result,omitempty"`
	Error  *replyError `json:"error,omitempty"`
}

type replyError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
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
	b, err := json.Marshal(c.answer(m))
	if err != nil {
		c.log.Error().Err(err).Msg("control answer not written")
		return
	}
	packet := lksdk.UserData(b)
	packet.Topic = TopicControlReply
	if err := m.room.LocalParticipant.PublishDataPacket(packet, lksdk.WithDataPublishReliable(true),
		lksdk.WithDataPublishDestination([]string{m.who.identity})); err != nil {
		c.log.Debug().Err(err).Msg("control answer not sent")
	}
}

func (c *Control) answer(m inbound) reply {
	fail := func(err error) reply {
		return reply{ID: m.req.ID, Error: &replyError{replyCode(rpcCode(err)), err.Error()}}
	}
	if m.err != nil {
		return fail(m.err)
	}
	p, err := readParams(m.req.Params)
	if err != nil {
		return fail(err)
	}
	result, err := c.do(m.req.Method, p, m.who)
	if err != nil {
		return fail(err)
	}
	return reply{ID: m.req.ID, OK: true, Result: result}
}

// decode reads JSON strictly, up to maxRequest bytes.
func decode(b []byte, v any) error {
	if len(b) > maxRequest {
		return fmt.Errorf("expected at most %d bytes, got %d", maxRequest, len(b))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read the request: expected JSON as documented: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the request: expected one JSON value, got more")
	}
	return nil
}

// params of all methods together; each takes its own and refuses the others.
type params struct {
	Instruction *string         `json:"instruction"`
	Profile     *string         `json:"profile"`
	Source      *string         `json:"source"`
	Settings    *agent.Settings `json:"settings"`
	Limit       *int            `json:"limit"`
	// Token stands here in RPC calls, which have no place beside their payload.
	Token string `json:"token"`
}

func readParams(payload []byte) (p params, err error) {
	if len(bytes.TrimSpace(payload)) > 0 {
		err = decode(payload, &p)
	}
	return p, err
}

// caller is a participant as the room shows it.
type caller struct {
	identity      string
	known         bool // the server shows this participant
	attributes    map[string]string
	ownAttributes bool // it can set its own attributes
	subscribes    bool // it may hear and read the comments
	steers        bool // it may steer
}

func callerOf(sender *lksdk.RemoteParticipant, from string) caller {
	who := caller{identity: from}
	if sender != nil {
		who.attributes = sender.Attributes()
		perm := sender.Permissions()
		// Unknown rights count as rights: then no role counts.
		who.ownAttributes = perm == nil || perm.GetCanUpdateMetadata()
		who.subscribes = perm.GetCanSubscribe()
		who.known = true
	}
	return who
}

// listed reports whether the caller may steer by identity or role.
func (c *Control) listed(who caller) bool {
	if !who.known {
		return false
	}
	if who.identity != "" && slices.Contains(c.cfg.Identities, who.identity) {
		return true
	}
	if c.cfg.RoleAttribute == "" || who.ownAttributes {
		return false
	}
	v, ok := who.attributes[c.cfg.RoleAttribute]
	return ok && v == c.cfg.RoleValue
}

// adminToken reports whether a token carries roomAdmin for this room, signed with our key.
func (c *Control) adminToken(token string) bool {
	if c.keys.APIKey == "" || c.keys.APISecret == "" {
		return false
	}
	v, err := auth.ParseAPIToken(token)
	if err != nil || v.APIKey() != c.keys.APIKey {
		return false
	}
	_, grants, err := v.Verify(c.keys.APISecret) // signature, key and times
	return err == nil && grants != nil && grants.Video != nil && grants.Video.RoomAdmin && grants.Video.Room == c.sup.RoomName()
}

// missing returns the error for a parameter that a method needs.
func missing(method, name string) error {
	return fmt.Errorf("%s: expected the parameter %q", method, name)
}

// do executes a method for an authorised caller.
func (c *Control) do(method string, p params, who caller) (any, error) {
	by, source := "room: "+who.identity, ""
	if p.Source != nil {
		source = *p.Source
	}
	var err error
	switch method {
	case methodHistory:
		return c.history(p.Limit)
	case methodStatus:
		// The status follows.
	case methodSetInstruction:
		if p.Instruction == nil {
			return nil, missing(method, "instruction")
		}
		if strings.TrimSpace(*p.Instruction) == "" {
			return nil, &agent.RangeError{Name: "instruction", Want: "some text (clear it to go idle)", Got: `""`}
		}
		_, err = c.bot.Change(agent.Change{Instruction: p.Instruction}, by)
	case methodClearInstruction:
		_, err = c.bot.Change(agent.Change{Instruction: new("")}, by)
	case methodSetProfile:
		if p.Profile == nil {
			return nil, missing(method, "profile")
		}
		_, err = c.bot.Change(agent.Change{Profile: p.Profile}, by)
	case methodUpdate:
		if p.Settings == nil {
			return nil, missing(method, "settings")
		}
		return c.bot.Change(agent.Change{Settings: *p.Settings}, by)
	case methodStart:
		err = c.bot.Start(source, by)
	case methodStop:
		c.bot.Stop(by)
	case methodSource:
		_, err = c.bot.Change(agent.Change{Source: &source}, by)
	default:
		return nil, fmt.Errorf("expected one of the methods %q, got %q", methods(), method)
	}
	if err != nil {
		return nil, err
	}
	s := c.bot.Snapshot()
	s.Profiles = nil // they would not fit an RPC answer
	return s, nil
}

// maxAnswer bounds the comments of an answer, in bytes of JSON; LiveKit's bound
// for the whole is 15 KiB.
const maxAnswer = 14 << 10

// History is the answer of the method "history".
type History struct {
	// Comments that fit, oldest first.
	Comments []Said `json:"comments"`
	// More reports that there are older ones beyond the limit or the size.
	More bool `json:"more"`
}

// Said is one comment of a History.
type Said struct {
	Cycle     uint64    `json:"cycle"` // 0: of an earlier run
	Text      string    `json:"text"`
	Outcome   string    `json:"outcome"` // spoken, shown or cut
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// cachedHistory is the newest answer, good until the next comment.
type cachedHistory struct {
	limit, comments int
	newest          time.Time // when the newest comment ended
	json            json.RawMessage
}

// history is the newest comments, as many as the limit allows and fit, as JSON.
func (c *Control) history(limit *int) (json.RawMessage, error) {
	if limit != nil && *limit < 1 {
		return nil, fmt.Errorf("%s: expected limit to be 1 or more, got %d", methodHistory, *limit)
	}
	all := c.bot.History()
	key := cachedHistory{comments: len(all)}
	if limit != nil {
		key.limit = *limit
	}
	if len(all) > 0 {
		key.newest = all[len(all)-1].EndedAt
	}
	c.cacheMu.Lock()
	defer c.cacheMu.Unlock()
	if old := c.cache; old.json != nil && old.limit == key.limit && old.comments == key.comments && old.newest.Equal(key.newest) {
		return old.json, nil
	}
	var err error
	if key.json, err = json.Marshal(newest(all, key.limit)); err != nil {
		return nil, fmt.Errorf("write the history: %w", err)
	}
	c.cache = key
	return key.json, nil
}

// newest returns the newest comments, as many as fit and limit allows; 0 is no limit.
func newest(all []agent.Record, limit int) History {
	out := History{Comments: []Said{}}
	for size, i := 0, len(all)-1; i >= 0; i-- {
		r := all[i]
		one := Said{Cycle: r.Cycle, Text: r.Text, Outcome: r.Outcome, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
		b, err := json.Marshal(one)
		if size += len(b) + len(","); err != nil || size > maxAnswer || limit > 0 && len(out.Comments) == limit {
			out.More = true
			break
		}
		out.Comments = append(out.Comments, one)
	}
	slices.Reverse(out.Comments)
	return out
}
