package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/media"
	"touchline/media/source"
)

// queueLength is how many access units wait for the reader: two seconds at 30 a second.
const queueLength = 64

// stillSeen is how long a source counts as running after its last access unit.
const stillSeen = 2 * time.Second

// Stats counts the packets and frames of the watched tracks since the start.
type Stats struct {
	Packets   uint64 // RTP packets read, SFU padding included
	Frames    uint64 // access units passed to the reader
	Dropped   uint64 // access units lost because the reader was slow
	KeyFrames uint64 // key frames among Frames
	PLIs      uint64 // key frame requests sent to the source
	Sources   uint64 // tracks subscribed to, resubscriptions included
}

// Watcher is the watched track. It outlives connections and changes of the
// source. It implements agent.VideoInput.
type Watcher struct {
	frames chan media.EncodedFrame
	log    zerolog.Logger
	wake   func()

	mu         sync.Mutex
	watch      media.WatchConfig
	info       agent.SourceInfo
	reader     uint64 // number of the only reader that may deliver
	epoch      uint32 // the highest so far
	skipping   bool   // until the next key frame
	lastFrame  time.Time
	rateFrom   time.Time
	rateFrames int
	seen       []candidate // at the newest check
	away       string      // reason declared by its participant
	silent     string      // reason found by the watchdog

	keyWanted atomic.Bool

	packets, delivered, dropped, keyFrames, plis, sources atomic.Uint64
}

func newWatcher(watch media.WatchConfig, wake func(), log zerolog.Logger) *Watcher {
	return &Watcher{frames: make(chan media.EncodedFrame, queueLength), watch: watch, log: log, wake: wake}
}

var _ agent.VideoInput = (*Watcher)(nil)

// ReadFrame returns the next access unit in decoding order. If the queue is full, a slow reader loses access units up to the next
// key frame. It ends with ctx.
func (w *Watcher) ReadFrame(ctx context.Context) (media.EncodedFrame, error) {
	select {
	case f := <-w.frames:
		return f, nil
	default:
	}
	select {
	case f := <-w.frames:
		return f, nil
	case <-ctx.Done():
		return media.EncodedFrame{}, ctx.Err()
	}
}

// RequestKeyFrame requests a key frame of the source. Requests within pliSpacing become one.
func (w *Watcher) RequestKeyFrame() {
	if !w.keyWanted.Swap(true) {
		w.wake()
	}
}

// Select changes the choice of the watched track at once.
func (w *Watcher) Select(watch media.WatchConfig) {
	w.mu.Lock()
	w.watch = watch
	w.mu.Unlock()
	w.wake()
}

// Watching returns the choice of the watched track.
func (w *Watcher) Watching() media.WatchConfig {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watch
}

// Source describes the watched track; it is empty without one.
func (w *Watcher) Source() agent.SourceInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := w.info
	if time.Since(w.lastFrame) > stillSeen {
		info.FPS = 0
	}
	return info
}

// Away returns the reason why the watched camera sends no picture, as declared by its participant or found by the watchdog; "" if
// it sends pictures or the reason is unknown.
func (w *Watcher) Away() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.away, w.silent)
}

// declared returns the reason why the camera is away, as declared by its participant.
func (w *Watcher) declared() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

// setSilent sets the reason why the camera is silent, and returns the previous one.
func (w *Watcher) setSilent(words string) (was string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, w.silent = w.silent, words
	return was
}

// Cameras lists the video tracks that could be watched, the longest known first.
func (w *Watcher) Cameras() []source.RoomCamera {
	w.mu.Lock()
	seen, track := w.seen, w.info.Track
	w.mu.Unlock()
	out := []source.RoomCamera{}
	for _, c := range slices.SortedFunc(slices.Values(seen), func(a, b candidate) int { return cmp.Compare(a.order, b.order) }) {
		if c.agent {
			continue
		}
		kind := "unknown"
		switch c.source {
		case livekit.TrackSource_CAMERA:
			kind = "camera"
		case livekit.TrackSource_SCREEN_SHARE:
			kind = "screen_share"
		default:
		}
		out = append(out, source.RoomCamera{Identity: c.identity, Name: c.name, Kind: kind, Muted: c.muted, Watched: c.sid == track})
	}
	return out
}

// setSeen sets the candidates, and the reason why the chosen one is away.
func (w *Watcher) setSeen(seen []candidate, away string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.away = seen, away
}

// Stats returns the counters.
func (w *Watcher) Stats() Stats {
	return Stats{
		Packets: w.packets.Load(), Frames: w.delivered.Load(), Dropped: w.dropped.Load(),
		KeyFrames: w.keyFrames.Load(), PLIs: w.plis.Load(), Sources: w.sources.Load(),
	}
}

// setInfo changes the description of the watched track.
func (w *Watcher) setInfo(change func(info *agent.SourceInfo)) agent.SourceInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	track := w.info.Track
	change(&w.info)
	if w.info.Track != track {
		w.info.Epoch = w.epoch + 1 // the lowest epoch with which its reader can begin
	}
	return w.info
}

// newReader registers a new reader. Older readers can no longer deliver.
func (w *Watcher) newReader() (number uint64, epoch uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reader++
	w.epoch++
	w.skipping = false
	w.rateFrames = 0
	w.sources.Add(1)
	return w.reader, w.epoch
}

// nextEpoch gives a running reader a fresh epoch.
func (w *Watcher) nextEpoch() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	return w.epoch
}

// deliver passes one access unit to ReadFrame without blocking.
func (w *Watcher) deliver(reader uint64, f media.EncodedFrame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if reader != w.reader {
		return
	}
	w.epoch = max(w.epoch, f.Epoch)
	w.measure(f)
	if w.skipping && !f.KeyFrame {
		w.dropped.Add(1)
		return
	}
	select {
	case w.frames <- f:
		w.skipping = false
		w.delivered.Add(1)
		if f.KeyFrame {
			w.keyFrames.Add(1)
		}
	default:
		w.dropped.Add(1)
		if !w.skipping {
			w.skipping = true
			w.log.Warn().Msg("reader too slow; skipping to the next key frame")
			w.RequestKeyFrame()
		}
	}
}

// measure updates size and frame rate.
func (w *Watcher) measure(f media.EncodedFrame) {
	if f.Width > 0 {
		w.info.Width, w.info.Height = f.Width, f.Height
	}
	w.info.Codec = f.Codec.String()
	w.lastFrame = f.Received
	if w.rateFrames == 0 {
		w.rateFrom = f.Received
	}
	span := f.Received.Sub(w.rateFrom)
	if span >= time.Second || (w.info.FPS == 0 && span >= 300*time.Millisecond) {
		w.info.FPS = float64(w.rateFrames) / span.Seconds()
		w.rateFrames, w.rateFrom = 0, f.Received
	}
	w.rateFrames++
}
