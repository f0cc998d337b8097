// Package speech is the voice track: PCM of any rate in, Opus packets out on
// an absolute schedule that never drifts.
//
// It owns the resampling to 48 kHz, the trimming of silence, the queue of
// utterances, the encoder and the clock of the track. It never decides what is
// said or when; it knows no room, only a PacketWriter.
//
// # The schedule
//
// Frame n (20 ms, 960 samples) is encoded and written at start + n*20 ms, its
// RTP timestamp is n*960 above the first. A wake-up late by less than a frame
// is sent at once; one that is later skips the frames that are past (counted;
// the timestamps follow wall time, the sound goes on where it was). Between
// utterances silence is encoded, of which Opus' DTX leaves about one packet in
// 400 ms; frames of 2 bytes or less are not sent. After a second of silence
// the frames in between are not even encoded.
//
// # What is aligned
//
// Sample k of frame n has its place at start + n*20 ms + k/48000 s. The
// encoder looks 312 samples ahead (6.5 ms: 2.5 ms and 4 ms of delay
// compensation in the VoIP application), so a listener without network or
// buffer that plays each packet as it comes hears that sample 6.5 ms after its place. Every moment this
// package takes or returns (Start's at, Started's onset, Ended's end) is such a
// moment of hearing. A packet that was written late moves onset and end by as
// much.
package speech

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	opus "gopkg.in/hraban/opus.v2"
)

const (
	frameLen  = 960 // samples
	frameTime = 20 * time.Millisecond
	// lookahead of libopus at 48 kHz in the VoIP application: 2.5 ms + 4 ms, in samples.
	lookahead = 312
	// maxPacket is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxPacket = 1275
	// dtxPacket is the largest that only says "nothing": it is not sent.
	dtxPacket = 2
	// lateWake is counted from here on.
	lateWake = 5 * time.Millisecond
	// settled is how many frames of silence the encoder gets in full before it
	// is asked only for every keepAlive-th: by then DTX is in its own rhythm of
	// one packet in 20 frames, which goes on, at a twentieth of the cost.
	settled   = 50
	keepAlive = 20
	// tapFrames bounds what a slow subscriber may be behind: one second.
	tapFrames = 50
	// logEvery spaces the lines about skipped frames.
	logEvery = 10 * time.Second
)

// DefaultComplexity is the encoder's when nothing else is set. On synthetic
// speech at 32 kbit/s it costs half of what 10 does, at the same segmental
// signal-to-noise ratio and a log-spectral distance 0 to 0.6 dB larger.
const DefaultComplexity = 5

// PacketWriter sends one Opus packet at once. timestamp is on the 48 kHz RTP
// clock; marker begins a talk spurt (RFC 3551, section 4.1). The payload is
// not touched again by the caller. written is when it was handed to the
// network.
type PacketWriter interface {
	WriteOpus(payload []byte, timestamp uint32, marker bool) (written time.Time, err error)
}

// encoder is the part of the Opus encoder that the Writer drives.
type encoder interface {
	Encode(pcm []int16, data []byte) (int, error)
	SetDTX(dtx bool) error
}

// Options of a Writer; zero values take the defaults.
type Options struct {
	Out PacketWriter
	Log zerolog.Logger
	// BitRate in bit/s; 0 means 32000.
	BitRate int
	// Complexity of the encoder, 1 (cheapest) to 10; 0 means DefaultComplexity.
	Complexity int
	// Loss is the packet loss that in-band FEC prepares for, in percent; 0 means 10.
	Loss int
}

// Stats are running totals.
type Stats struct {
	Frames        uint64 // frames made, silent ones included
	Packets       uint64 // packets written
	Bytes         uint64 // payload bytes written
	LateWakes     uint64 // frames sent 5 ms or more after their time
	SkippedFrames uint64 // frames left out because their time was past
	Underruns     uint64 // times that audio came slower than it was played
	WriteErrors   uint64 // packets that the PacketWriter refused
	TapDrops      uint64 // frames that a slow subscriber lost
	Refused       uint64 // utterances started while 64 waited
	Waiting       int    // utterances started and not over, now
}

