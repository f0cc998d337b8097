package agent_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/inference/scene"
	"touchline/internal/outbox"
	"touchline/internal/sqlite"
	"touchline/media/window"
)

func rules(t *testing.T, rules ...alert.Rule) *alert.Set {
	t.Helper()
	set, err := alert.NewSet(alert.Config{Rules: rules})
	require.NoError(t, err)
	return set
}

// watching answers the commentary with a sentence and looks with rules by what rules returns.
func watching(rules func(p inference.Prompt) agenttest.Answer) func(int, inference.Prompt) agenttest.Answer {
	return func(_ int, p inference.Prompt) agenttest.Answer {
		if p.Structured() {
			return rules(p)
		}
		return agenttest.Answer{Latency: 500 * time.Millisecond, Text: "Red attacks down the left wing.", Speech: 2 * time.Second}
	}
}

func replies(text string) func(inference.Prompt) agenttest.Answer {
	return func(inference.Prompt) agenttest.Answer {
		return agenttest.Answer{Latency: 200 * time.Millisecond, Text: text}
	}
}

const holds = `{"fired":[{"rule":1,"reason":"the ball is in the net"}]}`

func phases(alerts []alert.Alert) (out []string) {
	for _, a := range alerts {
		out = append(out, a.Phase)
	}
	return out
}

// TestAlertLooks: the looks have the system part and the frames of the commentary's look in front, and an alert has its phases in
// order, the second with its frame on the delayed picture.
func TestAlertLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		set := rules(t, alert.Rule{Name: "goal", When: "a goal is scored"})
		r := newRig(t, watching(func(inference.Prompt) agenttest.Answer {
			if now := time.Since(began); now > 20*time.Second && now < 40*time.Second {
				return replies(holds)(inference.Prompt{})
			}
			return replies(`{"fired":[]}`)(inference.Prompt{})
		}), func(o *agent.Options) { o.Alerts = set })
		time.Sleep(2 * time.Minute)
		alerts, frames := r.reader.Alerts()
		asked := r.engine.Questions()
		shown := r.screen.Pictures()
		r.stop()

		require.Equal(t, []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared}, phases(alerts))
		fresh, seen := alerts[0], alerts[1]
		require.Equal(t, "goal", fresh.Name)
		require.Equal(t, "the ball is in the net", fresh.Reason)
		require.Equal(t, fresh.ID, seen.ID)
		require.Equal(t, fresh.ID, alerts[2].ID)
		require.Len(t, frames, 1)
		require.Equal(t, fresh.FrameID, frames[0].ID)
		require.InDelta(t, fresh.AnchorPTS, frames[0].PTS.Seconds(), 1e-9)
		require.NotEmpty(t, frames[0].Pix)
		require.Greater(t, fresh.LatencySec, 0.2)
		for _, picture := range shown {
			if picture.PTS == frames[0].PTS {
				require.WithinDuration(t, picture.At, seen.At, 300*time.Millisecond)
			}
		}

		looks := 0
		var last inference.Prompt
		for _, p := range asked {
			if !p.Structured() {
				last = p.Prompt
				continue
			}
			looks++
			require.Equal(t, last.System, p.System)
			require.True(t, strings.HasPrefix(p.Text, "Rules:\n1. a goal is scored\n"), p.Text)
			require.False(t, p.Speech)
			require.JSONEq(t, `{"type":"object","properties":{"fired":{"type":"array","maxItems":1,"items":{"type":"object",
				"properties":{"rule":{"type":"integer","minimum":1,"maximum":1},"reason":{"type":"string","maxLength":160}},
				"required":["rule","reason"],"additionalProperties":false}}},"required":["fired"],"additionalProperties":false}`, string(p.Schema))
			require.Equal(t, 96, p.MaxTokens)
			if len(last.Frames) > 0 && last.Frames[len(last.Frames)-1].PTS == p.Frames[len(p.Frames)-1].PTS {
				require.Equal(t, last.Frames, p.Frames)
			}
		}
		require.GreaterOrEqual(t, looks, 25, "at least one look in two cadences of 2 s")
		require.LessOrEqual(t, looks, 61)
		require.Zero(t, set.List(time.Now())[0].Unanswered)
	})
}

