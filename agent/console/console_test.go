package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"iter"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/command"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	agentspeech "touchline/agent/speech"
	"touchline/media"
	"touchline/media/speech"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait bounds everything that should happen soon; the machine may be busy.
const wait = time.Minute

// desk is a commentator that notes its orders.
type desk struct {
	mu    sync.Mutex
	snap  agent.Snapshot
	calls []string
	boom  bool
	// noScene is a room without a built-in camera. A camera of any identity can be chosen: it may come later.
	noScene bool
}

var errNoScene = &settings.RangeError{Name: "source", Want: `"" (the first camera) or "camera:IDENTITY"`, Got: `"scene"`}

func newDesk() *desk {
	return &desk{snap: agent.Snapshot{
		Status:      agent.Status{State: agent.StateListening, Percent: 100, Activity: "watching"},
		Engine:      "scene",
		ModelLoaded: true, MonitorMode: "IDLE", Profile: "default", TTSEnabled: true,
		Profiles: []prompt.Profile{{Name: "default", Label: "Default"}, {Name: "sports", Label: "Sports"}},
		Delay:    2.4, AlignmentLast: 0.031, AlignmentP95: 0.08,
	}}
}

func (d *desk) change(f func(s *agent.Snapshot)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.snap)
}

func (d *desk) note(format string, args ...any) {
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
}

func (d *desk) orders() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.calls...)
}

func (d *desk) Snapshot() agent.Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boom {
		panic("the desk fell over")
	}
	return d.snap
}

func (d *desk) Check(c command.Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.check(c)
}

func (d *desk) check(c command.Change) error {
	var errs []error
	if c.Instruction != nil {
		if n := utf8.RuneCountInString(strings.TrimSpace(*c.Instruction)); n > prompt.MaxInstruction {
			errs = append(errs, &settings.RangeError{Name: "instruction", Want: "at most 2000 characters", Got: n})
		}
	}
	known := func(p prompt.Profile) bool { return p.Name == *c.Profile }
	if c.Profile != nil && !slices.ContainsFunc(d.snap.Profiles, known) {
		errs = append(errs, fmt.Errorf("profile: no %s", *c.Profile))
	}
	if n := c.Settings.Frames; n != nil && *n > 64 {
		errs = append(errs, errors.New("frames_per_look: expected 1 to 64"))
	}
	if c.Source != nil && *c.Source == "scene" && d.noScene {
		errs = append(errs, errNoScene)
	}
	return errors.Join(errs...)
}

func (d *desk) Change(c command.Change, by string) (settings.Settings, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(c); err != nil {
		return settings.Settings{}, err
	}
	if c.Instruction != nil {
		text := strings.TrimSpace(*c.Instruction)
		d.snap.Instruction, d.snap.InstructionBy, d.snap.MonitorMode = text, by, "ACTIVE"
		if text == "" {
			d.snap.MonitorMode = "IDLE"
		}
		d.note("instruction %q by %s", text, by)
	} else {
		d.note("change by %s", by)
	}
	if c.Profile != nil {
		d.snap.Profile = *c.Profile
	}
	if c.Settings.Frames != nil {
		d.snap.Settings.Frames = c.Settings.Frames
	}
	if c.Settings.Speech != nil {
		d.snap.TTSEnabled, d.snap.Settings.Speech = *c.Settings.Speech, c.Settings.Speech
	}
	return d.snap.Settings, nil
}

func (d *desk) History() []look.Record { return nil }

func (d *desk) Start(source, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("start %q by %s", source, by)
	if source == "scene" && d.noScene {
		return errNoScene
	}
	if d.snap.MonitorMode == "ACTIVE" {
		return fmt.Errorf("start: %w", command.ErrRunning)
	}
	d.snap.MonitorMode = "ACTIVE"
	return nil
}

func (d *desk) Command(c command.Command, by string) (command.Done, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(command.All(), c) {
		return command.Done{}, &settings.RangeError{Name: "command", Want: "a command", Got: c}
	}
	if c == command.Repeat {
		return command.Done{}, fmt.Errorf("%w: there is no comment yet", command.ErrNothingTo)
	}
	if c == command.GoOn { // as a full queue answers CommandRepeat
		return command.Done{}, agentspeech.ErrFull
	}
	d.note("command %s by %s", c, by)
	done := command.Done{Command: c, By: by, Effect: "Done."}
	d.snap.Command = &done
	return done, nil
}

func (d *desk) Say(a agentspeech.Notice, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch a.Text {
	case "":
		return &settings.RangeError{Name: "text", Want: "1 to 1000 characters", Got: 0}
	case "busy":
		return agentspeech.ErrFull
	}
	d.note("say %q (%s, %v) by %s", a.Text, a.Reason, a.Interrupt, by)
	return nil
}

