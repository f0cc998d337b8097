package console

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"touchline/agent/events"
)

// pictureWait bounds the wait of /api/frame for a picture.
const pictureWait = 2 * time.Second

// inSlot encodes a picture in one of a few slots, so that many requests do not take the CPU from the commentary.
func (s *Server) inSlot(ctx context.Context, do func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "busy", "too many pictures are encoded at once; try again")
	}
	defer func() { <-s.busy }()
	return do()
}

func (s *Server) getFrame(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	if h.Pictures == nil {
		return refuse(http.StatusNotFound, "no_picture", "no picture: no source is watched")
	}
	width, err := pictureWidth(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pictureWait)
	defer cancel()
	take := func() ([]byte, error) {
		f, err := h.Pictures.Snapshot(ctx)
		if err != nil {
			return nil, refuse(http.StatusNotFound, "no_picture", "no picture: %v", err)
		}
		side := width
		if f.Height > f.Width && f.Width > 0 {
			side = width * f.Height / f.Width
		}
		return s.inSlot(ctx, func() ([]byte, error) { return events.JPEG(f, side, h.JPEGQuality) })
	}
	var data []byte
	if width == 0 {
		data, err = take()
	} else {
		data, err = h.stills.get(ctx, width, take)
	}
	if err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, "image/jpeg", data)
}

// pictureWidth returns the requested width; 0 for the picture's own width.
func pictureWidth(r *http.Request) (int, error) {
	q := r.URL.Query().Get("w")
	if q == "" {
		return 0, nil
	}
	width, err := strconv.Atoi(q)
	if err != nil || width < 16 || width > events.MaxFrameSide {
		return 0, refuse(http.StatusBadRequest, "bad_width", "w: expected 16 to %d pixels, got %.40q", events.MaxFrameSide, q)
	}
	return width, nil
}

func (s *Server) getSeenFrame(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return refuse(http.StatusNotFound, "no_picture", "frames: expected a picture's id, a number, got %.40q", r.PathValue("id"))
	}
	width, err := pictureWidth(r)
	if err != nil {
		return err
	}
	data, ok := h.Hub.Frame(id)
	if !ok {
		return refuse(http.StatusNotFound, "no_picture", "picture %d is not stored, or no longer", id)
	}
	return s.writePicture(h, w, r, data, width)
}

// writePicture answers with a JPEG scaled to a width; 0 keeps its size.
func (s *Server) writePicture(h *roomEntry, w http.ResponseWriter, r *http.Request, data []byte, width int) error {
	if width > 0 {
		var err error
		full := data
		data, err = s.inSlot(r.Context(), func() ([]byte, error) { return events.Thumbnail(full, width, h.JPEGQuality) })
		if err != nil {
			return err
		}
	}
	return writeBody(w, http.StatusOK, "image/jpeg", data)
}

// stillFresh is the maximum age of a thumbnail of the newest picture.
const stillFresh = 500 * time.Millisecond

// stills are thumbnails of a room's newest picture. Requests for the same width share one.
type stills struct {
	busy chan struct{}
	made map[int]still // by width, guarded by busy
}

type still struct {
	data []byte
	err  error
	at   time.Time
}

func newStills() *stills { return &stills{busy: make(chan struct{}, 1), made: map[int]still{}} }

// get returns the thumbnail of a width: a fresh one of an earlier request, or a new one.
func (s *stills) get(ctx context.Context, width int, take func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "busy", "too many pictures are encoded at once; try again")
	}
	defer func() { <-s.busy }()
	for w, old := range s.made {
		if time.Since(old.at) > stillFresh {
			delete(s.made, w)
		}
	}
	if known, ok := s.made[width]; ok {
		return known.data, known.err
	}
	data, err := take()
	if ctx.Err() == nil { // otherwise the error concerns this request only
		s.made[width] = still{data, err, time.Now()}
	}
	return data, err
}
