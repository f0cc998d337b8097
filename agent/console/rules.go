package console

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"touchline/agent/alert"
	"touchline/agent/events"
	"touchline/agent/look"
)

// ruleList is the answer of GET /api/rules.
type ruleList struct {
	Rules []alert.RuleStatus `json:"rules"`
	Names []string           `json:"names,omitempty" doc:"Sentences of rules that the engine answers; absent if it answers any."`
	Note  string             `json:"note,omitempty" doc:"Why the rules are not looked for; absent when they are."`
}

// ruleOperations returns the operations on the alert rules and the alerts of a room, with their paths below the room's.
func (s *Server) ruleOperations() []endpoint {
	try := operation("POST", "/rules/try", "Tries an alert rule, without adding it", http.StatusOK, (*roomEntry).tryRule)
	try.query = []*huma.Param{{
		Name: "looks", In: "query", Description: "Past looks to try it on, beside the present pictures.",
		Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(look.MaxTrials))},
	}}
	return append(needing(func(h *roomEntry) error {
		if h.Rules == nil {
			return refuse(http.StatusNotImplemented, "no_rules", "this program has no alert rules")
		}
		return nil
	},
		get("/rules", "The alert rules", (*roomEntry).getRules),
		operation("POST", "/rules", "Adds an alert rule", http.StatusCreated, s.addRule),
		operation("PUT", "/rules/{id}", "Replaces an alert rule", http.StatusOK, s.putRule),
		try,
		operation("POST", "/rules/{id}/snooze", "Stops the looks for a rule for a time", http.StatusOK, s.snoozeRule),
		act("POST", "/rules/{id}/test", "Sends a test alert of a rule to all outputs", s.testRule),
		act("POST", "/alerts/{id}/ack", "Acknowledges an alert", func(h *roomEntry, r *http.Request) error {
			return ruleProblem(h.Rules.Acknowledge(r.PathValue("id"), by(r)))
		}),
		act("DELETE", "/rules/{id}", "Removes an alert rule", s.deleteRule),
	),
		get("/alerts", "The last alerts, oldest first", func(h *roomEntry, _ *http.Request) (alertList, error) {
			return alertList{append([]events.KeptAlert{}, h.Hub.Alerts()...)}, nil
		}),
		endpoint{
			method: "GET", path: "/alerts/{id}/frame", inRoom: s.getAlertFrame, summary: "The frame of an alert", kind: "image/jpeg",
			query: widthParam(),
		},
		act("DELETE", "/alerts/{id}", "Forgets an alert and its frame", (*roomEntry).deleteAlert),
	)
}

func (h *roomEntry) getRules(*http.Request) (ruleList, error) {
	out := ruleList{Rules: h.Rules.List(time.Now())}
	if h.Bot != nil {
		snap := h.Bot.Snapshot()
		out.Note, out.Names = snap.AlertNote, snap.RuleNames
	}
	return out, nil
}

func (s *Server) addRule(h *roomEntry, w http.ResponseWriter, r *http.Request, in alert.RuleText) (alert.RuleStatus, error) {
	id, err := h.Rules.Add(in)
	if err == nil {
		w.Header().Set("Location", r.URL.EscapedPath()+"/"+id)
	}
	return s.ruleSet(h, r, id, err)
}

func (s *Server) putRule(h *roomEntry, _ http.ResponseWriter, r *http.Request, in alert.RuleText) (alert.RuleStatus, error) {
	id := r.PathValue("id")
	return s.ruleSet(h, r, id, h.Rules.Replace(id, in))
}

// ruleSet returns an added or changed rule, or the answer to err.
func (s *Server) ruleSet(h *roomEntry, r *http.Request, id string, err error) (out alert.RuleStatus, _ error) {
	if err != nil {
		return out, ruleProblem(err)
	}
	s.logRule(h, r, id, "alert rule set")
	list := h.Rules.List(time.Now())
	i := slices.IndexFunc(list, func(x alert.RuleStatus) bool { return x.ID == id })
	if i < 0 { // another client has removed it
		return out, ruleProblem(alert.ErrNoRule)
	}
	return list[i], nil
}

