package events

import (
	"context"
	"slices"
	"sync"
	"time"

	"touchline/agent/alert"
)

// Bounds of the stored alerts.
const (
	// KeptAlerts is the number of alerts.
	KeptAlerts = 100
	// alertBytes and alertAge bound the stored pictures of alerts.
	alertBytes = 8 << 20
	alertAge   = 24 * time.Hour
)

// KeptAlert is a stored alert with its last phase.
type KeptAlert struct {
	alert.Alert // its first phase, with Phase of the last one

	ClearedAt     time.Time `json:"cleared_at,omitzero"`
	ClearedReason string    `json:"cleared_reason,omitempty"`
	// JPEG is the frame; nil during its encoding and when it is too old. Clients do not get it.
	JPEG []byte `json:"jpeg,omitempty"`

	since time.Time // begin of the frame's age; with a monotonic reading
}

// alertStore stores the latest alerts and their frames.
type alertStore struct {
	mu   sync.Mutex
	list []KeptAlert // oldest first
	past int         // number of alerts of an earlier run, which come first
	keep func(id string, a *KeptAlert)
	news chan struct{} // closed at the next frame; nil while AlertFrame does not wait
}

// take stores an alert or a phase of a stored alert.
func (s *alertStore) take(a alert.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(a.ID)
	if i < 0 {
		if a.Phase != alert.PhaseNew {
			return // deleted
		}
		if len(s.list) == KeptAlerts {
			s.remove(0)
		}
		s.list = append(s.list, KeptAlert{Alert: a, since: a.At})
		s.changed(len(s.list) - 1)
		return
	}
	k := &s.list[i]
	switch a.Phase {
	case alert.PhaseCleared:
		k.Phase, k.ClearedAt, k.ClearedReason = a.Phase, a.At, a.Reason
	case alert.PhaseAcked:
		k.AckedBy = a.AckedBy
	default:
		if k.Phase != alert.PhaseCleared {
			k.Phase = a.Phase
		}
	}
	s.changed(i)
}

// picture stores the frame of an alert, and deletes frames beyond the bounds.
func (s *alertStore) picture(id string, jpeg []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i >= 0 {
		s.list[i].JPEG = jpeg
		s.changed(i)
	}
	s.trim(now)
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

func (s *alertStore) trim(now time.Time) {
	size := 0
	for i, a := range slices.Backward(s.list) {
		size += len(a.JPEG)
		if a.JPEG != nil && (size > alertBytes || now.Sub(a.since) > alertAge) {
			s.list[i].JPEG = nil
			s.changed(i)
		}
	}
}

func (s *alertStore) find(id string) int {
	return slices.IndexFunc(s.list, func(k KeptAlert) bool { return k.ID == id })
}

func (s *alertStore) changed(i int) {
	if s.keep != nil {
		s.keep(s.list[i].ID, &s.list[i])
	}
}

func (s *alertStore) remove(i int) {
	if s.keep != nil {
		s.keep(s.list[i].ID, nil)
	}
	s.list = slices.Delete(s.list, i, i+1)
	if i < s.past {
		s.past--
	}
}

// byFrame returns the frame of an alert of this run.
func (s *alertStore) byFrame(id uint64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim(time.Now())
	for _, a := range s.list[s.past:] {
		if a.FrameID == id && a.JPEG != nil {
			return a.JPEG, true
		}
	}
	return nil, false
}

// Alerts returns the last KeptAlerts alerts, oldest first, without their frames.
func (h *Hub) Alerts() []KeptAlert {
	h.alerts.mu.Lock()
	defer h.alerts.mu.Unlock()
	out := slices.Clone(h.alerts.list)
	for i := range out {
		out[i].JPEG = nil
	}
	return out
}

// encodes bounds the wait for the encoding of a frame.
const encodes = 5 * time.Second

// AlertFrame returns the frame of a stored alert as JPEG; false if there is none. For a new alert it waits for the encoding, which ends
// after the alert is published.
func (h *Hub) AlertFrame(ctx context.Context, id string) ([]byte, bool) {
	for {
		jpeg, news, wait := h.alerts.frame(id, time.Now())
		if wait <= 0 {
			return jpeg, jpeg != nil
		}
		select {
		case <-news:
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, false
		}
	}
}

// frame returns the frame of an alert, or a channel to wait on and for how long.
func (s *alertStore) frame(id string, now time.Time) (jpeg []byte, news <-chan struct{}, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim(now)
	i := s.find(id)
	if i < 0 || s.list[i].JPEG != nil || i < s.past || s.list[i].FrameID == 0 {
		if i >= 0 {
			jpeg = s.list[i].JPEG
		}
		return jpeg, nil, 0
	}
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return nil, s.news, s.list[i].At.Add(encodes).Sub(now)
}

// DeleteAlert deletes an alert and its frame. It returns false if the alert is not stored.
func (h *Hub) DeleteAlert(id string) bool {
	h.alerts.mu.Lock()
	defer h.alerts.mu.Unlock()
	i := h.alerts.find(id)
	if i >= 0 {
		h.alerts.remove(i)
	}
	return i >= 0
}

// KeepAlerts restores the alerts of an earlier run, and calls keep for each alert that changes, with nil for a deleted one. keep
// must neither block nor retain the pointer. Call it before the first alert.
func (h *Hub) KeepAlerts(past []KeptAlert, keep func(id string, a *KeptAlert), now time.Time) {
	h.alerts.mu.Lock()
	defer h.alerts.mu.Unlock()
	slices.SortStableFunc(past, func(a, b KeptAlert) int { return a.At.Compare(b.At) })
	for i := range past {
		past[i].since = now.Add(min(0, past[i].At.Sub(now))) // its age now counts: the wall clock may be set later, or was fast
	}
	h.alerts.list, h.alerts.keep = past, keep
	h.alerts.past = len(past)
	for len(h.alerts.list) > KeptAlerts {
		h.alerts.remove(0)
	}
	h.alerts.trim(now)
}
