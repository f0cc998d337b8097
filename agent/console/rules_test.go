package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/console"
	"touchline/agent/look"
)

func TestRules(t *testing.T) {
	t.Parallel()
	set, err := alert.NewSet(alert.Config{Rules: []alert.Rule{{When: "a goal is scored"}}})
	require.NoError(t, err)
	try := func(_ context.Context, in alert.RuleText, past int) ([]look.Trial, error) {
		if in.When == "busy" {
			return nil, look.ErrTrying
		}
		_, err := set.Check(in)
		return slices.Repeat([]look.Trial{{Verdict: look.TrialHolds, Reason: in.When, FrameID: 7}}, 1+past), err
	}
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Rules: set, TryRule: try}})
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"list", "GET", "/api/rules", "", 200, `{"rules":[{"id":"r1","when":"a goal is scored","level":"warning","votes":"2 of 3"`},
		{"of a room", "GET", "/api/rooms/final/rules", "", 200, `"id":"r1"`},
		{"add", "POST", "/api/rooms/final/rules", `{"when":"the pan smokes","level":"critical"}`, 201, `{"id":"r2","when":"the pan smokes","level":"critical"`},
		{"all that is wrong", "POST", "/api/rules", `{"when":"","votes":"3 of 2"}`, 422, `in one line, is \"\"; votes: must be`},
		{"unknown field", "POST", "/api/rules", `{"when":"x","color":1}`, 400, "unknown_field"},
		{"another kind", "POST", "/api/rules", `{"when":"x","cadence":2}`, 400, "cadence"},
		{"no body", "POST", "/api/rules", ``, 400, "bad_json"},
		{"replace", "PUT", "/api/rules/r2", `{"when":"the pot boils over","pause":"1m"}`, 200, `{"id":"r2","when":"the pot boils over","level":"warning"`},
		{"replace by a wrong one", "PUT", "/api/rules/r2", `{"when":"x","level":"loud"}`, 422, "bad_rule"},
		{"replace none", "PUT", "/api/rules/r9", `{"when":"x"}`, 404, "no_rule"},
		{"try", "POST", "/api/rules/try", `{"when":"a dog barks"}`, 200, `{"trials":[{"verdict":"holds","reason":"a dog barks"`},
		{"try on past looks", "POST", "/api/rooms/final/rules/try?looks=1", `{"when":"a dog barks"}`, 200, `},{"verdict":"holds"`},
		{"try on too many", "POST", "/api/rules/try?looks=21", `{"when":"a dog barks"}`, 400, "bad_looks"},
		{"try what is no rule", "POST", "/api/rules/try", `{"when":"a\nb"}`, 422, "bad_rule"},
		{"try two at once", "POST", "/api/rules/try", `{"when":"busy"}`, 409, "rule_is_tried"},
		{"snooze", "POST", "/api/rules/r2/snooze", `{"for":"10m"}`, 200, `"snoozed_by":"the page"`},
		{"snooze for too long", "POST", "/api/rules/r2/snooze", `{"for":"48h"}`, 422, "for: must be a time between 0s"},
		{"snooze without a time", "POST", "/api/rules/r2/snooze", `{}`, 422, "bad_rule"},
		{"snooze none", "POST", "/api/rules/r9/snooze", `{"for":"10m"}`, 404, "no_rule"},
		{"wake", "POST", "/api/rooms/final/rules/r2/snooze", `{"for":"0s"}`, 200, `"on":false,"looks":0`},
		{"test", "POST", "/api/rules/r2/test", "", 204, ""},
		{"test none", "POST", "/api/rules/r9/test", "", 404, "no_rule"},
		{"acknowledge none", "POST", "/api/rooms/final/alerts/r2-x/ack", "", 404, "no_alert"},
		{"remove", "DELETE", "/api/rooms/final/rules/r2", "", 204, ""},
		{"remove again", "DELETE", "/api/rooms/final/rules/r2", "", 404, "no_rule"},
		{"another method", "PATCH", "/api/rules/r1", `{}`, 405, "DELETE, OPTIONS, PUT"},
		{"another room", "GET", "/api/rooms/west/rules", "", 404, "no_such_room"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // in order
			a := r.ask(tt.method, tt.path, tt.body)
			require.Equal(t, tt.status, a.status, "%s", a.body)
			require.Contains(t, string(a.body), tt.want)
			if tt.status >= 400 {
				a.problem(t)
			}
		})
	}

	tested := set.Expire(time.Now())
	require.Len(t, tested, 1)
	require.True(t, tested[0].Test)
	require.Equal(t, http.StatusNoContent, r.ask("POST", "/api/alerts/"+tested[0].ID+"/ack", "").status)
	require.Equal(t, "the page", set.Expire(time.Now())[0].AckedBy)

	a := r.ask("POST", "/api/rooms/final/rules", `{"when":"x"}`)
	require.Equal(t, "/api/rooms/final/rules/r3", a.header.Get("Location"))
	for range alert.MaxRules - 2 {
		require.Equal(t, http.StatusCreated, r.ask("POST", "/api/rules", `{"when":"x"}`).status)
	}
	a = r.ask("POST", "/api/rules", `{"when":"x"}`)
	require.Equal(t, http.StatusConflict, a.status)
	require.Contains(t, string(a.body), "too_many_rules")

	// What a client reads, it may send back.
	var list struct{ Rules []alert.RuleStatus }
	require.NoError(t, json.Unmarshal(r.ask("GET", "/api/rules", "").body, &list))
	require.Len(t, list.Rules, alert.MaxRules)
	body, err := json.Marshal(list.Rules[0].RuleText)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.ask("PUT", fmt.Sprint("/api/rules/", list.Rules[0].ID), string(body)).status)

	none := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk()}})
	require.Equal(t, http.StatusNotImplemented, none.ask("GET", "/api/rules", "").status)
}
