package webhook_test

import (
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/webhook"
	"touchline/inference"
	"touchline/internal/outbox"
	"touchline/internal/sqlite"
)

func phase(n int, phase string) alert.Alert {
	return alert.Alert{
		Type: "alert", ID: "r1-" + strconv.Itoa(n), Phase: phase, Rule: "r1", Name: "left door", Level: alert.LevelWarning,
		Box: &inference.Box{X0: 0.125, Y0: 0.25, X1: 0.5, Y1: 1},
	}
}

// ids returns the ids of the alerts that a receiver took, each with the box of phase.
func ids(t *testing.T, r *receiver) (out []string) {
	t.Helper()
	for _, e := range r.taken() {
		if e["event"] == webhook.EventAlert {
			a := e["alert"].(map[string]any)
			out = append(out, a["id"].(string)+" "+a["phase"].(string))
			require.Equal(t, map[string]any{"x0": 0.125, "y0": 0.25, "x1": 0.5, "y1": 1.0}, a["box"])
		}
	}
	return out
}

// TestAlerts: alerts wait for a receiver that is away for ten minutes, in order, although other events fail; a
// receiver that refuses an alert loses it.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &receiver{answer: func(w http.ResponseWriter, n int) {
			switch {
			case n == 1:
				w.WriteHeader(http.StatusForbidden)
			case time.Since(began) < 10*time.Minute:
				w.WriteHeader(http.StatusBadGateway)
			}
		}}
		box := outbox.New(nil)
		s, stop := open(t, webhook.Options{Config: config("http://receiver.test/"), Transport: direct{r}, Outbox: box})
		o := s.Output("match", "bot")
		box.Put(o.Queue(phase(0, alert.PhaseNew), nil)...)
		synctest.Wait()
		require.EqualValues(t, 1, s.Failed())
		o.Record(comment(1))
		for i := range 3 {
			for _, p := range []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseAcked, alert.PhaseCleared} {
				box.Put(o.Queue(phase(i+1, p), nil)...)
			}
		}
		time.Sleep(9 * time.Minute)
		require.EqualValues(t, 2, s.Failed(), "the comment, but no alert")
		require.Equal(t, 6, box.Waiting())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"r1-1 new", "r1-1 cleared", "r1-2 new", "r1-2 cleared", "r1-3 new", "r1-3 cleared"}, ids(t, r))
		require.Zero(t, box.Waiting())
		stop()

		cfg := config("http://receiver.test/")
		cfg.Shown = true
		s, stop = open(t, webhook.Options{Config: cfg, Transport: direct{r}, Outbox: box})
		require.Len(t, s.Output("match", "bot").Queue(phase(9, alert.PhaseShown), nil), 1)
		stop()
	})
}

// TestAlertsAfterKill: alerts that a killed program did not deliver are delivered by the next one, with the same event id.
func TestAlertsAfterKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	file := func() *outbox.Outbox {
		db, err := sqlite.Format{Name: "state", ID: 1, Versions: []string{outbox.Schema}, Durable: true}.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return outbox.New(db)
	}
	cfg := config("http://receiver.test/?key=hunter2")
	var lost []outbox.Message
	{
		box := file() // nothing runs: the program is killed after the commit
		s, err := webhook.New(webhook.Options{Config: cfg, APIKey: key, APISecret: secret, Outbox: box})
		require.NoError(t, err)
		o := s.Output("match", "bot")
		for i := range 5 {
			m := o.Queue(phase(i, alert.PhaseNew), nil)
			box.Put(m...)
			lost = append(lost, m...)
		}
		box.Flush()
		require.NotContains(t, lost[0].Target, "hunter2")
	}
	r := &receiver{}
	box := file()
	s, stop := open(t, webhook.Options{Config: cfg, Transport: direct{r}, Outbox: box})
	require.Eventually(t, func() bool { return box.Waiting() == 0 && s.Sent() == 5 }, 2*time.Minute, time.Millisecond)
	stop()
	box.Flush()
	require.Equal(t, []string{"r1-0 new", "r1-1 new", "r1-2 new", "r1-3 new", "r1-4 new"}, ids(t, r))
	for i, e := range r.taken() {
		require.Contains(t, string(lost[i].Body), e["id"])
	}
	again := file()
	_, err := webhook.New(webhook.Options{Config: cfg, APIKey: key, APISecret: secret, Outbox: again})
	require.NoError(t, err)
	require.Zero(t, again.Waiting())
}
