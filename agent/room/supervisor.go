package room

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/packet"
)

const (
	// The source is asked for a key frame this often, so that late viewers of the delayed copy see a picture,
	// while somebody looks and while nobody does.
	keyFrameWatched = time.Second
	keyFrameAlone   = 4 * time.Second
	// pliSpacing is the least time between two requests.
	pliSpacing = 500 * time.Millisecond
	// bindGrace is how long a published track may take until packets can be written.
	bindGrace = 5 * time.Second
)

var errStalled = errors.New("the connection brings no packets of the watched track, in spite of a new subscription")

// Options configure a Supervisor.
type Options struct {
	// URL of the LiveKit server: ws://, wss://, http:// or https://.
	URL string
	// Keys mint a fresh token for each join.
	Keys Keys
	// Token is a ready access token, instead of Keys, Room, Identity and Name.
	Token string
	// Room, Identity and Name of the bot.
	Room, Identity, Name string
	// Watch chooses the track; it can be changed later by Watcher.Select.
	Watch media.WatchConfig
	// Relay: the delayed copy will be published, so the highest layer is asked for. Without it only
	// LongSide is.
	Relay bool
	// LoopbackOnly keeps this process's media sockets on 127.0.0.1, where the client library would open one on
	// every address of the machine. Only for a server whose media is on 127.0.0.1 too, like agent/sfu's.
	LoopbackOnly bool
	// LongSide is the longer edge the engine wants, in pixels.
	LongSide int
	// Sound takes the sound of the watched participant; nil does not listen to it.
	Sound SoundSink
	// ReconnectDelay is the first wait of an outage, and doubles with each attempt: up to 2 s in the first three
	// minutes, up to MaxReconnectDelay after them. 100 ms and 15 s when 0. Each wait is between half and all of
	// that at random.
	ReconnectDelay, MaxReconnectDelay time.Duration
	// OnSource is told what happens to the watched track: reason is "watching", "gone", "muted", "silent" (the
	// camera sends nothing, though nothing is wrong with the connection) or "back". It must not block. May be nil.
	OnSource func(source agent.SourceInfo, reason string)
	// OnOutage is told why the bot is out of the room, or hears and reaches nobody in it, and will try again. It must not block. May be nil.
	OnOutage func(err error)
	// OnCrash is told of a panic that ends Run, while the bot is still in the room. It may take a moment. May be nil.
	OnCrash func(err error)
	// Control answers control messages from the room, and may belong to this Supervisor alone. May be nil.
	Control *Control
	// Hooks are called for each connection, in this order.
	Hooks []Hooks
	// Log takes what happens; the LiveKit client's own warnings go to the first Supervisor's.
	Log zerolog.Logger
}

// Hooks are callbacks for the life of each connection. Any field may be nil. None may block.
type Hooks struct {
	// Created is called with each new Room before it joins, to register RPC methods and stream handlers.
	Created func(room *lksdk.Room)
	// Joined is called when it is in and the voice is published.
	Joined func(room *lksdk.Room)
	// Mended is called when the connection has mended itself, which is not a new Room.
	Mended func(room *lksdk.Room)
	// Left is called when it is of no more use.
	Left func(room *lksdk.Room)
	// Data is called for every data packet of other participants.
	Data func(packet lksdk.DataPacket, from lksdk.DataReceiveParams)
}

// Supervisor keeps the bot in one room. New, then Run; everything else may be
// called at any time, also before and between connections.
type Supervisor struct {
	opts     Options
	identity string
	may      ReadyToken // what our token allows
	keeper   *keeper
	watcher  *Watcher
	relay    *Relay
	voice    VoiceTrack
	sound    SoundTrack
	board    *stateBoard

	hooks []Hooks
	ended chan struct{} // closed when Run has ended

	viewers  atomic.Int64
	mendings atomic.Int64
	visit    atomic.Pointer[visit]

	// Only the keeper's goroutine touches these.
	seen      map[string]uint64 // order of first sight, by track SID
	sights    uint64
	nextPLI   time.Time
	lastPLI   time.Time
	stall     stall // of the watched track
	pulse     pulse
	publishAt time.Time
	muted     bool

	// rating is the newest of the watched participant.
	rating atomic.Pointer[rating]

	// ear is the subscription to the sound; only the keeper's goroutine changes it.
	ear atomic.Pointer[hearing]

	// subMu guards sub: subscriptions are made by the keeper and completed by the library.
	subMu sync.Mutex
	sub   *subscription
}

