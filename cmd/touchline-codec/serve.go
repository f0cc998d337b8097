package main

import (
	"bufio"
	"cmp"
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
	// ackEvery is the number of units after which an ack is sent without any other message.
	ackEvery = 8
	// complainEvery is the number of errors in a row per message.
	complainEvery = 30
	// mostDelay is the maximum delay of a decoder, in access units. If no picture of a sample comes by then, the next picture is used.
	mostDelay = 16
)

// server handles the messages of one bot in order.
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
	size                picture // the newest picture
	longSide            uint16
	errors              int         // in a row
	waiting             []wire.Unit // units without a picture yet; without data
	overdue             bool        // the next picture serves a sample
	pix                 []byte
	masks               masks

	setup wire.Setup
	enc   encoder
	key   bool // encode the next picture as a key frame
	noEnc bool // opening the encoder failed

	step    float64 // smoothed frame interval in microseconds
	lastPTS int64
}

func newServer(in io.Reader, out, log io.Writer, c choice) *server {
	return &server{
		in: wire.NewReader(in, readBuffer), out: bufio.NewWriterSize(out, writeBuffer), log: log, choice: c,
		setup: wire.Setup{Codec: wire.H264, Scaled: true, FPS: 30, BitRate: 2_500_000},
	}
}

// run serves until the input ends. A malformed message is an error.
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
		return fmt.Errorf("read the first message: %w", err)
	}
	if m.Kind != wire.KindHello {
		return fmt.Errorf("%w: expected a hello first, got kind %d", wire.ErrMalformed, m.Kind)
	}
	hello, err := wire.ParseHello(m.Body)
	if err != nil {
		return err
	}
	if err := s.write(wire.Hello{Version: wire.Version}.Answer(s.head[:0])); err != nil {
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
	s.enc.leave()
}

// place reads raw pictures directly into the encoder's buffer.
func (s *server) place(k wire.Kind, n int) []byte {
	if k == wire.KindRaw {
		return s.enc.room(n)
	}
	return nil
}

func (s *server) handle(m wire.Message) error {
	switch m.Kind {
	case wire.KindUnit:
		return parsed(m.Body, wire.ParseUnit, s.unit)
	case wire.KindLatest:
		return parsed(m.Body, wire.ParseLatest, s.latest)
	case wire.KindSetup:
		return parsed(m.Body, wire.ParseSetup, func(c wire.Setup) error {
			s.setup, s.noEnc = c, false
			s.enc.close()
			return nil
		})
	case wire.KindRaw:
		return parsed(m.Body, wire.ParseRaw, s.raw)
	case wire.KindMasks:
		return parsed(m.Body, wire.ParseMasks, func(m wire.Masks) error {
			s.masks = masks{Masks: m}
			return s.mask()
		})
	case wire.KindHello, wire.KindReady, wire.KindAck, wire.KindPicture, wire.KindEncoded,
		wire.KindProblem:
	}
	return fmt.Errorf("%w: the codec process does not accept kind %d", wire.ErrMalformed, m.Kind)
}

// parsed calls handle with the message in body.
func parsed[T any](body []byte, parse func([]byte) (T, error), handle func(T) error) error {
	m, err := parse(body)
	if err != nil {
		return err
	}
	return handle(m)
}

// unit decodes one access unit and sends the requested pictures.
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
	if err := s.dec.send(u.Data, u.ID, u.Turn); err != nil {
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

// wait records a unit whose picture was requested. It drops the oldest if a decoder returns no
// picture for long.
func (s *server) wait(u wire.Unit) {
	if len(s.waiting) >= 4*mostDelay {
		s.overdue = s.overdue || s.waiting[0].Flags&wire.FlagSample != 0
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
	u.Data = nil
	s.waiting = append(s.waiting, u)
}

// drain fetches all available pictures from the decoder.
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
		if err := s.mask(); err != nil {
			return err
		}
		if s.newest == 0 {
			continue
		}
		if err := s.serve(p); err != nil {
			return err
		}
	}
}

// serve sends the newest picture for the requests of its unit and for overdue
// ones.
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

// failed reports every complainEvery-th error in a row. A sample that waited for
// this unit uses the next picture.
func (s *server) failed(id uint64, err error) error {
	s.waiting = slices.DeleteFunc(s.waiting, func(u wire.Unit) bool {
		s.overdue = s.overdue || (u.ID == id && u.Flags&wire.FlagSample != 0)
		return u.ID == id
	})
	s.errors++
	if s.errors%complainEvery != 1 {
		return nil
	}
	return s.write(wire.Problem{ID: id, Text: err.Error()}.Append(s.head[:0]))
}