// TestAlertsWithoutCommentary: rules are looked for also while commenting is off, at twice their cadence, critical ones at theirs.
func TestAlertsWithoutCommentary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored"})
		r := newRig(t, watching(replies(`{"fired":[]}`)), func(o *agent.Options) { o.Alerts, o.Agent.AutoStart = set, false })
		time.Sleep(time.Minute)
		list := set.List(time.Now())
		require.InDelta(t, 15, list[0].Looks, 2)
		require.Zero(t, list[0].Late)
		require.NoError(t, set.Replace("r1", alert.RuleText{When: "a goal is scored", Level: alert.LevelCritical}))
		time.Sleep(time.Minute)
		require.InDelta(t, 30, set.List(time.Now())[0].Looks, 2)
		require.Empty(t, r.reader.Captions())
		r.stop()
	})
}

// TestLateAlertLooks: while comments take longer than two cadences, looks are counted as late. Only looks with a critical rule are
// urgent.
func TestLateAlertLooks(t *testing.T) {
	for level, urgent := range map[string]bool{alert.LevelWarning: false, alert.LevelCritical: true} {
		synctest.Test(t, func(t *testing.T) {
			set := rules(t, alert.Rule{When: "a goal is scored", Level: level, Cadence: "1s"}, alert.Rule{When: "it rains", Cadence: "1h"})
			r := newRig(t, func(_ int, p inference.Prompt) agenttest.Answer {
				if p.Structured() {
					return replies(`{"fired":[]}`)(p)
				}
				return agenttest.Answer{Latency: 4 * time.Second, Text: "Red attacks."}
			}, func(o *agent.Options) { o.Alerts = set })
			time.Sleep(time.Minute)
			asked := r.engine.Questions()
			r.stop()
			status := set.List(time.Now())[0]
			require.Greater(t, status.Late, uint64(8))
			require.LessOrEqual(t, status.Late, status.Looks+status.Unanswered)
			for _, p := range asked {
				require.Equal(t, p.Structured() && urgent, p.Urgent)
			}
		})
	}
}

// TestAlertLooksGiveWay: a new instruction ends a look with rules, so that its own look begins at once.
func TestAlertLooksGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored", Level: alert.LevelCritical})
		r := newRig(t, watching(func(inference.Prompt) agenttest.Answer { return agenttest.Answer{Latency: time.Minute, Text: holds} }),
			func(o *agent.Options) { o.Alerts, o.Agent.AutoStart = set, false })
		time.Sleep(10 * time.Second)
		require.Len(t, r.engine.Questions(), 1)
		require.NoError(t, r.instruct("Only the keeper."))
		time.Sleep(100 * time.Millisecond)
		asked := r.engine.Questions()
		require.Len(t, asked, 2)
		require.False(t, asked[1].Structured())
		r.stop()
	})
}

// TestAlertLooksFail: failed looks are repeated at growing intervals, and the commentary goes on.
func TestAlertLooksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored", Cadence: "200ms", Level: alert.LevelCritical})
		r := newRig(t, watching(func(inference.Prompt) agenttest.Answer { return agenttest.Answer{Err: inference.ErrOverloaded} }),
			func(o *agent.Options) { o.Alerts = set })
		time.Sleep(time.Minute)
		require.Zero(t, r.Snapshot().Failed)
		require.Greater(t, r.Snapshot().Comments, uint64(5))
		r.stop()
		status := set.List(time.Now())[0]
		require.Zero(t, status.Looks)
		require.LessOrEqual(t, status.Unanswered, uint64(12))
		require.GreaterOrEqual(t, status.Unanswered, uint64(5))
	})
}

// TestAlertsEndWithTheSource: another source clears an alert.
func TestAlertsEndWithTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored"})
		r := newRig(t, watching(replies(holds)), func(o *agent.Options) { o.Alerts = set })
		time.Sleep(20 * time.Second)
		resume := r.camera.Pause(true)
		time.Sleep(time.Second)
		resume()
		time.Sleep(time.Second)
		alerts, _ := r.reader.Alerts()
		r.stop()
		require.Equal(t, []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared}, phases(alerts))
		require.Equal(t, "the source changed", alerts[2].Reason)
	})
}

