package whep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/packet"
	"touchline/media/signaling"
	"touchline/media/sound"
)

const (
	// streamName is the MediaStream of picture and sound, which players keep in sync.
	streamName = "touchline"
	// channelName of the data channel.
	channelName = "commentary"
	// burst is the number of packets that are sent without a pause of a millisecond.
	burst = 16
	// insist is the time within which a second request for a key frame means that the player waits for it.
	insist = 1200 * time.Millisecond
	// beginEvery is the shortest interval between two replays from the last key frame.
	beginEvery = time.Second
	// maxBuffered bounds the send buffer of a data channel, in bytes; further texts are dropped.
	maxBuffered = 1 << 20
	// maxChannels is how many data channels a session may have, the server's own included.
	maxChannels = 4
)

// session is one player.
type session struct {
	server *Server
	room   *room
	id     string
	offer  *offer
	log    zerolog.Logger
	peer   *signaling.Peer

	over   context.Context //nolint:containedctx // the session's own life
	cancel context.CancelCauseFunc
	done   chan struct{}

	connected chan struct{}
	once      sync.Once
	wants     wake.Signal // the player needs a key frame

	videoSender *webrtc.RTPSender
	video       *webrtc.TrackLocalStaticRTP
	videoCodec  media.Codec
	unbroken    int // packets since the last pause
	audio       *webrtc.TrackLocalStaticRTP

	channels atomic.Int32
	open     chan *webrtc.DataChannel // those named channelName, as they open

	packets atomic.Uint64
	wg      sync.WaitGroup
}

// newSession answers an offer. The session does not run yet.
func (s *Server) newSession(ctx context.Context, o *offer, r *room, from netip.Addr) (*session, error) {
	m, registry, err := o.engines()
	if err != nil {
		return nil, err
	}
	x := &session{
		server: s, room: r, id: signaling.NewID(), offer: o, log: s.opts.Log.With().Str("room", r.name).Logger(),
		done: make(chan struct{}), connected: make(chan struct{}), wants: wake.New(),
		open: make(chan *webrtc.DataChannel, maxChannels),
	}
	x.over, x.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	x.peer, err = port.NewPeer(ctx, signaling.PeerOptions{
		Offer: o.Offer, Local: from.IsLoopback(), Media: m, Interceptors: registry, Prepare: x.prepare,
		Accept: func(m *sdp.MediaDescription) bool {
			_, sends := m.Attribute("sendonly")
			return sends || m.MediaName.Media == "application"
		},
		Connected: func() { x.once.Do(func() { close(x.connected) }) },
		Ended:     x.end,
	})
	if err != nil {
		x.cancel(err)
		return nil, err
	}
	return x, nil
}

// ID implements signaling.Resource.
func (x *session) ID() string { return x.id }

// Peer implements signaling.Resource.
func (x *session) Peer() *signaling.Peer { return x.peer }

// End implements signaling.Resource.
func (x *session) End(reason string) {
	x.end(reason)
	<-x.done
}

func (x *session) end(reason string) { x.cancel(errors.New(reason)) }

// crashed ends the session after a panic in its code.
func (x *session) crashed(err error) {
	x.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("WHEP session crashed")
	x.end("internal error")
}

// rescued returns f with its panics turned into the session's end.
func (x *session) rescued(f func()) func() {
	return func() {
		defer rescue.Guard(x.crashed)
		f()
	}
}

