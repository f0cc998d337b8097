package console

import (
	"encoding/binary"
	"net/http"
)

func (s *Server) getAudio(h *hosted, w http.ResponseWriter, r *http.Request) error {
	if h.Sound == nil {
		return refuse(http.StatusNotFound, "no_speech", "no voice")
	}
	b, err := h.bot()
	if err != nil {
		return err
	}
	if !b.Snapshot().TTSEnabled {
		return refuse(http.StatusNotFound, "no_speech", "speech is switched off")
	}
	head := w.Header()
	head.Set("X-Audio-Rate", "48000")
	head.Set("X-Audio-Channels", "1")
	head.Set("X-Audio-Format", "s16le")
	const contentType = "application/octet-stream"
	if r.Method == http.MethodHead {
		head.Set("Content-Type", contentType)
		return nil
	}
	if h.audio.Add(1) > maxStreams {
		h.audio.Add(-1)
		return tooMany(w)
	}
	defer h.audio.Add(-1)
	samples, end := h.Sound.Subscribe()
	defer end()
	var buf []byte
	return relay(s.openStream(w, contentType), r, h.gone, samples, func(pcm []int16) []byte {
		buf = buf[:0]
		for _, v := range pcm {
			buf = binary.LittleEndian.AppendUint16(buf, uint16(v))
		}
		return buf
	})
}