// rating is what the server thinks of somebody's connection.
type rating struct {
	identity string
	quality  livekit.ConnectionQuality
	at       time.Time
}

// subscription is the track that is watched now.
type subscription struct {
	visit  *visit
	pub    *lksdk.RemoteTrackPublication
	who    *lksdk.RemoteParticipant
	sid    string
	again  time.Time // when to subscribe again; zero when not pending
	reader *trackReader
}

// New checks the options. It does not connect.
func New(opts Options) (*Supervisor, error) {
	if opts.URL == "" {
		return nil, errors.New("expected the LiveKit server's URL (ws://HOST:PORT), got none; set LIVEKIT_URL")
	}
	if opts.ReconnectDelay < 0 || opts.MaxReconnectDelay < 0 {
		return nil, fmt.Errorf("expected waits between attempts to join of 0 or more, got %v and %v",
			opts.ReconnectDelay, opts.MaxReconnectDelay)
	}
	s := &Supervisor{
		opts: opts, identity: opts.Identity,
		watcher: newWatcher(opts.Watch, opts.Log),
		board:   newStateBoard(time.Now()),
		seen:    map[string]uint64{},
		ended:   make(chan struct{}),
	}
	token := func() (string, error) {
		return AgentToken(opts.Keys, Person{Room: opts.Room, Identity: opts.Identity, Name: opts.Name})
	}
	s.may = ReadyToken{OwnAttributes: true, Watch: true, Voice: true, Picture: true, Sound: true}
	if opts.Token != "" {
		ready, err := ReadToken(opts.Token)
		if err != nil {
			return nil, err
		}
		s.identity, s.may = ready.Identity, ready
		if !ready.OwnAttributes && opts.LoopbackOnly {
			opts.LoopbackOnly = false
			opts.Log.Warn().Msg("the ready token may not set attributes, so the media sockets cannot be kept on loopback")
		}
		if len(ready.Lost) > 0 {
			opts.Log.Warn().Strs("lost", ready.Lost).Msg("the ready token lacks something; joining with it all the same")
		}
		token = func() (string, error) { return opts.Token, nil }
	} else if _, err := token(); err != nil {
		return nil, err
	}
	s.voice.log, s.sound.log = opts.Log, opts.Log
	s.sound.name, s.sound.stream, s.sound.source = soundName, streamName, livekit.TrackSource_SCREEN_SHARE_AUDIO
	s.sound.wake = s.poke
	s.relay = &Relay{
		log:         opts.Log,
		rewriter:    packet.NewRewriter(uint16(rand.Uint32()), rand.Uint32()),
		wake:        s.poke,
		ended:       s.ended,
		step:        time.NewTimer(0),
		askKeyFrame: func() { s.keeper.guarded(s.watcher.RequestKeyFrame)() },
		needKey:     true,
	}
	s.watcher.setWake(s.poke)
	s.hooks = slices.Clone(opts.Hooks)
	s.keeper = &keeper{
		log: opts.Log, url: opts.URL, token: token, guest: s, onOutage: opts.OnOutage, loopback: opts.LoopbackOnly,
		first: opts.ReconnectDelay, most: opts.MaxReconnectDelay, onCrash: opts.OnCrash, crashed: make(chan error, 1),
	}
	if opts.Control != nil {
		s.hooks = append(s.hooks, opts.Control.attach(s))
	}
	if s.may.OwnAttributes { // the server refuses a join that sets them without the right
		s.keeper.attributes = func() map[string]string { return s.board.attributes(time.Now()) }
	}
	setLibraryLogger(opts.Log)
	return s, nil
}

