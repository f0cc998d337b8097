package control

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/internal/wake"
	"touchline/media/window"
)

// Topics and attributes of text streams, defined by LiveKit's front ends.
const (
	topicTranscription = "lk.transcription"
	topicChat          = "lk.chat"

	attrSegment = "lk.segment_id"
	attrFinal   = "lk.transcription_final"
	attrTrack   = "lk.transcribed_track_id"
	// AttributeLanguage of a transcription is the BCP 47 tag of its text.
	AttributeLanguage = "touchline.language"
)

// TopicCycle is the data topic with one JSON record (look.Record) per cycle.
const TopicCycle = "touchline.cycle"

// TopicAlert is the data topic with each phase of an alert (alert.Alert).
const TopicAlert = "touchline.alert"

// maxPayload bounds the payload of a data packet, in bytes. The data channel's limit is about 15 kB.
const maxPayload = 14000

// captionQueue bounds the items that wait for the data channel, finalQueue the items if all are final steps, instructions or alerts.
const (
	captionQueue = 256
	finalQueue   = 1024
)

// alertPatience is how long an alert is retried on a connection. Time without a connection does not count.
const alertPatience = time.Minute

// lastCaptions bounds the sending of the queue at the end of Run.
const lastCaptions = 300 * time.Millisecond

// maxDestinations bounds the recipients of a packet, whose identities are in it.
const maxDestinations = 100

// maxTrackless bounds the older packets that wait for a track.
const maxTrackless = 32

// Captions publishes comments word by word as text streams on lk.transcription and as the older Transcription packets, JSON records of
// cycles on touchline.cycle, alerts on touchline.alert, acting and waiting instructions on touchline.control, optional copies of comments
// on lk.chat, and the state as attributes. It publishes people's speech as their own captions. It implements agent.TextOutput. The caller
// starts Run.
type Captions struct {
	sup  Room
	chat bool
	log  zerolog.Logger
	post func(room *lksdk.Room, p *livekit.DataPacket) error
	room func() *lksdk.Room // the present one; nil between two

	mu    sync.Mutex
	queue []any // agent.Caption, look.Record, alert.Alert, command.OrderEvent, agent.Heard
	wake  wake.Signal

	lost, lostFinals, lostAlerts atomic.Uint64 // lost includes the others

	// Each utterance has a stream, which may end after the first word of the next.
	streaming sync.Mutex
	streams   map[string]stream // by open segment
	streamsIn *lksdk.Room       // the room of the streams
	left      *lksdk.Room       // gets no more streams

	// Used by Run only.
	heardTexts uint64                   // number of streams of people's speech
	refused    time.Time                // first failure to send the oldest alert; zero without
	trackless  []*livekit.Transcription // older packets that wait for a track to name
	mute       sync.Once                // logs that captions of people cannot be published
}

// stream counts the sent part of one segment.
type stream struct {
	chunks uint64
	bytes  int // of its text
}

// NewCaptions returns Captions that publish on the present connection of a room. With chat set, each finished comment is repeated on
// lk.chat.
func NewCaptions(sup Room, chat bool, log zerolog.Logger) *Captions {
	return &Captions{
		sup: sup, chat: chat, log: log.With().Str("component", "captions").Logger(),
		wake: wake.New(), streams: map[string]stream{}, post: post, room: sup.CurrentRoom,
	}
}

// Caption implements agent.TextOutput.
func (c *Captions) Caption(step agent.Caption) { c.offer(step) }

// Record implements agent.TextOutput.
func (c *Captions) Record(r look.Record) { c.offer(r) }

// Order implements agent.OrderOutput.
func (c *Captions) Order(e command.OrderEvent) { c.offer(e) }

// Alert implements agent.AlertOutput.
func (c *Captions) Alert(a alert.Alert, _ *window.Frame) { c.offer(a) }

// Heard implements agent.HeardOutput.
func (c *Captions) Heard(h agent.Heard) { c.offer(h) }

// ForgetHeard implements agent.HeardForgetter: the words are removed from what is queued.
func (c *Captions) ForgetHeard(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, item := range c.queue {
		if h, ok := item.(agent.Heard); ok && (by == "" || h.Identity == by) {
			h.Text, h.Order = "", nil
			c.queue[i] = h
		}
	}
}