// TestTestAlert: a test reaches the outputs with the newest picture, also of an engine that reads no rules.
func TestTestAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored"})
		r := newRig(t, watching(replies(holds)), func(o *agent.Options) {
			o.Alerts = set
			scripted(o).Can = &inference.Capabilities{}
		})
		time.Sleep(10 * time.Second)
		require.NoError(t, set.Test("r1", time.Now()))
		time.Sleep(10 * time.Second)
		alerts, frames := r.reader.Alerts()
		r.stop()
		require.Len(t, alerts, 3)
		require.Len(t, frames, 1)
		for _, a := range alerts {
			require.True(t, a.Test)
		}
		require.Equal(t, frames[0].ID, alerts[0].FrameID)
		require.ElementsMatch(t, []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared}, phases(alerts))
	})
}

// comments answers the commentary with speech of ten seconds.
func comments(rules func(p inference.Prompt) agenttest.Answer) func(int, inference.Prompt) agenttest.Answer {
	return func(_ int, p inference.Prompt) agenttest.Answer {
		if p.Structured() {
			return rules(p)
		}
		return agenttest.Answer{Latency: 500 * time.Millisecond, Text: "Red attacks down the left wing.", Speech: 10 * time.Second}
	}
}

// saidAlerts returns the records of alerts.
func saidAlerts(records []look.Record) (out []look.Record) {
	for _, rec := range records {
		if rec.Alert != "" {
			out = append(out, rec)
		}
	}
	return out
}

// TestAlertInterrupts: an alert of a rule that may interrupt cuts the present comment and is said in its place, with captions and a
// record. Two at once are said one after the other.
func TestAlertInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := `{"fired":[{"rule":1,"reason":"The ball is in the net."},{"rule":2,"reason":"The keeper is down."}]}`
		began := time.Now()
		set := rules(t, alert.Rule{When: "a goal is scored", Level: alert.LevelCritical, Interrupt: true, Pause: "1h"},
			alert.Rule{When: "the keeper is hurt", Level: alert.LevelCritical, Interrupt: true, Pause: "1h"})
		r := newRig(t, comments(func(inference.Prompt) agenttest.Answer {
			if time.Since(began) < 26*time.Second {
				return replies(`{"fired":[]}`)(inference.Prompt{})
			}
			return replies(both)(inference.Prompt{})
		}), func(o *agent.Options) { o.Alerts = set })
		time.Sleep(90 * time.Second)
		heard, records, captions := r.voice.Utterances(), r.reader.Records(), r.reader.Captions()
		alerts, _ := r.reader.Alerts()
		r.stop()

		said := saidAlerts(records)
		require.Len(t, said, 2)
		for i, text := range []string{"The ball is in the net.", "The keeper is down."} {
			require.Equal(t, look.OutcomeSpoken, said[i].Outcome, said[i].Reason)
			require.Equal(t, text, said[i].Text)
			require.Equal(t, alerts[i].ID, said[i].Alert)
			require.Equal(t, []uint64{alerts[i].FrameID}, said[i].FrameIDs)
			require.False(t, said[i].Aligned)
			require.WithinDuration(t, said[i].StartedAt.Add(time.Second), said[i].EndedAt, time.Millisecond, "in full")
			last := ""
			for _, c := range captions {
				if c.Cycle == said[i].Cycle {
					last = c.Text
					require.True(t, c.Spoken)
				}
			}
			require.Equal(t, text, last)
		}
		require.Less(t, said[0].StartedAt.Sub(alerts[0].At), 150*time.Millisecond, "100 ms are the voice's own")
		var cut []agenttest.Heard
		for _, h := range heard {
			if h.Cut {
				cut = append(cut, h)
			}
		}
		require.Len(t, cut, 1)
		require.Less(t, said[0].StartedAt.Sub(cut[0].To).Abs(), 40*time.Millisecond)
		for _, gap := range heardGaps(heard) {
			require.GreaterOrEqual(t, gap, time.Duration(0), "no two voices at once")
		}
		for _, rec := range records {
			if rec.Outcome == look.OutcomeCut {
				require.Equal(t, "an alert interrupted it", rec.Reason)
			}
		}
		require.True(t, heard[len(heard)-1].From.After(said[1].EndedAt), "the commentary goes on")
	})
}

