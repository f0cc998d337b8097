package rtsp

import (
	"errors"
	"sync"
	"time"
)

const (
	// keyPatience is the wait for a key frame after a request.
	keyPatience = 4 * time.Second
	// reopenEvery bounds the openings for a key frame.
	reopenEvery = time.Minute
)

// errReopen ends a session whose camera is to be opened again for a key frame.
var errReopen = errors.New("a key frame is needed")

// keyRequests decides when a camera is opened again: RTSP has no request for a key frame, but a session begins with one. It
// reads no clock.
type keyRequests struct {
	mu       sync.Mutex
	asked    time.Time // the oldest request since the newest key frame, zero for none
	reopened time.Time
	waiting  bool // for the key frame of the new session
	useless  bool // sessions do not begin with a key frame, as with servers that pass a camera on
}

// ask records a request.
func (k *keyRequests) ask(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked.IsZero() {
		k.asked = now
	}
}

// came records a key frame.
func (k *keyRequests) came() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked, k.waiting = time.Time{}, false
}

// overdue reports once that the camera is to be opened again.
func (k *keyRequests) overdue(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting && now.Sub(k.reopened) >= keyPatience {
		k.waiting, k.useless = false, true
	}
	if k.useless || k.asked.IsZero() || now.Sub(k.asked) < keyPatience || !k.reopened.IsZero() && now.Sub(k.reopened) < reopenEvery {
		return false
	}
	k.asked, k.reopened, k.waiting = time.Time{}, now, true
	return true
}