// Run keeps the bot in the room until ctx ends (nil) or coming back makes no
// sense: ErrReplaced, ErrRemoved, ErrRefused.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.ended)
	if err := s.keeper.run(ctx); err != nil {
		return fmt.Errorf("stay in the room: %w", err)
	}
	return nil
}

// Watcher is the watched track.
func (s *Supervisor) Watcher() *Watcher { return s.watcher }

// Relay is the delayed picture's way out.
func (s *Supervisor) Relay() *Relay { return s.relay }

// Voice is the voice's way out.
func (s *Supervisor) Voice() *VoiceTrack { return &s.voice }

// Sound is the way out of the camera's sound.
func (s *Supervisor) Sound() *SoundTrack { return &s.sound }

// Identity is the bot's own, also when it came with a ready token.
func (s *Supervisor) Identity() string { return s.identity }

// RoomName is the room that the bot joins, also when a ready token chose it.
func (s *Supervisor) RoomName() string {
	if s.may.Room != "" {
		return s.may.Room
	}
	return s.opts.Room
}

// CurrentRoom is the present connection, nil while there is none. It must not be kept.
func (s *Supervisor) CurrentRoom() *lksdk.Room { return s.keeper.room.Load() }

// Joins is how often the bot joined since the start.
func (s *Supervisor) Joins() int64 { return s.keeper.visits.Load() }

// Mendings is how often the client library repaired a connection by itself since the start.
func (s *Supervisor) Mendings() int64 { return s.mendings.Load() }

// VoiceSID is the voice track's present id, VideoSID the delayed picture's; "" while not published.
func (s *Supervisor) VoiceSID() string { return s.voice.SID() }

// VideoSID is the delayed picture's present id, "" while not published.
func (s *Supervisor) VideoSID() string { return s.relay.SID() }

// Viewers is how many people are in the room who can see the delayed copy:
// not agents, not senders that may not subscribe, not the watched camera.
func (s *Supervisor) Viewers() int { return int(s.viewers.Load()) }

// StayOut makes the present connection the last one: when it ends, Run does,
// instead of coming back. A bot that is about to leave must not open again a
// room that was deleted under it.
func (s *Supervisor) StayOut() { s.keeper.last.Store(true) }

// SetState shows what the bot does: in the attribute lk.agent.state and, with
// its reason, in the participant's metadata.
func (s *Supervisor) SetState(status agent.Status) {
	s.board.set(status, time.Now())
	s.poke()
}

func (s *Supervisor) eachHook(f func(h Hooks)) {
	for _, h := range s.hooks {
		f(h)
	}
}

func (s *Supervisor) poke() {
	if v := s.visit.Load(); v != nil {
		v.poke()
	}
}

// callbacks implements guest.
func (s *Supervisor) callbacks(v *visit) *lksdk.RoomCallback {
	cb := lksdk.NewRoomCallback()
	cb.OnParticipantConnected = func(*lksdk.RemoteParticipant) {
		s.board.newcomer(time.Now())
		v.poke()
	}
	cb.OnParticipantDisconnected = func(*lksdk.RemoteParticipant) { v.poke() }
	cb.OnTrackPublished = func(*lksdk.RemoteTrackPublication, *lksdk.RemoteParticipant) { v.poke() }
	cb.OnTrackUnpublished = func(*lksdk.RemoteTrackPublication, *lksdk.RemoteParticipant) { v.poke() }
	cb.OnTrackMuted = func(lksdk.TrackPublication, lksdk.Participant) { v.poke() }
	cb.OnTrackUnmuted = func(lksdk.TrackPublication, lksdk.Participant) { v.poke() }
	cb.OnTrackSubscribed = func(t *webrtc.TrackRemote, p *lksdk.RemoteTrackPublication, _ *lksdk.RemoteParticipant) {
		defer rescue.Guard(s.keeper.fail)
		if h := s.ear.Load(); h != nil && h.visit == v && h.sid == p.SID() {
			h.start(t, s.opts.Sound, s.keeper.fail, s.opts.Log)
			return
		}
		s.subscribed(v, t, p)
	}
	cb.OnConnectionQualityChanged = func(update *livekit.ConnectionQualityInfo, p lksdk.Participant) {
		defer rescue.Guard(s.keeper.fail)
		if identity := p.Identity(); identity == s.watcher.Source().Identity {
			s.rating.Store(&rating{identity: identity, quality: update.GetQuality(), at: time.Now()})
		}
	}
	cb.OnDataPacket = func(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
		defer rescue.Guard(s.keeper.fail)
		if v.over.Load() {
			return
		}
		s.eachHook(func(h Hooks) {
			if h.Data != nil {
				h.Data(packet, from)
			}
		})
	}
	return cb
}

