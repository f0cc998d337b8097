package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"touchline/agent/events"
	"touchline/internal/rescue"
)

// Room is one room as the console shows it. Every part that is nil answers
// with an error in words, so that the page works before the rest does.
type Room struct {
	// Name by which the API and the page know it: the room's own, where one
	// commentator serves it.
	Name string

	Bot      Bot
	Hub      *events.Hub // made when nil
	Pictures Pictures
	Sound    Sound
	Tokens   Tokens
	Sources  Sources
	// Viewers counts the people in the room; may be nil.
	Viewers func() int
	// Metrics are further ones about the room; may be nil.
	Metrics prometheus.Collector

	// JPEGQuality of the pictures, 1 to 100; 80 when 0.
	JPEGQuality int
	// PictureRate is the most pictures a second of the MJPEG stream; 10 when 0.
	PictureRate float64
	// OnStop is called once after an order to stop, when the Bot has stopped and the Hub's streams
	// have been ended: it need not call Hub.EndStreams. May be nil.
	OnStop func()
}

const (
	// DefaultMaxRooms is how many rooms a Rooms holds when nothing else is said.
	DefaultMaxRooms = 1000
	// maxRoomName is the longest name of a room, in bytes; LiveKit's own bound is 256 characters.
	maxRoomName = 1024
)

// Errors of Rooms.Add.
var (
	ErrTooManyRooms = errors.New("there are as many rooms as fit")
	ErrRoomKnown    = errors.New("the room is here already")
)

// Rooms are the rooms of a console. They come and go while it serves.
type Rooms struct {
	max     int
	log     zerolog.Logger
	kick    chan struct{} // the list is wanted now
	single  bool          // it holds the only room of a Server
	all     *cycleMetrics // of all rooms
	rest    *cycleMetrics // of those without series of their own
	events  *events.Hub   // what happens in any room; nil when single
	crowded atomic.Bool   // there was such a room

	mu                sync.Mutex
	byName            map[string]*hosted
	labels            map[string]bool // in use, in the metrics
	allPast, restPast figures         // what rooms have counted that are gone
	start             func(*hosted)   // while a Server runs
}

// NewRooms makes an empty one for at most limit rooms; DefaultMaxRooms when 0.
func NewRooms(limit int, log zerolog.Logger) *Rooms {
	if limit <= 0 {
		limit = DefaultMaxRooms
	}
	return &Rooms{
		max: limit, kick: make(chan struct{}, 1), log: log.With().Str("component", "console").Logger(),
		all: newCycleMetrics(), rest: newCycleMetrics(), events: events.NewHub(events.Options{}), byName: map[string]*hosted{}, labels: map[string]bool{},
	}
}

