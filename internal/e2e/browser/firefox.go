package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

// Firefox is one window of a real headless Firefox with one page, driven by
// WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/).
type Firefox struct {
	cmd    *exec.Cmd
	dir    string
	conn   *websocket.Conn
	page   string // its browsing context
	wg     sync.WaitGroup
	closed sync.Once
	gone   chan struct{} // closed when the connection has ended

	problems

	calls   sync.Mutex // protects the following
	last    int
	waiting map[int]chan reply
}

// reply is a message of BiDi: an answer to a command, or an event.
type reply struct {
	Type    string          `json:"type"`
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Params  json.RawMessage `json:"params"`
	Error   string          `json:"error"`
	Message string          `json:"message"`
}

// FindFirefox returns the path of Firefox. The snap package does not qualify: it cannot read a profile in /tmp.
func FindFirefox() (string, error) {
	for _, name := range []string{"firefox-esr", "firefox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		file, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		// Ubuntu's program is a script that calls the snap's program, which is a link to /usr/bin/snap.
		if text, err := os.ReadFile(file); err != nil || filepath.Base(file) == "snap" ||
			bytes.HasPrefix(text, []byte("#!")) && bytes.Contains(text, []byte("/snap/")) {
			continue
		}
		return path, nil
	}
	return "", errors.New("no firefox-esr or firefox (other than the snap) on the PATH: apt-get install firefox-esr")
}

// preferences for tests: no traffic but the page's own, and a fake camera and microphone.
const preferences = `user_pref("media.peerconnection.ice.default_address_only", false);
user_pref("media.peerconnection.ice.obfuscate_host_addresses", false);
user_pref("media.navigator.streams.fake", true);
user_pref("media.navigator.permission.disabled", true);
user_pref("media.gmp-manager.updateEnabled", false);
user_pref("app.update.disabledForTesting", true);
user_pref("app.normandy.enabled", false);
user_pref("browser.safebrowsing.update.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.page", 0);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
user_pref("toolkit.telemetry.enabled", false);
`

// h264 holds the preferences of a Firefox with its plugin for H264.
const h264 = `user_pref("media.gmp-gmpopenh264.version", "1.0");
user_pref("media.gmp-gmpopenh264.enabled", true);
user_pref("media.gmp-gmpopenh264.visible", true);
user_pref("media.gmp-gmpopenh264.abi", "x86_64-gcc3");
`

var listening = regexp.MustCompile(`WebDriver BiDi listening on (ws://\S+)`)

// OpenFirefox starts a Firefox with an empty page. It uses the options size, Dark, Script, NoAutoplay, OpenH264, ShutIn and Env. It ends
// with ctx, or by Close.
func OpenFirefox(ctx context.Context, o Options) (*Firefox, error) {
	path, err := FindFirefox()
	if err != nil {
		return nil, err
	}
	o.setSize()
	dir, err := os.MkdirTemp("", "touchline-firefox-")
	if err != nil {
		return nil, fmt.Errorf("make the browser's folder: %w", err)
	}
	f := &Firefox{dir: dir, gone: make(chan struct{}), waiting: map[int]chan reply{}}
	if err := f.start(ctx, path, o); err != nil {
		f.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return f, nil
}

func (f *Firefox) start(ctx context.Context, path string, o Options) error {
	prefs := preferences + fmt.Sprintf("user_pref(\"media.peerconnection.ice.loopback\", %v);\n", !o.ShutIn)
	if !o.NoAutoplay {
		prefs += "user_pref(\"media.autoplay.default\", 0);\n"
	}
	if o.OpenH264 != "" {
		if err := os.CopyFS(filepath.Join(f.dir, "gmp-gmpopenh264", "1.0"), os.DirFS(o.OpenH264)); err != nil {
			return err
		}
		prefs += h264
	}
	scheme := 1
	if o.Dark {
		scheme = 0
	}
	prefs += fmt.Sprintf("user_pref(\"layout.css.prefers-color-scheme.content-override\", %d);\n", scheme)
	if err := os.WriteFile(filepath.Join(f.dir, "user.js"), []byte(prefs), 0o600); err != nil {
		return err
	}
	f.cmd = exec.CommandContext(ctx, path, "--headless", "--no-remote", "--profile", f.dir, "--remote-debugging-port", "0",
		"--width", strconv.Itoa(o.Width), "--height", strconv.Itoa(o.Height), "about:blank")
	f.cmd.Env = append(os.Environ(), "MOZ_CRASHREPORTER_DISABLE=1", "HOME="+f.dir, "MOZ_HEADLESS=1")
	f.cmd.Env = append(f.cmd.Env, o.Env...)
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f.cmd.Cancel = f.kill
	stderr, err := f.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := f.cmd.Start(); err != nil {
		f.cmd = nil
		return err
	}
	address := make(chan string, 1)
	f.wg.Go(func() {
		defer close(address)
		lines := bufio.NewScanner(stderr)
		for found := false; lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil && !found {
				found = true
				address <- m[1]
			}
		}
	})
	select {
	case at, ok := <-address:
		if !ok {
			return errors.New("exited before it accepted commands")
		}
		return f.connect(ctx, at, o)
	case <-time.After(startTime):
		return fmt.Errorf("no WebDriver BiDi within %v", startTime)
	}
}

