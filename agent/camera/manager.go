package camera

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/internal/rescue"
	"touchline/media/source"
	"touchline/media/source/catalog"
	"touchline/media/source/rtsp"
)

// maxName is the longest name of a source, in characters.
const maxName = 64

// ManagerOptions of a Manager.
type ManagerOptions struct {
	// Feed is what all sources have in common; Identity, Name, OnStatus and OnReason are each one's own.
	Feed Options
	// Allow judges the addresses that Add and Change are given.
	Allow source.Allow
	// Max is how many sources may be open, 0 for 8.
	Max int
	// Senders of the same room are listed as well; may be nil.
	Senders *Senders
	Log     zerolog.Logger
}

// Manager keeps the sources of one room: they come, change and go while it
// runs. Run owns all of them.
type Manager struct {
	opts ManagerOptions

	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // Run's, for what is begun by requests
	items []*item
	wg    sync.WaitGroup
}

// item is one source and its participant.
type item struct {
	id    string
	began time.Time
	feed  *Feed
	play  chan played // what to pull from now on
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	wanted  source.Request
	address source.Address
	trouble string // why its participant is not in the room any more, or its source was given up
}

// played is a source that is ready to be opened.
type played struct {
	puller  source.Puller
	address source.Address
}

// NewManager checks the options; nothing runs yet.
func NewManager(o ManagerOptions) (*Manager, error) {
	if o.Feed.Room == "" {
		return nil, errors.New("expected a room for the sources")
	}
	if o.Max == 0 {
		o.Max = 8
	}
	return &Manager{opts: o}, nil
}

// Run lets sources in until ctx ends, and returns when all have left the room.
// Those that were given before begin now.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	for _, it := range m.items {
		m.start(it)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.wg.Wait()
	return nil
}

// Sources lists what there is, the longest known first, senders last.
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

// Add brings another source into the room. What is to be opened must be
// allowed: addresses written as numbers are judged at once, names when they
// are dialled.
func (m *Manager) Add(w source.Request, by string) (source.Info, error) {
	p, err := m.prepare(w)
	if err != nil {
		return source.Info{}, err
	}
	m.opts.Log.Info().Stringer("source", p.address).Str("by", by).Msg("source added")
	return m.enter(p, w, "")
}

// Open brings in a source that was typed on the command line: what may be
// opened was judged there. identity "" makes one up.
func (m *Manager) Open(p source.Puller, a source.Address, name, identity string) (source.Info, error) {
	return m.enter(played{p, a}, source.Request{Name: name}, identity)
}

func (m *Manager) enter(p played, w source.Request, identity string) (source.Info, error) {
	if w.Name == "" {
		w.Name = shorten(p.address)
	}
	it := &item{
		id: strings.ToLower(rand.Text()[:8]), began: time.Now(), play: make(chan played, 1), done: make(chan struct{}),
		wanted: w, address: p.address,
	}
	o := m.opts.Feed
	o.Name, o.Identity = w.Name, cmp.Or(identity, "source-"+it.id)
	o.Log = m.opts.Log.With().Str("source", it.id).Str("participant", o.Identity).Logger()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ctx != nil && m.ctx.Err() != nil:
		return source.Info{}, errors.New("the program ends")
	case len(m.items) >= m.opts.Max:
		return source.Info{}, fmt.Errorf("%w (%d are open)", source.ErrTooMany, len(m.items))
	}
	f, err := New(o)
	if err != nil {
		return source.Info{}, fmt.Errorf("bring the source into the room: %w", err)
	}
	it.feed = f
	it.play <- p
	m.items = append(m.items, it)
	if m.ctx != nil {
		m.start(it)
	}
	return it.source(), nil
}

// start runs an item. The lock is held.
func (m *Manager) start(it *item) {
	ctx, stop := context.WithCancel(m.ctx)
	it.stop = stop
	m.wg.Go(func() {
		defer close(it.done)
		defer stop()
		it.run(ctx)
	})
}

