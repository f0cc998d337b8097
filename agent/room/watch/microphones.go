package watch

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/internal/backoff"
	"touchline/internal/limit"
)

// maxMicrophones bounds the subscribed microphones, whatever Microphones choose.
const maxMicrophones = 100

// openRetry and maxOpenRetry bound the first wait, and all waits, before a microphone without a sink is opened again.
const (
	openRetry    = time.Second
	maxOpenRetry = time.Minute
)

// Microphones receives the microphones of people in the room.
type Microphones interface {
	// Choose is called every 100 ms with all available microphones, ordered by identity, even if there are none. It returns the
	// tracks (SIDs) to subscribe to, the most important first. It must not block.
	Choose(all []agent.Microphone, now time.Time) []string
	// Open returns the sink of a microphone, at its first packet. It must not block. If it returns nil, it is called again after a
	// pause.
	Open(m agent.Microphone) MicrophoneSink
}

// MicrophoneSink receives the sound of one microphone. A repeated subscription begins another track.
type MicrophoneSink interface {
	SoundSink
	// Close follows the last packet.
	Close()
}

// listener keeps the subscriptions to audio tracks.
type listener struct {
	mu   sync.Mutex
	subs map[string]*audioSubscription // by SID; only the connection's goroutine changes it

	// ended are the times of recently ended subscriptions, used by the connection's goroutine only.
	ended map[string]time.Time
	lost  atomic.Uint64
}

// of returns the subscription to a track; nil for none.
func (l *listener) of(ses *conn.Session, sid string) *audioSubscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.subs[sid]; h != nil && h.session == ses {
		return h
	}
	return nil
}

// drop ends the subscriptions for which gone is true.
func (l *listener) drop(gone func(h *audioSubscription) bool, now time.Time) {
	for sid, h := range l.subs {
		if !gone(h) {
			continue
		}
		l.mu.Lock()
		delete(l.subs, sid)
		l.mu.Unlock()
		if !h.session.Over() && !h.quit {
			_ = h.pub.SetSubscribed(false) // fails only without a connection
		}
		h.stop()
		l.ended[sid] = now
	}
}

// add makes a subscription. The server needs a pause after the end of an earlier one to the same track.
func (l *listener) add(h *audioSubscription, now time.Time) {
	l.mu.Lock()
	l.subs[h.sid] = h
	l.mu.Unlock()
	if ended, ok := l.ended[h.sid]; ok {
		h.again = ended.Add(resubscribePause)
		return
	}
	h.subscribe(now)
}

// SoundLost returns the number of dropped packets of audio tracks that exceeded the packet rate of sound.
func (s *Follower) SoundLost() uint64 { return s.listening.lost.Load() }

// Listen keeps the subscriptions to the sound of the watched picture and to the chosen microphones.
func (s *Follower) Listen(ses *conn.Session, sub *Subscription, now time.Time) {
	if !s.opts.MayWatch || s.opts.Sound == nil && s.opts.Microphones == nil {
		return
	}
	l := &s.listening
	for sid, at := range l.ended {
		if now.Sub(at) >= resubscribePause {
			delete(l.ended, sid)
		}
	}
	var watched *lksdk.RemoteTrackPublication
	if sub != nil {
		watched = soundOf(sub)
	}
	wanted := map[string]*lksdk.RemoteTrackPublication{}
	camera := ""
	if watched != nil && s.opts.Sound != nil {
		camera = watched.SID()
		wanted[camera] = watched
	}
	microphones := s.chooseMicrophones(ses, watched, wanted, now)
	l.drop(func(h *audioSubscription) bool { return wanted[h.sid] == nil }, now)
	for sid, h := range l.subs {
		if sid != camera {
			h.setSound(nil) // before another track gets the sink
		}
	}
	for sid, pub := range wanted {
		h, known := l.subs[sid], true
		if h == nil {
			h, known = s.newSubscription(ses, pub, now), false
		}
		if sid == camera {
			if s.camera != camera {
				s.opts.Log.Info().Str("participant", sub.who.Identity()).Str("track", sid).Msg("listening to the camera")
			}
			h.setSound(s.opts.Sound)
		}
		if m, ok := microphones[sid]; ok {
			h.setMicrophone(func() MicrophoneSink { return s.opts.Microphones.Open(m) })
		} else {
			h.setMicrophone(nil)
		}
		if known {
			h.check(pub, now)
		} else {
			l.add(h, now)
		}
	}
	s.camera = camera
}

