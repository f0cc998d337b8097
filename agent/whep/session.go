package whep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/fanout"
	"touchline/media/packet"
	"touchline/media/signaling"
)

const (
	// streamName is the name of the MediaStream of picture and sound, which players keep in sync.
	streamName = "touchline"
	// channelName of the data channel.
	channelName = "commentary"
	// burst is the number of packets that are sent without a pause of a millisecond.
	burst = 16
	// insist is the time within which a second key frame request means that the player really waits for one.
	insist = 1200 * time.Millisecond
	// maxBuffered bounds the send buffer of a data channel, in bytes; further texts are dropped.
	maxBuffered = 1 << 20
	// lastWait bounds the wait for the last text to arrive.
	lastWait = time.Second
	// maxChannels is how many data channels a session may have, the server's own included.
	maxChannels = 4
)

// session is one player.
type session struct {
	*signaling.Session

	server *Server
	room   *room
	offer  *offer
	wants  wake.Signal // the player needs a key frame

	admission signaling.Admission

	videoSender *webrtc.RTPSender
	video       *webrtc.TrackLocalStaticRTP
	videoCodec  media.Codec
	profile     int // of H264
	unbroken    int // packets since the last pause
	audio       *webrtc.TrackLocalStaticRTP

	channels atomic.Int32
	ended    atomic.Pointer[string]   // how the player's right ended
	open     chan *webrtc.DataChannel // channels named channelName, as they open
}

func newSession(s *Server, r *room, o *offer) *session {
	return &session{server: s, room: r, offer: o, wants: wake.New(), open: make(chan *webrtc.DataChannel, maxChannels)}
}

