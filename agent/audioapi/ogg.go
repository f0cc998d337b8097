package audioapi

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/speech"
)

const (
	opusRate  = 48000
	opusFrame = opusRate / 50 // 20 ms
	// opusBits is the bit rate, bit/s; a voice in full quality.
	opusBits = 48000
	// maxPacket is the largest Opus packet of one frame (RFC 6716, section 3.2.1).
	maxPacket = 1275
	// pagePackets bounds the packets of a page: 200 ms.
	pagePackets = 10
)

// The flags of a page (RFC 3533, section 6).
const (
	pageFirst = 2
	pageLast  = 4
)

// ogg writes Opus in an Ogg stream (RFC 7845). Pion's oggwriter is not used: its pre-skip is fixed, so the first sample would be wrong,
// and only in files does it mark the last page, whose position cuts the last packet to the exact length.
type ogg struct {
	out    io.Writer
	enc    *opus.Encoder
	serial uint32
	page   uint32
	total  int64    // samples encoded
	made   int64    // samples in packets
	skip   int64    // of the encoder's delay
	rest   []int16  // less than a frame
	packs  [][]byte // for the next page
	begun  bool
}

func newOgg(out io.Writer) (*ogg, error) {
	enc, err := speech.NewEncoder(opus.AppVoIP, opusBits)
	if err != nil {
		return nil, err
	}
	return &ogg{out: out, enc: enc, serial: rand.Uint32(), skip: int64(speech.EncoderDelay * opusRate / time.Second)}, nil
}

// Rate implements encoder.
func (*ogg) Rate() int { return opusRate }

// Encode implements encoder.
func (o *ogg) Encode(pcm []int16) error {
	o.total += int64(len(pcm))
	o.rest = append(o.rest, pcm...)
	for len(o.rest) >= opusFrame {
		if err := o.frame(o.rest[:opusFrame]); err != nil {
			return err
		}
		o.rest = o.rest[opusFrame:]
	}
	return o.flush(0)
}

// frame encodes 20 ms.
func (o *ogg) frame(pcm []int16) error {
	var b [maxPacket]byte
	n, err := o.enc.Encode(pcm, b[:])
	if err != nil {
		return fmt.Errorf("encode Opus: %w", err)
	}
	o.packs = append(o.packs, append([]byte(nil), b[:n]...))
	o.made += opusFrame
	if len(o.packs) > pagePackets {
		return o.write(o.packs[:pagePackets], 0, o.made-int64(len(o.packs)-pagePackets)*opusFrame)
	}
	return nil
}

// flush writes a page of the waiting packets except the newest, which may be the last of the stream.
func (o *ogg) flush(flags byte) error {
	keep := 1
	if flags&pageLast != 0 {
		keep = 0
	}
	n := len(o.packs) - keep
	if n < 1 {
		return nil
	}
	at := o.made - int64(keep)*opusFrame
	if keep == 0 {
		at = o.total + o.skip // the end of the sound, within the last packet
	}
	return o.write(o.packs[:n], flags, at)
}

// write writes packets as a page, after the two header pages.
func (o *ogg) write(packs [][]byte, flags byte, at int64) error {
	var b []byte
	if !o.begun {
		o.begun = true
		head := append([]byte("OpusHead"), 1, 1)                         // version, channels
		head = binary.LittleEndian.AppendUint16(head, uint16(o.skip))    //nolint:gosec // 312 samples
		head = binary.LittleEndian.AppendUint32(head, rate)              // of the input, for information
		b = o.append(nil, [][]byte{append(head, 0, 0, 0)}, pageFirst, 0) // gain, mapping
		tags := append([]byte("OpusTags\x09\x00\x00\x00touchline"), 0, 0, 0, 0)
		b = o.append(b, [][]byte{tags}, 0, 0)
	}
	b = o.append(b, packs, flags, at)
	o.packs = append([][]byte(nil), o.packs[len(packs):]...)
	_, err := o.out.Write(b)
	return err
}

// append appends a page to b.
func (o *ogg) append(b []byte, packs [][]byte, flags byte, at int64) []byte {
	page := append([]byte("OggS\x00"), flags)
	page = binary.LittleEndian.AppendUint64(page, uint64(at)) //nolint:gosec // not negative
	page = binary.LittleEndian.AppendUint32(page, o.serial)
	page = binary.LittleEndian.AppendUint32(page, o.page)
	o.page++
	const sum = 22 // place of the checksum
	page = append(page, 0, 0, 0, 0)
	var lacing []byte
	for _, p := range packs {
		n := len(p)
		for ; n >= 255; n -= 255 {
			lacing = append(lacing, 255)
		}
		lacing = append(lacing, byte(n)) //nolint:gosec // below 255
	}
	page = append(append(page, byte(len(lacing))), lacing...) //nolint:gosec // at most 60: pagePackets of maxPacket bytes
	for _, p := range packs {
		page = append(page, p...)
	}
	binary.LittleEndian.PutUint32(page[sum:], checksum(page))
	return append(b, page...)
}

// Close implements encoder.
func (o *ogg) Close() error {
	// The encoder's delay pushes the end of the sound into later packets.
	for o.made < o.total+o.skip {
		var last [opusFrame]int16
		copy(last[:], o.rest)
		o.rest = nil
		if err := o.frame(last[:]); err != nil {
			return err
		}
	}
	return o.flush(pageLast)
}

// checksum is Ogg's CRC-32: polynomial 0x04c11db7, not reflected, from 0.
func checksum(b []byte) uint32 {
	var crc uint32
	for _, v := range b {
		crc ^= uint32(v) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
