package sound

import (
	"fmt"
	"sync"
	"time"

	"github.com/pion/rtp"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/ingest"
)

const (
	// maxWait bounds the wait for a missing packet.
	maxWait = 200 * time.Millisecond
	// maxPending bounds the packets that wait behind a gap.
	maxPending = 64
	// maxPacket is the longest sound of one Opus packet: 120 ms.
	maxPacket = Rate * 120 / 1000
	// maxConceal is the longest gap that is concealed; a longer one is silence.
	maxConceal = Rate * 100 / 1000
	// maxStep bounds the difference between timestamps and arrival times of two packets of one stream.
	maxStep = time.Second
	// decoderDelay is the delay of encoder and decoder together, in samples.
	decoderDelay = 312
)

// ReceiverStats are the running totals of a Receiver.
type ReceiverStats struct {
	Packets   uint64 // decoded
	Lost      uint64 // not received in time
	Concealed uint64 // samples made by FEC or packet loss concealment
	Bad       uint64 // packets that could not be decoded
}

// Sink receives decoded sound.
type Sink interface {
	// Push adds a piece. It is called by one goroutine at a time.
	Push(p Piece)
	// Slack is how long a piece may be late and still be of use.
	Slack() time.Duration
}

// Receiver decodes the RTP packets of Opus tracks (RFC 7587), one track after
// another, into a Sink. All methods are safe for concurrent use.
type Receiver struct {
	out  Sink
	rate int
	// tick is the length of a decoded sample in ticks of the RTP clock, which runs at Rate.
	tick int64

	mu      sync.Mutex
	dec     *opus.Decoder
	stream  uint32
	began   bool
	ssrc    uint32
	clock   *ingest.Clock
	next    uint16    // sequence number
	media   int64     // unwrapped timestamp after the newest decoded sample
	newest  uint32    // timestamp of the latest packet
	came    time.Time // when that packet came
	unwrap  int64     // newest, unwrapped
	length  int       // of the newest packet, in ticks
	gap     bool
	pending map[uint16]waiting
	pcm     [maxPacket]int16
	stats   ReceiverStats
}

type waiting struct {
	packet *rtp.Packet
	at     time.Time
}

// NewReceiver makes a Receiver that decodes to a rate that Opus has: 8000, 12000, 16000, 24000 or 48000 (RFC 6716).
func NewReceiver(out Sink, rate int) (*Receiver, error) {
	dec, err := opus.NewDecoder(rate, 1)
	if err != nil {
		return nil, fmt.Errorf("make the Opus decoder: %w", err)
	}
	return &Receiver{out: out, rate: rate, tick: int64(Rate / rate), dec: dec, pending: map[uint16]waiting{}}, nil
}

// Begin prepares for another track.
func (r *Receiver) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = false
}

// Stats returns the counters.
func (r *Receiver) Stats() ReceiverStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// SenderReport sets the clocks by an RTCP sender report of the track.
func (r *Receiver) SenderReport(ntp time.Time, timestamp uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began {
		r.clock.SenderReport(ntp, span(r.unwrap+int64(int32(timestamp-r.newest))))
	}
}

// WriteRTP adds a packet that came at a given time. The packet is not changed, and is
// kept until all earlier ones have arrived or count as lost.
func (r *Receiver) WriteRTP(p *rtp.Packet, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.began || p.SSRC != r.ssrc || int16(p.SequenceNumber-r.next) > 3000 || int16(p.SequenceNumber-r.next) < -3000 {
		r.begin(p)
	}
	if int16(p.SequenceNumber-r.next) < 0 {
		return // late, or a duplicate
	}
	r.pending[p.SequenceNumber] = waiting{p, at}
	for len(r.pending) > 0 {
		w, ok := r.pending[r.next]
		if !ok && !r.giveUp(at) {
			return
		}
		if !ok {
			r.stats.Lost++
			r.gap = true
			r.next++
			continue
		}
		delete(r.pending, r.next)
		r.next++
		r.decode(w)
	}
}

// begin starts a new stream with its first packet.
func (r *Receiver) begin(p *rtp.Packet) {
	r.began, r.ssrc, r.next = true, p.SSRC, p.SequenceNumber
	r.restart(p.Timestamp)
	clear(r.pending)
	_ = r.dec.Init(r.rate, 1) // succeeded with these values before
}

// restart begins a new stream at a timestamp.
func (r *Receiver) restart(timestamp uint32) {
	r.stream++
	r.clock = new(ingest.Clock)
	r.newest, r.unwrap, r.media, r.length, r.gap = timestamp, 0, 0, 0, false
}

// giveUp reports whether the wait for the next packet is over.
func (r *Receiver) giveUp(now time.Time) bool {
	if len(r.pending) >= maxPending {
		return true
	}
	wait := min(maxWait, r.out.Slack())
	for _, w := range r.pending {
		if now.Sub(w.at) >= wait {
			return true
		}
	}
	return false
}

func (r *Receiver) decode(w waiting) {
	p := w.packet
	if len(p.Payload) == 0 {
		return // padding from the SFU
	}
	step := span(int64(int32(p.Timestamp - r.newest)))
	if r.length > 0 && (step < -maxStep || step > maxStep+max(0, w.at.Sub(r.came))) {
		r.restart(p.Timestamp)
	}
	media := r.unwrap + int64(int32(p.Timestamp-r.newest))
	r.came = w.at
	if r.newest, r.unwrap = p.Timestamp, media; media < r.media && r.length > 0 {
		media = r.media // overlaps earlier sound
	}
	arrival := r.clock.Map(span(media), w.at)
	if r.gap {
		r.conceal(p.Payload, media)
		r.gap = false
	}
	n, err := r.dec.Decode(p.Payload, r.pcm[:])
	if err != nil {
		r.stats.Bad++
		return
	}
	r.stats.Packets++
	r.push(media, arrival, r.pcm[:n])
	r.length = n * int(r.tick)
	r.media = media + int64(r.length)
}

// conceal fills the gap of lost packets before the next one, with the help of its
// FEC. A gap without a missing packet is a pause of the sender (DTX), and stays.
func (r *Receiver) conceal(next []byte, media int64) {
	hole := media - r.media
	if r.length == 0 || hole <= 0 || hole > maxConceal || hole%int64(r.length) != 0 {
		return
	}
	for at := r.media; at < media; at += int64(r.length) {
		pcm := r.pcm[:r.length/int(r.tick)]
		var err error
		if at+int64(r.length) == media {
			err = r.dec.DecodeFEC(next, pcm)
		} else {
			err = r.dec.DecodePLC(pcm)
		}
		if err != nil {
			return
		}
		r.stats.Concealed += uint64(r.length)
		r.push(at, r.clock.At(span(at)), pcm)
	}
}

func (r *Receiver) push(media int64, arrival time.Time, pcm []int16) {
	const early = decoderDelay * time.Second / Rate
	ntp := r.clock.NTP(span(media))
	if !ntp.IsZero() {
		ntp = ntp.Add(-early)
	}
	r.out.Push(Piece{Stream: r.stream, Media: media - decoderDelay, Arrival: arrival.Add(-early), NTP: ntp, PCM: pcm})
}
