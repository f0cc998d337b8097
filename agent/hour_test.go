package agent_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/media/window"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata, line by line.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if bytes.Equal(want, got) {
		return
	}
	old, now := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	differ := 0
	for i := range max(len(old), len(now)) {
		var a, b string
		if i < len(old) {
			a = old[i]
		}
		if i < len(now) {
			b = now[i]
		}
		if a != b {
			if differ++; differ <= 10 {
				t.Logf("line %d\nwas %s\nis  %s", i+1, a, b)
			}
		}
	}
	require.Fail(t, path+" differs", "%d lines differ; -update writes the file anew", differ)
}

// TestScriptedHour runs the hour of testdata/hour.script in one room and compares all that leaves the Session with
// testdata/hour.golden.
func TestScriptedHour(t *testing.T) {
	golden(t, "testdata/hour.golden", scriptedHour(t))
}

// scriptedHour returns the log of the hour.
func scriptedHour(t *testing.T) (log []byte) {
	t.Helper()
	steps := readScript(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHour(t)
		verbs := verbs(t)
		for _, step := range steps {
			h.watch(t, step.at)
			verb, ok := verbs[step.verb]
			require.True(t, ok, step.verb)
			h.log("do", 0, strings.TrimSpace(step.verb+" "+step.args)+" -> "+cmp.Or(verb(h, step.args), "done"))
		}
		h.watch(t, time.Hour)
		h.rig.stop()
		h.others.Wait()
		h.heard()
		log = h.text()
	})
	return log
}

// step is a line of the script.
type step struct {
	at         time.Duration
	verb, args string
}

// offGrid is added to the times of the script: the Session looks after itself every 250 ms, and what happens in the same instant has
// no order.
const offGrid = 3*time.Millisecond + 7

// The state is read every readState; the published one may be behind it by stateBehind.
const (
	readState   = 50 * time.Millisecond
	stateBehind = 300 * time.Millisecond
)

// watch logs the state until a time of the hour. It reads the state when all goroutines are at rest: when within an instant a state is
// published, and which of the short ones between, has no order. Those published must be the same soon.
func (h *hour) watch(t *testing.T, until time.Duration) {
	t.Helper()
	for left := until - time.Since(h.began); left > 0; left = until - time.Since(h.began) {
		time.Sleep(min(left, readState))
		synctest.Wait()
		now := h.state()
		if now != h.seen {
			h.log("state", 0, now)
			h.seen = now
		}
		h.mu.Lock()
		published := h.published
		h.mu.Unlock()
		if now == published {
			h.agreed = time.Now()
		}
		require.LessOrEqual(t, time.Since(h.agreed), stateBehind, "published %s, is %s", published, now)
	}
}

func readScript(t *testing.T) (out []step) {
	t.Helper()
	f, err := os.Open("testdata/hour.script")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		clock, rest, _ := strings.Cut(line, " ")
		minutes, seconds, ok := strings.Cut(clock, ":")
		require.True(t, ok, line)
		at, err := time.ParseDuration(minutes + "m" + seconds + "s")
		require.NoError(t, err, line)
		verb, args, _ := strings.Cut(strings.TrimSpace(rest), " ")
		out = append(out, step{at + offGrid, verb, strings.TrimSpace(args)})
	}
	return out
}

// hour is a room with its log.
type hour struct {
	rig    *rig
	began  time.Time
	rules  *alert.Set
	resume func() // of the camera
	others sync.WaitGroup

	// Of the test's goroutine: the state that was logged last, and when the published one was the same.
	seen   string
	agreed time.Time

	mu        sync.Mutex // guards the rest
	rng       *rand.Rand
	manner    string                       // in which the engine answers
	said      int                          // sentences so far
	holds     map[string]string            // reason by rule, of the rules that hold
	loading   *inference.Status            // of the engine; nil when it is ready
	grey      *byte                        // of all pictures; nil while they change
	changes   int                          // calls of OnChange
	alert     string                       // id of the last alert
	asked     map[string]map[string]string // fields of the last prompt by kind
	shown     map[uint64]string            // pictures by cycle
	published string                       // state
	entries   []entry
}

