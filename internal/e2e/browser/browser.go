// Package browser opens pages in a real headless Chromium, for tests of what
// people see.
//
// It owns the browser's process, its profile and the list of what the page
// complained about. It never judges a page: tests do.
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

// Options of a Browser.
type Options struct {
	// Width and Height of the page in CSS pixels; 1440 x 900 when 0.
	Width, Height int
	// Phone asks for touch and a phone's way of laying out pages.
	Phone bool
	// Dark asks pages for their dark look, and not for their light one.
	Dark bool
	// Video and Audio are files that stand for the camera (.y4m, .mjpeg) and the microphone (.wav),
	// played again and again; Chromium's own test picture and beep when "".
	Video, Audio string
	// Script runs in every page before the page's own.
	Script string
	// NoAutoplay keeps the rule that sound needs a click.
	NoAutoplay bool
	// OpenH264 is the folder of Firefox's plugin for H264 (gmpopenh264.info and its library). One that has a network
	// fetches it by itself, later; this one does not.
	OpenH264 string
	// Dir is the profile's folder, empty and used by nobody else; one that Close removes when "".
	Dir string
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

	mu       sync.Mutex
	problems []string
}

// startTime bounds the start of the browser, on a machine that is busy.
const startTime = 60 * time.Second

// Find returns the browser's program.
func Find() (string, error) {
	names := []string{"chromium", "google-chrome", "chromium-browser"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("expected one of %s on the PATH, found none: apt-get install chromium", strings.Join(names, ", "))
}

// Open starts a browser with an empty page. It ends with ctx, or by Close.
func Open(ctx context.Context, o Options) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	if o.Width == 0 || o.Height == 0 {
		o.Width, o.Height = 1440, 900
	}
	b := &Browser{dir: o.Dir, ours: o.Dir == ""}
	if b.ours {
		if b.dir, err = os.MkdirTemp("", "touchline-browser-"); err != nil {
			return nil, fmt.Errorf("make the browser's folder: %w", err)
		}
	} else if b.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("find the browser's folder: %w", err)
	}
	list := flags(path, b.dir, o)
	if b.ours { // what it leaves behind goes with the folder; elsewhere the name could be too long for a socket's
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
		// Nothing but the page's own traffic.
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
		"disable-default-apps", "disable-extensions", "disable-breakpad", "metrics-recording-only",
		"disable-dev-shm-usage",
		"use-fake-ui-for-media-stream", "use-fake-device-for-media-stream",
		// A window that nobody looks at is as quick as one in front.
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

// start waits for the browser and dresses its page.
func (b *Browser) start(o Options) error {
	// The first use of the page's context decides how long the browser lives: it gets no deadline.
	started := make(chan error, 1)
	b.wg.Go(func() { started <- chromedp.Do(b.tab) })
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-time.After(startTime):
		return fmt.Errorf("it did not answer within %v", startTime)
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

// note keeps what the page complains about: errors on the console, exceptions
// that nobody caught, and what the browser itself logs as an error.
func (b *Browser) note(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleException {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf("%s (%s:%d)", m, m.URL, m.Line+1))
}

// Problems are the console's errors so far.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

// Do does actions within a time.
func (b *Browser) Do(within time.Duration, actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.tab, within)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// Navigate opens an address and waits until its page is loaded.
func (b *Browser) Navigate(url string) error {
	if err := b.Do(startTime, chromedp.Navigate(url)); err != nil {
		return fmt.Errorf("open %s: %w", url, err)
	}
	return nil
}

// Reload loads the page again.
func (b *Browser) Reload() error {
	if err := b.Do(startTime, chromedp.Reload()); err != nil {
		return fmt.Errorf("reload the page: %w", err)
	}
	return nil
}

// Click clicks what a CSS selector finds, with a mouse, as a person would.
func (b *Browser) Click(selector string) error {
	if err := b.Do(actTime, chromedp.Click(chromedp.CSS(selector))); err != nil {
		return fmt.Errorf("click %s: %w", selector, err)
	}
	return nil
}

// Type clicks what a CSS selector finds and types keys; "\r" is Enter.
func (b *Browser) Type(selector, keys string) error {
	if err := b.Do(actTime, chromedp.Click(chromedp.CSS(selector)), chromedp.KeyEvent(keys)); err != nil {
		return fmt.Errorf("type into %s: %w", selector, err)
	}
	return nil
}

// actTime bounds a click; pollTime is the time between two questions of Until.
const (
	actTime  = 20 * time.Second
	pollTime = 50 * time.Millisecond
)

// Page is what a Browser and a Firefox have in common.
type Page interface {
	// Navigate opens an address and waits until its page is loaded.
	Navigate(url string) error
	// Reload loads the page again.
	Reload() error
	// Click clicks what a CSS selector finds, with a mouse, as a person would.
	Click(selector string) error
	// Type clicks what a CSS selector finds and types keys; "\r" is Enter.
	Type(selector, keys string) error
	// Until waits until an expression, or what its promise resolves to, is true.
	Until(within time.Duration, js string) error
	// Screenshot is a PNG of what the window shows.
	Screenshot() ([]byte, error)
	// Problems are the console's errors so far.
	Problems() []string
	// Close ends the browser.
	Close()

	// evaluate gives an expression's value as JSON, nothing when it has none.
	evaluate(within time.Duration, js string) (json.RawMessage, error)
	// ended tells why there is no browser any more.
	ended() error
}

// Eval evaluates an expression in the page; of a promise, what it resolves to.
// An expression that has no value gives the zero T.
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

// Until waits until an expression, or what its promise resolves to, is true.
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
			return fmt.Errorf("wait for %s: the browser ended: %w", shorten(js), why)
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = errors.New("it stayed false")
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

// Screenshot is a PNG of what the window shows.
func (b *Browser) Screenshot() ([]byte, error) {
	ctx, cancel := context.WithTimeout(b.tab, startTime)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return nil, fmt.Errorf("take a screenshot: %w", err)
	}
	return png, nil
}

// Close ends the browser and returns when none of its processes is left.
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
			_ = os.RemoveAll(b.dir) // what stays lies in the folder for temporary files
		}
	})
}

// sweepTime bounds the wait for processes that were killed.
const sweepTime = 5 * time.Second

// sweep kills the browser's helpers, which may outlive it for a moment and
// are known by the profile's folder on their command lines.
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
