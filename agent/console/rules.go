package console

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"touchline/agent"
	"touchline/agent/events"
)

// ruleList is the answer of GET /api/rules.
type ruleList struct {
	Rules []agent.AlertRuleStatus `json:"rules"`
	Names []string                `json:"names,omitempty" doc:"Sentences of rules that the engine answers; absent if it answers any."`
	Note  string                  `json:"note,omitempty" doc:"Why the rules are not looked for; absent when they are."`
}

func (h *roomEntry) rules() (agent.Rules, error) {
	if h.Rules == nil {
		return nil, refuse(http.StatusNotImplemented, "no_rules", "this program has no alert rules")
	}
	return h.Rules, nil
}

func (s *Server) getRules(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	all, err := h.rules()
	if err != nil {
		return err
	}
	out := ruleList{Rules: all.List(time.Now())}
	if h.Bot != nil {
		snap := h.Bot.Snapshot()
		out.Note, out.Names = snap.AlertNote, snap.RuleNames
	}
	return writeJSON(w, http.StatusOK, out)
}

// readRule reads the rule of a request for a room with rules.
func (h *roomEntry) readRule(w http.ResponseWriter, r *http.Request) (all agent.Rules, in agent.AlertRule, err error) {
	if all, err = h.rules(); err == nil {
		err = readJSON(w, r, &in, false)
	}
	return all, in, err
}

func (s *Server) addRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, in, err := h.readRule(w, r)
	if err != nil {
		return err
	}
	id, err := all.Add(in)
	if err != nil {
		return ruleProblem(err)
	}
	w.Header().Set("Location", r.URL.EscapedPath()+"/"+id)
	return s.answerRule(h, w, r, id, http.StatusCreated)
}

func (s *Server) putRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, in, err := h.readRule(w, r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := all.Replace(id, in); err != nil {
		return ruleProblem(err)
	}
	return s.answerRule(h, w, r, id, http.StatusOK)
}

// answerRule answers with a rule that was added or replaced.
func (s *Server) answerRule(h *roomEntry, w http.ResponseWriter, r *http.Request, id string, status int) error {
	s.log.Info().Str("room", h.Name).Str("rule", id).Str("by", by(r)).Msg("alert rule set")
	h.changed()
	list := h.Rules.List(time.Now())
	i := slices.IndexFunc(list, func(x agent.AlertRuleStatus) bool { return x.ID == id })
	if i < 0 { // another client has removed it
		return ruleProblem(agent.ErrNoRule)
	}
	return writeJSON(w, status, list[i])
}

func (s *Server) deleteRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.rules()
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := all.Remove(id); err != nil {
		return ruleProblem(err)
	}
	s.log.Info().Str("room", h.Name).Str("rule", id).Str("by", by(r)).Msg("alert rule removed")
	h.changed()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// trialList is the answer of POST /api/rules/try.
type trialList struct {
	Trials []agent.Trial `json:"trials" doc:"The present pictures first, then past looks, newest first."`
}

// trialWait bounds the writing of the answer: agent.Session tries for at most a minute.
const trialWait = 90 * time.Second

func (s *Server) tryRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	past := 0
	if q := r.URL.Query().Get("looks"); q != "" {
		var err error
		if past, err = strconv.Atoi(q); err != nil || past < 0 || past > agent.MaxTrials {
			return refuse(http.StatusBadRequest, "bad_looks", "looks: expected 0 to %d past looks, got %.40q", agent.MaxTrials, q)
		}
	}
	_, in, err := h.readRule(w, r)
	if err != nil {
		return err
	}
	if h.TryRule == nil {
		return refuse(http.StatusNotImplemented, "no_rules", "this program cannot try alert rules")
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(trialWait)); err != nil {
		return err
	}
	trials, err := h.TryRule(r.Context(), in, past)
	if err != nil {
		return ruleProblem(err)
	}
	return writeJSON(w, http.StatusOK, trialList{trials})
}

// snoozeBody is the body of POST /api/rules/{id}/snooze.
type snoozeBody struct {
	For string `json:"for" doc:"A time such as \"10m\", at most 24h; \"0s\" ends it."`
}

func (s *Server) snoozeRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.rules()
	if err != nil {
		return err
	}
	var in snoozeBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := all.Snooze(id, in.For, by(r), time.Now()); err != nil {
		return ruleProblem(err)
	}
	return s.answerRule(h, w, r, id, http.StatusOK)
}

func (s *Server) testRule(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.rules()
	if err != nil {
		return err
	}
	if err := all.Test(r.PathValue("id"), time.Now()); err != nil {
		return ruleProblem(err)
	}
	s.log.Info().Str("room", h.Name).Str("rule", r.PathValue("id")).Str("by", by(r)).Msg("alert rule tested")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) ackAlert(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.rules()
	if err != nil {
		return err
	}
	if err := all.Acknowledge(r.PathValue("id"), by(r)); err != nil {
		return ruleProblem(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func ruleProblem(err error) error {
	switch {
	case errors.Is(err, agent.ErrRulesUnread):
		return refuse(http.StatusConflict, "rules_unread", "%v", err)
	case errors.Is(err, agent.ErrTrying):
		return refuse(http.StatusConflict, "rule_is_tried", "%v", err)
	case errors.Is(err, agent.ErrNoPicture):
		return refuse(http.StatusConflict, "no_picture", "%v", err)
	case errors.Is(err, agent.ErrNoAlert):
		return refuse(http.StatusNotFound, "no_alert", "%v", err)
	case errors.Is(err, agent.ErrNoRule):
		return refuse(http.StatusNotFound, "no_rule", "%v", err)
	case errors.Is(err, agent.ErrTooManyRules):
		return refuse(http.StatusConflict, "too_many_rules", "%v", err)
	}
	return refuse(http.StatusUnprocessableEntity, "bad_rule", "%s", oneLine(err))
}

// alertList is the answer of GET /api/alerts.
type alertList struct {
	Alerts []events.KeptAlert `json:"alerts"`
}

func (s *Server) getAlerts(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, alertList{Alerts: append([]events.KeptAlert{}, h.Hub.Alerts()...)})
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

func (s *Server) deleteAlert(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	if !h.Hub.DeleteAlert(r.PathValue("id")) {
		return refuse(http.StatusNotFound, "no_alert", "alert %.40q is not kept, or no longer", r.PathValue("id"))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