// entry is a line of the log. Entries of one instant are sorted by kind and key: goroutines that are woken in the same instant have no
// order. Those of one kind and key come from one goroutine and stay in order.
type entry struct {
	at   time.Time
	kind string
	key  uint64
	text string
}

// kinds are the kinds of entries in the order in which those of an instant are written.
var kinds = []string{"do", "ask", "caption", "record", "order", "alert", "commit", "hear", "gain", "voice", "state"}

func (h *hour) log(kind string, key uint64, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, entry{time.Now(), kind, key, text})
}

func (h *hour) text() []byte {
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		return cmp.Or(a.at.Compare(b.at), slices.Index(kinds, a.kind)-slices.Index(kinds, b.kind), cmp.Compare(a.key, b.key))
	})
	var out bytes.Buffer
	for _, e := range h.entries {
		d := e.at.Sub(h.began)
		fmt.Fprintf(&out, "%02d:%06.3f %-7s %s\n", int(d.Minutes()), (d % time.Minute).Seconds(), e.kind, e.text)
	}
	return out.Bytes()
}

// sentences are what the engine says, one after another. No two say the same.
var sentences = []string{
	"Red attacks down the left wing.",
	"The keeper rolls the ball out to Vidal.",
	"Blue presses high in midfield now.",
	"A long cross sails over everybody.",
	"Number nine shoots from far, wide of the post.",
	"The referee stops play for a foul.",
	"Ruiz takes the free kick quickly.",
	"Green substitutes are warming up by the bench.",
	"A corner for blue on the right.",
	"Header by number four, saved!",
	"Throw-in near the halfway line.",
	"The captain argues with the linesman.",
	"Rain begins to fall on the pitch.",
	"Two defenders collide and stay down.",
	"Yellow card for number seven.",
	"Red counterattacks with three players.",
	"The ball hits the crossbar!",
	"Physio runs on with a bag.",
	"Ana dribbles past one, past two.",
	"Offside, says the flag.",
	"White shirts applaud from the stand.",
	"Goal kick, taken short.",
	"A dog has run onto the grass.",
	"Lights come on above the tunnel.",
	"Number eleven is limping.",
	"Blue lines up a wall of five.",
	"The coach shouts and points at his watch.",
	"Eva slides in and wins it cleanly.",
}

// random returns a time between two.
func (h *hour) random(from, to time.Duration) time.Duration {
	return from + time.Duration(h.rng.Int64N(int64(to-from)))
}

// spoken returns an answer with its sound.
func (h *hour) spoken(text string) agenttest.Answer {
	return agenttest.Answer{
		Latency: h.random(400*time.Millisecond, 1800*time.Millisecond), Text: text,
		Speech:     time.Duration(len(text)) * time.Second / 15,
		TimedWords: h.said%2 == 0,
	}
}

// comment returns the next answer to a look of the commentary, in the manner that the script asked for.
func (h *hour) comment(text string) agenttest.Answer {
	next := func() string { h.said++; return sentences[h.said%len(sentences)] }
	switch h.manner {
	case "silent":
		return agenttest.Answer{Latency: h.random(300*time.Millisecond, 700*time.Millisecond), Text: "..."}
	case "repeats":
		return h.spoken("Red attacks again down the left wing.")
	case "repeats-once":
		if strings.Contains(text, "You said that before") {
			return h.spoken(next())
		}
		return h.spoken(sentences[h.said%len(sentences)])
	case "fails":
		return agenttest.Answer{Latency: h.random(100*time.Millisecond, 300*time.Millisecond), Err: errors.New("the model server is gone")}
	case "breaks":
		a := h.spoken(next())
		a.Err = errors.New("the stream ended early")
		return a
	case "quick":
		a := h.spoken(next())
		a.Latency /= 10
		return a
	case "slow":
		a := h.spoken(next())
		a.Latency = h.random(5*time.Second, 7*time.Second)
		return a
	case "too-late":
		a := h.spoken(next())
		a.Latency += 17 * time.Second
		a.Second = 300 * time.Millisecond // the look ends after the comment was dropped
		return a
	case "hangs":
		return agenttest.Answer{Latency: time.Hour}
	case "too-long":
		if strings.Contains(text, "you said") {
			return agenttest.Answer{Err: &inference.TooLongError{Tokens: 1709, Max: 1407}}
		}
	case "own-voice": // its sound follows its text
		a := h.spoken(next())
		a.Behind, a.Second = h.random(300*time.Millisecond, 900*time.Millisecond), h.random(200*time.Millisecond, 700*time.Millisecond)
		return a
	case "no-voice":
		a := h.spoken(next())
		a.Speech = 0
		return a
	case "long":
		a := h.spoken(next() + " " + next() + " " + next() + " " + next())
		a.Second = 1500 * time.Millisecond
		return a
	}
	return h.spoken(next())
}

