package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/agent/region"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// Room is one room of the console. The routes of a nil part answer with an error, so that the page works before all parts are ready.
type Room struct {
	// Name of the room in the API and on the page.
	Name string

	Bot      agent.Steerer
	Hub      *events.Hub // made when nil
	Pictures Pictures
	Sound    Sound
	Tokens   Tokens
	Sources  Sources
	Rules    *alert.Set
	Regions  *region.Set
	Prompts  Prompts
	Looks    Looks
	Engines  Engines
	// TryRule tries an alert rule, as agent.Session does; may be nil.
	TryRule func(ctx context.Context, r alert.RuleText, past int) ([]look.Trial, error)
	// Forget deletes the speech of an identity, or of all if it is "", from all that keeps it but the Hub; nil if nothing does.
	Forget func(ctx context.Context, by string) error
	// Viewers returns the number of people in the room; may be nil.
	Viewers func() int
	// Metrics are further metrics of the room; may be nil.
	Metrics prometheus.Collector

	// JPEGQuality of the pictures, 1 to 100; 80 when 0.
	JPEGQuality int
	// PictureRate is the maximum picture rate of the MJPEG stream, per second; 10 when 0.
	PictureRate float64
	// OnStop is called after each stop by the API, after the Bot and the Hub's streams have stopped. May be nil.
	OnStop func()
}

const (
	// DefaultMaxRooms is the default limit of NewRooms.
	DefaultMaxRooms = 1000
	// maxRoomName is the longest name of a room, in bytes. LiveKit's limit is 256 characters.
	maxRoomName = 1024
)

// Errors of Rooms.Add.
var (
	ErrTooManyRooms = errors.New("too many rooms")
	ErrRoomKnown    = errors.New("the room is already registered")
)

// Rooms are the rooms of a console. Rooms may be added and removed while it serves.
type Rooms struct {
	max     int
	log     zerolog.Logger
	wake    wake.Signal   // the list has changed
	single  bool          // it holds the only room of a Server
	all     *cycleMetrics // of all rooms
	rest    *cycleMetrics // of the rooms without their own series
	events  *events.Hub   // of all rooms; nil when single
	crowded atomic.Bool   // some room had no own series

	mu                sync.Mutex
	byName            map[string]*roomEntry
	labels            map[string]bool  // in use, in the metrics
	allPast, restPast figures          // counts of removed rooms
	start             func(*roomEntry) // while a Server runs
}

// NewRooms makes an empty Rooms for at most limit rooms; DefaultMaxRooms when 0.
func NewRooms(limit int, log zerolog.Logger) *Rooms {
	if limit <= 0 {
		limit = DefaultMaxRooms
	}
	return &Rooms{
		max: limit, wake: wake.New(), log: log.With().Str("component", "console").Logger(),
		all: newCycleMetrics(), rest: newCycleMetrics(), events: events.NewHub(events.Options{}),
		byName: map[string]*roomEntry{}, labels: map[string]bool{},
	}
}

// Add registers a room until remove is called, which ends its streams. Call it before the room's bot runs.
func (r *Rooms) Add(room Room) (remove func(), err error) {
	h, err := newRoomEntry(room)
	if err != nil {
		return nil, err
	}
	if room.Name == "" && !r.single {
		return nil, fmt.Errorf("%w: the room has no name", ErrConfig)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[room.Name] != nil {
		return nil, fmt.Errorf("%w: %q", ErrRoomKnown, room.Name)
	}
	if len(r.byName) >= r.max {
		return nil, fmt.Errorf("%w: %d", ErrTooManyRooms, r.max)
	}
	r.byName[room.Name] = h
	r.bindLocked(h)
	if r.start != nil {
		r.start(h)
	}
	r.changed()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		delete(r.byName, room.Name)
		r.allPast.counts.add(h)
		if h.label == otherRooms {
			r.restPast.counts.add(h)
		} else {
			delete(r.labels, h.label)
		}
		r.mu.Unlock()
		close(h.gone)
		r.changed()
	}), nil
}

// bindLocked binds the hub of a room, and gives the room its own series in the metrics unless there are too many.
func (r *Rooms) bindLocked(h *roomEntry) {
	h.label = roomLabel(h.Name)
	if r.single || len(r.labels) < labelledRooms && !r.labels[h.label] && h.label != otherRooms {
		r.labels[h.label] = true
		h.cycles = newCycleMetrics()
	} else {
		h.label, h.cycles = otherRooms, r.rest
		r.crowded.Store(true)
	}
	h.Hub.Bind(h.Name, r.events, h.cycles.observe, r.all.observe)
}

// get returns the room of a name, or nil.
func (r *Rooms) get(name string) *roomEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[name]
}

// list returns the rooms, sorted by name.
func (r *Rooms) list() []*roomEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.byName), func(a, b *roomEntry) int { return strings.Compare(a.Name, b.Name) })
}

// afterPanic is the pause before a room's pictures are encoded again after a panic.
const afterPanic = time.Second

