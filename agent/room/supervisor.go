package room

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/room/publish"
	"touchline/agent/room/watch"
	"touchline/internal/rescue"
	"touchline/media"
)

// Options configure a Supervisor.
type Options struct {
	// URL of the LiveKit server: ws://, wss://, http:// or https://.
	URL string
	// Keys mint a fresh token for each join, and encrypt.
	Keys conn.Keys
	// Token is a ready access token, instead of Keys, Room, Identity and Name.
	Token string
	// Room, Identity and Name of the bot.
	Room, Identity, Name string
	// Watch chooses the track; it can be changed later by Watcher.Select.
	Watch media.WatchConfig
	// Relay requests the highest layer for the delayed copy; without it, only LongSide is requested.
	Relay bool
	// LoopbackOnly keeps this process's media sockets on 127.0.0.1. Otherwise the client library opens one on every address
	// of the machine. Only for a server with media on 127.0.0.1, like agent/sfu's.
	LoopbackOnly bool
	// LongSide is the longer edge of the engine's pictures, in pixels.
	LongSide int
	// Sound receives the sound of the watched participant; nil does not subscribe to it.
	Sound watch.SoundSink
	// Microphones receives the microphones of people in the room; nil does not subscribe to them.
	Microphones watch.Microphones
	// ReconnectDelay is the first wait of an outage. It doubles with each attempt, up to 2 s in the first three minutes and up
	// to MaxReconnectDelay after them. 100 ms and 15 s when 0. Each wait is a random time between half of that and all of it.
	ReconnectDelay, MaxReconnectDelay time.Duration
	// Replaced is set for a bot that other workers may replace. See conn.Options.
	Replaced func(ctx context.Context, sid string) (bool, error)
	// OnSource receives the changes of the watched track: reason is "watching", "gone", "muted", "silent" (the
	// camera sends nothing, though nothing is wrong with the connection) or "back". It must not block. May be nil.
	OnSource func(source agent.SourceInfo, reason string)
	// OnOutage receives the reason why the connection to the room is lost before each retry. It must not block. May be nil.
	OnOutage func(err error)
	// OnCrash receives a panic that ends Run, before the bot leaves the room. It may take a moment. May be nil.
	OnCrash func(err error)
	// Control answers control messages from the room. It must not belong to another Supervisor. May be nil.
	Control *control.Control
	// Hooks are called for each connection, in this order.
	Hooks []Hooks
	// Log receives the log of the room and of the LiveKit client.
	Log zerolog.Logger
}

// Hooks are callbacks for the life of each connection. Any field may be nil. None may block.
type Hooks struct {
	// Created is called with each new Room before it joins, to register RPC methods and stream handlers.
	Created func(room *lksdk.Room)
	// Joined is called after the join, when the voice is published.
	Joined func(room *lksdk.Room)
	// Reconnected is called after a reconnect of the library, which keeps the Room.
	Reconnected func(room *lksdk.Room)
	// Left is called after the end of the Room.
	Left func(room *lksdk.Room)
	// Data is called for every data packet of other participants.
	Data func(packet lksdk.DataPacket, from lksdk.DataReceiveParams)
}

// Supervisor keeps the bot in one room. All methods except Run may be called at any time, even before and between connections.
type Supervisor struct {
	opts     Options
	identity string
	may      conn.ReadyToken // the rights of the bot's token
	conn     *conn.Connection
	follower *watch.Follower
	relay    *publish.Relay
	voice    *publish.VoiceTrack
	sound    *publish.SoundTrack
	state    *stateAttribute
	// encrypted is set for a room with a key of end-to-end encryption.
	encrypted bool

	hooks []Hooks
	ended chan struct{} // closed when Run has ended

	reconnects atomic.Int64

	removals           conn.WarnLimiter // of refused ones; used by endRights only
	removed, unremoved atomic.Uint64
}

