package camera

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"touchline/agent/settings"
	"touchline/internal/wake"
	"touchline/media/source"
	"touchline/media/source/catalog"
	"touchline/media/source/rtsp"
	"touchline/media/source/transcode"
)

// maxName bounds the name of a source, in characters.
const maxName = 64

// ManagerOptions of a Manager.
type ManagerOptions struct {
	// Feed has the options of all sources; Identity, Name, OnStatus and OnReason are ignored.
	Feed Options
	// Allow restricts the addresses of Add and Change.
	Allow source.Allow
	// Max bounds the open sources; 0 is 8.
	Max int
	// Height is the most rows of an HLS stream's variant; 0 is 720.
	Height int
	// Senders of the same room are listed too; may be nil.
	Senders *Senders
	// OnChange is called after each change of Kept; may be nil.
	OnChange func()
	Log      zerolog.Logger
}

// Manager holds the sources of one room, which are added, changed and removed while it runs. Run owns all of them.
type Manager struct {
	opts ManagerOptions
	run  func(*Feed, context.Context) error // (*Feed).Run
	// failed receives the error of a source of the command line that failed for good.
	failed chan error
	starts atomic.Uint64 // of programs

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // Run's, for goroutines that requests start
	closed bool            // Run starts nothing more
	items  []*item
	wg     sync.WaitGroup
}

// NewManager checks the options; nothing runs yet.
func NewManager(o ManagerOptions) (*Manager, error) {
	if o.Feed.Room == "" {
		return nil, errors.New("camera.ManagerOptions: Feed.Room is required")
	}
	o.Max = cmp.Or(o.Max, 8)
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	m := &Manager{opts: o, run: (*Feed).Run, failed: make(chan error, 1)}
	m.opts.Feed.Started = func() { m.starts.Add(1) }
	return m, nil
}

// Starts returns how often ffmpeg and ffprobe were started for the sources.
func (m *Manager) Starts() uint64 { return m.starts.Load() }

// Run opens sources until ctx ends or a source of the command line fails for good, and returns when all have left the
// room. Sources added before Run start now.
func (m *Manager) Run(ctx context.Context) (err error) {
	m.mu.Lock()
	m.ctx = ctx
	for _, it := range m.items {
		m.start(it) //nolint:contextcheck // it is m.ctx
	}
	m.mu.Unlock()
	select {
	case <-ctx.Done():
	case err = <-m.failed:
	}
	m.mu.Lock()
	m.closed = true
	for _, it := range m.items {
		if it.stop != nil {
			it.stop()
		}
	}
	m.mu.Unlock()
	m.wg.Wait()
	return err
}

// Sources lists the sources, oldest first, and then the senders.
func (m *Manager) Sources() []source.Info {
	m.mu.Lock()
	items := slices.Clone(m.items)
	m.mu.Unlock()
	out := []source.Info{}
	for _, it := range items {
		out = append(out, it.source())
	}
	if m.opts.Senders != nil {
		out = append(out, m.opts.Senders.sources(m.opts.Feed.Room)...)
	}
	return out
}

// Add brings another source into the room. Its address must be allowed: an IP address is checked here, a name when it is
// dialled.
func (m *Manager) Add(w source.Request, by string) (source.Info, error) {
	p, err := m.prepare(w)
	if err != nil {
		return source.Info{}, err
	}
	m.opts.Log.Info().Stringer("source", p.address).Str("by", by).Msg("source added")
	out, err := m.enter(p, w, "", "")
	if err == nil {
		m.opts.OnChange()
	}
	return out, err
}

// Kept is an added source in the form that Restore reads. The URL may hold a password.
type Kept struct {
	ID        string `json:"id"`
	URL       string `json:"url"`
	Name      string `json:"name"`
	Transport string `json:"transport,omitempty"`
	Insecure  bool   `json:"insecure,omitempty"`

	Headers []string `json:"headers,omitempty"`
}

// Identity returns the participant of the source.
func (k Kept) Identity() string { return identityPrefix + k.ID }

// Kept returns the added sources, oldest first, without the sources of the command line.
func (m *Manager) Kept() []Kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Kept
	for _, it := range m.items {
		it.mu.Lock()
		w := it.wanted
		it.mu.Unlock()
		if w.URL != "" {
			out = append(out, Kept{it.id, w.URL, w.Name, w.Transport, w.Insecure, w.Headers})
		}
	}
	return out
}