// Change opens another address for the same participant, or the same one in
// another way.
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
	if c.URL == nil && c.Transport == nil && c.Insecure == nil {
		if err := checkName(w.Name); err != nil {
			return source.Info{}, err
		}
		it.mu.Lock()
		it.wanted.Name = w.Name
		it.mu.Unlock()
		return it.source(), nil
	}
	if w.URL == "" {
		return source.Info{}, fmt.Errorf("%w: give it a url", source.ErrFixed)
	}
	p, err := m.prepare(w)
	if err != nil {
		return source.Info{}, err
	}
	m.opts.Log.Info().Str("source", id).Stringer("address", p.address).Str("by", by).Msg("source changed")
	it.mu.Lock()
	it.wanted, it.address, it.trouble = w, p.address, ""
	it.mu.Unlock()
	select {
	case <-it.play: // one that was not begun yet
	default:
	}
	select {
	case it.play <- p:
	default: // another change came in between, and is the newer one
	}
	return it.source(), nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Remove takes a source out of the room, and returns when it is gone.
func (m *Manager) Remove(ctx context.Context, id, by string) error {
	it, err := m.find(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.items = slices.DeleteFunc(m.items, func(x *item) bool { return x == it })
	stop := it.stop
	m.mu.Unlock()
	m.opts.Log.Info().Str("source", id).Str("by", by).Msg("source removed")
	if stop == nil {
		return nil // it never began
	}
	stop()
	select {
	case <-it.done:
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

// prepare checks what a stranger wants opened.
func (m *Manager) prepare(w source.Request) (played, error) {
	if err := checkName(w.Name); err != nil {
		return played{}, err
	}
	a, err := source.ParseAddress(w.URL)
	if err != nil {
		return played{}, &agent.RangeError{Name: "url", Want: strings.TrimPrefix(err.Error(), "expected "), Got: "another text"}
	}
	if a.URL == nil {
		if !m.opts.Allow.Files {
			return played{}, refused{errors.New("files and devices of this machine are opened from its command line only")}
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
		return played{}, &agent.RangeError{Name: "transport", Want: `"tcp", "udp" or "auto"`, Got: fmt.Sprintf("%.20q", w.Transport)}
	}
	p, err := catalog.Open(catalog.Options{
		Address: a, Allow: m.opts.Allow, Transport: transport, Insecure: w.Insecure, Loop: true, Now: time.Now, Log: m.opts.Log,
	})
	if err != nil {
		return played{}, err
	}
	return played{p, a}, nil
}

// refused is an source.ErrNotAllowed in words of its own.
type refused struct{ error }

// Is implements what errors.Is asks for.
func (refused) Is(target error) bool { return target == source.ErrNotAllowed }

// number is the address that a host means without asking anybody.
func number(host string) (netip.Addr, bool) {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}

func checkName(name string) error {
	if utf8.RuneCountInString(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return &agent.RangeError{Name: "name", Want: fmt.Sprintf("at most %d printable characters", maxName), Got: "another text"}
	}
	return nil
}

// shorten makes a name of an address: where it is, without how it is spoken to.
func shorten(a source.Address) string {
	name := a.String()
	if a.URL != nil {
		name = a.URL.Host + a.URL.Path
	}
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-1]) + "…"
	}
	return name
}

// run keeps the participant in the room and pulls what it is given, one source
// after the other.
func (it *item) run(ctx context.Context) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer leave()
		if err := it.feed.Run(ctx); err != nil {
			it.troubled("it had to leave the room: " + err.Error())
			it.feed.opts.Log.Warn().Err(err).Msg("a source's participant left the room")
		}
	})
	defer wg.Wait()
	var pulling sync.WaitGroup
	defer pulling.Wait()
	stop := func() {}
	for {
		select {
		case <-ctx.Done():
			stop()
			return
		case p := <-it.play:
			stop()
			pulling.Wait()
			var pctx context.Context
			pctx, stop = context.WithCancel(ctx)
			pulling.Go(func() {
				err := rescue.Call(func() error { return it.feed.Pull(pctx, p.puller, p.address.Hide) })
				if _, crash := rescue.Of(err); crash {
					it.troubled("its code crashed: " + err.Error())
				}
				if err != nil && pctx.Err() == nil {
					it.feed.opts.Log.Warn().Err(err).Msg("a source was given up")
				}
			})
		}
	}
}

