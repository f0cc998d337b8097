// Package stage runs a room with a server, a camera, a bot and viewers, for tests and benchmarks that observe a bot
// from outside. It owns these parts and their lifetimes, and judges nothing: goals belong to touchline-bench.
//
// A Viewer is an ordinary participant: it reads the frame counter in the corner of the delayed picture, detects the
// onset of speech, and reads captions. Its times are the arrival of the packet that completes the picture, sound or
// word, as in a client without a jitter buffer.
package stage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"gopkg.in/hraban/opus.v2"

	"touchline/internal/ticks"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/ingest"
	"touchline/worlds"
)

// Speech begins with the first 10 ms above -40 dBFS after 300 ms below it, and ends with the last 10 ms above it.
const (
	sampleRate  = 48000
	blockLength = sampleRate / 100
	audibleRMS  = 0.01 * 32768 // -40 dBFS
	quietBefore = 300 * time.Millisecond
)

// Picture is the arrival of one delayed picture.
type Picture struct {
	At      time.Time
	PTS     time.Duration // on the copy's own RTP clock
	Counter uint32
	Read    bool // the counter could be read
}

// Talk is one stretch of audible speech.
type Talk struct{ From, To time.Time }

// Word is the arrival of one word of a caption.
type Word struct {
	At      time.Time
	Text    string
	Segment string
}

// Closed is the end of a caption's text stream.
type Closed struct {
	At         time.Time
	Segment    string
	Text       string
	Attributes map[string]string
}

// ViewerOptions are the options of NewViewer.
type ViewerOptions struct {
	URL, Token string
	// Deaf viewers decode nothing: they only count packets.
	Deaf bool
	// Reader viewers receive captions and records only, and leave instead of reconnecting when the connection breaks, so that their
	// absence is known.
	Reader bool
	// Levels records the level of each 10 ms of the bot's voice.
	Levels bool
	// OnPicture gets each decoded picture; may be nil.
	OnPicture func(media.VideoFrame)
	Log       zerolog.Logger
}

// Level is the root mean square of 10 ms of the bot's voice.
type Level struct {
	At  time.Time
	RMS float64
}

// Viewer is a viewer in the room.
type Viewer struct {
	opts ViewerOptions
	dec  *codec.Decoder

	stalled atomic.Bool

	mu       sync.Mutex
	joined   time.Time
	in, out  time.Time                   // of the room
	received map[time.Duration]time.Time // by PTS, until the picture is decoded
	epoch    uint32
	pictures []Picture
	arrived  []time.Duration // PTS of complete access units
	talks    []Talk
	words    []Word
	closed   []Closed
	lost     uint64
	packets  uint64
	frames   uint64
	loud     bool
	lastLoud time.Time
	records  [][]byte
	camera   []Noise
	levels   []Level
	wg       sync.WaitGroup
}

// NewViewer prepares a viewer. Run connects it.
func NewViewer(opts ViewerOptions) (*Viewer, error) {
	v := &Viewer{opts: opts, received: map[time.Duration]time.Time{}}
	var err error
	v.dec, err = codec.New(codec.Options{LongSide: 448, OnPicture: v.onPicture, Log: opts.Log})
	if err != nil {
		return nil, fmt.Errorf("make the viewer's decoder: %w", err)
	}
	return v, nil
}

// Run joins the room and stays until ctx ends.
func (v *Viewer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer v.wg.Wait()
	defer cancel()
	if !v.opts.Deaf && !v.opts.Reader {
		v.wg.Go(func() { _ = v.dec.Run(ctx) }) // ends with ctx
	}
	gone := make(chan struct{})
	room := lksdk.NewRoom(v.callbacks(ctx, sync.OnceFunc(func() { close(gone) })))
	if err := room.RegisterTextStreamHandler("lk.transcription", func(r *lksdk.TextStreamReader, _ string) {
		// Not waited for: the library never ends a stream that a disconnect interrupted.
		go v.read(r)
	}); err != nil {
		return fmt.Errorf("listen for captions: %w", err)
	}
	v.mu.Lock()
	v.joined = time.Now()
	v.mu.Unlock()
	if err := room.JoinWithContextAndToken(ctx, v.opts.URL, v.opts.Token, lksdk.WithAutoSubscribe(false)); err != nil {
		return fmt.Errorf("join as a viewer: %w", err)
	}
	defer room.Disconnect()
	v.mu.Lock()
	v.in = time.Now()
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.out = time.Now()
		v.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		return errors.New("the viewer was disconnected")
	}
}

