// Package speech is the voice track: PCM of any rate in, Opus packets out on
// an absolute schedule that never drifts.
//
// It owns the resampling to 48 kHz, the trimming of silence, the queue of
// utterances, the encoder and the clock of the track. It does not decide which
// texts are spoken or when, and does not use LiveKit: packets go to a PacketWriter.
//
// # The schedule
//
// Frame n (20 ms, 960 samples) is encoded and written at start + n*20 ms, its
// RTP timestamp is n*960 above the first. After a wake-up late by less than
// 120 ms the overdue frames are sent at once: a listener's jitter buffer hides
// that. (Chromium, a minute of commentary, the bot stopped for 20 to 100 ms three
// times a second: it concealed 0.7 s of the sound, 30 times; 4.6 s, 136 times,
// where overdue frames were skipped; 0.4 s, 12 times, without stops.) A later
// wake-up skips them: the timestamps follow wall time, the sound continues where
// it was. Between utterances, silence is encoded, of which Opus' DTX leaves about
// one packet in 400 ms; frames of 2 bytes or less are not sent. After a second of
// silence the frames in between are not encoded.
//
// # What is aligned
//
// Sample k of frame n has its place at start + n*20 ms + k/48000 s. The
// encoder looks 312 samples ahead (6.5 ms: 2.5 ms and 4 ms of delay
// compensation in the VoIP application), so an ideal listener, without network
// or buffer, hears that sample 6.5 ms after its place. All times in this
// package's API (Start's at, Started's onset, Ended's end) are such playback
// times. A packet that was written late delays onset and end by as much.
package speech

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/internal/resample"
	"touchline/internal/ticks"
	"touchline/media/fanout"
)

const (
	// sampleRate is Opus' native rate, the rate of all sound after the resampler (Hz).
	sampleRate = 48000

	frameLen  = 960 // samples
	frameTime = 20 * time.Millisecond
	// lookahead of libopus at 48 kHz in the VoIP application: 2.5 ms + 4 ms, in samples.
	lookahead = 312
	// maxPacket is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxPacket = 1275
	// dtxPacket is the size of the largest packet without sound; it is not sent.
	dtxPacket = 2
	// catchUp is how late a frame may be sent.
	catchUp = 6 * frameTime
	// lateWake is the least delay that counts as late.
	lateWake = 5 * time.Millisecond
	// settled is how many frames of silence are all encoded; after them only every keepAlive-th is, the interval at
	// which DTX sends packets by then.
	settled, keepAlive = 50, 20
	// backlog bounds the frames that wait for a slow subscriber: one second.
	backlog = 50
	// complexity of the encoder, 1 (cheapest) to 10. On synthetic speech at 32 kbit/s, 5 costs half of what 10 does, at
	// the same segmental signal-to-noise ratio and a log-spectral distance 0 to 0.6 dB larger.
	complexity = 5
	// bitRate of the voice in bit/s, and the packet loss in percent that in-band FEC prepares for.
	bitRate, packetLoss = 32000, 10
	// logEvery is the least time between log lines about skipped frames.
	logEvery = 10 * time.Second
)

// PacketWriter sends one Opus packet at once. timestamp is on the 48 kHz RTP
// clock; marker begins a talk spurt (RFC 3551, section 4.1). The caller does not
// change the payload later. written is when it was handed to the network.
type PacketWriter interface {
	WriteOpus(payload []byte, timestamp uint32, marker bool) (written time.Time, err error)
}

// encoder is the part of the Opus encoder that the Writer drives.
type encoder interface {
	Encode(pcm []int16, data []byte) (int, error)
	SetDTX(dtx bool) error
}

// Options of a Writer.
type Options struct {
	Out PacketWriter
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log zerolog.Logger
}

// counters are the running totals of a Writer.
type counters struct {
	Frames        uint64 // frames made, silent ones included
	Packets       uint64 // packets written
	LateWakes     uint64 // frames sent 5 ms or more after their time
	SkippedFrames uint64 // frames left out because their time was past
	Underruns     uint64 // times that audio came slower than it was played
	WriteErrors   uint64 // packets that the PacketWriter refused
	Lost          uint64 // frames that slow subscribers lost
	Refused       uint64 // utterances started while 64 waited
}

// Writer is one voice track. Make it with New, then call Run once.
type Writer struct {
	out PacketWriter
	now func() time.Time
	log zerolog.Logger
	enc encoder

	// Owned by Run.
	timestamp0 uint32
	pcm        [frameLen]int16
	packet     [maxPacket]byte
	dtx        bool
	silent     int       // frames since the last sound
	unsent     int       // frames since the last packet
	lastLog    time.Time // of skipped frames
	skipLogged uint64

	mu      sync.Mutex
	start   time.Time // of frame 0; zero before Run
	queue   []*Utterance
	filters map[int]*resample.Filter
	stats   counters
	events  []event // of the frame being made
	gain    float64 // a factor
	applied float64 // to the last frame

	frames fanout.Fanout[Frame]
}

// event is a call to make once its packet was written.
type event struct {
	u     *Utterance
	place int // sample within the frame; may be negative or beyond it
	end   bool
	cut   bool
	lost  time.Duration // in total, when the rest has moved
}

// EncoderDelay of the Opus encoders here: from a sample's place in the schedule to its sound.
const EncoderDelay = lookahead * time.Second / sampleRate

