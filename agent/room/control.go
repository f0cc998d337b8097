package room

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/livekit/protocol/auth"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent"
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

// rpcRefused and rpcBad are our RPC error codes; those from 1001 to 1999 are LiveKit's.
const (
	rpcRefused = 403
	rpcBad     = 400
)

// Steered is what can be steered from inside the room; it is what the HTTP API steers.
type Steered interface {
	Snapshot() agent.Snapshot
	SetInstruction(text, by string) error
	ClearInstruction(by string)
	SetProfile(name, by string) error
	Update(s agent.Settings, by string) (agent.Settings, error)
	Start(source, by string) error
	Stop(by string)
	SelectSource(source, by string) error
	// History are the last comments, oldest first.
	History() []agent.Record
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
	methodHistory          = "history" // steers nothing: whoever may hear the comments may ask
)

func methods() []string {
	return []string{
		methodStatus, methodSetInstruction, methodClearInstruction, methodSetProfile,
		methodUpdate, methodStart, methodStop, methodSource, methodHistory,
	}
}

// errRefused is what somebody without the right gets, whatever the reason: it
// tells no more to one who guesses.
var errRefused = errors.New("you may not steer: expected a listed identity, the configured role, " +
	"or an access token with roomAdmin for this room")

// errUnread is what somebody gets who may not hear what is said in the room.
var errUnread = fmt.Errorf("%w; the history is for participants that may subscribe, too", errRefused)

// maxRequest bounds a control message, in bytes; RPC payloads are bounded by LiveKit at 15 kB.
const maxRequest = 16 << 10

// Control lets people steer from inside the room: those whose identity is
// listed; those with the role attribute, if they cannot set their own
// attributes; and who sends an access token with roomAdmin for this room,
// signed with our key.
//
// Text streams never steer: agents can send them in another's name.
type Control struct {
	cfg  ControlConfig
	keys Keys
	bot  Steered
	log  zerolog.Logger
	sup  *Supervisor // set by attach

	queue chan inbound // data packets wait here for Run
}

// inbound is one message on TopicControl.
type inbound struct {
	room    *lksdk.Room
	payload []byte
	from    string
	sender  *lksdk.RemoteParticipant
}

// controlQueue is how many messages may wait; more are refused by silence.
const controlQueue = 32

// NewControl returns a Control for Options.Control. keys verify the tokens in
// requests; without a secret none is accepted. Run must run.
func NewControl(cfg ControlConfig, keys Keys, bot Steered, log zerolog.Logger) *Control {
	return &Control{
		cfg: cfg, keys: keys, bot: bot,
		log:   log.With().Str("component", "control").Logger(),
		queue: make(chan inbound, controlQueue),
	}
}

// attach makes c the control of a supervisor's connections.
func (c *Control) attach(sup *Supervisor) Hooks {
	c.sup = sup
	return Hooks{Created: c.register, Data: c.data}
}