// TestAlertIsNotSpoken: not by a rule that may not interrupt, not without speech, and as a caption when the voice fails.
func TestAlertIsNotSpoken(t *testing.T) {
	tests := []struct {
		name      string
		interrupt bool
		change    func(*agent.Options)
		outcome   string // "": no record
	}{
		{"may not interrupt", false, func(*agent.Options) {}, ""},
		{"speech is off", true, func(o *agent.Options) { o.Inference.Voice.Enabled = false }, ""},
		{"no voice", true, func(o *agent.Options) { o.Audio = nil }, ""},
		{"the voice fails", true, func(o *agent.Options) { scripted(o).Mute = true }, look.OutcomeShown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := rules(t, alert.Rule{When: "a goal is scored", Level: alert.LevelCritical, Interrupt: tt.interrupt, Pause: "1h"})
				r := newRig(t, comments(replies(holds)), func(o *agent.Options) { o.Alerts = set; tt.change(o) })
				time.Sleep(time.Minute)
				said := saidAlerts(r.reader.Records())
				alerts, _ := r.reader.Alerts()
				for _, h := range r.voice.Utterances() {
					require.False(t, h.Cut)
				}
				r.stop()
				require.NotEmpty(t, alerts)
				if tt.outcome == "" {
					require.Empty(t, said)
					return
				}
				require.Len(t, said, 1)
				require.Equal(t, tt.outcome, said[0].Outcome)
				require.Equal(t, "the ball is in the net", said[0].Text)
			})
		})
	}
}

// TestSceneRules: the scene engine answers its own rules, and no other.
func TestSceneRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "dark", Votes: "1 of 1", Pause: "0s"}, alert.Rule{When: "a goal is scored"})
		set.Accept(func(r alert.RuleText) (bool, error) { return false, scene.CheckRule(r.When) })
		r := newRig(t, nil, func(o *agent.Options) { o.Alerts, o.Engine = set, agenttest.Open(scene.Model{}) })
		r.dec.Side = 64
		r.dec.SetLuma(func(pts time.Duration) byte {
			if pts > 20*time.Second && pts < 40*time.Second {
				return 10
			}
			return 120
		})
		time.Sleep(time.Minute)
		alerts, _ := r.reader.Alerts()
		snap := r.Snapshot()
		trials, err := r.TryRule(t.Context(), alert.RuleText{When: "motion in left"}, look.MaxTrials)
		r.stop()
		require.NoError(t, err)
		require.Equal(t, look.TrialHoldsNot, trials[0].Verdict)
		require.Equal(t, []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared}, phases(alerts))
		require.Equal(t, "The picture is dark: its mean brightness is 10 of 255.", alerts[0].Reason)
		require.Empty(t, snap.AlertNote)
		require.Contains(t, snap.RuleNames, "motion in centre")
		list := set.List(time.Now())
		require.Greater(t, list[0].Looks, uint64(10))
		require.Zero(t, list[0].Unanswered)
		require.Zero(t, list[1].Looks)
		require.Contains(t, list[1].Problem, `the scene engine answers the rules cut, still, dark, bright`)
	})
}

// TestAlertsNeedAnEngineThatReads: an engine without instructions gets no look with rules, and the status says so.
func TestAlertsNeedAnEngineThatReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a goal is scored"})
		r := newRig(t, watching(replies(holds)), func(o *agent.Options) {
			o.Alerts = set
			scripted(o).Can = &inference.Capabilities{}
		})
		time.Sleep(30 * time.Second)
		_, err := r.TryRule(t.Context(), alert.RuleText{When: "", Level: "loud"}, 0)
		require.ErrorContains(t, err, "level: must be info", "of the rule, before that of the engine")
		require.Equal(t, "the scripted engine reads no alert rules; choose an engine that follows instructions", r.Snapshot().AlertNote)
		require.NoError(t, set.Remove("r1"))
		require.Empty(t, r.Snapshot().AlertNote)
		for _, p := range r.engine.Questions() {
			require.False(t, p.Structured())
		}
		r.stop()
	})
}