func (f *Firefox) connect(ctx context.Context, at string, o Options) error {
	conn, res, err := websocket.DefaultDialer.DialContext(ctx, at+"/session", nil)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	f.conn = conn
	f.wg.Go(f.read)
	if err := f.call("session.new", map[string]any{"capabilities": map[string]any{}}, nil); err != nil {
		return err
	}
	var tree struct {
		Contexts []struct {
			Context string `json:"context"`
		} `json:"contexts"`
	}
	if err := f.call("browsingContext.getTree", map[string]any{}, &tree); err != nil {
		return err
	}
	if len(tree.Contexts) == 0 {
		return errors.New("no window")
	}
	f.page = tree.Contexts[0].Context
	if err := f.call("session.subscribe", map[string]any{"events": []string{"log.entryAdded"}}, nil); err != nil {
		return err
	}
	if o.Script != "" {
		if err := f.call("script.addPreloadScript", map[string]any{"functionDeclaration": "() => {" + o.Script + "\n}"}, nil); err != nil {
			return err
		}
	}
	return f.Resize(o.Width, o.Height)
}

// Resize sets the size of the page in CSS pixels.
func (f *Firefox) Resize(width, height int) error {
	return f.call("browsingContext.setViewport", map[string]any{
		"context": f.page, "viewport": map[string]int{"width": width, "height": height},
	}, nil)
}

// read dispatches the browser's messages until the connection ends.
func (f *Firefox) read() {
	defer close(f.gone)
	for {
		_, raw, err := f.conn.ReadMessage()
		if err != nil {
			return
		}
		var m reply
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		if m.Type == "event" {
			f.note(m)
			continue
		}
		f.calls.Lock()
		c := f.waiting[m.ID]
		delete(f.waiting, m.ID)
		f.calls.Unlock()
		if c != nil {
			c <- m
		}
	}
}

// note records the errors of the page.
func (f *Firefox) note(m reply) {
	var entry struct {
		Level string `json:"level"`
		Text  string `json:"text"`
		Stack struct {
			Frames []struct {
				URL  string `json:"url"`
				Line int    `json:"lineNumber"`
			} `json:"callFrames"`
		} `json:"stackTrace"`
	}
	if m.Method != "log.entryAdded" || json.Unmarshal(m.Params, &entry) != nil || entry.Level != "error" {
		return
	}
	where := ""
	if len(entry.Stack.Frames) > 0 {
		where = fmt.Sprintf(" (%s:%d)", entry.Stack.Frames[0].URL, entry.Stack.Frames[0].Line+1)
	}
	f.add(entry.Text + where)
}

// call sends one command and waits for its answer.
func (f *Firefox) call(method string, params any, into any) error {
	return f.callWithin(startTime, method, params, into)
}

