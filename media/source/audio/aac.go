package audio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mpegts/codecs"

	"touchline/internal/child"
	"touchline/media/source"
)

const (
	queue = 64 // access units that wait for ffmpeg
	// gap is the least step of the source's clock that is followed; a smaller one is rounding.
	gap = opusRate / 20
)

// AAC transcodes AAC to Opus by an ffmpeg process. ffmpeg's latency delays the
// packets, but not their timestamps.
type AAC struct {
	clock int64 // of the timestamps, in Hz
	now   func() time.Time
	out   func(source.Opus)
	in    chan []byte // ADTS

	mu    sync.Mutex
	began bool
	last  uint32 // timestamp of the source
	ticks int64  // the same, unwrapped, counted from the first
	base  int64  // of the first, at 48 kHz
	heard int64  // samples at 48 kHz that went in
	shift int64  // by gaps, at 48 kHz
}

// NewAAC checks that ffmpeg is installed. clock is the rate of the timestamps, in Hz.
// Run has to be running.
func NewAAC(clock int, now func() time.Time, out func(source.Opus)) (*AAC, error) {
	if clock <= 0 {
		return nil, fmt.Errorf("expected a clock rate for AAC, got %d Hz", clock)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		return nil, errors.New("AAC sound of an RTSP camera needs the program ffmpeg, which is not installed: apt-get install ffmpeg")
	}
	return &AAC{clock: int64(clock), now: now, out: out, in: make(chan []byte, queue)}, nil
}

// samplesPerUnit is the number of samples of an access unit (ISO 14496-3), at the stream's sample rate.
const samplesPerUnit = 1024

// Write queues the access units of one packet, and drops units that do not fit.
func (a *AAC) Write(config mpeg4audio.AudioSpecificConfig, units [][]byte, timestamp uint32) {
	if config.SampleRate <= 0 {
		return
	}
	a.mu.Lock()
	if !a.began {
		a.began, a.base = true, int64(timestamp)*opusRate/a.clock
	} else {
		a.ticks += int64(int32(timestamp - a.last)) //nolint:gosec // modulo 2^32
	}
	a.last = timestamp
	if at := a.ticks * opusRate / a.clock; at-a.heard-a.shift > gap || at-a.heard-a.shift < -gap {
		a.shift = at - a.heard
	}
	a.mu.Unlock()
	taken := 0
	for _, u := range units {
		adts, err := mpeg4audio.ADTSPackets{{
			Type: config.Type, SampleRate: config.SampleRate, ChannelConfig: config.ChannelConfig, AU: u,
		}}.Marshal()
		if err != nil {
			continue
		}
		select {
		case a.in <- adts:
			taken++
		default:
		}
	}
	a.mu.Lock()
	a.heard += int64(taken) * samplesPerUnit * opusRate / int64(config.SampleRate)
	a.mu.Unlock()
}

// Last returns the timestamp of the last of n access units in a packet, on a clock of the given rate. timestamp is that
// of the first. A sender that puts several into a packet waits for the last.
func Last(config mpeg4audio.AudioSpecificConfig, n int, timestamp uint32, clock int) uint32 {
	if config.SampleRate <= 0 || n < 1 {
		return timestamp
	}
	return timestamp + uint32(int64(n-1)*samplesPerUnit*int64(clock)/int64(config.SampleRate)) //nolint:gosec // modulo 2^32
}

// Run runs ffmpeg until ctx ends.
func (a *AAC) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// -fflags nobuffer would drop the data that was read to detect the format, and the rest would come too early.
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-flags", "low_delay", "-probesize", "32",
		"-analyzeduration", "0", "-f", "aac", "-i", "pipe:0", "-c:a", "libopus", "-b:a", "64k", "-ac", "2", "-frame_duration", "20",
		"-f", "mpegts", "-muxdelay", "0", "-muxpreload", "0", "-pes_payload_size", "0", "-flush_packets", "1", "pipe:1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start ffmpeg for the sound: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start ffmpeg for the sound: %w", err)
	}
	wait, err := child.Start(cmd, child.Limits{})
	if err != nil {
		return fmt.Errorf("start ffmpeg for the sound: %w", err)
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		defer in.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case b := <-a.in:
				if _, err := in.Write(b); err != nil {
					return
				}
			}
		}
	})
	rerr := a.read(out)
	stop()
	werr := wait()
	writing.Wait()
	if errors.Is(rerr, io.EOF) {
		rerr = nil
	}
	return errors.Join(rerr, werr)
}

// read forwards ffmpeg's packets, on the source's clock.
func (a *AAC) read(r io.Reader) error {
	ts := &mpegts.Reader{R: bufio.NewReaderSize(r, 4<<10)}
	if err := ts.Initialize(); err != nil {
		return err
	}
	var made int64
	for _, t := range ts.Tracks() {
		if _, ok := t.Codec.(*codecs.Opus); !ok {
			continue
		}
		ts.OnDataOpus(t, func(_ int64, packets [][]byte) error {
			for _, p := range packets {
				a.mu.Lock()
				at := a.base + a.shift + made
				a.mu.Unlock()
				made += opus.PacketDuration2(p)
				a.out(source.Opus{Payload: p, Timestamp: uint32(at), Received: a.now()}) //nolint:gosec // modulo 2^32
			}
			return nil
		})
	}
	for {
		if err := ts.Read(); err != nil {
			return err
		}
	}
}