func (it *item) troubled(why string) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.trouble = why
}

// source says what is known now.
func (it *item) source() source.Info {
	it.mu.Lock()
	defer it.mu.Unlock()
	out := describe(it.feed, it.feed.Status(), it.address.Kind)
	out.ID, out.Name, out.Address = it.id, it.wanted.Name, it.address.String()
	if out.Since.IsZero() {
		out.Since = it.began
	}
	if it.trouble != "" {
		out.State, out.Reason = source.Failed.String(), it.trouble
	}
	return out
}

// whipKind is the kind of what senders send by WHIP.
const whipKind source.Kind = "whip"

func describe(f *Feed, s source.Status, kind source.Kind) source.Info {
	out := source.Info{
		Kind: string(kind), Identity: f.opts.Identity, State: s.State.String(), Since: s.Since, Reason: s.Reason,
		Width: s.Width, Height: s.Height, FPS: math.Round(10*s.FPS) / 10,
		BitRate: s.BitRate / 1000 * 1000, KeyFrameInterval: s.KeyEvery.Seconds(),
		Sound: s.Sound, Transcoded: f.Reason(),
	}
	if s.Width > 0 {
		out.Codec = CodecName(s)
	}
	out.Advice = advice(kind, s)
	return out
}

// CodecName is the codec of a source's pictures, in words for people.
func CodecName(s source.Status) string {
	if name := s.Codec.String(); name != "unknown" {
		return name
	}
	return "JPEG"
}

// advice says what to do about packets that get lost, and about key frames that are too far apart.
func advice(kind source.Kind, s source.Status) string {
	var words []string
	if s.Lossy {
		words = append(words, lossAdvice(kind, s))
	}
	if s.Slow {
		words = append(words, keyFrameAdvice(kind, s))
	}
	return strings.Join(words, " ")
}

// lossAdvice says what to do about a way that loses packets.
func lossAdvice(kind source.Kind, s source.Status) string {
	lost := fmt.Sprintf("Packets of its picture get lost on the way (%d so far), and after each loss the picture stands still up to "+
		"the next key frame.", s.Missing)
	if kind == source.RTSP {
		return lost + " Open it over TCP (“transport”: TCP), which sends lost ones again; UDP does not."
	}
	return lost + " A cable in place of Wi-Fi, or a lower bit rate at the sender, helps."
}

// keyFrameAdvice says what to set at a source whose key frames are too far apart.
func keyFrameAdvice(kind source.Kind, s source.Status) string {
	apart := "Its key frames are more than 2 s apart"
	if s.KeyEvery > source.KeyFrameLimit {
		apart = fmt.Sprintf("Its key frames are %.1f s apart", s.KeyEvery.Seconds())
	}
	switch kind {
	case source.RTSP:
		return apart + ", and an RTSP camera cannot be asked for one. Set “I-frame interval” (or “GOP”) at the " +
			"camera to one second’s worth of frames, 25 or 30, and “smart codec”, “H.264+” or “Zipstream” off."
	case whipKind:
		return apart + ", although it was asked for one. In OBS: Settings, Output, “Keyframe interval” 1 s. With ffmpeg: -g 30."
	case source.HTTP, source.File, source.Webcam:
	}
	return apart + ". Whoever makes it with ffmpeg sets -g 30; other encoders call it “keyframe interval” or “GOP”: one second."
}
