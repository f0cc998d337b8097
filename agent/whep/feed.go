package whep

import (
	"encoding/json"
	"slices"
	"sync"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/media/fanout"
	"touchline/media/sound"
)

const (
	// textQueue bounds a player's backlog of texts.
	textQueue = 256
	// maxPast bounds FeedOptions.Past.
	maxPast = 20
)

// FeedOptions make a Feed.
type FeedOptions struct {
	// Pictures is the delayed picture. Required.
	Pictures *fanout.Pictures
	// Mix subscribes to the sound, the mix of voice and camera. Required.
	Mix func() (packets <-chan sound.Packet, cancel func())
	// Past is the number of recent comments that a player receives when it joins, at most 20.
	Past int
}

// Feed has the media for the players of one room: its delayed picture, its sound and its texts. No method waits for a player: a
// slow player loses pictures and texts. Feed implements agent.TextOutput.
type Feed struct {
	opts  FeedOptions
	texts fanout.Fanout[[]byte]

	mu     sync.Mutex // also orders texts
	past   [][]byte
	status []byte
}

var _ agent.TextOutput = (*Feed)(nil)

// NewFeed returns a Feed without texts.
func NewFeed(o FeedOptions) *Feed {
	o.Past = max(0, min(o.Past, maxPast))
	return &Feed{opts: o}
}

// join returns the future texts, and the recent comments and the present status to send before them.
func (f *Feed) join() (texts <-chan []byte, leave func(), past [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts, leave = f.texts.Subscribe(textQueue)
	past = slices.Clone(f.past)
	if f.status != nil {
		past = append(past, f.status)
	}
	return texts, leave, past
}

// message is the JSON of a text on the data channel.
type message struct {
	Type    string         `json:"type"`
	Past    bool           `json:"past,omitempty"`
	Record  *look.Record   `json:"record,omitempty"`
	Caption *agent.Caption `json:"caption,omitempty"`
	Status  *agent.Status  `json:"status,omitempty"`
	Reason  string         `json:"reason,omitempty"`
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
	if f.texts.Len() == 0 {
		return
	}
	b := text(message{Type: "caption", Caption: &c})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish(b)
}

// Record implements agent.TextOutput.
func (f *Feed) Record(r look.Record) {
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

// publish queues a text for every player; a full queue loses its oldest text. The lock is held.
func (f *Feed) publish(b []byte) {
	if b != nil {
		f.texts.Replace(b)
	}
}