// created implements guest.
func (s *Supervisor) created(v *visit) {
	s.eachHook(func(h Hooks) {
		if h.Created != nil {
			h.Created(v.room)
		}
	})
}

// joined implements guest.
func (s *Supervisor) joined(v *visit) error {
	s.visit.Store(v)
	s.board.forget()
	s.publishAt = time.Now()
	s.showState(v, time.Now())    // makes us visible at once
	s.board.newcomer(s.publishAt) // to those who are there we are new
	if s.may.Voice {
		if err := s.voice.publish(v); err != nil {
			return fmt.Errorf("publish the voice: %w", err)
		}
	}
	s.opts.Log.Info().Str("room", v.room.Name()).Str("identity", s.identity).Int64("join", s.Joins()).Msg("in the room")
	s.eachHook(func(h Hooks) {
		if h.Joined != nil {
			h.Joined(v.room)
		}
	})
	return s.check(v, time.Now())
}

// mended implements guest: after a full reconnect the library has silently
// forgotten subscriptions and attributes, and given our tracks new ids.
func (s *Supervisor) mended(v *visit) error {
	s.board.forget()
	s.publishAt = time.Now()
	s.sound.at = s.publishAt
	if h := s.ear.Load(); h != nil {
		h.since = s.publishAt
		h.subscribe(s.opts.Log)
	}
	s.subMu.Lock()
	sub := s.sub
	s.subMu.Unlock()
	if sub != nil {
		s.stall.begin(time.Now())
		// A full reconnect made new objects; check subscribes to those.
		if _, pubs := s.candidates(v); pubs[sub.sid] != nil && pubs[sub.sid].pub == sub.pub {
			s.subscribe(sub)
		}
	}
	s.watcher.RequestKeyFrame()
	s.mendings.Add(1)
	s.opts.Log.Info().Msg("the connection mended itself")
	s.eachHook(func(h Hooks) {
		if h.Mended != nil {
			h.Mended(v.room)
		}
	})
	return nil
}

// left implements guest.
func (s *Supervisor) left(v *visit) {
	s.visit.CompareAndSwap(v, nil)
	s.unhear()
	s.unwatch()
	s.voice.drop()
	s.sound.drop()
	s.relay.picture.drop()
	s.viewers.Store(0)
	s.eachHook(func(h Hooks) {
		if h.Left != nil {
			h.Left(v.room)
		}
	})
}

// check implements guest.
func (s *Supervisor) check(v *visit, now time.Time) error {
	s.showState(v, now)
	if s.opts.Control != nil {
		s.opts.Control.gate.check(v.room)
	}
	sub := s.follow(v, now)
	s.listen(v, sub, now)
	s.countViewers(v, sub)
	if err := s.watchdog(v, sub, now); err != nil {
		return err
	}
	s.askKeyFrames(sub, now)
	if s.may.Picture {
		if err := s.relay.check(v, sub != nil && sub.pub.IsMuted(), now); err != nil {
			return err
		}
	}
	if s.may.Sound {
		if err := s.sound.check(v, now); err != nil {
			return err
		}
	}
	return s.checkOwn(now)
}

