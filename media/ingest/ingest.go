// Package ingest assembles the RTP packets of one video track into access units: it
// orders packets, joins them by timestamp and marker, depacketises VP8, VP9, H264,
// H265 and AV1, detects key frames and picture sizes, and sets the three times of
// each unit.
//
// It decides what can be decoded: after a gap it drops units until the next key
// frame. It does not decode, sends no key frame request, starts no goroutine and
// reads no clock.
package ingest

import (
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/internal/ticks"
	"touchline/media"
)

const (
	defaultHoleWait = 150 * time.Millisecond
	windowSize      = 2048 // packets; a power of two
	maxMisorder     = 512  // how far behind a late packet may be
	maxDropout      = 3000 // how far ahead a packet may be (RFC 3550 appendix A.1)
	jumpLimit       = 10 * time.Second
	keyFrameEvery   = time.Second
	blankSide       = 32      // smaller pictures are the SFU's, not the source's
	maxUnitBytes    = 8 << 20 // of one access unit
	maxUnitPackets  = 8192
	tailLimit       = 2 // units with packets after their marker until markers are ignored
	markersTrusted  = 4 // pictures in a row with a marker until one without counts as cut short
)

// Options configure an Assembler. Codec is required.
type Options struct {
	// Codec of the track.
	Codec media.Codec
	// ClockRate of the RTP timestamps in Hz; 0 means 90000.
	ClockRate uint32
	// Epoch is the number of the first epoch; each restart adds one.
	Epoch uint32
	// Sets are the parameter sets (H264, H265) of the signalling, for key frames before any in the stream.
	Sets [][]byte
	// Decrypt undoes the end-to-end encryption of an access unit (H264 and H265, as Annex B); nil without. Frames then have no Packets.
	Decrypt func(frame []byte) ([]byte, error)
	// HoleWait bounds the wait for a missing packet; 0 means 150 ms.
	HoleWait time.Duration
	// Log receives a line for each restart.
	Log zerolog.Logger
}

// Stats are the running totals of an Assembler.
type Stats struct {
	Packets    uint64 // passed to Push
	Padding    uint64 // of these, without media
	Duplicates uint64 // of these, received before
	Late       uint64 // of these, counted as lost before
	Lost       uint64 // packets that did not come in time
	Gaps       uint64 // runs of these
	Frames     uint64 // access units returned
	KeyFrames  uint64 // of these, key frames
	Blanks     uint64 // blank frames of the SFU dropped
	Waiting    uint64 // complete access units dropped before a key frame
	Setless    uint64 // of these, key frames without parameter sets
	Broken     uint64 // access units dropped because they were incomplete or malformed
	Restarts   uint64 // new epochs after the first, and sequence restarts
}

// wait counts a unit dropped before a key frame.
func (s *Stats) wait(u unit) {
	s.Waiting++
	if u.setless {
		s.Setless++
	}
}

// slot of the reorder window.
type slot struct {
	packet *rtp.Packet // nil for padding
	at     time.Time
	full   bool
}

// Assembler assembles access units from one track's packets. It is not safe for
// concurrent use.
type Assembler struct {
	opts  Options
	stats Stats
	rate  int64

	epoch   uint32
	ssrc    uint32
	started bool

	// Sequence: window[n&mask] holds packet n for next <= n < next+windowSize.
	window   []slot
	next     int64 // the next sequence number, unwrapped
	buffered int   // full slots
	holeFrom time.Time
	suspect  *rtp.Packet // with a far sequence number; the next packet decides
	suspAt   time.Time

	// Timestamps: unwrapped, in ticks since the epoch's first access unit.
	tsKnown bool
	tsLast  uint32
	ticks   int64
	tsAt    time.Time
	clock   *Clock
	srKnown bool
	srNTP   time.Time
	srRTP   uint32

	// The access unit under construction.
	unit      []*rtp.Packet
	unitBytes int
	lastLen   int       // packets of the previous unit, a guess for this one
	unitTime  time.Time // arrival of its last packet
	fresh     bool      // the packets before it are missing or unknown
	tails     int
	finished  bool // the unit of tsLast ended by its marker
	marked    int  // pictures in a row that ended by their marker

	// State of decoding.
	dirty         bool // waits for a key frame
	wanted        time.Time
	unpack        *unpacker
	width, height int
	layers        int
}