// differs returns the fields of a prompt that are not as in the last one of its kind.
func (h *hour) differs(kind string, fields []string) (out string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked[kind] == nil {
		h.asked[kind] = map[string]string{}
	}
	for pair := range slices.Chunk(fields, 2) {
		if h.asked[kind][pair[0]] != pair[1] {
			h.asked[kind][pair[0]] = pair[1]
			out += " " + pair[0] + "=" + pair[1]
		}
	}
	return out
}

// alertAnswer returns the answer to a look with rules.
func (h *hour) alertAnswer(rules []string) agenttest.Answer {
	type fired struct {
		Rule   int    `json:"rule"`
		Reason string `json:"reason"`
	}
	out := []fired{}
	for i, when := range rules {
		if why, ok := h.holds[when]; ok {
			out = append(out, fired{i + 1, why})
		}
	}
	text, _ := json.Marshal(map[string]any{"fired": out})
	return agenttest.Answer{Latency: h.random(150*time.Millisecond, 350*time.Millisecond), Text: string(text)}
}

// show writes a value in one line: fields by their JSON names and without those that are zero, times since the beginning in seconds.
func (h *hour) show(v any) string { return h.value(reflect.ValueOf(v)) }

func (h *hour) value(v reflect.Value) string {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return "none"
		}
		return h.value(v.Elem())
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return "@" + strconv.FormatFloat(x.Sub(h.began).Seconds(), 'f', 3, 64)
	case json.RawMessage:
		return string(x)
	}
	switch v.Kind() {
	case reflect.Struct:
		return "{" + strings.Join(h.fields(v), " ") + "}"
	case reflect.Slice:
		all := make([]string, v.Len())
		for i := range all {
			all[i] = h.value(v.Index(i))
		}
		return "[" + strings.Join(all, " ") + "]"
	case reflect.Float64:
		return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v.Float(), 'f', 3, 64), "0"), ".")
	case reflect.String:
		return strconv.Quote(v.String())
	default:
		return fmt.Sprint(v.Interface())
	}
}

func (h *hour) fields(v reflect.Value) (out []string) {
	for field, f := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case f.IsZero() || name == "-" || !field.IsExported() && !field.Anonymous:
		case field.Anonymous:
			out = append(out, h.fields(f)...)
		default:
			out = append(out, cmp.Or(name, strings.ToLower(field.Name))+"="+h.value(f))
		}
	}
	return out
}

// What follows is all that names the Session's methods and types.

