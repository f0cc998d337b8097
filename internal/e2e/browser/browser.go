// Package browser drives a real headless Chromium or Firefox, for tests of pages.
//
// It owns the browser's process, its profile and the list of errors of the page. It never judges a page: tests do.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Options are the options of Open and OpenFirefox.
type Options struct {
	// Width and Height of the page in CSS pixels; 1440 x 900 when 0.
	Width, Height int
	// Phone emulates touch and the layout of a phone.
	Phone bool
	// Dark prefers the dark colour scheme.
	Dark bool
	// Video and Audio are looped files in place of camera (.y4m, .mjpeg) and microphone (.wav); Chromium's own test
	// picture and beep when "".
	Video, Audio string
	// Script runs in every page before the page's own.
	Script string
	// NoAutoplay blocks sound before the first click.
	NoAutoplay bool
	// OpenH264 is the folder of Firefox's plugin for H264 (gmpopenh264.info and its library). A Firefox with a network downloads it
	// later; this one does not.
	OpenH264 string
	// ShutIn keeps Firefox's block of media connections to this machine, which the tests lift otherwise.
	ShutIn bool
	// Env is added to Firefox's environment, such as the address of a sound server.
	Env []string
	// Dir is an empty folder for the profile; a temporary one, removed by Close, when "".
	Dir string
}

// setSize sets the default size.
func (o *Options) setSize() {
	if o.Width == 0 || o.Height == 0 {
		o.Width, o.Height = 1440, 900
	}
}

// Browser is one window with one page.
type Browser struct {
	tab    context.Context //nolint:containedctx // chromedp keeps its connection there
	end    []context.CancelFunc
	dir    string
	ours   bool // the folder is removed by Close
	unhook func() bool
	closed sync.Once
	wg     sync.WaitGroup

	problems
}

// problems collects the errors of a page.
type problems struct {
	mu  sync.Mutex
	all []string
}

func (p *problems) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, text)
}

// Problems returns the errors of the page so far.
func (p *problems) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// startTime bounds the start of the browser on a busy machine.
const startTime = 3 * time.Minute

// Find returns the path of Chromium or Chrome.
func Find() (string, error) {
	names := []string{"chromium", "google-chrome", "chromium-browser"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s on the PATH: apt-get install chromium", strings.Join(names, ", "))
}

// Open starts a browser with an empty page. It runs until ctx ends or Close.
func Open(ctx context.Context, o Options) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	o.setSize()
	b := &Browser{dir: o.Dir, ours: o.Dir == ""}
	if b.ours {
		if b.dir, err = os.MkdirTemp("", "touchline-browser-"); err != nil {
			return nil, fmt.Errorf("make the browser's folder: %w", err)
		}
	} else if b.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("find the browser's folder: %w", err)
	}
	list := flags(path, b.dir, o)
	if b.ours { // temporary files go with the folder; elsewhere the path could be too long for a socket
		list = append(list, chromedp.Env("TMPDIR="+b.dir))
	}
	allocator, cancel := chromedp.NewExecAllocator(ctx, list...)
	b.end = append(b.end, cancel)
	b.tab, cancel = chromedp.NewContext(allocator)
	b.end = append(b.end, cancel)
	b.unhook = context.AfterFunc(ctx, b.Close)
	if err := b.start(o); err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}

func flags(path, dir string, o Options) []chromedp.ExecAllocatorOption {
	list := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.NoSandbox,
		chromedp.Headless, chromedp.DisableGPU, chromedp.UserDataDir(dir), chromedp.WindowSize(o.Width, o.Height),
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
	}
	for _, name := range []string{
		// No traffic but the page's own.
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
		"disable-default-apps", "disable-extensions", "disable-breakpad", "metrics-recording-only",
		"disable-dev-shm-usage",
		"use-fake-ui-for-media-stream", "use-fake-device-for-media-stream",
		// Background windows run at full speed.
		"disable-background-timer-throttling", "disable-renderer-backgrounding",
		"disable-backgrounding-occluded-windows",
	} {
		list = append(list, chromedp.Flag(name, true))
	}
	if o.NoAutoplay {
		list = append(list, chromedp.Flag("autoplay-policy", "document-user-activation-required"))
	}
	if o.Video != "" {
		list = append(list, chromedp.Flag("use-file-for-fake-video-capture", o.Video))
	}
	if o.Audio != "" {
		list = append(list, chromedp.Flag("use-file-for-fake-audio-capture", o.Audio))
	}
	return list
}

// start waits for the browser and applies the options to its page.
func (b *Browser) start(o Options) error {
	// The first use of the page's context determines the life of the browser, so it gets no deadline.
	started := make(chan error, 1)
	b.wg.Go(func() { started <- chromedp.Do(b.tab) })
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-time.After(startTime):
		return fmt.Errorf("no answer within %v", startTime)
	}
	messages := chromedp.Console(b.tab)
	b.wg.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.note(m)
		}
	})
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	var phone []chromedp.EmulateViewportOption
	if o.Phone {
		phone = append(phone, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait)
	}
	return b.Do(startTime,
		chromedp.EmulateViewport(int64(o.Width), int64(o.Height), phone...),
		chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			if err == nil && o.Script != "" {
				_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument,
					page.AddScriptToEvaluateOnNewDocumentParams{Source: o.Script})
			}
			return err
		}))
}

