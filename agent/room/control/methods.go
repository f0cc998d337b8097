package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/internal/check"
)

// Methods of the room: by RPC as "touchline.NAME", on TopicControl as NAME.
const (
	methodStatus           = "status"
	methodSetInstruction   = "set_instruction"
	methodClearInstruction = "clear_instruction"
	methodSetProfile       = "set_profile"
	methodUpdate           = "update_settings"
	methodStart            = "start"
	methodStop             = "stop"
	methodCommand          = "command"
	methodSource           = "select_source"
	methodSay              = "say"
	methodTalk             = "talk"
	methodHistory          = "history" // for all participants that may subscribe
	methodRules            = "rules"
	methodAddRule          = "add_rule"
	methodReplaceRule      = "replace_rule"
	methodRemoveRule       = "remove_rule"
	methodSnoozeRule       = "snooze_rule"
	methodAckAlert         = "ack_alert"
	methodRegions          = "regions"
	methodPutRegion        = "put_region"
	methodRemoveRegion     = "remove_region"
	methodClearRegions     = "clear_regions"
	methodConfirmRegions   = "confirm_regions"
)

func methods() []string {
	return []string{
		methodStatus, methodSetInstruction, methodClearInstruction, methodSetProfile,
		methodUpdate, methodStart, methodStop, methodCommand, methodSource, methodSay, methodTalk, methodHistory,
		methodRules, methodAddRule, methodReplaceRule, methodRemoveRule, methodSnoozeRule, methodAckAlert,
		methodRegions, methodPutRegion, methodRemoveRegion, methodClearRegions, methodConfirmRegions,
	}
}

// codes returns the codes of an error: an RPC code outside of LiveKit's range (1001 to 1999), and the code of a reply on
// TopicControlReply.
func codes(err error) (rpc lksdk.RpcErrorCode, reply string) {
	switch {
	case errors.Is(err, errRefused):
		return 403, "forbidden"
	case errors.Is(err, errBusy), errors.Is(err, speech.ErrFull):
		return 429, "rate_limited"
	default:
		return 400, "bad_request"
	}
}

// request is a message on TopicControl.
type request struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Token  string          `json:"token"`
}

// reply answers a request.
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