func newHour(t *testing.T) *hour {
	t.Helper()
	h := &hour{
		began: time.Now(), rng: rand.New(rand.NewPCG(7, 42)), holds: map[string]string{}, asked: map[string]map[string]string{}, shown: map[uint64]string{},
		rules: rules(t, alert.Rule{Name: "goal", When: "a goal is scored", Cadence: "4s", Interrupt: true}, alert.Rule{Name: "dog", When: "a dog is on the pitch", Cadence: "6s"}),
	}
	frames := func(capture float64, frames, stride int, threshold, pause float64) settings.Settings {
		return settings.Settings{CaptureFPS: &capture, Frames: &frames, Stride: &stride, ChangeThreshold: &threshold, PauseAfter: &pause}
	}
	h.rig = newRig(t, h.answer, func(o *agent.Options) {
		o.Agent = settings.DefaultConfig()
		o.Agent.AutoStart, o.Agent.CycleTimeout = false, 20*time.Second
		o.Pacing.PauseAfter = 3500 * time.Millisecond // else the log is too long
		o.Presets = []settings.Preset{
			{Name: "sentry", Settings: frames(2, 4, 2, 5, 1)},
			{Name: "sniper", Settings: frames(5, 4, 1, 0, 0.5)},
			{Name: "owl", Settings: frames(4, 8, 2, 1, 0.5)},
			{Name: "beast", Settings: frames(5, 10, 2, 0, 0.3)},
		}
		o.Profiles = []prompt.Profile{
			{Name: "default", Label: "Default", Prompt: "Comment."},
			{
				Name: "sports", Label: "Sports", Prompt: "Commentate.", Suggestion: "Follow the ball.",
				Suggestions: map[string]string{"es": "Sigue el balón."},
			},
			{Name: "spanish", Label: "Spanish", Prompt: "Comenta.", Language: "es", VoiceGain: new(-3.0), Speech: new(true)},
		}
		o.EngineNote = "a script"
		o.Alerts, o.Ears = h.rules, hears{}
		o.Audio = &loudness{Voice: o.Audio, h: h}
		o.Texts = []agent.TextOutput{h}
		o.Commit = func(a alert.Alert, f *window.Frame) {
			h.log("commit", 0, fmt.Sprintf("%s %s frame=%v", a.ID, a.Phase, f != nil))
		}
		o.OnChange = func() { h.mu.Lock(); h.changes++; h.mu.Unlock() }
		camera := o.Input.(*agenttest.Camera)
		camera.FPS = 15
		h.resume = camera.Pause(false)
		inner := o.NewDecoder
		o.NewDecoder = func(sinks agent.DecoderSinks) (agent.Decoder, error) {
			d, err := inner(sinks)
			d.(*agenttest.Decoder).SetLuma(h.luma)
			return d, err
		}
		scripted(o).Phase = h.phase
	})
	return h
}

// hears are ears for everything.
type hears struct{}

func (hears) CheckHearing(settings.Hearing) error { return nil }

// loudness logs the changes of a voice's level.
type loudness struct {
	speech.Voice

	h  *hour
	db float64
}

// SetGain implements speech.Voice.
func (l *loudness) SetGain(db float64) {
	l.Voice.SetGain(db)
	if db != l.db {
		l.db = db
		l.h.log("gain", 0, fmt.Sprintf("%+g dB", db))
	}
}

func (h *hour) luma(pts time.Duration) byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.grey != nil {
		return *h.grey
	}
	return byte(pts / (20 * time.Millisecond))
}

func (h *hour) phase() inference.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loading != nil {
		return *h.loading
	}
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}

func (h *hour) answer(_ int, p inference.Prompt) agenttest.Answer {
	kind := "comment"
	if p.Structured() {
		kind = "rules"
	}
	last := p.Frames[len(p.Frames)-1]
	text := fmt.Sprintf("%s to=%.3f", kind, last.PTS.Seconds())
	if n := strings.Count(p.Text, "ago you said"); n > 0 {
		text += fmt.Sprintf(" said=%d", n)
	}
	if n := strings.Count(p.Text, "in the room said"); n > 0 {
		text += fmt.Sprintf(" remarks=%d", n)
	}
	h.log("ask", 0, text+h.differs(kind, []string{
		"system", strconv.Quote(p.System), "frames", strconv.Itoa(len(p.Frames)), "epoch", strconv.FormatUint(uint64(last.Epoch), 10), "language", p.Language,
		"spoken", strconv.FormatBool(p.Speech), "tokens", fmt.Sprint(p.MaxTokens), "slices", fmt.Sprint(p.MaxSlices), "voice", p.Voice,
		"instruction", strconv.Quote(p.Instruction), "rules", fmt.Sprintf("%q", p.Rules), "urgent", strconv.FormatBool(p.Urgent),
		"sampling", h.show(p.Sampling),
	}))
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.Structured() {
		return h.alertAnswer(p.Rules)
	}
	return h.comment(p.Text)
}