// Writer is one voice track. Make it with New, then call Run once.
type Writer struct {
	out PacketWriter
	log zerolog.Logger
	enc encoder

	// Owned by Run.
	timestamp0 uint32
	pcm        [frameLen]int16
	packet     [maxPacket]byte
	dtx        bool
	silent     int // frames since the last sound
	unsent     int // frames since the last packet
	lastLog    time.Time
	skipLogged uint64

	mu      sync.Mutex
	start   time.Time // of frame 0; zero before Run
	queue   []*Utterance
	filters map[int]*filter
	taps    []*tap
	over    bool
	stats   Stats
	events  []event // of the frame being made
}

// event is a call to make once its packet is out.
type event struct {
	u     *Utterance
	place int // sample within the frame; may be negative or beyond it
	end   bool
	cut   bool
}

// EncoderDelay of the Opus encoders here: from a sample's place in the schedule to its sound.
const EncoderDelay = lookahead * time.Second / sampleRate

// New checks the options and makes the encoder. It starts nothing.
func New(o Options) (*Writer, error) {
	if o.BitRate == 0 {
		o.BitRate = 32000
	}
	if o.Complexity == 0 {
		o.Complexity = DefaultComplexity
	}
	if o.Loss == 0 {
		o.Loss = 10
	}
	enc, err := newOpus(o)
	if err != nil {
		return nil, err
	}
	return newWriter(o, enc)
}

func newWriter(o Options, enc encoder) (*Writer, error) {
	if o.Out == nil {
		return nil, errors.New("speech.Options.Out is not set")
	}
	return &Writer{
		out:        o.Out,
		log:        o.Log.With().Str("component", "speech").Logger(),
		enc:        enc,
		timestamp0: rand.Uint32(),
		unsent:     1,
		dtx:        true,
		filters:    make(map[int]*filter),
	}, nil
}

func newOpus(o Options) (*opus.Encoder, error) {
	enc, err := opus.NewEncoder(sampleRate, 1, opus.AppVoIP)
	if err != nil {
		return nil, fmt.Errorf("make the Opus encoder: %w", err)
	}
	if err := enc.SetBitrate(o.BitRate); err != nil {
		return nil, fmt.Errorf("set the bit rate to %d bit/s (expected 6000 to 510000): %w", o.BitRate, err)
	}
	if err := enc.SetComplexity(o.Complexity); err != nil {
		return nil, fmt.Errorf("set the complexity to %d (expected 1 to 10): %w", o.Complexity, err)
	}
	if err := enc.SetPacketLossPerc(o.Loss); err != nil {
		return nil, fmt.Errorf("set the expected loss to %d %% (expected 0 to 100): %w", o.Loss, err)
	}
	if err := enc.SetInBandFEC(true); err != nil {
		return nil, fmt.Errorf("turn on in-band FEC: %w", err)
	}
	if err := enc.SetDTX(true); err != nil {
		return nil, fmt.Errorf("turn on DTX: %w", err)
	}
	return enc, nil
}

// NewUtterance prepares one. Audio may be written before it is started.
func (w *Writer) NewUtterance(ev Events) *Utterance {
	return &Utterance{w: w, ev: ev, first: -1, onset: -1}
}

// Stats returns the totals so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Waiting = len(w.queue)
	return s
}

// Sounds reports whether speech is under way, or begins before the moment given.
func (w *Writer) Sounds(before time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return false
	}
	u := w.queue[0]
	return u.state == statePlaying || u.first >= 0 && u.at.Before(before)
}

// Run sends the track until ctx ends, and returns nil then; any other return
// is a failure of the encoder. Call it once.
func (w *Writer) Run(ctx context.Context) error {
	start := time.Now()
	w.mu.Lock()
	w.start = start
	w.mu.Unlock()
	defer w.close()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := int64(0); ; n++ {
		due := start.Add(time.Duration(n) * frameTime)
		now := time.Now()
		if wait := due.Sub(now); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
			now = time.Now()
		} else if ctx.Err() != nil {
			return nil
		}
		if skip := int64(now.Sub(due) / frameTime); skip > 0 {
			n += skip
			due = start.Add(time.Duration(n) * frameTime)
			w.skipped(uint64(skip), now)
		}
		if err := w.frame(n, due, now); err != nil {
			return err
		}
	}
}

// skipped counts frames whose time was past, and says so now and then.
func (w *Writer) skipped(n uint64, now time.Time) {
	w.mu.Lock()
	w.stats.SkippedFrames += n
	total := w.stats.SkippedFrames
	w.mu.Unlock()
	w.unsent += int(n)
	if now.Sub(w.lastLog) >= logEvery {
		w.log.Warn().Uint64("skipped", total-w.skipLogged).Msg("voice frames skipped")
		w.lastLog, w.skipLogged = now, total
	}
}