func (f *Firefox) callWithin(within time.Duration, method string, params any, into any) error {
	answer := make(chan reply, 1)
	f.calls.Lock()
	f.last++
	id := f.last
	f.waiting[id] = answer
	err := f.conn.WriteJSON(map[string]any{"id": id, "method": method, "params": params})
	f.calls.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case m := <-answer:
		if m.Type == "error" {
			return fmt.Errorf("%s: %s: %s", method, m.Error, m.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(m.Result, into)
	case <-f.gone:
		return fmt.Errorf("%s: %w", method, errEnded)
	case <-timer.C:
		return fmt.Errorf("%s: no answer within %v", method, within)
	}
}

// errEnded is returned when the browser has ended.
var errEnded = errors.New("the browser exited")

// Navigate opens an address and waits until the page has loaded.
func (f *Firefox) Navigate(url string) error {
	return f.call("browsingContext.navigate", map[string]any{"context": f.page, "url": url, "wait": "complete"}, nil)
}

// Reload loads the page again.
func (f *Firefox) Reload() error {
	return f.call("browsingContext.reload", map[string]any{"context": f.page, "wait": "complete"}, nil)
}

// Click clicks the element of a CSS selector with the mouse.
func (f *Firefox) Click(selector string) error {
	return f.click("document.querySelector(" + quote(selector) + ")")
}

// ClickText clicks the first element of a selector that contains a text.
func (f *Firefox) ClickText(selector, words string) error {
	return f.click("[...document.querySelectorAll(" + quote(selector) + ")].find((e) => e.innerText.includes(" + quote(words) + "))")
}

func (f *Firefox) click(element string) error {
	at, err := Eval[[]float64](f, actTime, `(() => { const e = `+element+`; e.scrollIntoView({ block: 'nearest' });
		const r = e.getBoundingClientRect(); return [Math.round(r.x + r.width / 2), Math.round(r.y + r.height / 2)] })()`)
	if err != nil {
		return fmt.Errorf("click %s: %w", shorten(element), err)
	}
	return f.act(map[string]any{"type": "pointer", "id": "mouse", "actions": []any{
		map[string]any{"type": "pointerMove", "x": at[0], "y": at[1]},
		map[string]any{"type": "pointerDown", "button": 0},
		map[string]any{"type": "pointerUp", "button": 0},
	}})
}

// Type clicks the element of a CSS selector and types keys; "\r" is Enter.
func (f *Firefox) Type(selector, keys string) error {
	if err := f.Click(selector); err != nil {
		return err
	}
	const enter = "\ue007" // of WebDriver
	var actions []any
	for _, k := range strings.ReplaceAll(keys, "\r", enter) {
		actions = append(actions, map[string]any{"type": "keyDown", "value": string(k)}, map[string]any{"type": "keyUp", "value": string(k)})
	}
	return f.act(map[string]any{"type": "key", "id": "keyboard", "actions": actions})
}

func (f *Firefox) act(source any) error {
	return f.callWithin(actTime, "input.performActions", map[string]any{"context": f.page, "actions": []any{source}}, nil)
}

func quote(s string) string {
	q, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always has a JSON form
	}
	return string(q)
}

// evaluate implements Page.
func (f *Firefox) evaluate(within time.Duration, js string) (json.RawMessage, error) {
	var out struct {
		Type   string `json:"type"`
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
		ExceptionDetails struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err := f.callWithin(within, "script.evaluate", map[string]any{
		"expression":   "(async () => JSON.stringify(await (" + js + ")) ?? 'null')()",
		"target":       map[string]any{"context": f.page},
		"awaitPromise": true,
	}, &out)
	if err == nil && out.Type == "exception" {
		err = errors.New(out.ExceptionDetails.Text)
	}
	return json.RawMessage(out.Result.Value), err
}

// ended implements Page.
func (f *Firefox) ended() error {
	select {
	case <-f.gone:
		return errEnded
	default:
		return nil
	}
}

// Until waits until an expression, or the result of its promise, is true.
func (f *Firefox) Until(within time.Duration, js string) error { return until(f, within, js) }

// Screenshot returns the window's content as a PNG.
func (f *Firefox) Screenshot() ([]byte, error) {
	var shot struct {
		Data string `json:"data"`
	}
	if err := f.call("browsingContext.captureScreenshot", map[string]any{"context": f.page}, &shot); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(shot.Data)
}

// kill stops the process group of Firefox.
func (f *Firefox) kill() error {
	return syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL)
}

// Close stops the browser and returns once it has exited.
func (f *Firefox) Close() {
	f.closed.Do(func() {
		if f.cmd != nil {
			_ = f.kill() // it may have exited
		}
		if f.conn != nil {
			_ = f.conn.Close()
		}
		f.wg.Wait()
		if f.cmd != nil {
			_ = f.cmd.Wait() // it was killed
		}
		_ = os.RemoveAll(f.dir) // best effort, in the folder for temporary files
	})
}
