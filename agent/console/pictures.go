package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"touchline/agent/events"
	"touchline/internal/limit"
)

// pictureWait bounds the wait of /api/frame for a picture, thumbWait that of other pictures that are scaled: below writeTime, so
// that the client gets an answer.
const (
	pictureWait = 2 * time.Second
	thumbWait   = 10 * time.Second
)

// mayMake counts a picture that has to be made. It returns a 429 beyond the client's rate.
func (s *Server) mayMake(ctx context.Context) error {
	if wait, ok := s.pictures.Allow(limit.ClientOf(ctx), time.Now()); !ok {
		return tooMany("requests", wait)
	}
	return nil
}

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
	if width == 0 { // it is made in any case, and waits only if it may be
		if err := s.mayMake(ctx); err != nil {
			return err
		}
	}
	// One request at a time asks the decoder, which the commentary uses too.
	data, err := h.stills.get(ctx, stillKey{width: width}, func() ([]byte, error) {
		if width > 0 {
			if err := s.mayMake(ctx); err != nil {
				return nil, err
			}
		}
		f, err := h.Pictures.Snapshot(ctx)
		if err != nil {
			return nil, refuse(http.StatusNotFound, "no_picture", "no picture: %v", err)
		}
		side := width
		if f.Height > f.Width && f.Width > 0 {
			side = width * f.Height / f.Width
		}
		return s.inSlot(ctx, func() ([]byte, error) { return events.JPEG(f, side, h.JPEGQuality) })
	})
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
		ctx, cancel := context.WithTimeout(r.Context(), thumbWait)
		defer cancel()
		data, err = h.thumbs.get(ctx, stillKey{r.URL.Path, width}, func() ([]byte, error) {
			if err := s.mayMake(ctx); err != nil {
				return nil, err
			}
			return s.inSlot(ctx, func() ([]byte, error) { return events.Thumbnail(full, width, h.JPEGQuality) })
		})
		if err != nil {
			return err
		}
	}
	return writeBody(w, http.StatusOK, "image/jpeg", data)
}

const (
	// stillFresh is the maximum age of a thumbnail of the newest picture, and thumbFresh that of another one, which does not change.
	stillFresh = 500 * time.Millisecond
	thumbFresh = 10 * time.Second
	// maxStills bounds the thumbnails of stills, in bytes.
	maxStills = 2 << 20
)

// stills are thumbnails of a room: of its newest picture, or of earlier ones. Requests for the same one share it.
type stills struct {
	fresh time.Duration
	busy  chan struct{}
	made  map[stillKey]still // guarded by busy
}

// stillKey is a thumbnail: its picture, "" for the newest, and its width.
type stillKey struct {
	picture string
	width   int
}

type still struct {
	data []byte
	err  error
	at   time.Time
}

func newStills(fresh time.Duration) *stills {
	return &stills{fresh: fresh, busy: make(chan struct{}, 1), made: map[stillKey]still{}}
}

// get returns a thumbnail: a fresh one of an earlier request, or a new one. The newest picture in its own size is always a new one.
func (s *stills) get(ctx context.Context, key stillKey, take func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "busy", "too many pictures are encoded at once; try again")
	}
	defer func() { <-s.busy }()
	size := 0
	for k, old := range s.made {
		if size += len(old.data); time.Since(old.at) > s.fresh {
			delete(s.made, k)
		}
	}
	if known, ok := s.made[key]; ok {
		return known.data, known.err
	}
	if size > maxStills {
		clear(s.made)
	}
	data, err := take()
	p, ok := errors.AsType[*problem](err)
	concerns := ctx.Err() == nil && (!ok || p.status != http.StatusTooManyRequests) // more than this request
	if concerns && key != (stillKey{}) {
		s.made[key] = still{data, err, time.Now()}
	}
	return data, err
}