// New returns an Assembler that waits for its first key frame.
func New(o Options) *Assembler {
	if o.ClockRate == 0 {
		o.ClockRate = media.VideoClockRate
	}
	if o.HoleWait <= 0 {
		o.HoleWait = defaultHoleWait
	}
	a := &Assembler{
		opts:   o,
		rate:   int64(o.ClockRate),
		epoch:  o.Epoch,
		window: make([]slot, windowSize),
	}
	a.reset()
	return a
}

// Stats returns the counters.
func (a *Assembler) Stats() Stats { return a.stats }

// Epoch returns the number of the current epoch.
func (a *Assembler) Epoch() uint32 { return a.epoch }

// WantsKeyFrame reports whether to ask the source for a key frame now: nothing can be
// decoded, and it last returned true a second or more ago.
func (a *Assembler) WantsKeyFrame(now time.Time) bool {
	if !a.dirty || !a.wanted.IsZero() && now.Sub(a.wanted) < keyFrameEvery {
		return false
	}
	a.wanted = now
	return true
}

// SenderReport records the clocks of an RTCP sender report of this track's SSRC.
func (a *Assembler) SenderReport(ntp time.Time, rtpTime uint32) {
	a.srKnown, a.srNTP, a.srRTP = true, ntp, rtpTime
	a.applySenderReport()
}

// applySenderReport applies the report once a timestamp is known. One with a distant
// timestamp belongs to another epoch.
func (a *Assembler) applySenderReport() {
	if !a.srKnown || !a.tsKnown {
		return
	}
	a.srKnown = false
	diff := int64(int32(a.srRTP - a.tsLast)) //nolint:gosec // modulo 2^32
	if d := a.duration(diff); d > time.Hour || d < -time.Hour {
		return
	}
	a.clock.SenderReport(a.srNTP, a.duration(a.ticks+diff))
}

// duration converts a count of RTP ticks.
func (a *Assembler) duration(count int64) time.Duration {
	return ticks.Duration(count, a.rate)
}

// reset begins an epoch.
func (a *Assembler) reset() {
	a.tsKnown, a.ticks, a.finished, a.tails, a.marked = false, 0, false, 0, 0
	a.clock = &Clock{}
	a.srKnown = false
	a.unit, a.unitBytes = nil, 0
	a.fresh, a.dirty = true, true
	a.unpack = &unpacker{codec: a.opts.Codec, decrypt: a.opts.Decrypt}
	a.width, a.height = a.unpack.signalled(a.opts.Sets)
	a.layers = 1
}

// clearWindow empties the reorder window, with seq as the next packet.
func (a *Assembler) clearWindow(seq int64) {
	clear(a.window)
	a.buffered, a.next = 0, seq
	a.holeFrom = time.Time{}
	a.suspect = nil
}

// Push adds a packet that came at a given time, and returns the access units that are
// complete now, in decoding order. It takes ownership of the packet.
func (a *Assembler) Push(pkt *rtp.Packet, at time.Time) []media.EncodedFrame {
	if pkt == nil {
		return nil
	}
	a.stats.Packets++
	var out []media.EncodedFrame
	if !a.started || pkt.SSRC != a.ssrc {
		if a.started {
			a.epoch++
			a.stats.Restarts++
			a.reset()
			a.opts.Log.Info().Uint32("ssrc", pkt.SSRC).Uint32("epoch", a.epoch).Msg("SSRC changed")
		}
		a.started, a.ssrc = true, pkt.SSRC
		a.clearWindow(int64(pkt.SequenceNumber))
	}
	seq := a.next + int64(int16(pkt.SequenceNumber-uint16(a.next))) //nolint:gosec // modulo 2^16
	if seq-a.next >= maxDropout || seq-a.next < -maxMisorder {
		return a.pushFar(pkt, at)
	}
	a.suspect = nil
	if seq < a.next {
		a.stats.Late++
		return nil
	}
	// Packets too far behind count as lost.
	for seq-a.next >= windowSize {
		out = a.giveUp(out)
	}
	a.insert(seq, pkt, at)
	out = a.drain(out)
	return a.release(out, at)
}

