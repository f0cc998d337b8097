package console

import (
	"context"
	"net/http"
	"time"
)

// stillFresh is how old a thumbnail of the newest picture may be.
const stillFresh = 500 * time.Millisecond

// stills are thumbnails of a room's newest picture. Requests of many pages for the same
// width share one.
type stills struct {
	busy chan struct{}
	made map[int]still // by width; guarded by busy
}

type still struct {
	data []byte
	err  error
	at   time.Time
}

func newStills() *stills { return &stills{busy: make(chan struct{}, 1), made: map[int]still{}} }

// get returns the thumbnail of a width: a fresh one of an earlier request, or a
// new one.
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