// logRule logs a change of a rule and publishes the snapshot.
func (s *Server) logRule(h *roomEntry, r *http.Request, id, event string) {
	s.log.Info().Str("room", h.Name).Str("rule", id).Str("by", by(r)).Msg(event)
	h.changed()
}

func (s *Server) deleteRule(h *roomEntry, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.Rules.Remove(id); err != nil {
		return ruleProblem(err)
	}
	s.logRule(h, r, id, "alert rule removed")
	return nil
}

// trialList is the answer of POST /api/rules/try.
type trialList struct {
	Trials []look.Trial `json:"trials" doc:"The present pictures first, then past looks, newest first."`
}

// trialWait bounds the time until the answer is written; agent.Session tries for at most a minute.
const trialWait = 90 * time.Second

func (h *roomEntry) tryRule(w http.ResponseWriter, r *http.Request, in alert.RuleText) (out trialList, err error) {
	past := 0
	if q := r.URL.Query().Get("looks"); q != "" {
		if past, err = strconv.Atoi(q); err != nil || past < 0 || past > look.MaxTrials {
			return out, refuse(http.StatusBadRequest, "bad_looks", "looks: expected 0 to %d past looks, got %.40q", look.MaxTrials, q)
		}
	}
	if h.TryRule == nil {
		return out, refuse(http.StatusNotImplemented, "no_rules", "this program cannot try alert rules")
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(trialWait)); err != nil {
		return out, err
	}
	out.Trials, err = h.TryRule(r.Context(), in, past)
	return out, ruleProblem(err)
}

// snoozeBody is the body of POST /api/rules/{id}/snooze.
type snoozeBody struct {
	For string `json:"for" doc:"A time such as \"10m\", at most 24h; \"0s\" ends it."`
}

func (s *Server) snoozeRule(h *roomEntry, _ http.ResponseWriter, r *http.Request, in snoozeBody) (alert.RuleStatus, error) {
	id := r.PathValue("id")
	return s.ruleSet(h, r, id, h.Rules.Snooze(id, in.For, by(r), time.Now()))
}

func (s *Server) testRule(h *roomEntry, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.Rules.Test(id, time.Now()); err != nil {
		return ruleProblem(err)
	}
	s.log.Info().Str("room", h.Name).Str("rule", id).Str("by", by(r)).Msg("alert rule tested")
	return nil
}

func ruleProblem(err error) error {
	return refusal(oneLine(err),
		answer{look.ErrRulesUnread, http.StatusConflict, "rules_unread"},
		answer{look.ErrTrying, http.StatusConflict, "rule_is_tried"},
		answer{look.ErrNoPicture, http.StatusConflict, "no_picture"},
		answer{alert.ErrNoAlert, http.StatusNotFound, "no_alert"},
		answer{alert.ErrNoRule, http.StatusNotFound, "no_rule"},
		answer{alert.ErrTooManyRules, http.StatusConflict, "too_many_rules"},
		answer{nil, http.StatusUnprocessableEntity, "bad_rule"})
}

// alertList is the answer of GET /api/alerts.
type alertList struct {
	Alerts []events.KeptAlert `json:"alerts"`
}

func (s *Server) getAlertFrame(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	width, err := pictureWidth(r)
	if err != nil {
		return err
	}
	data, ok := h.Hub.AlertFrame(r.Context(), r.PathValue("id"))
	if !ok {
		return refuse(http.StatusNotFound, "no_picture", "alert %.40q has no picture, or no longer", r.PathValue("id"))
	}
	return s.writePicture(h, w, r, data, width)
}

func (h *roomEntry) deleteAlert(r *http.Request) error {
	if !h.Hub.DeleteAlert(r.PathValue("id")) {
		return refuse(http.StatusNotFound, "no_alert", "alert %.40q is not kept, or no longer", r.PathValue("id"))
	}
	return nil
}