// New checks the options. It does not connect.
func New(opts Options) (*Supervisor, error) {
	if opts.URL == "" {
		return nil, errors.New("the LiveKit server's URL (ws://HOST:PORT) is missing; set LIVEKIT_URL")
	}
	if opts.ReconnectDelay < 0 || opts.MaxReconnectDelay < 0 {
		return nil, fmt.Errorf("the reconnect delays must not be negative, are %v and %v", opts.ReconnectDelay, opts.MaxReconnectDelay)
	}
	s := &Supervisor{
		opts: opts, identity: opts.Identity,
		state: newStateAttribute(time.Now()),
		ended: make(chan struct{}), removals: conn.WarnLimiter{Every: removeWarnEvery},
	}
	token, err := s.tokens()
	if err != nil {
		return nil, err
	}
	s.follower = watch.New(watch.Options{
		Identity: s.identity, MayWatch: s.may.Watch, Watch: opts.Watch, Relay: opts.Relay, LongSide: opts.LongSide, Sound: opts.Sound,
		Microphones: opts.Microphones, Instructs: s.instructs, Link: s.link, OnSource: opts.OnSource,
		Wake: s.wakeUp, Fail: s.Fail, Log: opts.Log,
	})
	encryption, err := conn.NewEncryption(opts.Keys.E2EE, s.RoomName())
	if err != nil {
		return nil, err
	}
	s.encrypted = encryption != nil
	loopback := opts.LoopbackOnly
	if loopback && !s.may.OwnAttributes {
		loopback = false
		opts.Log.Warn().Msg("media sockets not kept on loopback: the token may not set attributes")
	}
	s.voice, s.sound = publish.NewVoice(encryption, opts.Log), publish.NewSound(encryption, opts.Log, s.wakeUp)
	s.relay = publish.NewRelay(s.wakeUp, func() { s.conn.Guarded(s.Watcher().RequestKeyFrame)() }, s.ended, encryption, opts.Log)
	s.hooks = slices.Clone(opts.Hooks)
	s.conn = conn.New(conn.Options{
		Log: opts.Log, URL: opts.URL, Token: token, Expires: s.may.Expires, Callbacks: s, OnOutage: opts.OnOutage, Loopback: loopback,
		Replaced: opts.Replaced, Encryption: encryption,
		First: opts.ReconnectDelay, Most: opts.MaxReconnectDelay, OnCrash: opts.OnCrash,
	})
	if opts.Control != nil {
		opts.Control.Attach(s)
		s.hooks = append(s.hooks, Hooks{Created: opts.Control.Register, Data: opts.Control.Data})
	}
	if s.may.OwnAttributes { // the server refuses a join that sets them without the right
		s.conn.Attributes = func() map[string]string { return s.state.attributes(time.Now()) }
	}
	conn.SetLibraryLogger(opts.Log)
	return s, nil
}

// tokens returns the source of the tokens to join with, and sets identity and rights.
func (s *Supervisor) tokens() (func() (string, error), error) {
	opts := &s.opts
	if opts.Token == "" {
		s.may = conn.ReadyToken{OwnAttributes: true, Watch: true, Voice: true, Picture: true, Sound: true, Agent: true}
		token := func() (string, error) {
			return conn.AgentToken(opts.Keys, conn.Person{Room: opts.Room, Identity: opts.Identity, Name: opts.Name})
		}
		_, err := token()
		return token, err
	}
	ready, err := conn.ReadToken(opts.Token)
	if err != nil {
		return nil, err
	}
	s.identity, s.may = ready.Identity, ready
	if len(ready.Lost) > 0 {
		opts.Log.Warn().Strs("lost", ready.Lost).Msg("token lacks permissions")
	}
	return func() (string, error) { return opts.Token, nil }, nil
}

// Run keeps the bot in the room until ctx ends (nil) or a retry cannot help:
// ErrReplaced, ErrRemoved, ErrRefused.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.ended)
	ctx, cancel := context.WithCancel(ctx)
	var removing sync.WaitGroup
	removing.Go(func() { s.endRights(ctx) })
	defer removing.Wait()
	defer cancel()
	if err := s.conn.Run(ctx); err != nil {
		return fmt.Errorf("stay in the room: %w", err)
	}
	return nil
}

// Watcher returns the watched track.
func (s *Supervisor) Watcher() *watch.Watcher { return s.follower.Watcher() }

// Relay returns the output of the delayed picture.
func (s *Supervisor) Relay() *publish.Relay { return s.relay }

// Voice returns the output of the voice.
func (s *Supervisor) Voice() *publish.VoiceTrack { return s.voice }

// Sound returns the output of the camera's sound.
func (s *Supervisor) Sound() *publish.SoundTrack { return s.sound }

// Identity returns the bot's identity, from a ready token if there is one.
func (s *Supervisor) Identity() string { return s.identity }

// RoomName returns the name of the room, from a ready token if there is one.
func (s *Supervisor) RoomName() string {
	if s.may.Room != "" {
		return s.may.Room
	}
	return s.opts.Room
}