// State implements agent.TextOutput.
func (c *Captions) State(s agent.Status) { c.sup.SetState(s) }

// Lost returns the number of steps, records and alerts dropped from the full queue. A later step includes the text of a dropped
// step that is not final. Run logs the losses every second.
func (c *Captions) Lost() uint64 { return c.lost.Load() }

// orderMessage reports the state of an instruction on TopicControl.
type orderMessage struct {
	Type string `json:"type"` // "order"
	command.OrderEvent
}

// heardMessage reports the result of a spoken order on TopicControl. It has no words for a participant that may not read them.
type heardMessage struct {
	Type string `json:"type"` // "heard"
	agent.Heard
}

// offer queues an item. Beyond captionQueue, the queue drops its oldest unfinished step, whose text the next step of its segment
// repeats, or else a record. At finalQueue it drops the oldest of the remaining items, alerts last.
func (c *Captions) offer(item any) {
	defer c.wake.Set()
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := item.(agent.Heard); ok {
		earlier := func(queued any) bool {
			was, ok := queued.(agent.Heard)
			return ok && was.Segment == h.Segment && !was.Final
		}
		if i := slices.IndexFunc(c.queue, earlier); i >= 0 {
			c.queue[i] = h // it repeats the words
			return
		}
	}
	if len(c.queue) >= captionQueue {
		drop := slices.IndexFunc(c.queue, unfinished)
		if drop < 0 && droppable(item) {
			c.lost.Add(1)
			return
		}
		if drop < 0 {
			drop = slices.IndexFunc(c.queue, func(queued any) bool { _, ok := queued.(look.Record); return ok })
		}
		if drop < 0 && len(c.queue) >= finalQueue {
			drop = c.oldestLocked()
		}
		if drop >= 0 {
			c.lost.Add(1)
			c.queue = slices.Delete(c.queue, drop, drop+1)
		}
	}
	c.queue = append(c.queue, item)
}

// oldestLocked returns and counts the oldest item of a queue without droppable items; an alert only if there is nothing else.
func (c *Captions) oldestLocked() int {
	i := slices.IndexFunc(c.queue, func(queued any) bool { return !isAlert(queued) })
	if i < 0 {
		c.lostAlerts.Add(1)
		return 0
	}
	c.lostFinals.Add(1)
	return i
}

func isAlert(item any) bool { _, ok := item.(alert.Alert); return ok }

// droppable reports whether a full queue may lose an item.
func droppable(item any) bool {
	switch v := item.(type) {
	case agent.Caption:
		return !v.Final
	case agent.Heard:
		return !v.Final
	case alert.Alert, command.OrderEvent:
		return false
	default:
		return true
	}
}

func unfinished(queued any) bool {
	switch v := queued.(type) {
	case agent.Caption:
		return !v.Final
	case agent.Heard:
		return !v.Final
	default:
		return false
	}
}

// next removes the oldest item from the queue and returns it.
func (c *Captions) next() (item any, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, false
	}
	item, c.queue = c.queue[0], c.queue[1:]
	return item, true
}

// Run publishes the queue until ctx ends, then the remaining items.
func (c *Captions) Run(ctx context.Context) error {
	report := time.NewTicker(time.Second)
	defer report.Stop()
	var lost, finals, alerts uint64 // reported
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCaptions)
			defer cancel()
			c.publish(last)
			return ctx.Err()
		case <-c.wake:
			c.publish(ctx)
		case <-report.C:
			l, f, a := c.lost.Load(), c.lostFinals.Load(), c.lostAlerts.Load()
			if l != lost {
				c.log.Warn().Uint64("lost", l-lost).Uint64("finals", f-finals).Uint64("alerts", a-alerts).Msg("captions queue full")
			}
			lost, finals, alerts = l, f, a
			c.publish(ctx) // alerts may wait for a room
		}
	}
}