func (s *Follower) newSubscription(ses *conn.Session, pub *lksdk.RemoteTrackPublication, now time.Time) *audioSubscription {
	return &audioSubscription{
		session: ses, sid: pub.SID(), pub: pub, since: now, fail: s.opts.Fail, lost: &s.listening.lost,
		retry: backoff.Backoff{First: openRetry, Max: maxOpenRetry},
		rate:  limit.New[struct{}](soundRate, soundBurst), log: s.opts.Log.With().Str("track", pub.SID()).Logger(),
	}
}

// chooseMicrophones adds the chosen microphones to wanted, and returns them by SID.
func (s *Follower) chooseMicrophones(
	ses *conn.Session, watched *lksdk.RemoteTrackPublication, wanted map[string]*lksdk.RemoteTrackPublication, now time.Time,
) map[string]agent.Microphone {
	if s.opts.Microphones == nil {
		return nil
	}
	all, pubs := s.microphones(ses, watched)
	chosen := map[string]agent.Microphone{}
	for _, sid := range s.opts.Microphones.Choose(slices.Clone(all), now) {
		i := slices.IndexFunc(all, func(m agent.Microphone) bool { return m.Track == sid })
		if i < 0 || len(chosen) >= maxMicrophones {
			continue
		}
		chosen[sid], wanted[sid] = all[i], pubs[sid]
	}
	return chosen
}

// microphones lists the microphones of people, and of devices without LiveKit's client.
func (s *Follower) microphones(
	ses *conn.Session, watched *lksdk.RemoteTrackPublication,
) (all []agent.Microphone, pubs map[string]*lksdk.RemoteTrackPublication) {
	pubs = map[string]*lksdk.RemoteTrackPublication{}
	kinds := []lksdk.ParticipantKind{lksdk.ParticipantStandard, lksdk.ParticipantSIP, lksdk.ParticipantIngress}
	for _, p := range ses.Room.GetRemoteParticipants() {
		if p.Identity() == s.opts.Identity || !slices.Contains(kinds, p.Kind()) {
			continue
		}
		for _, tp := range p.TrackPublications() {
			pub, ok := tp.(*lksdk.RemoteTrackPublication)
			if !ok || pub.Kind() != lksdk.TrackKindAudio || pub.Source() != livekit.TrackSource_MICROPHONE || pub.SID() == "" ||
				ses.Locked(pub.TrackInfo()) != "" {
				continue
			}
			pubs[pub.SID()] = pub
			all = append(all, agent.Microphone{
				Identity: p.Identity(), Name: p.Name(), Track: pub.SID(), Instructs: s.opts.Instructs(p), Link: s.opts.Link(p),
				Watched: pub == watched, Muted: pub.IsMuted(), Level: float64(p.AudioLevel()),
			})
		}
	}
	slices.SortFunc(all, func(a, b agent.Microphone) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Track, b.Track))
	})
	return all, pubs
}

// soundOf finds the sound of a picture: the microphone of a camera's participant, the sound of a shared screen.
func soundOf(sub *Subscription) *lksdk.RemoteTrackPublication {
	want := livekit.TrackSource_MICROPHONE
	if sub.pub.Source() == livekit.TrackSource_SCREEN_SHARE {
		want = livekit.TrackSource_SCREEN_SHARE_AUDIO
	}
	for _, p := range sub.who.TrackPublications() {
		pub, ok := p.(*lksdk.RemoteTrackPublication)
		if ok && pub.Kind() == lksdk.TrackKindAudio && pub.Source() == want && pub.SID() != "" && sub.session.Locked(pub.TrackInfo()) == "" {
			return pub
		}
	}
	return nil
}