// open serves each room until it is removed or ctx ends. wait returns when all have ended. A panic in one room is logged and does not
// affect the others.
func (r *Rooms) open(ctx context.Context) (wait func() error) {
	var g errgroup.Group
	start := func(h *roomEntry) {
		g.Go(func() error {
			for {
				err := h.run(ctx)
				if err == nil {
					return nil
				}
				r.log.Error().Err(err).Str("room", h.Name).Bytes("stack", rescue.Stack(err)).Msg("room service failed; restarting")
				select {
				case <-ctx.Done():
					return nil
				case <-h.gone:
					return nil
				case <-time.After(afterPanic):
				}
			}
		})
	}
	if !r.single {
		g.Go(func() error { return r.watch(ctx) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = start
	for _, h := range r.byName {
		start(h)
	}
	return func() error {
		<-ctx.Done()
		r.mu.Lock()
		r.start = nil
		r.mu.Unlock()
		return g.Wait()
	}
}

// maxChanges bounds the changed rooms that are sent one by one, to leave space in a reader's queue. Beyond it, the whole list is sent.
const maxChanges = events.QueueSize / 2

// watch publishes new, removed and changed rooms once a second while there are readers. It returns nil when ctx ends.
func (r *Rooms) watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var sent map[string]string // by room
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.wake:
		}
		if r.events.Readers(events.Named) == 0 {
			sent = nil
			continue
		}
		sent = r.publish(sent)
	}
}

// publish sends the rooms that differ from the rooms sent before, and returns all rooms.
func (r *Rooms) publish(sent map[string]string) map[string]string {
	infos := r.infos()
	now := make(map[string]string, len(infos))
	var changes []events.Event
	change := func(event, room string, data []byte) {
		changes = append(changes, events.Event{Name: event, Data: data, Key: "room " + room})
	}
	for _, info := range infos {
		data := events.JSON(info)
		now[info.Room] = string(data)
		if sent[info.Room] != now[info.Room] {
			change("room", info.Room, data)
		}
	}
	for room := range sent {
		if _, ok := now[room]; !ok {
			change("gone", room, events.JSON(map[string]string{"room": room}))
		}
	}
	if sent == nil || len(changes) > maxChanges {
		r.events.Publish(events.Event{Name: "rooms", Data: events.JSON(infos), Key: "rooms"})
		return now
	}
	r.events.Publish(changes...)
	return now
}

// infos describes all rooms. A room with a panicking bot has the activity "failed".
func (r *Rooms) infos() []RoomInfo {
	out := []RoomInfo{}
	for _, h := range r.list() {
		info := RoomInfo{Room: h.Name, Activity: agent.ActivityFailed, Reason: "the commentator crashed", Since: h.since.UTC()}
		r.isolate(h, func() { info = h.info() })
		out = append(out, info)
	}
	return out
}

// changed makes watch send the list now.
func (r *Rooms) changed() { r.wake.Set() }

// roomEntry is a room with its state in the console.
type roomEntry struct {
	Room
	label  string // in the metrics
	cycles *cycleMetrics
	since  time.Time
	mjpeg  *mjpegFan
	stills *stills       // of the newest picture
	thumbs *stills       // of others
	wake   wake.Signal   // the snapshot has changed
	gone   chan struct{} // closed when the room was removed
	audio  atomic.Int64  // readers of its sound
	// audioLost counts the frames that these readers got as silence.
	audioLost atomic.Uint64
}

func newRoomEntry(room Room) (*roomEntry, error) {
	if len(room.Name) > maxRoomName || !utf8.ValidString(room.Name) {
		return nil, fmt.Errorf("%w: room name: must be at most %d bytes of UTF-8, is %d",
			ErrConfig, maxRoomName, len(room.Name))
	}
	if room.JPEGQuality = cmp.Or(room.JPEGQuality, 80); room.JPEGQuality < 1 || room.JPEGQuality > 100 {
		return nil, fmt.Errorf("%w: JPEG quality must be between 1 and 100, is %d", ErrConfig, room.JPEGQuality)
	}
	if room.PictureRate <= 0 {
		room.PictureRate = 10
	}
	if room.Hub == nil {
		room.Hub = events.NewHub(events.Options{History: -1, JPEGQuality: room.JPEGQuality})
	}
	now := time.Now()
	return &roomEntry{
		Room:  room,
		since: now,
		mjpeg: &mjpegFan{
			source: room.Pictures, quality: room.JPEGQuality, interval: time.Duration(float64(time.Second) / room.PictureRate),
			zero: now, wake: wake.New(),
		},
		stills: newStills(stillFresh),
		thumbs: newStills(thumbFresh),
		wake:   wake.New(),
		gone:   make(chan struct{}),
	}, nil
}

// run encodes pictures and sends snapshots until the room is removed or ctx ends.
func (h *roomEntry) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return h.Hub.Run(ctx) })
	g.Go(func() error { return h.mjpeg.run(ctx) })
	g.Go(func() error { return h.watch(ctx) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-h.gone:
			cancel()
		}
		return nil
	})
	return g.Wait()
}

// watch publishes changed snapshots, at most one a second, while there are readers.
func (h *roomEntry) watch(ctx context.Context) error {
	if h.Bot == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-h.wake:
		}
		if h.Hub.Readers(events.Named) == 0 {
			continue
		}
		if data := events.JSON(h.Bot.Snapshot()); string(data) != last {
			last = string(data)
			h.Hub.Publish(events.Event{Name: "snapshot", Data: data, Key: "snapshot"})
		}
	}
}

// changed makes watch send a snapshot now.
func (h *roomEntry) changed() { h.wake.Set() }