// publish sends the queue to the present room. Without a room, alerts wait and the rest is dropped, because it would be out of date.
func (c *Captions) publish(ctx context.Context) {
	for ctx.Err() == nil {
		room := c.room()
		if room == nil {
			c.refused = time.Time{}
			c.mu.Lock()
			c.queue = slices.DeleteFunc(c.queue, func(item any) bool { return !isAlert(item) })
			c.mu.Unlock()
			return
		}
		if track := c.track(true); track != "" {
			for _, t := range c.trackless {
				t.TrackId = track
				c.older(room, t)
			}
			c.trackless = nil
		}
		item, ok := c.next()
		if !ok {
			return
		}
		if a, ok := item.(alert.Alert); ok {
			if !c.alert(room, a) {
				return
			}
			continue
		}
		switch v := item.(type) {
		case agent.Caption:
			c.caption(room, v)
		case look.Record:
			c.data(room, TopicCycle, v)
		case command.OrderEvent:
			c.data(room, TopicControl, orderMessage{"order", v})
		case agent.Heard:
			c.heard(room, v)
		}
	}
}

// Left ends the open streams in a room before the bot leaves it. Client libraries raise an error for a stream whose sender has left.
func (c *Captions) Left(room *lksdk.Room) {
	if room.ConnectionState() != lksdk.ConnectionStateConnected {
		return
	}
	c.streaming.Lock()
	defer c.streaming.Unlock()
	c.left = room
	if c.streamsIn == room {
		for segment := range c.streams {
			c.send(room, streamTrailer(segment, captionAttributes(segment, true, "", "")))
		}
		clear(c.streams)
	}
}

func (c *Captions) caption(room *lksdk.Room, step agent.Caption) {
	c.streaming.Lock()
	defer c.streaming.Unlock()
	if c.left == room {
		return
	}
	track := c.track(step.Spoken)
	attributes := func(final bool) map[string]string {
		return captionAttributes(step.Segment, final, track, step.Language)
	}
	if c.streamsIn != room {
		clear(c.streams)
		c.trackless = nil
		c.streamsIn = room
	}
	sent, open := c.streams[step.Segment]
	if !open { // a new utterance, or a new room in the middle of one
		c.send(room, streamHeader(step.Segment, topicTranscription, attributes(false), time.Now()))
	}
	if delta := step.Text[min(sent.bytes, len(step.Text)):]; delta != "" {
		c.send(room, streamChunk(step.Segment, sent.chunks, delta))
		sent = stream{chunks: sent.chunks + 1, bytes: len(step.Text)}
	}
	c.streams[step.Segment] = sent
	if step.Final {
		c.send(room, streamTrailer(step.Segment, attributes(true)))
		delete(c.streams, step.Segment)
	}
	c.older(room, &livekit.Transcription{
		TranscribedParticipantIdentity: c.sup.Identity(), TrackId: cmp.Or(track, c.track(true)),
		Segments: []*livekit.TranscriptionSegment{{Id: step.Segment, Text: step.Text, Final: step.Final, Language: step.Language}},
	})
	if text := strings.TrimSpace(step.Text); c.chat && step.Final && text != "" {
		id := "chat-" + step.Segment
		c.send(room, streamHeader(id, topicChat, nil, time.Now()))
		c.send(room, streamChunk(id, 0, text))
		c.send(room, streamTrailer(id, nil))
	}
}

// track returns the id of the track that a comment belongs to; "" while it is not published.
func (c *Captions) track(spoken bool) string {
	if !spoken {
		return c.sup.VideoSID()
	}
	return cmp.Or(c.sup.VoiceSID(), c.sup.VideoSID())
}

// older sends a step as the older Transcription packet, which must name a track of the bot. Without one, the newest step of each segment
// waits. LiveKit does not encrypt this packet, so an encrypted room does without.
func (c *Captions) older(room *lksdk.Room, t *livekit.Transcription, to ...string) {
	if c.sup.Encrypted() {
		return
	}
	if t.GetTrackId() != "" {
		c.send(room, &livekit.DataPacket{Value: &livekit.DataPacket_Transcription{Transcription: t}}, to...)
		return
	}
	c.trackless = append(slices.DeleteFunc(c.trackless, func(earlier *livekit.Transcription) bool {
		return earlier.GetSegments()[0].GetId() == t.GetSegments()[0].GetId()
	}), t)
	c.trackless = c.trackless[max(0, len(c.trackless)-maxTrackless):]
}

