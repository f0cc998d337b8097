package console

import (
	"encoding/binary"
	"net/http"
)

func (s *Server) getAudio(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Sound == nil {
		return refuse(http.StatusNotFound, "no_speech", "there is no voice here")
	}
	b, err := s.bot()
	if err != nil {
		return err
	}
	if !b.Snapshot().TTSEnabled {
		return refuse(http.StatusNotFound, "no_speech", "speech is switched off")
	}
	h := w.Header()
	h.Set("X-Audio-Rate", "48000")
	h.Set("X-Audio-Channels", "1")
	h.Set("X-Audio-Format", "s16le")
	const contentType = "application/octet-stream"
	if r.Method == http.MethodHead {
		h.Set("Content-Type", contentType)
		return nil
	}
	if s.audio.Add(1) > maxStreams {
		s.audio.Add(-1)
		return tooMany(w)
	}
	defer s.audio.Add(-1)
	samples, end := s.opts.Sound.Subscribe()
	defer end()
	out := s.openStream(w, contentType)
	var buf []byte
	for {
		select {
		case <-r.Context().Done():
			return nil
		case pcm, ok := <-samples:
			if !ok {
				return nil
			}
			buf = buf[:0]
			for _, v := range pcm {
				buf = binary.LittleEndian.AppendUint16(buf, uint16(v))
			}
			if err := out.write(buf); err != nil {
				return nil // the reader has gone
			}
		}
	}
}