// Restore brings a source of an earlier Manager into the room, as the same participant. A source that cannot be opened, such as
// one whose address is no longer allowed, is listed as failed, and Restore returns the reason. Restore waits for no camera.
func (m *Manager) Restore(k Kept) error {
	w := source.Request{URL: k.URL, Name: k.Name, Transport: k.Transport, Insecure: k.Insecure, Headers: k.Headers}
	p, err := m.prepare(w)
	if err == nil {
		_, err = m.enter(p, w, k.ID, "")
	}
	if err != nil {
		address, _ := source.ParseAddress(w.URL) // without one, the list shows no address
		it := m.newItem(address, w, k.ID, "")
		it.trouble = err.Error()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.items = append(m.items, it)
	}
	return err
}

// Open adds a source of the command line, whose address needs no permission. An empty identity is generated.
func (m *Manager) Open(p source.Puller, a source.Address, name, identity string) (source.Info, error) {
	return m.enter(played{p, a}, source.Request{Name: name}, "", identity)
}

// giveUp ends Run.
func (m *Manager) giveUp(err error) {
	select {
	case m.failed <- err:
	default: // it ends already
	}
}

// identityPrefix begins the identity of a source whose identity is generated; its id follows.
const identityPrefix = "source-"

// newItem returns an item that plays nothing yet. An empty id or identity is generated.
func (m *Manager) newItem(address source.Address, w source.Request, id, identity string) *item {
	if w.Name == "" {
		w.Name = shorten(address)
	}
	it := &item{
		id: cmp.Or(id, strings.ToLower(rand.Text()[:8])), began: time.Now(), changed: wake.New(),
		opts: m.opts.Feed, wanted: w, address: address,
	}
	it.opts.Name, it.opts.Identity = w.Name, cmp.Or(identity, identityPrefix+it.id)
	it.opts.Log = m.opts.Log.With().Str("source", it.id).Str("participant", it.opts.Identity).Logger()
	return it
}

// enter adds a source. An empty id or identity is generated.
func (m *Manager) enter(p played, w source.Request, id, identity string) (source.Info, error) {
	it := m.newItem(p.address, w, id, identity)
	if w.URL == "" {
		it.failed = m.giveUp
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return source.Info{}, err
	}
	open := 0
	for _, other := range m.items {
		if other.entered() {
			open++
		}
	}
	if open >= m.opts.Max {
		return source.Info{}, fmt.Errorf("%w (%d are open)", source.ErrTooMany, open)
	}
	if err := it.play(p); err != nil {
		return source.Info{}, err
	}
	m.items = append(m.items, it)
	if m.ctx != nil {
		m.start(it)
	}
	return it.source(), nil
}

// open returns an error once Run has ended. The lock is held.
func (m *Manager) open() error {
	if m.closed || m.ctx != nil && m.ctx.Err() != nil {
		return errors.New("the program is stopping")
	}
	return nil
}

// start runs an item until its participant has left the room. The lock is held.
func (m *Manager) start(it *item) {
	ctx, stop := context.WithCancel(m.ctx)
	done := make(chan struct{})
	it.stop, it.done = stop, done
	m.wg.Go(func() {
		defer close(done)
		defer stop()
		for m.more(it) {
			it.run(ctx, m.run)
		}
	})
}

// more reports whether an item has a source to play. If not, its run ends.
func (m *Manager) more(it *item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open() == nil && it.waiting() {
		return true
	}
	it.stop()
	it.stop = nil
	return false
}

// Change opens another address for the same participant, or the same address with other settings; a new name alone opens nothing. A
// participant that had to leave the room joins again.
func (m *Manager) Change(id string, c source.Change, by string) (source.Info, error) {
	it, err := m.find(id)
	if err != nil {
		return source.Info{}, err
	}
	it.mu.Lock()
	w := it.wanted
	it.mu.Unlock()
	set(&w.URL, c.URL)
	set(&w.Name, c.Name)
	set(&w.Transport, c.Transport)
	set(&w.Insecure, c.Insecure)
	set(&w.Headers, c.Headers)
	if c.URL == nil && c.Transport == nil && c.Insecure == nil && c.Headers == nil {
		if err := checkName(w.Name); err != nil {
			return source.Info{}, err
		}
		it.mu.Lock()
		it.wanted.Name = w.Name
		it.mu.Unlock()
		m.opts.OnChange()
		return it.source(), nil
	}
	if w.URL == "" {
		return source.Info{}, fmt.Errorf("%w: give it a url", source.ErrFixed)
	}
	p, err := m.prepare(w)
	if err == nil {
		err = m.replay(it, w, p)
	}
	if err != nil {
		return source.Info{}, err
	}
	m.opts.OnChange()
	m.opts.Log.Info().Str("source", id).Stringer("address", p.address).Str("by", by).Msg("source changed")
	return it.source(), nil
}