// TestRulesInSeveralLooks has an engine that takes at most three rules at once: all of them are asked for, and a rule that holds
// fires by its number in its look.
func TestRulesInSeveralLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []alert.Rule
		for _, who := range strings.Split("ABCDEFGHIJ", "") {
			all = append(all, alert.Rule{Name: who, When: who + " falls"})
		}
		set := rules(t, all...)
		r := newRig(t, watching(func(p inference.Prompt) agenttest.Answer {
			i := slices.Index(p.Rules, "H falls")
			switch {
			case len(p.Rules) > 3:
				return agenttest.Answer{Err: &inference.TooLongError{Tokens: 1709, Max: 1407}}
			case i >= 0:
				return replies(fmt.Sprintf(`{"fired":[{"rule":%d,"reason":"on the grass"}]}`, i+1))(p)
			}
			return replies(`{"fired":[]}`)(p)
		}), func(o *agent.Options) { o.Alerts = set })
		time.Sleep(30 * time.Second)
		alerts, _ := r.reader.Alerts()
		asked := set.List(time.Now())
		r.stop()
		require.NotEmpty(t, alerts)
		for _, a := range alerts {
			require.Equal(t, "H", a.Name)
		}
		for _, rule := range asked {
			require.Positive(t, rule.Looks, rule.Name)
			require.Zero(t, rule.Unanswered, rule.Name)
		}
	})
}

// disk is a database whose transactions hang until it answers.
type disk struct {
	driver.Connector

	path    string
	opens   driver.Driver
	answers chan struct{} // nil: at once
}

func (d *disk) Connect(context.Context) (driver.Conn, error) {
	if d.answers != nil {
		<-d.answers
	}
	return d.opens.Open(d.path)
}

// TestAlertsBesideAHangingDisk: a disk that hangs changes neither the moments of comments and alerts nor the order of what waits for it.
func TestAlertsBesideAHangingDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	file, err := sqlite.Format{Name: "state", ID: 1, Versions: []string{outbox.Schema}, Durable: true}.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	run := func(t *testing.T, hangs bool) (moments []string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			d := &disk{path: path, opens: file.Driver()}
			db := sql.OpenDB(d)
			defer func() { _ = db.Close() }()
			db.SetMaxIdleConns(0)
			box := outbox.New(db)
			q, err := box.Queue("receiver")
			require.NoError(t, err)
			if hangs {
				d.answers = make(chan struct{})
			}
			began := time.Now()
			set := rules(t, alert.Rule{Name: "goal", When: "a goal is scored"})
			r := newRig(t, watching(func(inference.Prompt) agenttest.Answer {
				if time.Since(began)%(2*time.Minute) < 20*time.Second {
					return replies(holds)(inference.Prompt{})
				}
				return replies(`{"fired":[]}`)(inference.Prompt{})
			}), func(o *agent.Options) {
				o.Alerts = set
				o.Commit = func(a alert.Alert, _ *window.Frame) {
					box.Put(outbox.Message{Target: "receiver", At: time.Now(), Body: []byte(a.Phase + " of " + a.ID)})
				}
			})
			time.Sleep(10 * time.Minute)
			alerts, _ := r.reader.Alerts()
			for _, c := range commentsOf(r) {
				moments = append(moments, fmt.Sprint(c.InferenceStart.Sub(began)))
			}
			r.stop()
			if hangs {
				close(d.answers)
			}
			box.Flush()
			for _, a := range alerts {
				moments = append(moments, fmt.Sprint(a.Phase, a.At.Sub(began)))
				m, err := q.Next(t.Context())
				require.NoError(t, err)
				require.Equal(t, a.Phase+" of "+a.ID, string(m.Body))
				q.Done(m)
			}
			require.Greater(t, len(alerts), 10)
			require.Zero(t, box.Uncommitted())
			box.Flush()
		})
		return moments
	}
	require.Equal(t, run(t, false), run(t, true))
}

// eyes are a sensor that looks at every second picture. From 20 to 25 s, a rule holds because of what it saw 2 s before that;
// in between, the view is new.
type eyes struct {
	looked func(news bool)
	open   atomic.Bool

	mu    sync.Mutex
	n     int
	first time.Duration // PTS
	last  inference.Frame
	event time.Duration // PTS; 0 before
}

func (e *eyes) Observe(f inference.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n++; e.n == 1 {
		e.first = f.PTS
	}
	if e.n%2 == 0 {
		if e.last = f; e.event == 0 && f.PTS-e.first >= 18*time.Second {
			e.event = f.PTS
		}
		e.looked(false)
	}
}

