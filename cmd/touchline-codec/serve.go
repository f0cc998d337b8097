package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"touchline/media/codec/wire"
)

const (
	readBuffer  = 256 << 10
	writeBuffer = 64 << 10
	// ackEvery is how many units go by without a word when nothing else is to be said.
	ackEvery = 8
	// complainEvery is how many errors in a row make one more message.
	complainEvery = 30
	// mostDelay is how many units a decoder holds back at most; a sample
	// whose picture did not come by then is taken from the next one.
	mostDelay = 16
)

// server answers the messages of one bot, one after the other.
type server struct {
	in     *wire.Reader
	out    *bufio.Writer
	log    io.Writer
	choice choice
	head   []byte

	dec   *decoder
	codec wire.Codec
	epoch uint32
	noDec bool // there is no decoder for codec

	done, acked, newest uint64  // unit ids
	size                picture // the newest one
	longSide            uint16
	errors              int         // in a row
	waiting             []wire.Unit // for their pictures; without data
	overdue             bool        // a sample goes to the next picture, whichever it is
	pix                 []byte

	setup wire.Setup
	enc   encoder
	key   bool // the next encoded picture is to be a key frame
	noEnc bool // opening the encoder was tried in vain

	step    float64 // microseconds from picture to picture, smoothed
	lastPTS int64
}

func newServer(in io.Reader, out, log io.Writer, c choice) *server {
	return &server{
		in: wire.NewReader(in, readBuffer), out: bufio.NewWriterSize(out, writeBuffer), log: log, choice: c,
		setup: wire.Setup{Codec: wire.H264, Scaled: true, FPS: 30, BitRate: 2_500_000},
	}
}