// replay replaces the request of an item and its source.
func (m *Manager) replay(it *item, w source.Request, p played) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return err
	}
	if !slices.Contains(m.items, it) {
		return source.ErrNotFound // it was removed meanwhile
	}
	it.mu.Lock()
	it.wanted = w
	it.mu.Unlock()
	if err := it.play(p); err != nil {
		return err
	}
	if m.ctx != nil && it.stop == nil {
		m.start(it)
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Remove removes a source from the room. It returns when the participant has left, within a second.
func (m *Manager) Remove(ctx context.Context, id, by string) error {
	it, err := m.find(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.items = slices.DeleteFunc(m.items, func(x *item) bool { return x == it })
	stop, done := it.stop, it.done
	m.mu.Unlock()
	m.opts.OnChange()
	m.opts.Log.Info().Str("source", id).Str("by", by).Msg("source removed")
	if stop == nil {
		return nil // it does not run
	}
	stop()
	select {
	case <-done:
	case <-time.After(leaveTime):
	case <-ctx.Done():
	}
	return nil
}

func (m *Manager) find(id string) (*item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.items, func(x *item) bool { return x.id == id }); i >= 0 {
		return m.items[i], nil
	}
	if s := m.opts.Senders; s != nil && slices.ContainsFunc(s.sources(m.opts.Feed.Room), func(x source.Info) bool { return x.ID == id }) {
		return nil, source.ErrFixed
	}
	return nil, source.ErrNotFound
}

// prepare checks a request of the page or the API.
func (m *Manager) prepare(w source.Request) (played, error) {
	if err := checkName(w.Name); err != nil {
		return played{}, err
	}
	a, err := source.ParseAddress(w.URL)
	if err != nil {
		want, got, _ := strings.Cut(strings.TrimPrefix(err.Error(), "expected "), ", got ")
		return played{}, &settings.RangeError{Name: "url", Want: want, Got: cmp.Or(got, "another text")}
	}
	if a.URL == nil {
		if !m.opts.Allow.Files {
			return played{}, refused{errors.New("files and devices of this machine can be opened from the command line only")}
		}
	} else if ip, ok := number(a.URL.Hostname()); ok {
		if err := m.opts.Allow.Check(ip); err != nil {
			return played{}, refused{err}
		}
	}
	transport := rtsp.Transport(w.Transport)
	if w.Transport == "auto" {
		transport = rtsp.Auto
	}
	switch transport {
	case rtsp.Auto, rtsp.TCP, rtsp.UDP:
	default:
		return played{}, &settings.RangeError{Name: "transport", Want: `"tcp", "udp" or "auto"`, Got: fmt.Sprintf("%.20q", w.Transport)}
	}
	header, err := source.ParseHeader(w.Headers)
	if err != nil {
		return played{}, &settings.RangeError{Name: "headers", Want: "headers as 'Name: value': " + err.Error(), Got: "others"}
	}
	p, err := catalog.Open(catalog.Options{
		Access:    source.Access{Address: a, Allow: m.opts.Allow, Insecure: w.Insecure, Header: header, Now: time.Now, Log: m.opts.Log},
		Transport: transport, Height: m.opts.Height, Copy: m.opts.Feed.Mode == transcode.Off, Loop: true,
	})
	if err != nil {
		return played{}, err
	}
	return played{p, a}, nil
}

// refused is a source.ErrNotAllowed with another text.
type refused struct{ error }

// Is implements the interface of errors.Is.
func (refused) Is(target error) bool { return target == source.ErrNotAllowed }

// number returns the address of a host given as an IP address or as localhost.
func number(host string) (netip.Addr, bool) {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}

func checkName(name string) error {
	if utf8.RuneCountInString(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return &settings.RangeError{Name: "name", Want: fmt.Sprintf("at most %d printable characters", maxName), Got: "another text"}
	}
	return nil
}

// shorten returns a name for an address: its host, or its file. A path may have a password or a stream key in it, and everyone in the room
// reads the name.
func shorten(a source.Address) string {
	name := a.String()
	if a.URL != nil {
		name = a.URL.Host
	}
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-1]) + "…"
	}
	return name
}