// prepare adds the tracks and the data channel.
func (x *session) prepare(pc *webrtc.PeerConnection) error {
	add := func(c webrtc.RTPCodecCapability, id string) (*webrtc.TrackLocalStaticRTP, *webrtc.RTPSender, error) {
		track, err := webrtc.NewTrackLocalStaticRTP(c, id, streamName)
		if err != nil {
			return nil, nil, fmt.Errorf("make the %s track: %w", id, err)
		}
		t, err := pc.AddTransceiverFromTrack(track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
		if err != nil {
			return nil, nil, fmt.Errorf("send the %s track: %w", id, err)
		}
		return track, t.Sender(), nil
	}
	var err error
	if len(x.offer.video) > 0 {
		codec := x.room.feed.present()
		if codec == media.CodecUnknown {
			return signaling.ErrNotLive
		}
		as, ok := x.offer.parameters(codec)
		if !ok {
			return fmt.Errorf("expected an offer with %s, the codec of the picture, got %s", codec, x.offer.names())
		}
		x.videoCodec = codec
		if x.video, x.videoSender, err = add(as.RTPCodecCapability, "picture"); err != nil {
			return err
		}
	}
	if x.offer.audio != nil {
		if x.audio, _, err = add(x.offer.audio.RTPCodecCapability, "sound"); err != nil {
			return err
		}
	}
	if !x.offer.Data {
		return nil
	}
	pc.OnDataChannel(x.addChannel) // a player may open one of that name itself
	own, err := pc.CreateDataChannel(channelName, nil)
	if err != nil {
		return fmt.Errorf("make the data channel: %w", err)
	}
	x.addChannel(own)
	return nil
}

// addChannel sends texts on a data channel as soon as it is open. The library
// accepts any number of channels, each with a buffer and a goroutine, so too
// many of them end the session.
func (x *session) addChannel(c *webrtc.DataChannel) {
	defer rescue.Guard(x.crashed)
	if x.channels.Add(1) > maxChannels {
		x.end(fmt.Sprintf("more than %d data channels", maxChannels))
		return
	}
	if c.Label() == channelName {
		c.OnOpen(func() { x.open <- c }) // has space for maxChannels
	}
}

// run is the session's life after the answer was made.
func (x *session) run() {
	defer close(x.done)
	defer x.server.forget(x)
	limit := time.NewTimer(x.server.opts.ConnectTime)
	defer limit.Stop()
	select {
	case <-x.connected:
		x.play()
	case <-limit.C:
		x.end(fmt.Sprintf("no connection within %v; is UDP port %d open?", x.server.opts.ConnectTime, x.server.UDPPort()))
	case <-x.over.Done():
	}
	<-x.over.Done()
	if err := x.peer.Close(); err != nil {
		x.log.Debug().Err(err).Msg("closing a WHEP session failed")
	}
	x.wg.Wait()
	x.log.Info().Str("reason", context.Cause(x.over).Error()).Uint64("packets", x.packets.Load()).Msg("WHEP session over")
}

// play sends picture, sound and texts until the session is over.
func (x *session) play() {
	feed := x.room.feed
	p, past := feed.join()
	defer feed.leave(p)
	var wg sync.WaitGroup
	if x.video != nil {
		x.wg.Go(x.rescued(x.readReports)) // ends with the connection
		wg.Go(x.rescued(func() { x.sendPictures(p) }))
	}
	if x.audio != nil {
		packets, cancel := feed.opts.Mix()
		defer cancel()
		wg.Go(x.rescued(func() { x.sendSound(packets) }))
	}
	if x.offer.Data {
		wg.Go(x.rescued(func() { x.sendTexts(p, past) }))
	}
	wg.Wait()
	<-x.over.Done()
}

// readReports handles requests for a key frame. Media servers send a PLI every
// other second. Replaying the pictures since the last key frame would make their
// timestamps jump back, so they are replayed only after packet loss or on a
// repeated request; otherwise the player gets the source's next key frame.
func (x *session) readReports() {
	var last time.Time
	lossy := false
	ours := uint32(x.videoSender.GetParameters().Encodings[0].SSRC)
	for {
		packets, _, err := x.videoSender.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			switch p := p.(type) {
			case *rtcp.ReceiverReport:
				for _, r := range p.Reports {
					if r.SSRC == ours {
						lossy = r.FractionLost > 0
					}
				}
			case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
				now := time.Now()
				repeated := now.Sub(last) < insist
				last = now
				if !lossy && !repeated {
					x.room.feed.refresh(now)
					continue
				}
				x.wants.Set()
			}
		}
	}
}