func (d *desk) Stop(by string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("stop by %s", by)
	d.snap.Instruction, d.snap.MonitorMode = "", "IDLE"
}

// studio has pictures and sound.
type studio struct {
	mu      sync.Mutex
	asked   int // for the newest picture
	asking  int
	atOnce  int // at most
	pulls   int
	pulling int
	frame   media.VideoFrame
	none    bool
	every   time.Duration
	sound   chan speech.Frame
	ended   int
}

func newStudio() *studio {
	return &studio{frame: picture(64, 36, 200), every: 5 * time.Millisecond, sound: make(chan speech.Frame, 4)}
}

func picture(w, h int, red byte) media.VideoFrame {
	f := media.VideoFrame{Width: w, Height: h, Pix: make([]byte, w*h*3)}
	for i := 0; i < len(f.Pix); i += 3 {
		f.Pix[i] = red
	}
	return f
}

func (s *studio) Snapshot(context.Context) (media.VideoFrame, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.asking++
	s.atOnce = max(s.atOnce, s.asking)
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	s.asking--
	if s.none {
		return media.VideoFrame{}, errors.New("no camera")
	}
	return s.frame, nil
}

func (s *studio) Delayed(ctx context.Context) iter.Seq[media.VideoFrame] {
	return func(yield func(media.VideoFrame) bool) {
		s.mu.Lock()
		s.pulls++
		s.pulling++
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.pulling--
			s.mu.Unlock()
		}()
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !yield(s.frame) {
					return
				}
			}
		}
	}
}

func (s *studio) counts() (pulls, pulling, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pulls, s.pulling, s.ended
}

func (s *studio) Frames() (<-chan speech.Frame, func()) {
	return s.sound, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended++
	}
}

// mint makes tokens that only look like some.
type mint struct{}

func (mint) Mint(role, name string, _ access.Grant) (console.Grant, error) {
	if name == "unlucky" {
		return console.Grant{}, errors.New("no key")
	}
	return console.Grant{Token: "jwt-" + role, Identity: role + "-" + name, Room: "demo"}, nil
}

// ownPage as WebDir is the console's own choice; tests otherwise have an empty folder.
const ownPage = "own"

// running is a console that listens.
type running struct {
	*console.Server
	t      testing.TB
	opened string // the announced address
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

// open starts a console on a free port and ends it with the test.
func open(tb testing.TB, opts console.Options, prepare ...func(*console.Server)) *running {
	tb.Helper()
	if opts.Config.Listen == "" {
		opts.Config.Listen = "127.0.0.1:0"
	}
	switch opts.WebDir {
	case "":
		opts.WebDir = tb.TempDir()
	case ownPage:
		opts.WebDir = ""
	}
	opened := make(chan string, 1)
	opts.Announce = func(u string) { opened <- u }
	if testing.Verbose() && reflect.ValueOf(opts.Log).IsZero() {
		opts.Log = zerolog.New(os.Stderr) // a handler may log after the test
	}
	s, err := console.New(opts)
	require.NoError(tb, err)
	for _, f := range prepare {
		f(s)
	}
	ctx, stop := context.WithCancel(tb.Context())
	r := &running{Server: s, t: tb, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	tb.Cleanup(r.close)
	select {
	case r.opened = <-opened:
	case err := <-r.ended:
		r.ended <- err
		require.NoError(tb, err)
	case <-time.After(wait):
		require.Fail(tb, "the console did not open")
	}
	return r
}

func (r *running) close() {
	r.stop()
	select {
	case err := <-r.ended:
		require.NoError(r.t, err)
		r.ended <- nil
	case <-time.After(wait):
		require.Fail(r.t, "Run did not end")
	}
	r.client.CloseIdleConnections()
}

func (r *running) url(path string) string { return strings.TrimSuffix(r.URL(), "/") + path }

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem reads the error that an answer carries.
func (a answer) problem(t *testing.T) (code, message, id string) {
	t.Helper()
	var p struct{ Code, Message, RequestID string }
	var m map[string]string
	require.NoError(t, json.Unmarshal(a.body, &m), "%s", a.body)
	p.Code, p.Message, p.RequestID = m["code"], m["message"], m["request_id"]
	require.Len(t, m, 3)
	require.NotEmpty(t, p.Message)
	require.Equal(t, a.header.Get("X-Request-ID"), p.RequestID)
	return p.Code, p.Message, p.RequestID
}

// ask sends a request; header is name, value, name, value.
func (r *running) ask(method, path, body string, header ...string) answer {
	r.t.Helper()
	a, err := r.try(method, path, body, header...)
	require.NoError(r.t, err)
	return a
}

// try is ask in a goroutine of its own.
func (r *running) try(method, path, body string, header ...string) (answer, error) {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url(path), in)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, data}, err
}