// frame makes and sends frame n.
func (w *Writer) frame(n int64, due, now time.Time) error {
	sound, begins := w.render(n, due, now.Sub(due) >= lateWake)
	size, err := w.encode(sound)
	if err != nil {
		return err
	}
	at := due
	if size > dtxPacket {
		payload := append([]byte(nil), w.packet[:size]...)
		written, err := w.out.WriteOpus(payload, w.timestamp0+uint32(n*frameLen), sound && (begins || w.unsent > 0))
		w.mu.Lock()
		w.stats.Packets++
		w.stats.Bytes += uint64(size)
		if err != nil {
			w.stats.WriteErrors++
		}
		w.mu.Unlock()
		if err == nil && written.After(at) {
			at = written
		}
	}
	w.unsent++
	if size > dtxPacket {
		w.unsent = 0
	}
	w.tell(at)
	return nil
}

// render fills frame n and hands it to the listeners.
func (w *Writer) render(n int64, due time.Time, late bool) (sound, begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sound, begins = w.fill(n * frameLen)
	w.stats.Frames++
	if late {
		w.stats.LateWakes++
	}
	w.tap(due)
	return sound, begins
}

// encode turns the frame into a packet; a size of dtxPacket or less is none.
func (w *Writer) encode(sound bool) (size int, err error) {
	w.silent++
	if sound {
		w.silent = 0
	}
	deep := w.silent > settled
	if deep && w.unsent < keepAlive-1 {
		return 0, nil
	}
	// DTX must not judge speech: it would swallow soft words and leave gaps
	// in pauses. It rests while there is something to say, and for the packet
	// that keeps a long silence alive.
	if dtx := !sound && !deep; dtx != w.dtx {
		if err := w.enc.SetDTX(dtx); err != nil {
			return 0, fmt.Errorf("switch DTX: %w", err)
		}
		w.dtx = dtx
	}
	if size, err = w.enc.Encode(w.pcm[:], w.packet[:]); err != nil {
		return 0, fmt.Errorf("encode a voice frame: %w", err)
	}
	return size, nil
}

// close ends what is under way when Run returns.
func (w *Writer) close() {
	for _, t := range w.finish() {
		t.close()
	}
	w.tell(time.Now())
}

// finish ends the utterances, and returns the taps that are to be closed.
func (w *Writer) finish() []*tap {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, u := range slices.Clone(w.queue) {
		if u.began {
			w.events = append(w.events, event{u: u, place: -lookahead, end: true, cut: true})
		}
		u.finish()
	}
	taps := w.taps
	w.taps = nil
	return taps
}

// fill renders the frame whose first sample's place is at. sound is set when
// an utterance is in it, begins when one starts.
func (w *Writer) fill(at int64) (sound, begins bool) {
	clear(w.pcm[:])
	for pos := 0; pos < frameLen && len(w.queue) > 0; {
		u := w.queue[0]
		if u.state != statePlaying {
			if u.silentEnd() {
				u.finish()
				continue
			}
			from, ok := u.begin(w.placeOf(u.at)-lookahead, at+int64(pos), at+frameLen)
			if !ok {
				break
			}
			pos = int(from - at)
			begins = true
		}
		n, more := u.render(w.pcm[pos:], at+int64(pos))
		sound = sound || n > 0
		pos += n
		if more {
			break
		}
	}
	return sound, begins
}

// placeOf converts a moment to a place in the schedule, in samples.
func (w *Writer) placeOf(t time.Time) int64 {
	// 48000 samples per 10^9 ns, as 6 per 125000 so that nothing overflows.
	return int64(t.Sub(w.start)) * 6 / 125000
}

// samples converts a number of samples to their time.
func samples(n int64) time.Duration { return time.Duration(n * 125000 / 6) }

func (w *Writer) filterFor(rate int) (*filter, error) {
	w.mu.Lock()
	f := w.filters[rate]
	w.mu.Unlock()
	if f != nil {
		return f, nil
	}
	// Made outside the lock: it takes a millisecond or two.
	f, err := newFilter(rate)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.filters) < 8 {
		w.filters[rate] = f
	}
	return f, nil
}