// reopen drains the old decoder and opens one for u.
func (s *server) reopen(u wire.Unit) error {
	if s.dec != nil {
		if err := s.dec.send(nil, 0, 0); err == nil {
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
	err := fmt.Errorf("libavcodec has no decoder for %v: install one with %v", u.Codec, decoderNames(u.Codec))
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
	return s.write(wire.Problem{ID: u.ID, Text: err.Error()}.Append(s.head[:0]))
}

func (s *server) latest(l wire.Latest) error {
	if err := s.ack(true); err != nil {
		return err
	}
	if s.dec == nil || s.newest == 0 {
		return s.write(wire.Picture{Seq: l.Seq}.AppendHead(s.head[:0]))
	}
	return s.send(l.Seq, l.LongSide)
}

// send scales the newest picture and sends it.
func (s *server) send(seq uint32, longSide uint16) error {
	w, h := fit(s.size.width, s.size.height, int(longSide))
	w, h = within(w, h, wire.MaxPicture)
	n := 3 * w * h
	if len(s.pix) < n+slack {
		s.pix = make([]byte, n+slack)
	}
	if err := s.dec.rgb(s.pix, w, h); err != nil {
		if err := s.failed(s.newest, err); err != nil || seq == 0 {
			return err
		}
		return s.write(wire.Picture{Seq: seq}.AppendHead(s.head[:0]))
	}
	if err := s.ack(true); err != nil {
		return err
	}
	s.head = wire.Picture{Seq: seq, ID: s.newest, Masks: s.masks.Version, Width: w, Height: h}.AppendHead(s.head[:0])
	if err := s.write(s.head); err != nil {
		return err
	}
	return s.write(s.pix[:n])
}

// fit shrinks w x h so that neither side exceeds longSide; it never enlarges.
func fit(w, h, longSide int) (int, int) {
	long := max(w, h)
	if longSide <= 0 || long <= longSide {
		return w, h
	}
	shrink := func(n int) int { return max(1, (n*longSide+long/2)/long) }
	return shrink(w), shrink(h)
}

// within shrinks w x h to at most so many pixels.
func within(w, h, pixels int) (int, int) {
	if w*h <= pixels {
		return w, h
	}
	scale := math.Sqrt(float64(pixels) / float64(w*h))
	return max(1, int(float64(w)*scale)), max(1, int(float64(h)*scale))
}

const (
	// encodedPixels bounds the transcoded picture of a source with more than wire.MaxPicture pixels: 1080p.
	encodedPixels = 1920 * 1080
	// leastSide is the shortest side of a transcoded picture, in pixels: a macroblock.
	leastSide = 16
)

// encodedSize returns the size of a transcoded picture.
func encodedSize(w, h int) (int, int) {
	if w*h > wire.MaxPicture {
		w, h = within(w, h, encodedPixels)
	}
	return max(w, leastSide), max(h, leastSide)
}

// encode encodes the newest picture.
func (s *server) encode(u wire.Unit, p picture) error {
	fps := s.rate(u.PTS)
	// An encoder that was opened for another frame rate misses the bit rate.
	// Reopen it at the next key frame.
	if s.key && s.enc.name != "" && math.Abs(math.Log(float64(fps)/float64(s.enc.fps))) > 0.2 {
		s.enc.close()
	}
	w, h := encodedSize(p.width, p.height)
	if ok, err := s.openEncoder(u.ID, w, h, fps, s.dec.matrix()); !ok {
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

// rate returns the frame rate, estimated from timestamps.
func (s *server) rate(pts int64) int {
	d := float64(pts - s.lastPTS)
	s.lastPTS = pts
	if d > 0 && d < 1e6 {
		s.step = cmp.Or(s.step, 1e6/float64(s.setup.FPS))
		s.step += (d - s.step) / 16
	}
	if s.step == 0 {
		return int(s.setup.FPS)
	}
	return min(max(int(math.Round(1e6/s.step)), 1), 240)
}

// openEncoder opens an encoder unless one of this size is open. It reports a
// failure once.
func (s *server) openEncoder(id uint64, w, h, fps, matrix int) (bool, error) {
	w, h = w&^1, h&^1 // 4:2:0 has no odd edges
	if s.enc.name != "" && s.enc.width == w && s.enc.height == h {
		return true, nil
	}
	if s.noEnc && s.enc.width == w && s.enc.height == h {
		return false, s.ack(false)
	}
	codec, name := s.choice.encoder(s.setup.Codec)
	err := errors.New("libavcodec has no encoder for H264 or VP8: install one with libx264 or libvpx")
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
	return false, s.write(wire.Problem{ID: id, Text: err.Error()}.Append(s.head[:0]))
}

// bitRate scales with the picture's area to the power of 3/4: larger pictures
// need fewer bits per pixel.
func bitRate(c wire.Setup, w, h int) int {
	rate := float64(c.BitRate)
	if c.Scaled {
		rate *= math.Pow(float64(w*h)/(1280*720), 0.75)
	}
	return int(max(rate, 50_000))
}

// encoded sends the access units or the error of picture id.
func (s *server) encoded(id uint64, err error) error {
	for err == nil {
		var data []byte
		var key, ok bool
		data, key, ok, err = s.enc.next()
		if err != nil || !ok {
			break
		}
		if len(data) > wire.MaxUnit {
			err = fmt.Errorf("an encoded picture of %d bytes exceeds %d", len(data), wire.MaxUnit)
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
		p := wire.Problem{ID: id, Text: err.Error()}
		if err := s.write(p.Append(s.head[:0])); err != nil {
			return err
		}
	}
	return s.ack(true)
}

// ack reports the progress after enough units, or at once if now is set.
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