// New checks the options and makes the encoder. It starts nothing.
func New(o Options) (*Writer, error) {
	enc, err := NewEncoder(opus.AppVoIP, bitRate)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(enc.SetPacketLossPerc(packetLoss), enc.SetInBandFEC(true), enc.SetDTX(true)); err != nil {
		return nil, fmt.Errorf("set up the voice encoder: %w", err)
	}
	return newWriter(o, enc)
}

// NewEncoder makes an Opus encoder of 48 kHz mono for a bit rate in bit/s.
func NewEncoder(application opus.Application, bitRate int) (*opus.Encoder, error) {
	enc, err := opus.NewEncoder(sampleRate, 1, application)
	if err != nil {
		return nil, fmt.Errorf("make the Opus encoder: %w", err)
	}
	if err := errors.Join(enc.SetBitrate(bitRate), enc.SetComplexity(complexity)); err != nil {
		return nil, fmt.Errorf("set up the Opus encoder: %w", err)
	}
	return enc, nil
}

func newWriter(o Options, enc encoder) (*Writer, error) {
	if o.Out == nil {
		return nil, errors.New("speech.Options.Out is not set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Writer{
		out:        o.Out,
		now:        o.Now,
		log:        o.Log.With().Str("component", "speech").Logger(),
		enc:        enc,
		timestamp0: rand.Uint32(),
		unsent:     1,
		dtx:        true,
		filters:    make(map[int]*resample.Filter),
		gain:       1,
		applied:    1,
	}, nil
}

// NewUtterance prepares an utterance. Audio may be written before it is started.
func (w *Writer) NewUtterance(ev Events) *Utterance {
	return &Utterance{w: w, ev: ev, first: -1, onset: -1}
}

// Sounds reports whether speech is playing or begins before a given time.
func (w *Writer) Sounds(before time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return false
	}
	u := w.queue[0]
	return u.state == statePlaying || u.first >= 0 && u.at.Before(before)
}

// Run sends the track until ctx ends, and then returns nil; an error is one of the encoder. Call it once.
func (w *Writer) Run(ctx context.Context) error {
	start := w.now()
	w.mu.Lock()
	w.start = start
	w.mu.Unlock()
	defer w.close()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := int64(0); ; n++ {
		due := start.Add(time.Duration(n) * frameTime)
		now := w.now()
		if wait := due.Sub(now); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
			now = w.now()
		} else if ctx.Err() != nil {
			return nil
		}
		due = now.Add(due.Sub(now)) // the same moment as the wall clock shows it now, which may have been set
		if late := now.Sub(due); late >= catchUp {
			skip := int64(late / frameTime)
			n += skip
			due = due.Add(time.Duration(skip) * frameTime)
			w.skipped(uint64(skip), now)
		}
		if err := w.frame(n, due, now); err != nil {
			return err
		}
	}
}

// skipped counts frames whose time was past, and logs them.
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
		timestamp := w.timestamp0 + uint32(n*frameLen)
		written, err := w.out.WriteOpus(slices.Clone(w.packet[:size]), timestamp, sound && (begins || w.unsent > 0))
		w.mu.Lock()
		w.stats.Packets++
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
	w.notify(at)
	return nil
}

// render fills frame n and sends it to the subscribers.
func (w *Writer) render(n int64, due time.Time, late bool) (sound, begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sound, begins = w.fill(n * frameLen)
	w.amplify()
	w.stats.Frames++
	if late {
		w.stats.LateWakes++
	}
	w.publish(due)
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
	// DTX is off during speech, where it would drop soft words and leave gaps in
	// pauses, and for the keep-alive packets of a long silence.
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

// close ends all utterances and subscriptions.
func (w *Writer) close() {
	w.finish()
	w.frames.Close()
	w.notify(w.now())
}

func (w *Writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range slices.Clone(w.queue) {
		if u.began {
			w.events = append(w.events, event{u: u, place: -lookahead, end: true, cut: true})
		}
		u.finish()
	}
}

// fill renders the frame whose first sample's place is at. sound is set when
// an utterance is in it, begins when one starts.
func (w *Writer) fill(at int64) (sound, begins bool) {
	clear(w.pcm[:])
	for pos := 0; pos < frameLen && len(w.queue) > 0; {
		u := w.queue[0]
		if u.state != statePlaying && u.silentEnd() {
			u.finish()
			continue
		}
		if u.waits() {
			break
		}
		if u.state != statePlaying {
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

// placeOf converts a time to a place in the schedule, in samples.
func (w *Writer) placeOf(t time.Time) int64 { return ticks.Count(t.Sub(w.start), sampleRate) }

// duration of a number of samples.
func duration(samples int64) time.Duration { return ticks.Duration(samples, sampleRate) }

func (w *Writer) filterFor(rate int) (*resample.Filter, error) {
	w.mu.Lock()
	f := w.filters[rate]
	w.mu.Unlock()
	if f != nil {
		return f, nil
	}
	// The lock is free meanwhile: this takes a millisecond or two.
	f, err := resample.NewFilter(rate, sampleRate)
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

// SetGain changes the level of the track, in dB; 0 leaves the samples as they are.
// The change is spread over one frame. Samples beyond the range are clipped.
func (w *Writer) SetGain(db float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gain = math.Pow(10, db/20)
}

// amplify applies the gain to the frame, with a linear ramp from the previous gain.
func (w *Writer) amplify() {
	from, to := w.applied, w.gain
	w.applied = to
	if from == 1 && to == 1 {
		return
	}
	for i, s := range w.pcm {
		g := from + (to-from)*float64(i+1)/frameLen
		w.pcm[i] = int16(min(max(math.Round(float64(s)*g), math.MinInt16), math.MaxInt16))
	}
}