// heard publishes a participant's speech as LiveKit's agents do, to the speaker and to those that may read it: the text so far as a
// separate stream under the participant's identity.
func (c *Captions) heard(room *lksdk.Room, h agent.Heard) {
	readers, all := c.sup.Readers(room)
	if !all && !slices.Contains(readers, h.Identity) {
		readers = append(readers, h.Identity)
	}
	if h.Order != nil {
		c.order(room, h, func(identity string) bool { return all || slices.Contains(readers, identity) })
	}
	if !h.Caption || h.Identity == "" {
		return
	}
	if !c.sup.Transcribes() {
		c.mute.Do(func() { c.log.Warn().Msg("captions of people not published: the token is not an agent's") })
		return
	}
	attributes := captionAttributes(h.Segment, h.Final, h.Track, h.Language)
	text := h.Text
	if len(text) > maxPayload {
		text = strings.ToValidUTF8(text[:maxPayload], "")
	}
	groups := [][]string{nil} // everyone
	if !all {
		groups = slices.Collect(slices.Chunk(readers, maxDestinations))
	}
	c.heardTexts++
	id := h.Segment + "-" + strconv.FormatUint(c.heardTexts, 10)
	for _, to := range groups {
		header := streamHeader(id, topicTranscription, attributes, time.Now())
		header.ParticipantIdentity = h.Identity
		c.send(room, header, to...)
		if text != "" {
			c.send(room, streamChunk(id, 0, text), to...)
		}
		c.send(room, streamTrailer(id, nil), to...)
		if h.Track != "" {
			c.older(room, &livekit.Transcription{
				TranscribedParticipantIdentity: h.Identity, TrackId: h.Track,
				Segments: []*livekit.TranscriptionSegment{{Id: h.Segment, Text: text, Final: h.Final, Language: h.Language}},
			}, to...)
		}
	}
}

// order sends the result of an order to its speaker and to all participants that may instruct, without the words to those that may not
// read what people say.
func (c *Captions) order(room *lksdk.Room, h agent.Heard, reads func(identity string) bool) {
	full, results := []string{h.Identity}, []string{}
	for _, identity := range c.sup.Instructors(room) {
		switch {
		case identity == h.Identity:
		case reads(identity):
			full = append(full, identity)
		default:
			results = append(results, identity)
		}
	}
	for to := range slices.Chunk(full, maxDestinations) {
		c.data(room, TopicControl, heardMessage{"heard", h}, to...)
	}
	result := *h.Order
	result.Text = ""
	h.Text, h.Language, h.Order = "", "", &result
	for to := range slices.Chunk(results, maxDestinations) {
		c.data(room, TopicControl, heardMessage{"heard", h}, to...)
	}
}

// alert sends a phase of an alert. If that fails, the alert stays first in the queue, because the connection is probably being renewed.
func (c *Captions) alert(room *lksdk.Room, a alert.Alert) (sent bool) {
	if c.data(room, TopicAlert, a) {
		c.refused = time.Time{}
		return true
	}
	if c.refused.IsZero() {
		c.refused = time.Now()
	} else if time.Since(c.refused) > alertPatience {
		c.refused = time.Time{}
		c.lost.Add(1)
		c.lostAlerts.Add(1)
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = slices.Insert(c.queue, 0, any(a))
	return false
}

// data sends a value as JSON on a data topic, to some participants or to all. It returns false if a retry may succeed.
func (c *Captions) data(room *lksdk.Room, topic string, v any, to ...string) bool {
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxPayload {
		c.log.Warn().Err(err).Int("bytes", len(b)).Str("topic", topic).Msg("record too large for a data packet")
		return true
	}
	return c.send(room, userPacket(topic, b), to...)
}

// send sends a packet to some participants, or to all.
func (c *Captions) send(room *lksdk.Room, p *livekit.DataPacket, to ...string) bool {
	p.DestinationIdentities = to
	err := c.post(room, p)
	if err != nil {
		c.log.Debug().Err(err).Msg("data packet not sent")
	}
	return err == nil
}