func (s *Supervisor) showState(v *visit, now time.Time) {
	if !s.may.OwnAttributes {
		return
	}
	n := s.board.due(now)
	if n.word != "" {
		v.room.LocalParticipant.SetAttributes(map[string]string{stateAttribute: n.word})
	}
	if n.detail != "" {
		v.room.LocalParticipant.SetMetadata(n.detail)
	}
}

// checkOwn makes sure that what we publish is published.
func (s *Supervisor) checkOwn(now time.Time) error {
	if now.Sub(s.publishAt) < bindGrace {
		return nil
	}
	if s.may.Voice && (!s.voice.bound() || s.voice.SID() == "") {
		return errors.New("the voice is not published any more")
	}
	track, room, at := s.relay.picture.published()
	if track != nil && now.Sub(at) >= bindGrace && (!track.IsBound() || trackSID(room, track) == "") {
		return errors.New("the delayed picture is not published any more")
	}
	return nil
}

// candidates lists the video tracks of the others.
func (s *Supervisor) candidates(v *visit) (list []candidate, pubs map[string]*subscription) {
	pubs = map[string]*subscription{}
	for _, p := range v.room.GetRemoteParticipants() {
		if p.Identity() == s.identity {
			continue
		}
		for _, tp := range p.TrackPublications() {
			pub, ok := tp.(*lksdk.RemoteTrackPublication)
			if !ok || pub.Kind() != lksdk.TrackKindVideo || pub.SID() == "" {
				continue
			}
			sid := pub.SID()
			if s.seen[sid] == 0 {
				s.sights++
				s.seen[sid] = s.sights
			}
			list = append(list, candidate{
				identity: p.Identity(), name: p.Name(), agent: p.Kind() == lksdk.ParticipantAgent,
				source: pub.Source(), sid: sid, muted: pub.IsMuted(), order: s.seen[sid],
			})
			pubs[sid] = &subscription{visit: v, pub: pub, who: p, sid: sid}
		}
	}
	for sid := range s.seen {
		if pubs[sid] == nil {
			delete(s.seen, sid)
		}
	}
	return list, pubs
}

// follow chooses the track and subscribes to it.
func (s *Supervisor) follow(v *visit, now time.Time) *subscription {
	if !s.may.Watch {
		return nil
	}
	list, pubs := s.candidates(v)
	s.subMu.Lock()
	sub := s.sub
	s.subMu.Unlock()
	present := ""
	if sub != nil {
		present = sub.sid
	}
	picked, ok := choose(list, s.watcher.Watching(), present)
	s.watcher.look(list, away(v.room.GetRemoteParticipants(), s.watcher.Watching().Identity, picked.identity))
	if !ok {
		if sub != nil {
			s.unwatch()
		}
		return nil
	}
	next := pubs[picked.sid]
	switch {
	case sub == nil:
	case sub.pub == next.pub:
		s.mute(sub, now)
		return sub
	case sub.sid == next.sid:
		s.renew(sub, next, now)
		s.mute(next, now)
		return next
	default:
		s.unwatch()
	}
	s.subMu.Lock()
	s.sub = next
	s.subMu.Unlock()
	s.muted = next.pub.IsMuted()
	s.stall.begin(now)
	info := s.watcher.setInfo(func(info *agent.SourceInfo) {
		*info = agent.SourceInfo{Identity: picked.identity, Track: picked.sid, Muted: s.muted}
		if ti := next.pub.TrackInfo(); ti != nil {
			info.Width, info.Height = int(ti.GetWidth()), int(ti.GetHeight())
			if codec, err := media.ParseCodec(next.pub.MimeType()); err == nil {
				info.Codec = codec.String()
			}
		}
	})
	s.opts.Log.Info().Str("participant", picked.identity).Str("track", picked.sid).Str("codec", info.Codec).
		Msg("watching")
	s.subscribe(next)
	s.tell(info, "watching")
	return next
}