// CurrentRoom returns the present connection, nil between connections. Do not keep it.
func (s *Supervisor) CurrentRoom() *lksdk.Room { return s.conn.Room() }

// Joins returns the number of joins since the start.
func (s *Supervisor) Joins() int64 { return s.conn.Joins() }

// VoiceSID returns the present id of the voice track, "" while it is not published.
func (s *Supervisor) VoiceSID() string { return s.voice.SID() }

// VideoSID returns the present id of the delayed picture, "" while it is not published.
func (s *Supervisor) VideoSID() string { return s.relay.SID() }

// Viewers returns the number of participants that can see the delayed copy, without agents, participants that may not subscribe,
// and the watched camera.
func (s *Supervisor) Viewers() int { return s.follower.Viewers() }

// StayOut disables reconnecting: Run returns when the present connection ends. A
// bot that is about to leave must not reopen a room that was deleted meanwhile.
func (s *Supervisor) StayOut() { s.conn.StayOut() }

// Transcribes reports whether the server lets the bot send text in the name of others.
func (s *Supervisor) Transcribes() bool { return s.may.Agent }

// Encrypted reports whether everything that the bot publishes is end-to-end encrypted.
func (s *Supervisor) Encrypted() bool { return s.encrypted }

// Fail ends Run with the panic of a callback.
func (s *Supervisor) Fail(err error) { s.conn.Fail(err) }

// Carries reports whether the room takes the delayed picture in a codec; true without a connection.
func (s *Supervisor) Carries(codec media.Codec) bool { return s.conn.Enables(codec.MimeType()) }

// SetState publishes the state of the bot in the attribute lk.agent.state and,
// with its reason, in the participant's metadata.
func (s *Supervisor) SetState(status agent.Status) {
	s.state.set(status, time.Now())
	s.wakeUp()
}

// callHooks calls one function of each hook that has it.
func (s *Supervisor) callHooks(room *lksdk.Room, of func(h Hooks) func(*lksdk.Room)) {
	for _, h := range s.hooks {
		if f := of(h); f != nil {
			f(room)
		}
	}
}

func (s *Supervisor) wakeUp() { s.conn.Wake() }

// RoomCallback implements conn.Callbacks.
func (s *Supervisor) RoomCallback(ses *conn.Session) *lksdk.RoomCallback {
	cb := lksdk.NewRoomCallback()
	cb.OnParticipantConnected = func(*lksdk.RemoteParticipant) {
		s.state.newcomer(time.Now())
		ses.Wake.Set()
	}
	cb.OnParticipantDisconnected = func(*lksdk.RemoteParticipant) { ses.Wake.Set() }
	cb.OnTrackPublished = func(*lksdk.RemoteTrackPublication, *lksdk.RemoteParticipant) { ses.Wake.Set() }
	cb.OnTrackUnpublished = func(*lksdk.RemoteTrackPublication, *lksdk.RemoteParticipant) { ses.Wake.Set() }
	cb.OnTrackMuted = func(lksdk.TrackPublication, lksdk.Participant) { ses.Wake.Set() }
	cb.OnTrackUnmuted = func(lksdk.TrackPublication, lksdk.Participant) { ses.Wake.Set() }
	cb.OnTrackSubscribed = func(t *webrtc.TrackRemote, p *lksdk.RemoteTrackPublication, _ *lksdk.RemoteParticipant) {
		defer rescue.Guard(s.conn.Fail)
		s.follower.Subscribed(ses, t, p)
	}
	cb.OnConnectionQualityChanged = func(update *livekit.ConnectionQualityInfo, p lksdk.Participant) {
		defer rescue.Guard(s.conn.Fail)
		s.follower.Rated(p.Identity(), update.GetQuality(), time.Now())
	}
	cb.OnDataPacket = func(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
		defer rescue.Guard(s.conn.Fail)
		if ses.Over() {
			return
		}
		for _, h := range s.hooks {
			if h.Data != nil {
				h.Data(packet, from)
			}
		}
	}
	return cb
}

// Created implements conn.Callbacks.
func (s *Supervisor) Created(ses *conn.Session) {
	s.callHooks(ses.Room, func(h Hooks) func(*lksdk.Room) { return h.Created })
}