// atOnce is the number of requests of many at the same time: more than wait for their answer beyond a rate.
const atOnce = 128

// many asks n times, many at once, and counts the answers by status. Its test fails if one does not come.
func (r *running) many(n int, ask func(i int) (answer, error)) (statuses map[int]int) {
	r.t.Helper()
	statuses = map[int]int{}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error {
			a, err := ask(i)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
			return err
		})
	}
	require.NoError(r.t, all.Wait())
	return statuses
}

// connect opens an endless answer; it ends with the test, or after two minutes.
func (r *running) connect(path string, header ...string) *http.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute) // a stream that does not end fails its test
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(path), nil)
	require.NoError(r.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	return resp
}

// event is one server-sent event as a browser takes it apart.
type event struct{ id, name, data, comment string }

// events reads an answer as server-sent events.
type sseReader struct {
	t    testing.TB
	in   *bufio.Reader
	body io.Closer
}

func (r *running) events(path string, header ...string) *sseReader {
	r.t.Helper()
	resp := r.connect(path, header...)
	require.Equal(r.t, http.StatusOK, resp.StatusCode)
	require.Equal(r.t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	return &sseReader{r.t, bufio.NewReader(resp.Body), resp.Body}
}

// next returns the next event or comment, or io.EOF's event.
func (e *sseReader) next() (event, error) {
	var ev event
	var data []string
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return ev, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && (data != nil || ev.comment != ""):
			ev.data = strings.Join(data, "\n")
			return ev, nil
		case line == "":
		case name == "":
			ev.comment = value
		case name == "data":
			data = append(data, value)
		case name == "event":
			ev.name = value
		case name == "id":
			ev.id = value
		}
	}
}

// want reads the next event, but comments, and checks its name.
func (e *sseReader) want(name string) event {
	e.t.Helper()
	ev, err := e.next()
	for err == nil && ev.comment != "" && ev.data == "" {
		ev, err = e.next()
	}
	require.NoError(e.t, err)
	require.Equal(e.t, name, ev.name, "%+v", ev)
	return ev
}

// until reads up to the first event of that name.
func (e *sseReader) until(name string) event {
	e.t.Helper()
	for {
		ev, err := e.next()
		require.NoError(e.t, err)
		if ev.name == name {
			return ev
		}
	}
}

func decodeJPEG(t *testing.T, data []byte) image.Image {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	return img
}

// TestNoBuiltInScene: the client gets the reason of a refusal.
func TestNoBuiltInScene(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.noScene = true
	r := open(t, console.Options{Room: console.Room{Bot: d}})
	for _, path := range []string{"/api/start", "/api/source"} {
		a := r.ask("POST", path, `{"source":"scene"}`)
		require.Equal(t, http.StatusBadRequest, a.status, path)
		code, message, _ := a.problem(t)
		require.Equal(t, "bad_source", code)
		require.Contains(t, message, "camera:IDENTITY")
	}
}

