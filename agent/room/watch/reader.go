package watch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/ingest"
	"touchline/media/packet"
)

const (
	// packetQueue bounds the packets that wait for assembly.
	packetQueue = 1024
	// assemblerTick releases holes whose wait is over.
	assemblerTick = 20 * time.Millisecond
)

type arrivedPacket struct {
	packet *rtp.Packet
	at     time.Time
}

type arrivedReport struct {
	ntp time.Time
	rtp uint32
}

// trackReader turns one subscription's packets into access units. One goroutine only reads and timestamps packets, so that the
// timestamps are accurate; the other assembles.
type trackReader struct {
	watcher *Watcher
	fail    func(err error) // receives a panic
	number  uint64
	track   *webrtc.TrackRemote
	epoch   uint32
	began   time.Time // arrival of the first packet, at which the library returns the track
	log     zerolog.Logger
	// decryptor of an end-to-end encrypted track; nil for others.
	decryptor *conn.Decryptor

	packets chan arrivedPacket
	reports chan arrivedReport
	cancel  context.CancelFunc
	done    chan struct{}

	// last is the arrival of the newest packet with media. It keeps the monotonic clock reading, so a step of the wall clock
	// does not matter.
	last  atomic.Pointer[time.Time]
	ended atomic.Bool
}

// startReader reads track until stop. fail receives its panics.
func startReader(
	w *Watcher, track *webrtc.TrackRemote, decryptor *conn.Decryptor, fail func(err error), log zerolog.Logger,
) *trackReader {
	ctx, cancel := context.WithCancel(context.Background())
	number, epoch := w.newReader()
	r := &trackReader{
		watcher: w, fail: fail, number: number, track: track, epoch: epoch, began: time.Now(), log: log, decryptor: decryptor,
		packets: make(chan arrivedPacket, packetQueue),
		reports: make(chan arrivedReport, 4),
		cancel:  cancel, done: make(chan struct{}),
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer rescue.Guard(fail)
		r.read(ctx)
	}()
	go func() {
		defer close(r.done)
		defer func() { <-reading }()
		defer cancel() // otherwise read would wait for assemble
		defer rescue.Guard(fail)
		r.assemble()
	}()
	return r
}

// stop ends both goroutines and waits for them.
func (r *trackReader) stop() {
	r.cancel()
	<-r.done
}

// lastPacket returns the arrival of the newest packet with media; zero before the first.
func (r *trackReader) lastPacket() time.Time {
	if at := r.last.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// rtcp receives the RTCP packets of all tracks.
func (r *trackReader) rtcp(p rtcp.Packet) {
	defer rescue.Guard(r.fail)
	sr, ok := p.(*rtcp.SenderReport)
	if !ok || sr.SSRC != uint32(r.track.SSRC()) {
		return
	}
	select {
	case r.reports <- arrivedReport{packet.NTPTime(sr.NTPTime), sr.RTPTime}:
	default:
	}
}

func (r *trackReader) read(ctx context.Context) {
	defer close(r.packets)
	defer r.ended.Store(true)
	err := readPackets(ctx, r.track, func(p *rtp.Packet, at time.Time) {
		if hasMedia(p) {
			r.last.Store(&at)
		}
		r.watcher.packets.Add(1)
		select {
		case r.packets <- arrivedPacket{p, at}:
		case <-ctx.Done():
		}
	})
	if err != nil {
		r.log.Warn().Err(err).Msg("watched track unreadable")
	}
}

// maxFailures is the number of consecutive read errors after which reading stops.
const maxFailures = 100

// readPackets calls take with each packet of a track and its arrival, until ctx or the track ends. It returns an error after
// maxFailures.
func readPackets(ctx context.Context, track *webrtc.TrackRemote, take func(p *rtp.Packet, at time.Time)) error {
	release := context.AfterFunc(ctx, func() { _ = track.SetReadDeadline(time.Unix(1, 0)) })
	defer release()
	for failures := 0; ctx.Err() == nil; {
		p, _, err := track.ReadRTP()
		at := time.Now()
		if err == nil {
			failures = 0
			take(p, at)
			continue
		}
		netErr, ok := errors.AsType[net.Error](err)
		if ok && netErr.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if failures++; failures > maxFailures {
			return err
		}
	}
	return nil
}

// hasMedia reports whether a packet is more than the padding that the server sends for a silent publisher: zeros,
// with their number in the last byte.
func hasMedia(p *rtp.Packet) bool {
	n := len(p.Payload)
	if n == 0 {
		return false
	}
	return !p.Padding || len(bytes.TrimLeft(p.Payload[:n-1], "\x00")) > 0
}

func (r *trackReader) assemble() {
	tick := time.NewTicker(assemblerTick)
	defer tick.Stop()
	var (
		asm         *ingest.Assembler
		payloadType uint8
		epoch       = r.epoch
	)
	for {
		var frames []media.EncodedFrame
		select {
		case p, ok := <-r.packets:
			if !ok {
				return
			}
			if asm != nil && p.packet.PayloadType != payloadType && len(p.packet.Payload) > 0 {
				// The publisher fell back to another codec on the same track.
				asm, epoch = nil, r.watcher.nextEpoch()
			}
			if asm == nil {
				params := r.track.Codec()
				codec, err := media.ParseCodec(params.MimeType)
				if err != nil {
					r.log.Warn().Err(err).Msg("watched track ignored: unknown codec")
					continue
				}
				payloadType = p.packet.PayloadType
				options := ingest.Options{Codec: codec, ClockRate: params.ClockRate, Epoch: epoch, Log: r.log}
				if r.decryptor != nil {
					options.Decrypt = r.decryptor.Open
				}
				asm = ingest.New(options)
			}
			frames = asm.Push(p.packet, p.at)
		case sr := <-r.reports:
			if asm != nil {
				asm.SenderReport(sr.ntp, sr.rtp)
			}
			continue
		case now := <-tick.C:
			if asm == nil {
				continue
			}
			frames = asm.Tick(now)
			if r.decryptor.Problem() == "" && asm.WantsKeyFrame(now) {
				r.watcher.RequestKeyFrame()
			}
		}
		for _, f := range frames {
			r.watcher.deliver(r.number, f)
		}
	}
}