// answer executes a message and returns the reply.
func (c *Control) answer(m inbound) reply {
	var result any
	err := m.err
	if err == nil {
		var p params
		if p, err = readParams(m.req.Params); err == nil {
			result, err = c.do(m.req.Method, p, m.who)
		}
	}
	if err != nil {
		_, code := codes(err)
		return reply{ID: m.req.ID, Error: &replyError{code, err.Error()}}
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
		return fmt.Errorf("read the request: expected JSON as documented: %w", check.JSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the request: expected one JSON value, got more")
	}
	return nil
}

// params are the parameters of all methods; each method reads its own.
type params struct {
	Instruction *string            `json:"instruction"`
	Command     *command.Command   `json:"command"`
	Profile     *string            `json:"profile"`
	Source      *string            `json:"source"`
	Settings    *settings.Settings `json:"settings"`
	Limit       *int               `json:"limit"`
	Held        *bool              `json:"held"`

	speech.Notice // to say

	ID     *string         `json:"id"`     // of a rule
	Rule   *alert.RuleText `json:"rule"`   // to add, or to replace another
	For    *string         `json:"for"`    // length of a snooze
	After  string          `json:"after"`  // id of a rule, or name of a region
	Alert  *string         `json:"alert"`  // id of an alert
	Name   *string         `json:"name"`   // of a region
	Region *region.Region  `json:"region"` // to add, or to replace the one with the name
	// Token of RPC calls.
	Token string `json:"token"`
}

func readParams(payload []byte) (p params, err error) {
	if len(bytes.TrimSpace(payload)) > 0 {
		err = decode(payload, &p)
	}
	return p, err
}

// missing returns the error for a parameter that a method needs.
func missing(method, name string) error {
	return fmt.Errorf("%s: expected the parameter %q", method, name)
}

// do executes a method for an authorised caller.
func (c *Control) do(method string, p params, who caller) (any, error) {
	by, source := prompt.InRoom+who.identity, ""
	if p.Source != nil {
		source = *p.Source
	}
	var err error
	switch method {
	case methodHistory:
		return c.history(p.Limit)
	case methodTalk:
		return c.talk(p.Held, who.identity)
	case methodRules, methodAddRule, methodReplaceRule, methodRemoveRule, methodSnoozeRule, methodAckAlert:
		return c.doRules(method, p, by)
	case methodRegions, methodPutRegion, methodRemoveRegion, methodClearRegions, methodConfirmRegions:
		return c.doRegions(method, p, by)
	case methodStatus:
		// The status follows.
	case methodSetInstruction:
		if p.Instruction == nil {
			return nil, missing(method, "instruction")
		}
		_, err = command.Handle(c.bot, *p.Instruction, by)
	case methodCommand:
		if p.Command == nil {
			return nil, missing(method, "command")
		}
		_, err = c.bot.Command(*p.Command, by)
	case methodClearInstruction:
		_, err = c.bot.Change(command.Change{Instruction: new("")}, by)
	case methodSetProfile:
		if p.Profile == nil {
			return nil, missing(method, "profile")
		}
		_, err = c.bot.Change(command.Change{Profile: p.Profile}, by)
	case methodUpdate:
		if p.Settings == nil {
			return nil, missing(method, "settings")
		}
		return c.bot.Change(command.Change{Settings: *p.Settings}, by)
	case methodStart:
		err = c.bot.Start(source, by)
	case methodStop:
		c.bot.Stop(by)
	case methodSay:
		err = c.bot.Say(p.Notice, by)
	case methodSource:
		_, err = c.bot.Change(command.Change{Source: &source}, by)
	default:
		return nil, fmt.Errorf("expected one of the methods %q, got %q", methods(), method)
	}
	if err != nil {
		return nil, err
	}
	s := c.bot.Snapshot()
	s.Profiles = nil // too large for an RPC answer
	return s, nil
}

// errDeaf is the answer to methodTalk while hearing is off.
var errDeaf = errors.New("talk: nobody is heard in this room; set hearing to orders or all, and a recognizer")

// talking is the answer of the method "talk".
type talking struct {
	Held bool `json:"held"`
}

// talk begins or ends a caller's push-to-talk.
func (c *Control) talk(held *bool, identity string) (any, error) {
	if held == nil {
		return nil, missing(methodTalk, "held")
	}
	talker, ok := c.bot.(agent.Talker)
	if !ok {
		return nil, errDeaf
	}
	if err := talker.Talk(identity, *held); err != nil {
		return nil, err
	}
	return talking{*held}, nil
}

// maxAnswer bounds the items of an answer, in bytes of JSON. LiveKit's limit for the whole answer is 15 KiB.
const maxAnswer = 14 << 10

// History is the answer of the method "history".
type History struct {
	// Comments, oldest first, as many as fit.
	Comments []PastComment `json:"comments"`
	// More reports that older comments were left out.
	More bool `json:"more"`
}

// PastComment is one comment of a History.
type PastComment struct {
	Cycle     uint64    `json:"cycle"` // 0: of an earlier run
	Text      string    `json:"text"`
	Outcome   string    `json:"outcome"` // spoken, shown or cut
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// cachedHistory is the last answer, valid until the next comment.
type cachedHistory struct {
	limit, comments int
	newest          int64 // end of the newest comment, ns since 1970
	json            json.RawMessage
}

// history returns the newest comments as JSON, as many as the limit allows and fit.
func (c *Control) history(limit *int) (json.RawMessage, error) {
	all := c.bot.History()
	key := cachedHistory{comments: len(all)}
	if limit != nil {
		if key.limit = *limit; key.limit < 1 {
			return nil, fmt.Errorf("%s: expected limit to be 1 or more, got %d", methodHistory, *limit)
		}
	}
	if len(all) > 0 {
		key.newest = all[len(all)-1].EndedAt.UnixNano()
	}
	c.cacheMu.Lock()
	defer c.cacheMu.Unlock()
	if old := c.cache; old.json != nil && old.limit == key.limit && old.comments == key.comments && old.newest == key.newest {
		return old.json, nil
	}
	var err error
	if key.json, err = json.Marshal(newest(all, key.limit)); err != nil {
		return nil, fmt.Errorf("write the history: %w", err)
	}
	c.cache = key
	return key.json, nil
}

// newest returns the newest comments, as many as limit allows and fit; 0 is no limit.
func newest(all []look.Record, limit int) History {
	out := History{Comments: []PastComment{}}
	for size, i := 0, len(all)-1; i >= 0; i-- {
		r := all[i]
		one := PastComment{Cycle: r.Cycle, Text: r.Text, Outcome: r.Outcome, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
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