// Caption implements agent.TextOutput. Steps of an instant are one.
func (h *hour) Caption(c agent.Caption) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, delta := time.Now(), c.Delta
	first := delta == c.Text
	for i := len(h.entries) - 1; i >= 0 && h.entries[i].at.Equal(now); i-- {
		if e := h.entries[i]; e.kind == "caption" && e.key == c.Cycle {
			quoted, _, _ := strings.Cut(e.text[strings.Index(e.text, " ")+1:], "\t")
			before, _ := strconv.Unquote(quoted)
			delta = before + delta
			first = delta == c.Text
			h.entries = slices.Delete(h.entries, i, i+1)
			break
		}
	}
	text := fmt.Sprintf("%s %q\t", c.Segment[strings.LastIndex(c.Segment, "-")+1:], delta)
	if first {
		text += fmt.Sprintf(" %s spoken=%v", c.Language, c.Spoken)
	}
	if c.Final {
		text += " final"
	}
	h.entries = append(h.entries, entry{now, "caption", c.Cycle, text})
}

// Record implements agent.TextOutput. A text without a voice comes in the instant in which its frame is written, and that has no order: what
// it measures of it is left out.
func (h *hour) Record(r look.Record) {
	h.mu.Lock()
	pictures := fmt.Sprint(r.FrameIDs)
	if shown, ok := h.shown[r.Cycle]; ok && shown != pictures {
		pictures += " but showed " + shown
	}
	h.mu.Unlock()
	if r.Outcome == look.OutcomeShown {
		r.Delay, r.ShownAt, r.AlignmentError, r.Aligned, r.Late = 0, time.Time{}, 0, false, false
	}
	cycle := r.Cycle
	if n := len(r.FrameAt); r.Type == "cycle_end" && n > 0 && r.FrameAt[0].Equal(r.OldestFrameAt) && r.FrameAt[n-1].Equal(r.NewestFrameAt) &&
		r.AnchorPTS == r.PTSTo { // said twice
		r.Type, r.OldestFrameAt, r.NewestFrameAt, r.PTSTo = "", time.Time{}, time.Time{}, 0
	}
	r.Cycle, r.FrameIDs = 0, nil
	h.log("record", cycle, fmt.Sprintf("%d %s %s", cycle, pictures, strings.Join(h.fields(reflect.ValueOf(r)), " ")))
}

// State implements agent.TextOutput.
func (h *hour) State(s agent.Status) { h.set(func() { h.published = status(s) }) }

func (h *hour) state() string { return status(h.rig.Status()) }

func status(s agent.Status) string {
	text := s.State + " " + s.Activity
	if s.Detail != "" {
		text += " " + strconv.Quote(s.Detail)
	}
	if s.Percent != 100 {
		text += fmt.Sprintf(" %d%%", s.Percent)
	}
	if s.Hearing != "" {
		text += " hears " + s.Hearing
	}
	return text
}

// Alert implements agent.AlertOutput.
func (h *hour) Alert(a alert.Alert, _ *window.Frame) {
	h.log("alert", 0, h.show(a))
	h.mu.Lock()
	h.alert = a.ID
	h.mu.Unlock()
}

// Order implements agent.OrderOutput.
func (h *hour) Order(e command.OrderEvent) { h.log("order", 0, h.show(e)) }

// Heard implements agent.HeardOutput.
func (h *hour) Heard(x agent.Heard) { h.log("hear", 0, h.show(x)) }

// Frames implements agent.FrameOutput.
func (h *hour) Frames(cycle uint64, frames []window.Frame) {
	ids := make([]uint64, len(frames))
	for i, f := range frames {
		ids[i] = f.ID
	}
	h.set(func() { h.shown[cycle] = fmt.Sprint(ids) })
}

// heard adds what sounded in the room.
func (h *hour) heard() {
	for _, u := range h.rig.voice.Utterances() {
		text := "until " + h.show(u.To)
		for _, p := range u.Pauses {
			text += " paused " + h.show(p.From)
			if !p.To.IsZero() {
				text += " to " + h.show(p.To)
			}
		}
		if u.Cut {
			text += " cut"
		}
		h.entries = append(h.entries, entry{u.From, "voice", 0, text})
	}
}