// Joined implements conn.Callbacks.
func (s *Supervisor) Joined(ses *conn.Session) error {
	s.state.forget()
	s.showState(ses, time.Now()) // makes the bot visible at once
	s.state.newcomer(time.Now()) // the bot is new to the participants
	if s.may.Voice {
		if err := s.voice.Publish(ses); err != nil {
			return fmt.Errorf("publish the voice: %w", err)
		}
	}
	s.opts.Log.Info().Str("room", ses.Room.Name()).Str("identity", s.identity).Int64("join", s.Joins()).Msg("joined the room")
	s.callHooks(ses.Room, func(h Hooks) func(*lksdk.Room) { return h.Joined })
	return s.Check(ses, time.Now())
}

// Reconnected implements conn.Callbacks. A full reconnect of the library silently drops subscriptions and attributes, and gives
// published tracks new ids.
func (s *Supervisor) Reconnected(ses *conn.Session) error {
	s.state.forget()
	s.voice.Republished()
	s.sound.Republished()
	s.relay.Republished()
	s.follower.Reconnected(ses)
	s.reconnects.Add(1)
	s.opts.Log.Info().Msg("reconnected")
	s.callHooks(ses.Room, func(h Hooks) func(*lksdk.Room) { return h.Reconnected })
	return nil
}

// Left implements conn.Callbacks.
func (s *Supervisor) Left(ses *conn.Session) {
	s.follower.Left()
	s.voice.Drop()
	s.sound.Drop()
	s.relay.Drop()
	s.callHooks(ses.Room, func(h Hooks) func(*lksdk.Room) { return h.Left })
}

// Check implements conn.Callbacks.
func (s *Supervisor) Check(ses *conn.Session, now time.Time) error {
	s.showState(ses, now)
	if s.opts.Control != nil {
		s.opts.Control.Check(ses.Room)
	}
	sub := s.follower.Follow(ses, now)
	s.follower.Listen(ses, sub, now)
	s.follower.CountViewers(ses, sub)
	if err := s.follower.Watchdog(ses, sub, now); err != nil {
		return err
	}
	s.follower.AskKeyFrames(sub, now)
	if s.may.Picture {
		if err := s.relay.Check(ses, sub.Muted(), now); err != nil {
			return err
		}
	}
	if s.may.Sound {
		if err := s.sound.Ensure(ses); err != nil {
			return err
		}
	}
	switch {
	case s.voice.Lost(now):
		return errors.New("the voice is no longer published")
	case s.sound.Lost(now):
		return errors.New("the camera's sound is no longer published")
	}
	return nil
}

func (s *Supervisor) showState(ses *conn.Session, now time.Time) {
	if !s.may.OwnAttributes {
		return
	}
	n := s.state.due(now, s.relay.Barred())
	if n.attributes != nil {
		ses.Room.LocalParticipant.SetAttributes(n.attributes)
	}
	if n.detail != "" {
		ses.Room.LocalParticipant.SetMetadata(n.detail)
	}
}

// SoundLost returns the number of dropped packets of audio tracks that exceeded the packet rate of sound.
func (s *Supervisor) SoundLost() uint64 { return s.follower.SoundLost() }

// Removals returns the number of participants that were removed from the room because their rights had ended, and of failed removals.
func (s *Supervisor) Removals() (removed, failed uint64) { return s.removed.Load(), s.unremoved.Load() }

// instructs reports whether a participant may instruct the commentator.
func (s *Supervisor) instructs(p *lksdk.RemoteParticipant) bool {
	c := s.opts.Control
	return c != nil && c.Rights(p, time.Now()).Allow(access.Instruct)
}

// link returns the id of the link that a participant joined by; "" for none.
func (s *Supervisor) link(p *lksdk.RemoteParticipant) string {
	if s.opts.Control == nil {
		return ""
	}
	return s.opts.Control.Link(p, time.Now())
}

// Readers lists the participants of room that may read what people say. It returns true if all of them may.
func (s *Supervisor) Readers(room *lksdk.Room) (identities []string, all bool) {
	list := room.GetRemoteParticipants()
	for _, p := range list {
		if c := s.opts.Control; c == nil || c.Reads(p, time.Now()) {
			identities = append(identities, p.Identity())
		}
	}
	return identities, len(identities) == len(list)
}

// Instructors lists the participants of room, which may be nil, that may instruct the commentator.
func (s *Supervisor) Instructors(room *lksdk.Room) (out []string) {
	if room == nil {
		return nil
	}
	for _, p := range room.GetRemoteParticipants() {
		if s.instructs(p) {
			out = append(out, p.Identity())
		}
	}
	return out
}
