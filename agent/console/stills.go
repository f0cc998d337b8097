package console

import (
	"context"
	"net/http"
	"time"
)

// stillFresh is how old a thumbnail of the newest picture may be.
const stillFresh = 500 * time.Millisecond

// stills are thumbnails of a room's newest picture. The tiles of any number of
// pages ask for the same one, which is taken once.
type stills struct {
	busy chan struct{}
	made map[int]still // by width; who holds busy may touch it
}

type still struct {
	data []byte
	err  error
	at   time.Time
}

func newStills() *stills { return &stills{busy: make(chan struct{}, 1), made: map[int]still{}} }

// get returns the thumbnail of a width: a fresh one that was taken for somebody
// else, or one that is taken now.
func (s *stills) get(ctx context.Context, width int, take func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "busy", "too many pictures are being made at once")
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
	if ctx.Err() == nil { // else it says nothing to others
		s.made[width] = still{data, err, time.Now()}
	}
	return data, err
}