// renew takes up the same track under the new objects that a full reconnect
// of the library made. Nobody needs to be told: for them the picture paused.
func (s *Supervisor) renew(old, next *subscription, now time.Time) {
	s.stall.begin(now)
	s.subMu.Lock()
	s.sub = next
	reader := old.reader
	s.subMu.Unlock()
	if reader != nil {
		reader.stop()
	}
	s.subscribe(next)
}

// mute follows the source's mute.
func (s *Supervisor) mute(sub *subscription, now time.Time) {
	muted := sub.pub.IsMuted()
	if muted == s.muted {
		return
	}
	s.muted = muted
	s.stall.begin(now)
	info := s.watcher.setInfo(func(info *agent.SourceInfo) { info.Muted = muted })
	if muted {
		s.tell(info, "muted")
		return
	}
	s.watcher.RequestKeyFrame()
	s.tell(info, "back")
}

func (s *Supervisor) tell(info agent.SourceInfo, reason string) {
	if s.opts.OnSource != nil {
		s.opts.OnSource(info, reason)
	}
}

// unwatch ends the present subscription.
func (s *Supervisor) unwatch() {
	s.subMu.Lock()
	sub := s.sub
	s.sub = nil
	var reader *trackReader
	if sub != nil {
		reader = sub.reader
	}
	s.subMu.Unlock()
	if sub == nil {
		return
	}
	if !sub.visit.over.Load() {
		_ = sub.pub.SetSubscribed(false) // fails when the connection is gone, and then it does not matter
	}
	if reader != nil {
		reader.stop()
	}
	s.watcher.setSilent("")
	var was agent.SourceInfo
	s.watcher.setInfo(func(info *agent.SourceInfo) { was, *info = *info, agent.SourceInfo{} })
	s.tell(was, "gone")
}

// subscribe asks for the track, and for the layer that is needed.
func (s *Supervisor) subscribe(sub *subscription) {
	if err := sub.pub.SetSubscribed(true); err != nil {
		s.opts.Log.Warn().Err(err).Msg("subscribe to the watched track")
	}
	s.pin(sub)
}

// pin asks for one simulcast layer. A subscription forgets it, so it is asked for again after each.
func (s *Supervisor) pin(sub *subscription) {
	if s.opts.Relay || s.opts.LongSide <= 0 {
		if err := sub.pub.SetVideoQuality(livekit.VideoQuality_HIGH); err != nil {
			s.opts.Log.Warn().Err(err).Msg("ask for the highest layer")
		}
		return
	}
	w, h := uint32(s.opts.LongSide), uint32(s.opts.LongSide)*9/16
	if ti := sub.pub.TrackInfo(); ti.GetWidth() > 0 && ti.GetHeight() > 0 {
		if ti.GetWidth() >= ti.GetHeight() {
			h = w * ti.GetHeight() / ti.GetWidth()
		} else {
			w, h = w*ti.GetWidth()/ti.GetHeight(), w
		}
	}
	sub.pub.SetVideoDimensions(w, h)
}

// subscribed is called by the library when packets of a track begin to come.
func (s *Supervisor) subscribed(v *visit, track *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication) {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	sub := s.sub
	if v.over.Load() || sub == nil || sub.visit != v || sub.sid != pub.SID() {
		return
	}
	if sub.reader != nil {
		sub.reader.cancel() // ends by itself; the new one has taken its place already
	}
	reader := startReader(s.watcher, track, s.keeper.fail, s.opts.Log)
	pub.OnRTCP(reader.rtcp)
	sub.reader = reader
	s.watcher.RequestKeyFrame()
	v.poke()
}

