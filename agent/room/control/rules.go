package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/agent/alert"
)

// errNoRules is the answer of a bot without alert rules.
var errNoRules = errors.New("this program has no alert rules")

// RuleList is the answer of the methods "rules" and "remove_rule".
type RuleList struct {
	// Rules in the order of their addition, as many as fit.
	Rules []alert.RuleStatus `json:"rules"`
	// More reports that there are more rules after these.
	More bool `json:"more"`
}

// doRules executes a method for alert rules for an authorised caller.
func (c *Control) doRules(method string, p params, by string) (any, error) {
	if c.rules == nil {
		return nil, errNoRules
	}
	now := time.Now()
	var id string
	if p.ID != nil {
		id = *p.ID
	}
	var err error
	switch {
	case method == methodRules:
		return c.listRules(p.After, now)
	case method == methodAckAlert && p.Alert == nil:
		return nil, missing(method, "alert")
	case method == methodAckAlert:
		return struct{}{}, c.rules.Acknowledge(*p.Alert, by)
	case method != methodAddRule && p.ID == nil:
		return nil, missing(method, "id")
	case method == methodRemoveRule:
		if err := c.rules.Remove(id); err != nil {
			return nil, err
		}
		c.log.Info().Str("rule", id).Str("by", by).Msg("alert rule removed")
		return c.listRules("", now)
	case method == methodSnoozeRule && p.For == nil:
		return nil, missing(method, "for")
	case method == methodSnoozeRule:
		err = c.rules.Snooze(id, *p.For, by, now)
	case p.Rule == nil:
		return nil, missing(method, "rule")
	case method == methodAddRule:
		id, err = c.rules.Add(*p.Rule)
	default:
		err = c.rules.Replace(id, *p.Rule)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	c.log.Info().Str("rule", id).Str("by", by).Msg("alert rule set")
	list := c.rules.List(now)
	i := slices.IndexFunc(list, func(r alert.RuleStatus) bool { return r.ID == id })
	if i < 0 { // another client has removed it
		return nil, alert.ErrNoRule
	}
	return list[i], nil
}

// listRules returns the rules after the one with an id, or all without an id, as many as fit.
func (c *Control) listRules(after string, now time.Time) (RuleList, error) {
	list := c.rules.List(now)
	if after != "" {
		i := slices.IndexFunc(list, func(r alert.RuleStatus) bool { return r.ID == after })
		if i < 0 {
			return RuleList{}, alert.ErrNoRule
		}
		list = list[i+1:]
	}
	var out RuleList
	out.Rules, out.More = fit(list)
	return out, nil
}

// fit returns as many of a list as an answer can have, and whether there are more.
func fit[T any](list []T) (out []T, more bool) {
	out = []T{}
	size := 0
	for _, r := range list {
		b, err := json.Marshal(r)
		if size += len(b) + len(","); err != nil || size > maxAnswer {
			return out, true
		}
		out = append(out, r)
	}
	return out, false
}