// prepare adds the tracks and the data channel.
func (x *session) prepare(session *signaling.Session) error {
	x.Session = session
	add := func(c webrtc.RTPCodecCapability, id string) (*webrtc.TrackLocalStaticRTP, *webrtc.RTPSender, error) {
		track, err := webrtc.NewTrackLocalStaticRTP(c, id, streamName)
		if err != nil {
			return nil, nil, fmt.Errorf("make the %s track: %w", id, err)
		}
		t, err := x.PC.AddTransceiverFromTrack(track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
		if err != nil {
			return nil, nil, fmt.Errorf("send the %s track: %w", id, err)
		}
		return track, t.Sender(), nil
	}
	var err error
	if len(x.offer.video) > 0 {
		codec := x.room.feed.opts.Pictures.Codec()
		if codec == media.CodecUnknown {
			return signaling.ErrNoPicture
		}
		key, _ := x.room.feed.opts.Pictures.KeyFrame()
		x.profile = profileOf(key.EncodedFrame)
		as, ok := x.offer.parameters(codec, x.profile)
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
	x.PC.OnDataChannel(x.addChannel) // a player may open a channel of this name itself
	own, err := x.PC.CreateDataChannel(channelName, nil)
	if err != nil {
		return fmt.Errorf("make the data channel: %w", err)
	}
	x.addChannel(own)
	return nil
}

// addChannel sends texts on a data channel once it is open. The library accepts any number of channels, each with a buffer and a
// goroutine, so too many channels end the session.
func (x *session) addChannel(c *webrtc.DataChannel) {
	defer rescue.Guard(x.Crashed)
	if n := x.channels.Add(1); n > maxChannels {
		if n == maxChannels+1 {
			x.server.crowded.Inc()
		}
		x.Cancel(fmt.Sprintf("more than %d data channels", maxChannels))
		return
	}
	if c.Label() == channelName {
		c.OnOpen(func() { x.open <- c }) // has space for maxChannels
	}
}

// enter counts the session among the players of its room.
func (x *session) enter() error {
	s := x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[x.Room] != x.room {
		return fmt.Errorf("%w: the room is closed", signaling.ErrNotFound)
	}
	x.room.players[x.Session] = struct{}{}
	return nil
}

func (x *session) leave(string) {
	s := x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(x.room.players, x.Session)
}

// play sends picture, sound and texts until the session is over.
func (x *session) play() {
	texts, leave, past := x.room.feed.join()
	defer leave()
	if x.video != nil {
		x.Go(x.readReports)
		x.Go(x.sendPictures)
	}
	if x.audio != nil {
		x.Go(x.sendSound)
	}
	told := make(chan struct{})
	if x.offer.Data {
		x.Go(func() {
			defer close(told)
			x.sendTexts(texts, past)
		})
	} else {
		close(told)
	}
	if a := x.admission; a.Right != nil {
		defer a.Right(func(reason string) {
			x.ended.Store(&reason)
			x.Cancel(reason)
			if a.Expired != nil {
				a.Expired()
			}
		})()
	}
	<-x.Over()
	<-told // the connection closes after this
}

// readReports handles requests for a key frame. Media servers send a PLI every
// other second. Replaying the pictures since the last key frame would make their
// timestamps jump back, so they are replayed only after packet loss or on a
// repeated request; otherwise the player gets the source's next key frame.
func (x *session) readReports() {
	reports := reports{ours: uint32(x.videoSender.GetParameters().Encodings[0].SSRC)}
	for {
		packets, _, err := x.videoSender.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			switch now := time.Now(); reports.read(p, now) {
			case sourceKeyFrame:
				x.room.feed.opts.Pictures.Refresh(now)
			case replay:
				x.wants.Set()
			case noKeyFrame:
			}
		}
	}
}

// keyFrame is how a player gets the key frame that it requests.
type keyFrame int

const (
	noKeyFrame     keyFrame = iota // none is requested
	sourceKeyFrame                 // the source's next one
	replay                         // the pictures since the last one, at once
)

// reports are a player's reports about its picture.
type reports struct {
	ours  uint32    // SSRC
	last  time.Time // of the last request
	lossy bool
}

// read returns what a packet that arrives now requests.
func (r *reports) read(p rtcp.Packet, now time.Time) keyFrame {
	switch p := p.(type) {
	case *rtcp.ReceiverReport:
		for _, report := range p.Reports {
			if report.SSRC == r.ours {
				r.lossy = report.FractionLost > 0
			}
		}
	case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
		repeated := now.Sub(r.last) < insist
		r.last = now
		if r.lossy || repeated {
			return replay
		}
		return sourceKeyFrame
	}
	return noKeyFrame
}

// sendPictures sends the delayed picture from the last key frame on. When the player needs a key frame, it replays from the last
// one, because a new key frame of the source would arrive only after the delay. Replayed pictures are sent at once, with
// timestamps a millisecond apart, so that the player skips to the present picture.
func (x *session) sendPictures() {
	rewriter := packet.NewRewriter(rand.N(uint16(math.MaxUint16)), rand.Uint32())
	o := fanout.ReaderOptions{Log: x.Log, Replay: x.wants}
	x.room.feed.opts.Pictures.Read(x.Over(), o, func(frames []delay.OutFrame) bool {
		last := len(frames) - 1
		for i, f := range frames {
			f.Due = frames[last].Due.Add(-time.Duration(last-i) * time.Millisecond)
			if last == 0 {
				x.unbroken = 0
			}
			if !x.sendPicture(rewriter, f) {
				return false
			}
		}
		return true
	})
}

func (x *session) sendPicture(rewriter *packet.Rewriter, f delay.OutFrame) bool {
	profile := x.profile
	if f.KeyFrame {
		profile = profileOf(f.EncodedFrame)
	}
	if f.Codec != x.videoCodec || profile != x.profile {
		as, ok := x.offer.parameters(f.Codec, profile)
		if !ok {
			x.Cancel(fmt.Sprintf("the codec changed to %s, which the player did not offer", f.Codec))
			return false
		}
		track, err := webrtc.NewTrackLocalStaticRTP(as.RTPCodecCapability, "picture", streamName)
		if err == nil {
			err = x.videoSender.ReplaceTrack(track)
		}
		if err != nil {
			x.Log.Warn().Err(err).Msg("changing the codec of a WHEP session failed")
			x.Cancel("the codec changed")
			return false
		}
		x.video, x.videoCodec, x.profile = track, f.Codec, profile
	}
	packets, err := rewriter.Packets(f.EncodedFrame, f.Due)
	if err != nil {
		return true // this picture is skipped for every player
	}
	for _, packet := range packets {
		if x.unbroken++; x.unbroken%burst == 0 {
			select {
			case <-time.After(time.Millisecond):
			case <-x.Over():
				return false
			}
		}
		if err := x.video.WriteRTP(packet); err == nil {
			x.Packets.Add(1)
		}
	}
	return true
}

// sendSound sends the mix of voice and camera sound.
func (x *session) sendSound() {
	packets, cancel := x.room.feed.opts.Mix()
	defer cancel()
	sequence := rand.N(uint16(math.MaxUint16))
	for {
		select {
		case <-x.Over():
			return
		case p, ok := <-packets:
			if !ok {
				x.Cancel("the commentary has ended")
				return
			}
			sequence++
			if err := x.audio.WriteRTP(&rtp.Packet{
				Header:  rtp.Header{Version: 2, SequenceNumber: sequence, Timestamp: p.Timestamp},
				Payload: p.Payload,
			}); err == nil {
				x.Packets.Add(1)
			}
		}
	}
}

// sendTexts sends texts on every open channel: past when the channel opens, then new texts. Texts published before the first
// channel opens wait in their queue. The last text is why the player's right has ended.
func (x *session) sendTexts(texts <-chan []byte, past [][]byte) {
	var open []*webrtc.DataChannel
	var ready <-chan []byte
	for {
		select {
		case <-x.Over():
			if reason := x.ended.Load(); reason != nil {
				sendLast(open, text(message{Type: "expired", Reason: *reason}))
			}
			return
		case c := <-x.open:
			for _, b := range past {
				sendText(c, b)
			}
			open, ready = append(open, c), texts
		case b := <-ready:
			for _, c := range open {
				sendText(c, b)
			}
		}
	}
}

// sendLast sends a text and waits a second for players to confirm it.
func sendLast(open []*webrtc.DataChannel, b []byte) {
	late := time.After(lastWait)
	for _, c := range open {
		sent := wake.New()
		c.OnBufferedAmountLow(sent.Set) // at 0
		sendText(c, b)
		for c.ReadyState() == webrtc.DataChannelStateOpen && c.BufferedAmount() > 0 {
			select {
			case <-sent:
			case <-late:
				return
			}
		}
	}
}

// sendText sends a text, or drops it if the channel is closed or its player reads too slowly.
func sendText(c *webrtc.DataChannel, b []byte) {
	if c.ReadyState() == webrtc.DataChannelStateOpen && c.BufferedAmount() <= maxBuffered {
		_ = c.SendText(string(b)) // fails when the channel was closed in between
	}
}