// callbacks subscribe to the bot and start a reader for each track. gone is called when the connection ends.
func (v *Viewer) callbacks(ctx context.Context, gone func()) *lksdk.RoomCallback {
	cb := &lksdk.RoomCallback{
		OnDisconnected: gone,
		ParticipantCallback: lksdk.ParticipantCallback{
			OnTrackPublished: func(pub *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
				if p.Kind() == lksdk.ParticipantAgent && !v.opts.Reader {
					_ = pub.SetSubscribed(true) // shows as a missing picture
				}
			},
			OnTrackSubscribed: func(t *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
				switch {
				case t.Kind() == webrtc.RTPCodecTypeVideo:
					v.wg.Go(func() { v.watch(ctx, t, p) })
				case v.opts.Deaf:
				case pub.Source() == livekit.TrackSource_MICROPHONE:
					v.wg.Go(func() { v.listen(t, v.hear) })
				default:
					v.wg.Go(func() { v.listen(t, v.hearCamera) })
				}
			},
			OnDataPacket: func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
				if u, ok := data.(*lksdk.UserDataPacket); ok && u.Topic == "touchline.cycle" {
					v.mu.Lock()
					v.records = append(v.records, u.Payload)
					v.mu.Unlock()
				}
			},
		},
	}
	if v.opts.Reader {
		cb.OnReconnecting = gone
	}
	return cb
}

func (v *Viewer) watch(ctx context.Context, t *webrtc.TrackRemote, p *lksdk.RemoteParticipant) {
	c, err := media.ParseCodec(t.Codec().MimeType)
	if err != nil {
		return
	}
	v.mu.Lock()
	v.epoch++
	asm := ingest.New(ingest.Options{Codec: c, Epoch: v.epoch << 8})
	v.mu.Unlock()
	for ctx.Err() == nil {
		if v.stalled.Load() {
			<-ctx.Done()
			return
		}
		pkt, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		now := time.Now()
		frames := asm.Push(pkt, now)
		frames = append(frames, asm.Tick(now)...)
		if asm.WantsKeyFrame(now) {
			p.WritePLI(t.SSRC())
		}
		v.mu.Lock()
		v.packets++
		v.lost = asm.Stats().Lost
		v.frames += uint64(len(frames))
		for _, f := range frames {
			v.arrived = append(v.arrived, f.PTS)
			v.received[f.PTS] = f.Received
			if v.opts.Deaf {
				v.pictures = append(v.pictures, Picture{At: f.Received, PTS: f.PTS})
				delete(v.received, f.PTS)
			}
		}
		v.mu.Unlock()
		if v.opts.Deaf {
			continue
		}
		for _, f := range frames {
			_ = v.dec.Decode(f, true) // undecodable units are missing in the pictures
		}
	}
}

func (v *Viewer) onPicture(f media.VideoFrame) {
	if v.opts.OnPicture != nil {
		v.opts.OnPicture(f)
	}
	n, ok := worlds.ReadCounter(f)
	v.mu.Lock()
	defer v.mu.Unlock()
	at, known := v.received[f.PTS]
	if !known {
		return
	}
	delete(v.received, f.PTS)
	v.pictures = append(v.pictures, Picture{At: at, PTS: f.PTS, Counter: n, Read: ok})
}

