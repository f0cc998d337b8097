package whep

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"touchline/agent"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/sound"
)

const (
	// maxGroup and maxGroupBytes bound the pictures kept since the last key frame, for players that join.
	maxGroup, maxGroupBytes = 1500, 24 << 20
	// pictureQueue and textQueue bound a player's backlog.
	pictureQueue, textQueue = 128, 256
	// maxPast bounds FeedOptions.Past.
	maxPast = 20
	// askEvery is the shortest interval between two requests to the source for a key frame.
	askEvery = 4 * time.Second
)

// FeedOptions make a Feed.
type FeedOptions struct {
	// Mix subscribes to the sound, the mix of voice and camera. Required.
	Mix func() (packets <-chan sound.Packet, cancel func())
	// AskKeyFrame requests a key frame from the source; may be nil.
	AskKeyFrame func()
	// Past is the number of recent comments that a player receives when it joins, at most 20.
	Past int
}

// Feed distributes one room's delayed picture and texts to its players. No method
// waits for a player: a slow one loses pictures and texts. Feed implements
// agent.TextOutput.
type Feed struct {
	opts FeedOptions

	mu      sync.Mutex
	codec   media.Codec
	group   []delay.OutFrame // since the last key frame
	bytes   int
	keyAt   time.Time // when the last key frame was due
	askedAt time.Time
	players map[*player]struct{}
	past    [][]byte
	status  []byte
}

var _ agent.TextOutput = (*Feed)(nil)

// player is a session's subscription to a Feed.
type player struct {
	frames   chan delay.OutFrame
	texts    chan []byte
	skipping bool // until the next key frame
}

// NewFeed returns a Feed without a picture.
func NewFeed(o FeedOptions) *Feed {
	o.Past = max(0, min(o.Past, maxPast))
	return &Feed{opts: o, players: map[*player]struct{}{}}
}

// WriteFrame distributes a picture that is due now.
func (f *Feed) WriteFrame(frame delay.OutFrame) {
	lost := false
	f.mu.Lock()
	if frame.KeyFrame {
		clear(f.group)
		f.group, f.bytes = f.group[:0], 0
		f.keyAt = frame.Due
	}
	if frame.KeyFrame || len(f.group) > 0 {
		f.group = append(f.group, frame)
		for _, p := range frame.Packets {
			f.bytes += len(p.Payload)
		}
		f.bytes += len(frame.Data)
		if len(f.group) > maxGroup || f.bytes > maxGroupBytes || f.group[0].Epoch != frame.Epoch {
			clear(f.group)
			f.group, f.bytes = f.group[:0], 0
		}
	}
	f.codec = frame.Codec
	for p := range f.players {
		if p.skipping && !frame.KeyFrame {
			continue
		}
		select {
		case p.frames <- frame:
			p.skipping = false
		default:
			lost = lost || !p.skipping
			p.skipping = true
		}
	}
	f.mu.Unlock()
	if lost {
		f.askKeyFrame()
	}
}

func (f *Feed) askKeyFrame() {
	if f.opts.AskKeyFrame != nil {
		f.opts.AskKeyFrame()
	}
}

// refresh requests a key frame from the source, unless they come every askEvery anyway.
func (f *Feed) refresh(now time.Time) {
	f.mu.Lock()
	ask := now.Sub(f.keyAt) > askEvery && now.Sub(f.askedAt) > askEvery
	if ask {
		f.askedAt = now
	}
	f.mu.Unlock()
	if ask {
		f.askKeyFrame()
	}
}

// present returns the codec of the latest picture, unknown before the first one.
func (f *Feed) present() media.Codec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.codec
}

// join adds a player and returns the recent comments and the present status.
func (f *Feed) join() (p *player, past [][]byte) {
	p = &player{frames: make(chan delay.OutFrame, pictureQueue), texts: make(chan []byte, textQueue), skipping: true}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.players[p] = struct{}{}
	past = slices.Clone(f.past)
	if f.status != nil {
		past = append(past, f.status)
	}
	return p, past
}

func (f *Feed) leave(p *player) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.players, p)
}

// begin returns the pictures since the last key frame; the next ones are queued for p.
func (f *Feed) begin(p *player) []delay.OutFrame {
	f.mu.Lock()
	for len(p.frames) > 0 {
		<-p.frames
	}
	group := slices.Clone(f.group)
	p.skipping = len(group) == 0
	f.mu.Unlock()
	if len(group) == 0 {
		f.askKeyFrame()
	}
	return group
}

// message is the JSON of a text on the data channel.
type message struct {
	Type    string         `json:"type"`
	Past    bool           `json:"past,omitempty"`
	Record  *agent.Record  `json:"record,omitempty"`
	Caption *agent.Caption `json:"caption,omitempty"`
	Status  *agent.Status  `json:"status,omitempty"`
}

func text(m message) []byte {
	b, err := json.Marshal(m)
	if err != nil { // a figure that is not finite
		return nil
	}
	return b
}

// Caption implements agent.TextOutput.
func (f *Feed) Caption(c agent.Caption) {
	f.mu.Lock()
	watched := len(f.players) > 0
	f.mu.Unlock()
	if !watched {
		return
	}
	b := text(message{Type: "caption", Caption: &c})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(b)
}

// Record implements agent.TextOutput.
func (f *Feed) Record(r agent.Record) {
	b := text(message{Type: "record", Record: &r})
	var past []byte
	if f.opts.Past > 0 && r.IsComment() {
		past = text(message{Type: "record", Past: true, Record: &r})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(b)
	if past != nil {
		if len(f.past) >= f.opts.Past {
			f.past = slices.Delete(f.past, 0, 1)
		}
		f.past = append(f.past, past)
	}
}

// State implements agent.TextOutput.
func (f *Feed) State(s agent.Status) {
	b := text(message{Type: "status", Status: &s})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = b
	f.publish(b)
}

// publish queues a text for every player; a full queue loses its oldest text.
// The lock is held.
func (f *Feed) publish(b []byte) {
	if b == nil {
		return
	}
	for p := range f.players {
		select {
		case p.texts <- b:
			continue
		default:
		}
		select {
		case <-p.texts:
		default:
		}
		p.texts <- b // only publish adds texts, so there is space for one
	}
}