// note records the errors of the page: on the console, uncaught exceptions, and the browser's log.
func (b *Browser) note(m chromedp.ConsoleMessage) {
	if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException {
		b.add(fmt.Sprintf("%s (%s:%d)", m, m.URL, m.Line+1))
	}
}

// Do runs actions within a time.
func (b *Browser) Do(within time.Duration, actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.tab, within)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// Navigate opens an address and waits until the page has loaded.
func (b *Browser) Navigate(url string) error {
	return doing("open "+url, b.Do(startTime, chromedp.Navigate(url)))
}

// Reload loads the page again.
func (b *Browser) Reload() error {
	return doing("reload the page", b.Do(startTime, chromedp.Reload()))
}

// Click clicks the element of a CSS selector with the mouse.
func (b *Browser) Click(selector string) error {
	var err error
	for range 5 { // the page may replace the element between the search and the click
		err = b.Do(actTime, chromedp.Click(chromedp.CSS(selector)))
		if err == nil || !strings.Contains(err.Error(), "Could not find node with given id") {
			break
		}
	}
	return doing("click "+selector, err)
}

// Type clicks the element of a CSS selector and types keys; "\r" is Enter.
func (b *Browser) Type(selector, keys string) error {
	return doing("type into "+selector, b.Do(actTime, chromedp.Click(chromedp.CSS(selector)), chromedp.KeyEvent(keys)))
}

// doing adds the action to its error.
func doing(action string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// actTime bounds a click; pollTime is the interval of Until.
const (
	actTime  = 2 * time.Minute
	pollTime = 50 * time.Millisecond
)

// Page is a page of a Browser or a Firefox.
type Page interface {
	// Navigate opens an address and waits until the page has loaded.
	Navigate(url string) error
	// Reload loads the page again.
	Reload() error
	// Click clicks the element of a CSS selector with the mouse.
	Click(selector string) error
	// Type clicks the element of a CSS selector and types keys; "\r" is Enter.
	Type(selector, keys string) error
	// Until waits until an expression, or the result of its promise, is true.
	Until(within time.Duration, js string) error
	// Screenshot returns the window's content as a PNG.
	Screenshot() ([]byte, error)
	// Problems returns the errors of the page so far.
	Problems() []string
	// Close stops the browser.
	Close()

	// evaluate returns the value of an expression as JSON, empty without a value.
	evaluate(within time.Duration, js string) (json.RawMessage, error)
	// ended returns why the browser has exited.
	ended() error
}

// Eval evaluates an expression in the page and awaits a promise. An expression without a value yields the zero T.
func Eval[T any](p Page, within time.Duration, js string) (T, error) {
	var v T
	raw, err := p.evaluate(within, js)
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		return v, fmt.Errorf("evaluate %s: %w", shorten(js), err)
	}
	return v, nil
}

// evaluate implements Page.
func (b *Browser) evaluate(within time.Duration, js string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(b.tab, within)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](js, chromedp.EvalAwaitPromise))
	if errors.Is(err, chromedp.ErrJSUndefined) || errors.Is(err, chromedp.ErrJSNull) {
		return nil, nil
	}
	return raw, err
}

// ended implements Page.
func (b *Browser) ended() error { return context.Cause(b.tab) }

// Until waits until an expression, or the result of its promise, is true.
// Reloads in between do no harm.
func (b *Browser) Until(within time.Duration, js string) error { return until(b, within, js) }

func until(p Page, within time.Duration, js string) error {
	deadline := time.Now().Add(within)
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	for {
		ok, err := Eval[bool](p, max(time.Until(deadline), pollTime), "(async () => !!(await ("+js+")))()")
		if ok && err == nil {
			return nil
		}
		if why := p.ended(); why != nil {
			return fmt.Errorf("wait for %s: the browser exited: %w", shorten(js), why)
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = errors.New("still false")
			}
			return fmt.Errorf("wait %v for %s: %w", within, shorten(js), err)
		}
		<-ticker.C
	}
}

func shorten(js string) string {
	const most = 120
	if js = strings.Join(strings.Fields(js), " "); len(js) > most {
		js = js[:most] + "..."
	}
	return js
}

// Screenshot returns the window's content as a PNG.
func (b *Browser) Screenshot() ([]byte, error) {
	ctx, cancel := context.WithTimeout(b.tab, startTime)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	return png, doing("take a screenshot", err)
}

// Close stops the browser and returns once all its processes have exited.
func (b *Browser) Close() {
	b.closed.Do(func() {
		if b.unhook != nil {
			b.unhook()
		}
		for _, end := range slices.Backward(b.end) {
			end()
		}
		b.wg.Wait()
		b.sweep()
		if b.ours {
			_ = os.RemoveAll(b.dir) // best effort, in the folder for temporary files
		}
	})
}

// sweepTime bounds the wait for processes that were killed.
const sweepTime = 5 * time.Second

// sweep kills the browser's helpers, which may outlive it for a moment. The profile's folder on their command lines
// identifies them.
func (b *Browser) sweep() {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	quiet := 0
	for deadline := time.Now().Add(sweepTime); quiet < 3 && time.Now().Before(deadline); <-ticker.C {
		quiet++
		for _, pid := range b.Processes() {
			quiet = 0
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
		}
	}
}

// Processes lists the processes that belong to the browser.
func (b *Browser) Processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && slices.ContainsFunc(bytes.Split(line, []byte{0}), func(arg []byte) bool {
			return bytes.Contains(arg, []byte("="+b.dir))
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
