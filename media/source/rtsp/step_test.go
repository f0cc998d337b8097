//go:build integration

package rtsp_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/rtsp"
)

// A camera's sound comes later than its picture, AAC even later by the coders' delay. Sender reports bring it in sync,
// including the priming of the AAC encoder.
func TestAACIsInStep(t *testing.T) {
	for _, tt := range []struct {
		name, rate string
		latm       bool
	}{{"16 kHz", "16000", false}, {"44.1 kHz", "44100", false}, {"LATM, 48 kHz", "48000", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := &beeper{camera: newCamera(t, cameraOptions{}), units: beepingAAC(t, tt.rate), began: time.Now()}
			b.serve(t, tt.latm)
			reported, handed := b.listen(t)
			t.Log("delay of the sound by arrival", handed, "by sender reports", reported)
			for _, off := range reported {
				require.Less(t, off.Abs(), 10*time.Millisecond)
			}
		})
	}
}

// beepingAAC encodes beeps at each second from the first on.
func beepingAAC(t *testing.T, rate string) mpeg4audio.ADTSPackets {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i",
		"aevalsrc='if(gte(t,0.9)*lt(mod(t,1),0.1),0.6*sin(2*PI*1000*t),0)':s="+rate+":d=8", "-c:a", "aac", "-ac", "1", "-f", "adts", "pipe:1").Output()
	require.NoError(t, err)
	var units mpeg4audio.ADTSPackets
	require.NoError(t, units.Unmarshal(out))
	return units
}

// beeper is a camera with a picture each 40 ms, late sound and a clock that is wrong by an hour.
type beeper struct {
	*camera

	units        mpeg4audio.ADTSPackets
	began        time.Time
	video, audio *description.Media
	config       *mpeg4audio.AudioSpecificConfig
	mux          *mpeg4audio.StreamMuxConfig // nil for RFC 3640
}

const (
	// soundLate is the delay of the sound after its picture.
	soundLate = 200 * time.Millisecond
	// priming of ffmpeg's AAC encoder, in samples.
	priming = 1024
	// opusDelay is the delay of Opus encoder and decoder together.
	opusDelay = 312 * time.Second / 48000
)

func (b *beeper) clock() time.Time { return b.began.Add(-time.Hour) }

// serve sends until the test ends.
func (b *beeper) serve(t *testing.T, latm bool) {
	t.Helper()
	b.config = &mpeg4audio.AudioSpecificConfig{Type: b.units[0].Type, SampleRate: b.units[0].SampleRate, ChannelConfig: 1}
	plain := &format.MPEG4Audio{PayloadTyp: 97, Config: b.config, SizeLength: 13, IndexLength: 3, IndexDeltaLength: 3}
	var sounds format.Format = plain
	if latm {
		b.mux = &mpeg4audio.StreamMuxConfig{Programs: []*mpeg4audio.StreamMuxConfigProgram{{
			Layers: []*mpeg4audio.StreamMuxConfigLayer{{AudioSpecificConfig: b.config}},
		}}}
		sounds = &format.MPEG4AudioLATM{PayloadTyp: 97, StreamMuxConfig: b.mux}
	}
	b.video = &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{&format.VP8{PayloadTyp: 96}}}
	b.audio = &description.Media{Type: description.MediaTypeAudio, Formats: []format.Format{sounds}}
	stream := &gortsplib.ServerStream{Server: b.server, Desc: &description.Session{Medias: []*description.Media{b.video, b.audio}}}
	require.NoError(t, stream.Initialize())
	b.mu.Lock()
	b.stream = stream
	b.mu.Unlock()
	t.Cleanup(stream.Close)
	encoder, err := plain.CreateEncoder()
	require.NoError(t, err)
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		pictures := rtp.NewPacketizer(1200, 96, 7, &codecs.VP8Payloader{}, rtp.NewRandomSequencer(), 90000)
		var pictured, heard time.Duration
		for unit := 0; ; {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			now := time.Since(b.began)
			for ; pictured <= now; pictured += 40 * time.Millisecond {
				// The smallest key frame: its header (RFC 6386 section 9.1) and random data.
				for _, p := range pictures.Packetize([]byte{0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0, 1, 2, 3}, 3600) {
					_ = stream.WritePacketRTPWithNTP(b.video, p, b.clock().Add(pictured))
				}
			}
			for ; heard+soundLate <= now && unit < len(b.units); unit++ {
				sample := 1024*unit - priming
				heard = time.Duration(sample) * time.Second / time.Duration(b.config.SampleRate)
				packets, _ := encoder.Encode([][]byte{b.units[unit].AU})
				for _, p := range packets { // one, as they are small
					if b.mux != nil {
						p.Payload, _ = mpeg4audio.AudioMuxElement{StreamMuxConfig: b.mux, Payloads: [][][][]byte{{{b.units[unit].AU}}}}.Marshal()
					}
					p.Timestamp = uint32(sample) // modulo 2^32
					_ = stream.WritePacketRTPWithNTP(b.audio, p, b.clock().Add(heard))
				}
			}
		}
	})
	t.Cleanup(func() {
		close(over)
		sending.Wait()
	})
}

// listen returns the delays of four beeps after their pictures: by sender reports, and by arrival.
func (b *beeper) listen(t *testing.T) (reported, handed []time.Duration) {
	t.Helper()
	a, err := source.ParseAddress(b.url())
	require.NoError(t, err)
	camera, err := rtsp.New(rtsp.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
	require.NoError(t, err)
	dec, err := opus.NewDecoder(48000, 1)
	require.NoError(t, err)
	ctx, stop := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("no sound in two minutes"))
	defer stop()
	ctx, enough := context.WithCancelCause(ctx)
	pcm := make([]int16, 5760)
	var lag time.Duration // from the camera's clock to ours, by the picture
	quiet := 0
	later := func(at time.Time) time.Duration { // than the second it belongs to
		d := at.Sub(b.clock())
		return (d - d.Round(time.Second)).Round(100 * time.Microsecond)
	}
	err = camera.Pull(ctx, source.Sink{Frame: func(f media.EncodedFrame) {
		if !f.NTP.IsZero() {
			lag = f.Arrival.Sub(f.NTP)
		}
	}, Opus: func(o source.Opus) {
		n, err := dec.Decode(o.Payload, pcm)
		require.NoError(t, err)
		for i := range n {
			if v := pcm[i]; v > -3000 && v < 3000 {
				quiet++
				continue
			}
			if quiet > 48*300 && lag != 0 && !o.NTP.IsZero() {
				at := time.Duration(i)*time.Second/48000 - opusDelay
				reported, handed = append(reported, later(o.NTP.Add(at))), append(handed, later(o.Received.Add(at-lag)))
			}
			quiet = 0
		}
		if len(reported) == 4 {
			enough(errEnough)
		}
	}})
	require.ErrorIs(t, err, errEnough)
	return reported, handed
}