// countViewers counts the people who can see our copy.
func (s *Supervisor) countViewers(v *visit, sub *subscription) {
	n := 0
	for _, p := range v.room.GetRemoteParticipants() {
		if p.Kind() == lksdk.ParticipantAgent || p.Kind() == lksdk.ParticipantIngress {
			continue
		}
		if permission := p.Permissions(); permission != nil && !permission.GetCanSubscribe() {
			continue
		}
		if sub != nil && p.Identity() == sub.who.Identity() {
			continue
		}
		n++
	}
	s.viewers.Store(int64(n))
}

// askKeyFrames sends the requests that are due.
func (s *Supervisor) askKeyFrames(sub *subscription, now time.Time) {
	if sub == nil || sub.pub.IsMuted() {
		return
	}
	s.subMu.Lock()
	reader := sub.reader
	s.subMu.Unlock()
	if reader == nil || reader.ended.Load() {
		return
	}
	every := keyFrameAlone
	if s.opts.Relay && s.Viewers() > 0 {
		every = keyFrameWatched
	}
	if s.nextPLI.After(s.lastPLI.Add(every)) {
		s.nextPLI = s.lastPLI.Add(every) // somebody came
	}
	wanted := s.watcher.keyWanted.Load()
	if (wanted && now.Sub(s.lastPLI) >= pliSpacing) || !now.Before(s.nextPLI) {
		s.watcher.keyWanted.Store(false)
		s.lastPLI, s.nextPLI = now, now.Add(every)
		s.watcher.plis.Add(1)
		sub.who.WritePLI(reader.track.SSRC())
	}
}

// watchdog acts when a track that should flow does not, whatever the library says about its state.
func (s *Supervisor) watchdog(v *visit, sub *subscription, now time.Time) error {
	if sub == nil {
		return nil
	}
	if sub.pub.IsMuted() || s.watcher.declared() != "" {
		// Its participant says itself that the camera is away: nothing is wrong with the track.
		s.stall.begin(now)
		s.silence("")
		return nil
	}
	if !sub.again.IsZero() {
		if !now.Before(sub.again) {
			sub.again = time.Time{}
			s.subscribe(sub)
		}
		return nil
	}
	e := s.signs(v, sub, now)
	do := s.stall.next(now, e)
	s.silence(s.stall.words(e))
	switch do {
	case cureNone:
	case cureAsk:
		s.watcher.RequestKeyFrame()
	case cureResubscribe:
		s.opts.Log.Warn().Float64("silent_s", now.Sub(e.media).Seconds()).Msg("track stalled; subscribing again")
		_ = sub.pub.SetSubscribed(false)
		sub.again = now.Add(resubscribePause)
	case cureRejoin:
		return errStalled
	}
	return nil
}

// signs looks at the watched track and at what it comes over.
func (s *Supervisor) signs(v *visit, sub *subscription, now time.Time) signs {
	e := signs{media: s.stall.since, pulse: now}
	s.subMu.Lock()
	reader := sub.reader
	s.subMu.Unlock()
	if reader != nil {
		e.padding = reader.began
		from := e.media
		if again := s.stall.repeated; !again.IsZero() && reader.began.Before(again) {
			from = again.Add(lastBlank)
		}
		if at := reader.lastPacket(); at.After(from) {
			e.media = at
		}
	}
	if now.Sub(e.media) > stallAsk/2 {
		e.pulse = s.pulse.feel(v.room, now)
	}
	if r := s.rating.Load(); r != nil && r.identity == sub.who.Identity() {
		e.rating, e.heard = r.quality, r.at
	}
	return e
}

// silence notes why the camera is silent; "" when it is not.
func (s *Supervisor) silence(words string) {
	was := s.watcher.setSilent(words)
	switch info := s.watcher.Source(); {
	case was == "" && words != "":
		s.opts.Log.Warn().Str("participant", info.Identity).Str("why", words).Msg("the watched camera is silent; the connection is well")
		s.tell(info, "silent")
	case was != "" && words == "":
		s.opts.Log.Info().Str("participant", info.Identity).Msg("the camera sends again")
		s.tell(info, "back")
	}
}