// sendPictures sends the delayed picture from the last key frame on, and replays from
// there when the player needs a key frame: a new one of the source would come only
// after the delay.
func (x *session) sendPictures(p *player) {
	rewriter := packet.NewRewriter(uint16(rand.Uint32()), rand.Uint32())
	began := time.Now()
	if !x.sendGroup(rewriter, p) {
		return
	}
	var later <-chan time.Time // for a request within beginEvery
	for {
		select {
		case <-x.over.Done():
			return
		case <-x.wants:
			if later == nil {
				later = time.After(beginEvery - time.Since(began))
			}
		case <-later:
			began, later = time.Now(), nil
			if !x.sendGroup(rewriter, p) {
				return
			}
		case f := <-p.frames:
			x.unbroken = 0
			if !x.sendPicture(rewriter, f) {
				return
			}
		}
	}
}

// sendGroup sends the pictures since the last key frame at once, with timestamps a
// millisecond apart, so that the player skips to the present one.
func (x *session) sendGroup(rewriter *packet.Rewriter, p *player) bool {
	group := x.room.feed.begin(p)
	for i, f := range group {
		f.Due = group[len(group)-1].Due.Add(-time.Duration(len(group)-1-i) * time.Millisecond)
		if !x.sendPicture(rewriter, f) {
			return false
		}
	}
	return true
}

func (x *session) sendPicture(rewriter *packet.Rewriter, f delay.OutFrame) bool {
	if f.Codec != x.videoCodec {
		as, ok := x.offer.parameters(f.Codec)
		if !ok {
			x.end(fmt.Sprintf("the codec changed to %s, which the player did not offer", f.Codec))
			return false
		}
		track, err := webrtc.NewTrackLocalStaticRTP(as.RTPCodecCapability, "picture", streamName)
		if err == nil {
			err = x.videoSender.ReplaceTrack(track)
		}
		if err != nil {
			x.log.Warn().Err(err).Msg("changing the codec of a WHEP session failed")
			x.end("the codec changed")
			return false
		}
		x.video, x.videoCodec = track, f.Codec
	}
	packets, err := rewriter.Packets(f.EncodedFrame, f.Due)
	if err != nil {
		return true // this picture is skipped for every player
	}
	for _, packet := range packets {
		if x.unbroken++; x.unbroken%burst == 0 {
			select {
			case <-time.After(time.Millisecond):
			case <-x.over.Done():
				return false
			}
		}
		if err := x.video.WriteRTP(packet); err == nil {
			x.packets.Add(1)
		}
	}
	return true
}

// sendSound sends the mix of voice and camera as it comes.
func (x *session) sendSound(packets <-chan sound.Packet) {
	sequence := uint16(rand.Uint32())
	for {
		select {
		case <-x.over.Done():
			return
		case p, ok := <-packets:
			if !ok {
				x.end("the commentary has ended")
				return
			}
			sequence++
			if err := x.audio.WriteRTP(&rtp.Packet{
				Header:  rtp.Header{Version: 2, SequenceNumber: sequence, Timestamp: p.Timestamp},
				Payload: p.Payload,
			}); err == nil {
				x.packets.Add(1)
			}
		}
	}
}

// sendTexts sends texts on every open channel: past when it opens, then the new
// ones. Those published before the first channel is open wait in p's queue.
func (x *session) sendTexts(p *player, past [][]byte) {
	var open []*webrtc.DataChannel
	var texts <-chan []byte
	for {
		select {
		case <-x.over.Done():
			return
		case c := <-x.open:
			for _, b := range past {
				sendText(c, b)
			}
			open, texts = append(open, c), p.texts
		case b := <-texts:
			for _, c := range open {
				sendText(c, b)
			}
		}
	}
}

// sendText drops the text if the channel is closed or its player reads too slowly.
func sendText(c *webrtc.DataChannel, b []byte) {
	if c.ReadyState() == webrtc.DataChannelStateOpen && c.BufferedAmount() <= maxBuffered {
		_ = c.SendText(string(b)) // fails when the channel was closed in between
	}
}