func (e *eyes) Judge(rules []string, _ []inference.Region) (inference.Judgement, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := inference.Finding{Reason: "A person comes in.", PTS: e.event, Box: &inference.Box{X0: 0.2, Y0: 0.4, X1: 0.3, Y1: 0.8}}
	since := e.last.PTS - e.first
	if f.Unknown = since >= 20500*time.Millisecond && since < 23500*time.Millisecond; f.Unknown {
		f.Reason = ""
	}
	f.Holds = since >= 20*time.Second && since < 25*time.Second && !f.Unknown
	found := slices.Repeat([]inference.Finding{f}, len(rules))
	return inference.Judgement{PTS: e.last.PTS, Epoch: e.last.Epoch, Findings: found}, e.last.PTS > 0
}

func (e *eyes) Facts() (inference.Facts, bool) { return inference.Facts{Things: "1 person"}, true }
func (e *eyes) Close() error                   { e.open.Store(false); return nil }

// TestAlertsByFacts: a sensor beside the engine decides a rule after each of its looks, with look_when pixels. The alert has the picture of
// the event, which came before the rule held, and its box. The engine is asked for the other rule only, and gets no measurement.
func TestAlertsByFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := rules(t, alert.Rule{When: "a person enters", By: alert.ByFacts}, alert.Rule{When: "a goal is scored"})
		set.Accept(func(r alert.RuleText) (bool, error) { return r.By == alert.ByFacts, nil })
		e := &eyes{}
		r := newRig(t, watching(replies(`{"fired":[]}`)), func(o *agent.Options) {
			o.Alerts = set
			o.OpenSensor = func(looked func(bool)) (inference.Sensor, error) {
				e.looked = looked
				e.open.Store(true)
				return e, nil
			}
		})
		time.Sleep(10 * time.Second)
		trials, err := r.TryRule(t.Context(), alert.RuleText{When: "a person enters", By: alert.ByFacts}, look.MaxTrials)
		require.NoError(t, err)
		require.Len(t, trials, 1)
		require.Equal(t, look.TrialHoldsNot, trials[0].Verdict)
		time.Sleep(12 * time.Second)
		trials, err = r.TryRule(t.Context(), alert.RuleText{When: "a person enters", By: alert.ByFacts}, 0)
		require.NoError(t, err)
		require.Equal(t, look.TrialUnanswered, trials[0].Verdict)
		require.Equal(t, "the view is new", trials[0].Reason)
		time.Sleep(2 * time.Second)
		trials, err = r.TryRule(t.Context(), alert.RuleText{When: "a person enters", By: alert.ByFacts}, 0)
		require.NoError(t, err)
		require.Equal(t, look.TrialHolds, trials[0].Verdict)
		time.Sleep(26 * time.Second)
		require.True(t, e.open.Load())
		list := set.List(time.Now())
		require.NoError(t, set.Remove("r1"))
		time.Sleep(20 * time.Second)
		require.False(t, e.open.Load(), "no rule needs it")
		alerts, frames := r.reader.Alerts()
		asked := r.engine.Questions()
		r.stop()

		require.Equal(t, []string{alert.PhaseNew, alert.PhaseShown, alert.PhaseCleared}, phases(alerts))
		a := alerts[0]
		require.Equal(t, "A person comes in.", a.Reason)
		require.Equal(t, &inference.Box{X0: 0.2, Y0: 0.4, X1: 0.3, Y1: 0.8}, a.Box)
		require.InDelta(t, e.event.Seconds(), a.AnchorPTS, 1e-9)
		require.Equal(t, trials[0].FrameID, a.FrameID)
		require.InDelta(t, 2, a.LatencySec, 0.5)
		require.Equal(t, 1, a.Looks)
		require.Greater(t, alerts[2].At.Sub(a.At), 5*time.Second, "what is unknown does not end it")
		require.Len(t, frames, 1)
		require.Equal(t, a.FrameID, frames[0].ID)
		require.Equal(t, e.event, frames[0].PTS)
		require.Len(t, frames[0].Pix, frames[0].Width*frames[0].Height*3)
		require.Greater(t, list[0].Looks, uint64(100), "five pictures a second, every second one")
		for _, p := range asked {
			require.NotContains(t, p.Text, "detector")
			if p.Structured() {
				require.Equal(t, []string{"a goal is scored"}, p.Rules)
			}
		}
	})
}