// Add shows a room until the function it returns is called: then its streams
// end and nobody finds it any more. It is to be called before the room's bot
// runs.
func (r *Rooms) Add(room Room) (remove func(), err error) {
	h, err := newHosted(room)
	if err != nil {
		return nil, err
	}
	if room.Name == "" && !r.single {
		return nil, fmt.Errorf("%w: expected a room's name, got none", ErrConfig)
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
	r.settleLocked(h)
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

// settleLocked gives a room series of its own in the metrics, as long as there are not too many,
// and its events their way.
func (r *Rooms) settleLocked(h *hosted) {
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
func (r *Rooms) get(name string) *hosted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[name]
}

// list returns the rooms, sorted by name.
func (r *Rooms) list() []*hosted {
	r.mu.Lock()
	out := make([]*hosted, 0, len(r.byName))
	for _, h := range r.byName {
		out = append(out, h)
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b *hosted) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// afterPanic is the pause before a room's pictures are encoded again after a panic.
const afterPanic = time.Second

// open begins what each room needs, until it is removed or ctx ends; wait returns
// when all of it has ended. A panic over one room is logged, and disturbs no other.
func (r *Rooms) open(ctx context.Context) (wait func() error) {
	var g errgroup.Group
	start := func(h *hosted) {
		g.Go(func() error {
			for {
				err := h.run(ctx)
				if err == nil {
					return nil
				}
				event := r.log.Error().Err(err).Str("room", h.Name)
				if p, ok := rescue.Of(err); ok {
					event = event.Bytes("stack", p.Stack)
				}
				event.Msg("the console's part of a room failed; it begins again")
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

// maxChanges is how many rooms may have changed to be told one by one, which leaves room in a
// reader's queue; the whole list is told otherwise.
const maxChanges = events.QueueSize / 2

// watch tells once a second which rooms came, went or changed, when somebody reads.
// It returns nil when ctx ends.
func (r *Rooms) watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var told map[string]string // by room
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.kick:
		}
		if r.events.Readers(events.Named) == 0 {
			told = nil
			continue
		}
		told = r.tell(told)
	}
}

// tell tells what is not as it was told, and returns what is.
func (r *Rooms) tell(told map[string]string) map[string]string {
	infos := r.infos()
	now := make(map[string]string, len(infos))
	var changes []events.Event
	change := func(event, room string, data []byte) {
		changes = append(changes, events.Event{Name: event, Data: data, Key: "room " + room})
	}
	for _, info := range infos {
		data := events.JSON(info)
		now[info.Room] = string(data)
		if told[info.Room] != now[info.Room] {
			change("room", info.Room, data)
		}
	}
	for room := range told {
		if _, ok := now[room]; !ok {
			change("gone", room, events.JSON(map[string]string{"room": room}))
		}
	}
	if told == nil || len(changes) > maxChanges {
		r.events.Publish(events.Event{Name: "rooms", Data: events.JSON(infos), Key: "rooms"})
		return now
	}
	r.events.Publish(changes...)
	return now
}

// infos describes all rooms. One whose bot panics is described as far as it goes.
func (r *Rooms) infos() []RoomInfo {
	out := []RoomInfo{}
	for _, h := range r.list() {
		info := RoomInfo{Room: h.Name, Chip: agent.ChipFailed, Reason: "its commentator has crashed", Since: h.since.UTC()}
		r.guarded(h, func() { info = h.info() })
		out = append(out, info)
	}
	return out
}

// changed asks for the list to be sent without waiting for the next second.
func (r *Rooms) changed() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// hosted is a room with what the console keeps for it.
type hosted struct {
	Room
	label  string // in the metrics
	cycles *cycleMetrics
	since  time.Time
	mjpeg  *mjpegFan
	stills *stills
	kick   chan struct{} // a snapshot is wanted now
	gone   chan struct{} // closed when the room was removed
	audio  atomic.Int64  // readers of its sound
}

func newHosted(room Room) (*hosted, error) {
	if len(room.Name) > maxRoomName || !utf8.ValidString(room.Name) {
		return nil, fmt.Errorf("%w: a room's name: expected at most %d bytes of UTF-8, got %d",
			ErrConfig, maxRoomName, len(room.Name))
	}
	if room.JPEGQuality == 0 {
		room.JPEGQuality = 80
	}
	if room.JPEGQuality < 1 || room.JPEGQuality > 100 {
		return nil, fmt.Errorf("%w: JPEG quality must be between 1 and 100, is %d", ErrConfig, room.JPEGQuality)
	}
	if room.PictureRate <= 0 {
		room.PictureRate = 10
	}
	if room.Hub == nil {
		room.Hub = events.NewHub(events.Options{History: -1, JPEGQuality: room.JPEGQuality})
	}
	return &hosted{
		Room:   room,
		since:  time.Now(),
		mjpeg:  newMJPEGFan(room.Pictures, room.JPEGQuality, room.PictureRate),
		stills: newStills(),
		kick:   make(chan struct{}, 1),
		gone:   make(chan struct{}),
	}, nil
}

// run encodes pictures and sends snapshots until the room is removed or ctx ends.
func (h *hosted) run(ctx context.Context) error {
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

// watch sends a snapshot once a second when something changed and somebody reads.
func (h *hosted) watch(ctx context.Context) error {
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
		case <-h.kick:
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

// changed asks for a snapshot to be sent without waiting for the next second.
func (h *hosted) changed() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// bot returns the commentator, or a 503 while there is none.
func (h *hosted) bot() (Bot, error) {
	if h.Bot == nil {
		return nil, refuse(http.StatusServiceUnavailable, "no_bot", "the commentator is not there yet")
	}
	return h.Bot, nil
}