func failed(err error) string {
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// read reads the JSON of a script's line.
func read[T any](text string) (out T) {
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return out
}

func (h *hour) set(f func()) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	return ""
}

// by splits the name of a client from the rest of a line.
func by(args string) (who, rest string) {
	who, rest, _ = strings.Cut(args, " ")
	return who, strings.TrimSpace(rest)
}

// verbs are what the script can do; each returns a result, or "".
func verbs(t *testing.T) map[string]func(h *hour, args string) string {
	t.Helper()
	camera := func(h *hour) *agenttest.Camera { return h.rig.camera }
	change := func(h *hour, args string, c func(string) command.Change) string {
		who, rest := by(args)
		_, err := h.rig.Change(c(rest), who)
		return failed(err)
	}
	return map[string]func(h *hour, args string) string{
		"camera-off":      func(h *hour, _ string) string { h.resume = camera(h).Pause(false); return "" },
		"camera-leaves":   func(h *hour, _ string) string { h.resume = camera(h).Pause(true); return "" },
		"camera-on":       func(h *hour, _ string) string { h.resume(); return "" },
		"pictures-still":  func(h *hour, _ string) string { return h.set(func() { h.grey = new(byte(90)) }) },
		"pictures-change": func(h *hour, _ string) string { return h.set(func() { h.grey = nil }) },
		"engine":          func(h *hour, args string) string { return h.set(func() { h.manner = args }) },
		"holds": func(h *hour, args string) string {
			when, why, _ := strings.Cut(args, ": ")
			return h.set(func() { h.holds[when] = why })
		},
		"holds-not": func(h *hour, args string) string { return h.set(func() { delete(h.holds, args) }) },
		"loads": func(h *hour, args string) string {
			percent, _ := strconv.Atoi(args)
			return h.set(func() {
				h.loading = &inference.Status{Phase: inference.PhaseLoading, Percent: percent, Detail: "reading the weights"}
			})
		},
		"engine-fails": func(h *hour, args string) string {
			return h.set(func() { h.loading = &inference.Status{Phase: inference.PhaseFailed, Detail: args} })
		},
		"loaded": func(h *hour, _ string) string { return h.set(func() { h.loading = nil }) },
		"swap-engine": func(h *hour, args string) string {
			next := &agenttest.Engine{Called: args, Answer: h.answer, Phase: h.phase, Can: &inference.Capabilities{
				Instructions: true, Structured: true, Speech: true, OwnVoice: true, OwnVoices: []string{"anna"}, Slices: true,
				Languages: []string{"en", "es"}, Sampling: &inference.Sampling{Temperature: new(0.7), TopK: new(100)},
			}}
			fits := failed(h.rig.Fits(next))
			h.rig.SetEngine(agenttest.Open(next), "another script")
			return strings.TrimSpace("fits " + fits)
		},
		"start": func(h *hour, args string) string { return failed(h.rig.Start(args)) },
		"stop":  func(h *hour, args string) string { h.rig.Stop(args); return "" },
		"instruct": func(h *hour, args string) string {
			return change(h, args, func(s string) command.Change { return command.Change{Instruction: &s} })
		},
		"profile": func(h *hour, args string) string {
			return change(h, args, func(s string) command.Change { return command.Change{Profile: &s} })
		},
		"settings": func(h *hour, args string) string {
			return change(h, args, func(s string) command.Change { return command.Change{Settings: read[settings.Settings](s)} })
		},
		"all-at-once": func(h *hour, args string) string {
			return change(h, args, func(s string) command.Change {
				parts := strings.SplitN(s, " ", 3)
				return command.Change{Profile: &parts[0], Settings: read[settings.Settings](parts[1]), Instruction: &parts[2]}
			})
		},
		"order": func(h *hour, args string) string { // as a person types or says it
			who, text := by(args)
			c, ok := command.Parse(text)
			if !ok {
				_, err := h.rig.Change(command.Change{Instruction: &text}, who)
				return "instruction " + failed(err)
			}
			done, err := h.rig.Command(c, who)
			return cmp.Or(failed(err), h.show(done))
		},
		"command": func(h *hour, args string) string {
			who, text := by(args)
			done, err := h.rig.Command(command.Command(text), who)
			return cmp.Or(failed(err), h.show(done))
		},
		"say": func(h *hour, args string) string {
			who, text := by(args)
			return failed(h.rig.Say(read[speech.Notice](text), who))
		},
		"say-many": func(h *hour, args string) string { // as many as are taken at once, and one more
			var errs []string
			for i := range 18 {
				if err := h.rig.Say(speech.Notice{Text: fmt.Sprintf("Notice number %d.", i+1), Reason: "many"}, args); err != nil {
					errs = append(errs, fmt.Sprintf("%d: %v", i+1, err))
				}
			}
			return strings.Join(errs, "; ")
		},
		"sheet": func(h *hour, args string) string {
			who, text := by(args)
			sheet, err := h.rig.SetBackground(read[string](text), who)
			return cmp.Or(failed(err), h.show(sheet))
		},
		"put-profile": func(h *hour, args string) string {
			who, text := by(args)
			created, err := h.rig.PutProfile(read[prompt.Profile](text), false, who)
			return cmp.Or(failed(err), fmt.Sprint("created ", created))
		},
		"delete-profile": func(h *hour, args string) string {
			who, name := by(args)
			return failed(h.rig.DeleteProfile(name, who))
		},
		"floor": func(h *hour, args string) string {
			floor := map[string]speech.Floor{"free": speech.FloorFree, "doubtful": speech.FloorDoubtful, "taken": speech.FloorTaken}
			h.rig.Floor(floor[args], time.Now())
			return ""
		},
		"hear": func(h *hour, args string) string {
			x := read[agent.Heard](args)
			x.Began, x.Ended = time.Now().Add(-2*time.Second), time.Now()
			h.rig.Hear(x)
			return ""
		},
		"room": func(h *hour, args string) string { h.rig.SetRoom(args); return "" },
		"rule": func(h *hour, args string) string {
			id, err := h.rules.Add(read[alert.RuleText](args))
			return cmp.Or(failed(err), id)
		},
		"rule-replace": func(h *hour, args string) string {
			id, text := by(args)
			return failed(h.rules.Replace(id, read[alert.RuleText](text)))
		},
		"rule-remove": func(h *hour, args string) string { return failed(h.rules.Remove(args)) },
		"rule-snooze": func(h *hour, args string) string {
			id, length := by(args)
			return failed(h.rules.Snooze(id, length, "ana", time.Now()))
		},
		"rule-test": func(h *hour, args string) string { return failed(h.rules.Test(args, time.Now())) },
		"rules":     func(h *hour, _ string) string { return h.show(h.rules.List(time.Now())) },
		"ack": func(h *hour, args string) string {
			h.mu.Lock()
			id := h.alert
			h.mu.Unlock()
			return failed(h.rules.Acknowledge(id, args))
		},
		"try": func(h *hour, args string) string { // it takes the time of several looks
			past, text := by(args)
			n, _ := strconv.Atoi(past)
			h.others.Go(func() {
				trials, err := h.rig.TryRule(t.Context(), alert.RuleText{When: text}, n)
				h.log("do", 1, "tried "+text+" -> "+h.show(trials)+failed(err))
			})
			return ""
		},
		"snapshot": func(h *hour, _ string) string { return h.show(h.rig.Snapshot()) },
		"live": func(h *hour, _ string) string {
			live := h.show(h.rig.Live())
			h.mu.Lock()
			defer h.mu.Unlock()
			return fmt.Sprintf("%s changes=%d", live, h.changes)
		},
		"next": func(h *hour, _ string) string {
			l, err := h.rig.Looks.NextPrompt()
			return cmp.Or(failed(err), h.show(l))
		},
		"looks": func(h *hour, _ string) string {
			var out []string
			for _, l := range h.rig.Looks.Traces() {
				out = append(out, fmt.Sprintf("%d %s %d %q %q %q", l.ID, l.Kind, l.Cycle, l.Outcome, l.Answer, l.Error))
			}
			return strings.Join(out, "; ")
		},
	}
}
