package console

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"touchline/internal/ticks"
	"touchline/media/speech"
)

const (
	// audioRate of the voice, in Hz.
	audioRate = 48000
	// audioStart bounds the wait for the first frame of the voice.
	audioStart = 2 * time.Second
	// audioGap is the longest gap that is filled with silence.
	audioGap = time.Second
)

// timestamp formats a time as seconds since 1970, for headers with which a player synchronizes picture and voice. The wall clock counts
// as it was at zero, because the voice has its time only once: it may be set later.
func timestamp(at, zero time.Time) string {
	at = zero.Add(at.Sub(zero))
	return fmt.Sprintf("%d.%06d", at.Unix(), at.Nanosecond()/1000)
}

func (s *Server) getAudio(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	if h.Sound == nil {
		return refuse(http.StatusNotFound, "no_speech", "no voice")
	}
	if err := needsBot(h); err != nil {
		return err
	}
	if !h.Bot.Snapshot().TTSEnabled {
		return refuse(http.StatusNotFound, "no_speech", "speech is switched off")
	}
	head := w.Header()
	head.Set("X-Audio-Rate", strconv.Itoa(audioRate))
	head.Set("X-Audio-Channels", "1")
	head.Set("X-Audio-Format", "s16le")
	const contentType = "application/octet-stream"
	if r.Method == http.MethodHead {
		head.Set("Content-Type", contentType)
		return nil
	}
	r, seat, err := s.seat(r, "sound "+h.Name)
	if err != nil {
		return err
	}
	defer seat.Leave()
	h.audio.Add(1)
	defer h.audio.Add(-1)
	frames, end := h.Sound.Frames()
	defer end()
	var first speech.Frame
	select {
	case <-r.Context().Done():
		return nil
	case <-h.gone:
		return nil
	case first = <-frames:
	case <-time.After(audioStart):
	}
	if first.PCM == nil {
		return refuse(http.StatusServiceUnavailable, "no_voice_yet", "the voice has not started or has ended").after(1)
	}
	head.Set("X-Audio-Timestamp", timestamp(first.Due.Add(speech.EncoderDelay), h.since))
	out := s.openStream(w, contentType)
	a := audioStream{next: first.Due, lost: &h.audioLost}
	if out.write(a.encode(first)) != nil {
		return nil // the reader disconnected
	}
	return relay(out, r, h.gone, frames, a.encode)
}

// audioStream makes a continuous sound of frames, so that a sample's position gives its time.
type audioStream struct {
	next time.Time // of the next sample
	lost *atomic.Uint64
	buf  []byte
}

// encode returns a frame, with silence before it for missing frames; nil if too many are missing.
func (a *audioStream) encode(f speech.Frame) []byte {
	gap := f.Due.Sub(a.next)
	samples := max(0, int(ticks.Count(gap, audioRate)))
	a.lost.Add(uint64((samples + len(f.PCM)/2) / max(1, len(f.PCM))))
	if gap > audioGap {
		return nil
	}
	a.buf = append(a.buf[:0], make([]byte, 2*samples)...)
	for _, v := range f.PCM {
		a.buf = binary.LittleEndian.AppendUint16(a.buf, uint16(v))
	}
	a.next = f.Due.Add(ticks.Duration(int64(len(f.PCM)), audioRate))
	return a.buf
}