// Tick gives up packets whose wait is over, and returns the access units that are
// complete then.
func (a *Assembler) Tick(now time.Time) []media.EncodedFrame {
	return a.release(nil, now)
}

// pushFar handles a packet with a sequence number far from the expected one. Two
// consecutive ones mean that the source restarted (RFC 3550 appendix A.1); a single
// one is dropped.
func (a *Assembler) pushFar(pkt *rtp.Packet, at time.Time) []media.EncodedFrame {
	if a.suspect == nil || pkt.SequenceNumber != a.suspect.SequenceNumber+1 {
		if a.suspect != nil {
			a.stats.Late++
		}
		a.suspect, a.suspAt = pkt, at
		return nil
	}
	first, firstAt := a.suspect, a.suspAt
	a.stats.Restarts++
	a.stats.Gaps++
	a.clearWindow(int64(first.SequenceNumber))
	a.gap()
	a.opts.Log.Info().Uint16("sequence", first.SequenceNumber).Msg("sequence numbers restarted")
	a.insert(a.next, first, firstAt)
	a.insert(a.next+1, pkt, at)
	return a.drain(nil)
}

// insert stores a packet in its slot.
func (a *Assembler) insert(seq int64, pkt *rtp.Packet, at time.Time) {
	s := &a.window[seq&(windowSize-1)]
	if s.full {
		a.stats.Duplicates++
		return
	}
	if isPadding(pkt) {
		a.stats.Padding++
		pkt = nil
	} else {
		pkt.Padding, pkt.Header.PaddingSize = false, 0
		pkt.PaddingSize = 0
	}
	*s = slot{packet: pkt, at: at, full: true}
	a.buffered++
}

// drain consumes packets until one is missing.
func (a *Assembler) drain(out []media.EncodedFrame) []media.EncodedFrame {
	moved := false
	for a.buffered > 0 {
		s := &a.window[a.next&(windowSize-1)]
		if !s.full {
			break
		}
		pkt, at := s.packet, s.at
		*s = slot{}
		a.buffered--
		a.next++
		moved = true
		if pkt != nil {
			out = a.take(out, pkt, at)
		}
	}
	switch {
	case a.buffered == 0:
		a.holeFrom = time.Time{}
	case moved || a.holeFrom.IsZero():
		// The wait begins with the first packet after the gap.
		a.holeFrom = time.Time{}
		for n, left := a.next, a.buffered; left > 0; n++ {
			s := &a.window[n&(windowSize-1)]
			if !s.full {
				continue
			}
			left--
			if a.holeFrom.IsZero() || s.at.Before(a.holeFrom) {
				a.holeFrom = s.at
			}
		}
	}
	return out
}

// release gives up packets whose wait is over.
func (a *Assembler) release(out []media.EncodedFrame, now time.Time) []media.EncodedFrame {
	for a.buffered > 0 && now.Sub(a.holeFrom) >= a.opts.HoleWait {
		out = a.giveUp(out)
	}
	return out
}

// giveUp skips the next gap, or the whole window if it is empty.
func (a *Assembler) giveUp(out []media.EncodedFrame) []media.EncodedFrame {
	lost := int64(0)
	for !a.window[a.next&(windowSize-1)].full {
		a.next++
		lost++
		if a.buffered == 0 && lost >= windowSize {
			break
		}
	}
	if lost > 0 {
		a.stats.Lost += uint64(lost)
		a.stats.Gaps++
		a.gap()
	}
	return a.drain(out)
}

// gap records that packets are missing before the next one.
func (a *Assembler) gap() {
	if len(a.unit) > 0 {
		a.stats.Broken++
	}
	a.unit, a.unitBytes = nil, 0
	a.fresh = true
	a.finished = false
	a.dirty = true
}