func (v *Viewer) listen(t *webrtc.TrackRemote, hear func(at time.Time, block []int16)) {
	dec, err := opus.NewDecoder(sampleRate, 1)
	if err != nil {
		return
	}
	pcm := make([]int16, sampleRate*60/1000)
	for {
		pkt, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		now := time.Now()
		n, err := dec.Decode(pkt.Payload, pcm)
		if err != nil || len(pkt.Payload) == 0 {
			continue
		}
		for i := 0; i+blockLength <= n; i += blockLength {
			hear(now.Add(ticks.Duration(int64(i), sampleRate)), pcm[i:i+blockLength])
		}
	}
}

func (v *Viewer) hear(at time.Time, block []int16) {
	var sum float64
	for _, s := range block {
		sum += float64(s) * float64(s)
	}
	rms := math.Sqrt(sum / float64(len(block)))
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.opts.Levels {
		v.levels = append(v.levels, Level{at, rms})
	}
	if v.loud && at.Sub(v.lastLoud) > quietBefore {
		v.loud = false
	}
	if rms < audibleRMS {
		return
	}
	if !v.loud {
		v.loud = true
		v.talks = append(v.talks, Talk{From: at})
	}
	v.lastLoud = at.Add(10 * time.Millisecond)
	v.talks[len(v.talks)-1].To = v.lastLoud
}

func (v *Viewer) read(r *lksdk.TextStreamReader) {
	var text strings.Builder
	var words []Word
	inWord := false
	for {
		c, _, err := r.ReadRune()
		if err != nil {
			break
		}
		text.WriteRune(c)
		if c == ' ' || c == '\n' {
			inWord = false
			continue
		}
		if !inWord { // words arrive whole, with their first letter
			inWord = true
			words = append(words, Word{At: time.Now()})
		}
		words[len(words)-1].Text += string(c)
	}
	segment := r.Info.Attributes["lk.segment_id"] // not before: the library adds the trailer's attributes without a lock
	for i := range words {
		words[i].Segment = segment
	}
	v.mu.Lock()
	v.words = append(v.words, words...)
	v.closed = append(v.closed, Closed{At: time.Now(), Segment: segment, Text: text.String(), Attributes: r.Info.Attributes})
	v.mu.Unlock()
}

// Stall stops reading the video, as a frozen browser tab does.
func (v *Viewer) Stall() { v.stalled.Store(true) }

// Seen is everything that a viewer has received so far.
type Seen struct {
	Joined time.Time
	// In is the end of the join, Out the moment of leaving; zero before.
	In, Out  time.Time
	Pictures []Picture
	// Arrived holds the PTS of all complete access units, decoded or not.
	Arrived []time.Duration
	Talks   []Talk
	Words   []Word
	Closed  []Closed
	Records [][]byte
	// Camera is the camera's sound.
	Camera []Noise
	// Levels of the voice, with ViewerOptions.Levels.
	Levels []Level
	// Frames counts complete access units, Packets and Lost RTP packets.
	Frames, Packets, Lost uint64
}

// Take is Seen, and forgets what it returns.
func (v *Viewer) Take() Seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := v.seenLocked()
	v.pictures, v.arrived, v.talks, v.words, v.closed = nil, nil, nil, nil, nil
	v.records, v.camera, v.levels, v.loud = nil, nil, nil, false
	return seen
}

// Seen returns the media that the viewer has received so far.
func (v *Viewer) Seen() Seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seenLocked()
}

func (v *Viewer) seenLocked() Seen {
	return Seen{
		Joined: v.joined, In: v.in, Out: v.out,
		Pictures: slices.Clone(v.pictures), Arrived: slices.Clone(v.arrived), Talks: slices.Clone(v.talks),
		Words: slices.Clone(v.words), Closed: slices.Clone(v.closed), Records: slices.Clone(v.records), Camera: slices.Clone(v.camera),
		Levels: slices.Clone(v.levels),
		Frames: v.frames, Packets: v.packets, Lost: v.lost,
	}
}