func (c *Control) register(room *lksdk.Room) {
	for _, m := range methods() {
		err := room.RegisterRpcMethod(RPCPrefix+m, func(in lksdk.RpcInvocationData) (string, error) {
			defer rescue.Guard(c.sup.keeper.fail)
			result, err := c.call(room.GetParticipantByIdentity(in.CallerIdentity), in.CallerIdentity, m, []byte(in.Payload), "")
			if err != nil {
				code := lksdk.RpcErrorCode(rpcBad)
				if errors.Is(err, errRefused) {
					code = rpcRefused
				}
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

// data takes messages on the data topic; it does not block.
func (c *Control) data(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
	u, ok := packet.(*lksdk.UserDataPacket)
	if !ok || u.Topic != TopicControl {
		return
	}
	select {
	case c.queue <- inbound{c.sup.CurrentRoom(), u.Payload, from.SenderIdentity, from.Sender}:
	default:
		c.log.Warn().Str("from", from.SenderIdentity).Msg("too many control messages, one is ignored")
	}
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
		case <-ctx.Done():
			return ctx.Err()
		case m := <-c.queue:
			if m.room == nil || m.from == "" {
				continue
			}
			b, err := json.Marshal(c.answer(m))
			if err != nil {
				c.log.Error().Err(err).Msg("control answer not written")
				continue
			}
			packet := lksdk.UserData(b)
			packet.Topic = TopicControlReply
			if err := m.room.LocalParticipant.PublishDataPacket(packet, lksdk.WithDataPublishReliable(true),
				lksdk.WithDataPublishDestination([]string{m.from})); err != nil {
				c.log.Debug().Err(err).Msg("control answer not sent")
			}
		}
	}
}

func (c *Control) answer(m inbound) reply {
	var req request
	if err := decode(m.payload, &req); err != nil {
		return reply{Error: &replyError{"bad_request", err.Error()}}
	}
	result, err := c.call(m.sender, m.from, req.Method, req.Params, req.Token)
	if err != nil {
		code := "bad_request"
		if errors.Is(err, errRefused) {
			code = "forbidden"
		}
		return reply{ID: req.ID, Error: &replyError{code, err.Error()}}
	}
	return reply{ID: req.ID, OK: true, Result: result}
}

// decode reads JSON strictly and within bounds.
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

// call does what the HTTP API does, for those who may.
func (c *Control) call(sender *lksdk.RemoteParticipant, from, method string, payload []byte, token string) (any, error) {
	var p params
	if len(bytes.TrimSpace(payload)) > 0 {
		if err := decode(payload, &p); err != nil {
			return nil, err
		}
	}
	if p.Token != "" {
		token = p.Token
	}
	who := caller{identity: from}
	if sender != nil {
		who.attributes = sender.Attributes()
		perm := sender.Permissions()
		// Not knowing the rights is as good as having them: then no role counts.
		who.ownAttributes = perm == nil || perm.GetCanUpdateMetadata()
		who.subscribes = perm.GetCanSubscribe()
		who.known = true
	}
	if method == methodHistory {
		if !who.subscribes && !c.may(who, token, time.Now()) {
			return nil, errUnread
		}
		return c.said(p)
	}
	if !c.may(who, token, time.Now()) {
		c.log.Warn().Str("from", from).Str("method", method).Msg("steering refused")
		return nil, errRefused
	}
	return c.do(method, p, "room: "+from)
}

// caller is what the room says about who calls.
type caller struct {
	identity      string
	known         bool // the server shows this participant
	attributes    map[string]string
	ownAttributes bool // it can set its own attributes
	subscribes    bool // it may hear and read what is said in the room
}

// may tells whether somebody may steer.
func (c *Control) may(who caller, token string, now time.Time) bool {
	if who.known && who.identity != "" && slices.Contains(c.cfg.Identities, who.identity) {
		return true
	}
	if who.known && c.cfg.RoleAttribute != "" && !who.ownAttributes {
		if v, ok := who.attributes[c.cfg.RoleAttribute]; ok && v == c.cfg.RoleValue {
			return true
		}
	}
	return token != "" && c.adminToken(token, now)
}

// adminToken tells whether a token carries roomAdmin for this room, signed with our key.
func (c *Control) adminToken(token string, _ time.Time) bool {
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

// missing says which parameter a method needs.
func missing(method, name string) error {
	return fmt.Errorf("%s: expected the parameter %q", method, name)
}

func (c *Control) do(method string, p params, by string) (any, error) {
	source := ""
	if p.Source != nil {
		source = *p.Source
	}
	var err error
	switch method {
	case methodStatus:
		// The status follows.
	case methodSetInstruction:
		if p.Instruction == nil {
			return nil, missing(method, "instruction")
		}
		err = c.bot.SetInstruction(*p.Instruction, by)
	case methodClearInstruction:
		c.bot.ClearInstruction(by)
	case methodSetProfile:
		if p.Profile == nil {
			return nil, missing(method, "profile")
		}
		err = c.bot.SetProfile(*p.Profile, by)
	case methodUpdate:
		if p.Settings == nil {
			return nil, missing(method, "settings")
		}
		return c.bot.Update(*p.Settings, by)
	case methodStart:
		err = c.bot.Start(source, by)
	case methodStop:
		c.bot.Stop(by)
	case methodSource:
		err = c.bot.SelectSource(source, by)
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
	// More tells that there are older ones that were not asked for or do not fit.
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

// said are the newest comments, as many as were asked for and fit.
func (c *Control) said(p params) (any, error) {
	if p.Limit != nil && *p.Limit < 1 {
		return nil, fmt.Errorf("%s: expected limit to be 1 or more, got %d", methodHistory, *p.Limit)
	}
	all := c.bot.History()
	out := History{Comments: []Said{}}
	for size, i := 0, len(all)-1; i >= 0; i-- {
		if p.Limit != nil && len(out.Comments) == *p.Limit {
			out.More = true
			break
		}
		r := all[i]
		one := Said{Cycle: r.Cycle, Text: r.Text, Outcome: r.Outcome, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
		b, err := json.Marshal(one)
		if err != nil {
			return nil, fmt.Errorf("write the history: %w", err)
		}
		if size += len(b) + len(","); size > maxAnswer {
			out.More = true
			break
		}
		out.Comments = append(out.Comments, one)
	}
	slices.Reverse(out.Comments)
	return out, nil
}