// run serves until the input ends. Any malformed message ends it with an
// error: a bot that sends one is not ours.
func (s *server) run() error {
	defer s.close()
	if err := s.greet(); err != nil {
		return err
	}
	for {
		if !s.in.Pending() {
			if err := errors.Join(s.ack(true), s.out.Flush()); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
		m, err := s.in.NextInto(s.place)
		if errors.Is(err, io.EOF) {
			return s.out.Flush()
		}
		if err == nil {
			err = s.handle(m)
		}
		if err != nil {
			return errors.Join(err, s.out.Flush())
		}
	}
}

func (s *server) greet() error {
	m, err := s.in.Next()
	if err != nil {
		return fmt.Errorf("wait for the first message: %w", err)
	}
	if m.Kind != wire.KindHello {
		return fmt.Errorf("%w: the first message is of kind %d, not a hello", wire.ErrMalformed, m.Kind)
	}
	hello, err := wire.ParseHello(m.Body)
	if err != nil {
		return err
	}
	if err := s.write(wire.Ready{Version: wire.Version, Codecs: s.choice.String()}.Append(s.head[:0])); err != nil {
		return err
	}
	if hello.Version != wire.Version {
		return errors.Join(
			fmt.Errorf("expected messages of version %d, got %d: build both programs together", wire.Version, hello.Version),
			s.out.Flush())
	}
	return nil
}

func (s *server) close() {
	if s.dec != nil {
		s.dec.close()
	}
	s.enc.close()
}

// place lets raw pictures be read straight to where the encoder takes them.
func (s *server) place(k wire.Kind, n int) []byte {
	if k == wire.KindRaw {
		return s.enc.room(n)
	}
	return nil
}

func (s *server) handle(m wire.Message) error {
	switch m.Kind {
	case wire.KindUnit:
		u, err := wire.ParseUnit(m.Body)
		if err != nil {
			return err
		}
		return s.unit(u)
	case wire.KindLatest:
		l, err := wire.ParseLatest(m.Body)
		if err != nil {
			return err
		}
		return s.latest(l)
	case wire.KindSetup:
		c, err := wire.ParseSetup(m.Body)
		if err != nil {
			return err
		}
		s.setup, s.noEnc = c, false
		s.enc.close()
		return nil
	case wire.KindRaw:
		r, err := wire.ParseRaw(m.Body)
		if err != nil {
			return err
		}
		return s.raw(r)
	case wire.KindHello, wire.KindReady, wire.KindAck, wire.KindPicture, wire.KindNoPicture, wire.KindEncoded,
		wire.KindProblem:
	}
	return fmt.Errorf("%w: kind %d is not for the codec process", wire.ErrMalformed, m.Kind)
}

// unit decodes one access unit and sends what it was asked to send.
func (s *server) unit(u wire.Unit) error {
	if (s.dec == nil && !s.noDec) || u.Codec != s.codec || u.Epoch != s.epoch {
		if err := s.reopen(u); err != nil {
			return err
		}
	}
	s.done = u.ID
	s.key = s.key || u.Flags&wire.FlagForceKey != 0
	if s.dec == nil || len(u.Data) == 0 {
		return s.ack(false)
	}
	s.longSide = u.LongSide
	if u.Flags&(wire.FlagSample|wire.FlagEncode) != 0 {
		s.wait(u)
	}
	if err := s.dec.send(u.Data, u.ID); err != nil {
		if err := s.failed(u.ID, err); err != nil {
			return err
		}
	} else {
		s.errors = 0
	}
	if err := s.drain(); err != nil {
		return err
	}
	return s.ack(false)
}

// wait notes a unit whose picture is wanted. When a decoder gives none for
// very long, the oldest are given up.
func (s *server) wait(u wire.Unit) {
	if len(s.waiting) >= 4*mostDelay {
		s.overdue = s.overdue || s.waiting[0].Flags&wire.FlagSample != 0
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
	u.Data = nil
	s.waiting = append(s.waiting, u)
}

// drain takes all pictures the decoder has.
func (s *server) drain() error {
	for {
		p, ok, err := s.dec.receive()
		if err != nil {
			return s.failed(s.done, err)
		}
		if !ok {
			return nil
		}
		s.newest, s.size = p.id, p
		if err := s.serve(p); err != nil {
			return err
		}
	}
}

// serve sends the newest picture to whoever waits for it or has waited too
// long for a picture that never came.
func (s *server) serve(p picture) error {
	sample, encode := s.overdue, false
	s.overdue = false
	var unit wire.Unit
	kept := s.waiting[:0]
	for _, u := range s.waiting {
		switch {
		case u.ID == p.id:
			unit = u
			sample = sample || u.Flags&wire.FlagSample != 0
			encode = u.Flags&wire.FlagEncode != 0
		case u.ID+mostDelay > p.id:
			kept = append(kept, u)
		default:
			sample = sample || u.Flags&wire.FlagSample != 0
		}
	}
	s.waiting = kept
	if sample {
		if err := s.send(0, s.longSide); err != nil {
			return err
		}
	}
	if encode {
		return s.encode(unit, p)
	}
	return nil
}

// failed reports an error, not every one, and gives the sample that waited
// for this unit to the next picture.
func (s *server) failed(id uint64, err error) error {
	s.waiting = slices.DeleteFunc(s.waiting, func(u wire.Unit) bool {
		s.overdue = s.overdue || (u.ID == id && u.Flags&wire.FlagSample != 0)
		return u.ID == id
	})
	s.errors++
	if s.errors%complainEvery != 1 {
		return nil
	}
	return s.write(wire.Problem{ID: id, What: wire.TroubleDecode, Text: err.Error()}.Append(s.head[:0]))
}

// reopen takes the last pictures from the old decoder and makes the one for u.
func (s *server) reopen(u wire.Unit) error {
	if s.dec != nil {
		if err := s.dec.send(nil, 0); err == nil {
			if err := s.drain(); err != nil {
				return err
			}
		}
		s.dec.close()
		s.dec = nil
	}
	s.codec, s.epoch, s.newest, s.errors, s.noDec = u.Codec, u.Epoch, 0, 0, false
	s.waiting, s.overdue = s.waiting[:0], false
	s.enc.close()
	s.noEnc = false

	name := s.choice.decoders[u.Codec]
	err := fmt.Errorf("this libavcodec has no decoder for %v (expected one of %v)", u.Codec, decoderNames(u.Codec))
	if name != "" {
		if s.choice.fallback[u.Codec] {
			_, _ = fmt.Fprintf(s.log, "decoder %s for %v is missing, using %s\n", decoderNames(u.Codec)[0], u.Codec, name)
		}
		s.dec, err = openDecoder(name)
	}
	if err == nil {
		return nil
	}
	s.noDec = true
	return s.write(wire.Problem{ID: u.ID, What: wire.TroubleCodec, Text: err.Error()}.Append(s.head[:0]))
}

func (s *server) latest(l wire.Latest) error {
	if err := s.ack(true); err != nil {
		return err
	}
	if s.dec == nil || s.newest == 0 {
		return s.write(wire.NoPicture{Seq: l.Seq}.Append(s.head[:0]))
	}
	return s.send(l.Seq, l.LongSide)
}

// send scales the newest picture and sends it.
func (s *server) send(seq uint32, longSide uint16) error {
	w, h := fit(s.size.width, s.size.height, int(longSide))
	n := 3 * w * h
	if len(s.pix) < n+slack {
		s.pix = make([]byte, n+slack)
	}
	if err := s.dec.rgb(s.pix, w, h); err != nil {
		if err := s.failed(s.newest, err); err != nil || seq == 0 {
			return err
		}
		return s.write(wire.NoPicture{Seq: seq}.Append(s.head[:0]))
	}
	if err := s.ack(true); err != nil {
		return err
	}
	s.head = wire.Picture{Seq: seq, ID: s.newest, Width: w, Height: h}.AppendHead(s.head[:0])
	if err := s.write(s.head); err != nil {
		return err
	}
	return s.write(s.pix[:n])
}

// fit shrinks w x h so that neither edge is over longSide; it never enlarges.
func fit(w, h, longSide int) (int, int) {
	long := max(w, h)
	if longSide <= 0 || long <= longSide {
		return w, h
	}
	shrink := func(n int) int { return max(1, (n*longSide+long/2)/long) }
	return shrink(w), shrink(h)
}

// encode encodes the newest picture.
func (s *server) encode(u wire.Unit, p picture) error {
	fps := s.rate(u.PTS)
	// The encoder was made for another rate of pictures and would miss the bit
	// rate. The next key frame is the moment for another one.
	if s.key && s.enc.name != "" && math.Abs(math.Log(float64(fps)/float64(s.enc.fps))) > 0.2 {
		s.enc.close()
	}
	if ok, err := s.openEncoder(u.ID, p.width, p.height, fps, s.dec.matrix()); !ok {
		return err
	}
	err := s.enc.newest(s.dec, s.key)
	return s.encoded(u.ID, err)
}

func (s *server) raw(r wire.Raw) error {
	s.done = r.ID
	s.key = r.Flags&wire.FlagForceKey != 0
	if ok, err := s.openEncoder(r.ID, r.Width, r.Height, int(s.setup.FPS), matrixUnknown); !ok {
		return err
	}
	return s.encoded(r.ID, s.enc.raw(r))
}

// rate is how many pictures a second there are, as far as their times tell.
func (s *server) rate(pts int64) int {
	d := float64(pts - s.lastPTS)
	s.lastPTS = pts
	if d > 0 && d < 1e6 {
		if s.step == 0 {
			s.step = 1e6 / float64(s.setup.FPS)
		}
		s.step += (d - s.step) / 16
	}
	if s.step == 0 {
		return int(s.setup.FPS)
	}
	return min(max(int(math.Round(1e6/s.step)), 1), 240)
}

// openEncoder makes the encoder if there is none for this size. It reports
// in vain only once.
func (s *server) openEncoder(id uint64, w, h, fps, matrix int) (bool, error) {
	w, h = w&^1, h&^1 // 4:2:0 has no odd edges
	if s.enc.name != "" && s.enc.width == w && s.enc.height == h {
		return true, nil
	}
	if s.noEnc && s.enc.width == w && s.enc.height == h {
		return false, s.ack(false)
	}
	codec, name := s.choice.encoder(s.setup.Codec)
	err := errors.New("this libavcodec has no encoder for H264 or VP8 (expected libx264 or libvpx)")
	if name != "" {
		if codec != s.setup.Codec {
			_, _ = fmt.Fprintf(s.log, "no encoder for %v, using %s\n", s.setup.Codec, name)
		}
		err = s.enc.open(name, w, h, fps, bitRate(s.setup, w, h), matrix)
	}
	if err == nil {
		s.enc.codec, s.noEnc = codec, false
		return true, nil
	}
	s.noEnc, s.enc.width, s.enc.height = true, w, h
	return false, s.write(wire.Problem{ID: id, What: wire.TroubleCodec, Text: err.Error()}.Append(s.head[:0]))
}

// bitRate follows the size with an exponent of 3/4: larger pictures need
// fewer bits for each pixel.
func bitRate(c wire.Setup, w, h int) int {
	rate := float64(c.BitRate)
	if c.Scaled {
		rate *= math.Pow(float64(w*h)/(1280*720), 0.75)
	}
	return int(max(rate, 50_000))
}

// encoded sends what came of picture id.
func (s *server) encoded(id uint64, err error) error {
	for err == nil {
		var data []byte
		var key, ok bool
		data, key, ok, err = s.enc.next()
		if err != nil || !ok {
			break
		}
		if len(data) > wire.MaxUnit {
			err = fmt.Errorf("an encoded picture of %d bytes is over %d", len(data), wire.MaxUnit)
			break
		}
		if key {
			s.key = false
		}
		m := wire.Encoded{ID: id, Codec: s.enc.codec, Key: key, Width: s.enc.width, Height: s.enc.height}
		s.head = m.AppendHead(s.head[:0], len(data))
		if err := s.write(s.head); err != nil {
			return err
		}
		if err := s.write(data); err != nil {
			return err
		}
	}
	if err != nil {
		p := wire.Problem{ID: id, What: wire.TroubleEncode, Text: err.Error()}
		if err := s.write(p.Append(s.head[:0])); err != nil {
			return err
		}
	}
	return s.ack(true)
}

// ack tells how far work got, when enough was done since the last time or
// when something else is being sent anyway.
func (s *server) ack(now bool) error {
	n := s.done - s.acked
	if n == 0 || (n < ackEvery && !now) {
		return nil
	}
	s.acked = s.done
	s.head = wire.Ack{Done: s.done, Newest: s.newest}.Append(s.head[:0])
	return s.write(s.head)
}

func (s *server) write(b []byte) error {
	if _, err := s.out.Write(b); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