func TestEveryRowOfTheAPI(t *testing.T) {
	t.Parallel()
	d, st := newDesk(), newStudio()
	hub := events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{Room: console.Room{Bot: d, Hub: hub, Pictures: st, Sound: st, Tokens: mint{}}, SignalURL: "ws://127.0.0.1:1"})
	hub.Record(look.Record{Type: "cycle_end", Cycle: 7, Outcome: "shown", Text: "A goal."})
	hub.Record(look.Record{Type: "cycle_end", Cycle: 8, Outcome: "silent"})

	long := strings.Repeat("ä", prompt.MaxInstruction)
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string // part of the body
	}{
		{"status", "GET", "/api/status", "", 200, `"model_loaded":true`},
		{"instruction", "POST", "/api/instruction", `{"instruction":" only the keeper "}`, 200, `"instruction":"only the keeper"`},
		{"longest instruction", "POST", "/api/instruction", `{"instruction":"` + long + `"}`, 200, `"ACTIVE"`},
		{"too long an instruction", "POST", "/api/instruction", `{"instruction":"` + long + `x"}`, 422, "at most 2000 characters"},
		{"no instruction", "POST", "/api/instruction", `{}`, 422, "expected"},
		{"null instruction", "POST", "/api/instruction", `{"instruction":null}`, 422, "expected"},
		{"empty instruction clears", "POST", "/api/instruction", `{"instruction":"  "}`, 200, `"IDLE"`},
		{"clear", "DELETE", "/api/instruction", "", 200, `"IDLE"`},
		{"profiles", "GET", "/api/profiles", "", 200, `"active":"default"`},
		{"profile", "POST", "/api/profiles", `{"profile":"sports"}`, 200, `"active_profile":"sports"`},
		{"unknown profile", "POST", "/api/profiles", `{"profile":"chess"}`, 400, "chess"},
		{"settings", "POST", "/api/settings", `{"frames_per_look":6}`, 200, `{"frames_per_look":6}`},
		{"setting out of range", "POST", "/api/settings", `{"frames_per_look":65}`, 422, "1 to 64"},
		{"unknown setting", "POST", "/api/settings", `{"frames":6}`, 400, `unknown field \"frames\"`},
		{"setting of another type", "POST", "/api/settings", `{"capture_fps":"fast"}`, 400, `field \"capture_fps\": expected a number, got string`},
		{"no JSON", "POST", "/api/settings", `{"capture_fps":`, 400, "bad JSON"},
		{"an array", "POST", "/api/settings", `[]`, 400, "expected a JSON object"},
		{"null", "POST", "/api/settings", `null`, 400, "expected a JSON object"},
		{"empty body", "POST", "/api/settings", ``, 400, "empty body"},
		{"more than one object", "POST", "/api/settings", `{} {}`, 400, "more after it"},
		{"bad source", "POST", "/api/start", `{"source":"file:///etc/passwd"}`, 400, "camera:IDENTITY"},
		{"start with a camera that may come later", "POST", "/api/start", `{"source":"camera:anna"}`, 200, `"ACTIVE"`},
		{"start again", "POST", "/api/start", `{"source":""}`, 409, "running"},
		{"say", "POST", "/api/say", `{"text":"Half time.","reason":"desk","interrupt":true}`, 200, `"monitor_mode"`},
		{"nothing to say", "POST", "/api/say", `{}`, 422, "text: expected 1 to 1000 characters"},
		{"too much to repeat", "POST", "/api/command", `{"command":"go_on"}`, 429, "too_much_to_say"},
		{"too much to say", "POST", "/api/say", `{"text":"busy"}`, 429, "too_much_to_say"},
		{"say with a typo", "POST", "/api/say", `{"txt":"busy"}`, 400, "unknown_field"},
		{"stop", "POST", "/api/stop", ``, 200, `"IDLE"`},
		{"start without a body", "POST", "/api/start", ``, 200, `"ACTIVE"`},
		{"source", "POST", "/api/source", `{"source":"scene"}`, 200, `"status"`},
		{"source without identity", "POST", "/api/source", `{"source":"camera:"}`, 400, "camera:IDENTITY"},
		{"source with control characters", "POST", "/api/source", `{"source":"camera:a\u0000b"}`, 400, "camera:IDENTITY"},
		{"source that may come later", "POST", "/api/source", `{"source":"camera:anna"}`, 200, `"status"`},
		{"history", "GET", "/api/history", "", 200, `"A goal."`},
		{"token", "POST", "/api/livekit/token", `{"role":"camera","name":"Anna"}`, 200, `"jwt-camera"`},
		{"token with a bad role", "POST", "/api/livekit/token", `{"role":"admin","name":"Anna"}`, 400, "viewer"},
		{"token with a long name", "POST", "/api/livekit/token", `{"role":"viewer","name":"` + strings.Repeat("n", 65) + `"}`, 400, "64"},
		{"token refused", "POST", "/api/livekit/token", `{"role":"viewer","name":"unlucky"}`, 503, "no key"},
		{"wrong login", "POST", "/api/login", `{"token":"guess"}`, 401, "wrong token"},
		{"health", "GET", "/healthz", "", 200, `"status":"ok"`},
		{"ready", "GET", "/readyz", "", 200, `"status":"ready"`},
		{"metrics", "GET", "/metrics", "", 200, `touchline_cycles_total{outcome="shown"} 1`},
		{"frame that never was", "GET", "/api/frames/99", "", 404, "no longer"},
		{"frame by name", "GET", "/api/frames/last", "", 404, "number"},
		{"frame too wide", "GET", "/api/frames/1?w=9000", "", 400, "pixels"},
		{"nothing there", "GET", "/api/nothing", "", 404, "/api/nothing"},
		{"nothing there to post to", "POST", "/api/nothing", "{}", 404, "/api/nothing"},
		{"no such file", "GET", "/static/app.js", "", 404, "/static/app.js"},
		{"server away", "GET", "/rtc/validate", "", 502, "cannot reach"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := r.ask(tt.method, tt.path, tt.body)
			require.Equal(t, tt.status, a.status, "%s", a.body)
			require.Contains(t, string(a.body), tt.want)
			require.NotEmpty(t, a.header.Get("X-Request-ID"))
			require.Equal(t, "no-store", a.header.Get("Cache-Control"))
			if tt.status >= 400 {
				a.problem(t)
			}
		})
	}
	require.Contains(t, d.orders(), `instruction "only the keeper" by the page`)
	require.Contains(t, d.orders(), `say "Half time." (desk, true) by the page`)
	require.NotContains(t, string(r.ask("GET", "/api/history", "").body), `"cycle":8`, "a silent cycle is no comment")
}
