package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// The formats of -sound, with the encoders of each in the order of preference.
func soundEncoders() map[string][]string {
	return map[string][]string{"mp3": {"libmp3lame", "libshine"}, "aac": {"aac", "libfdk_aac"}}
}

// soundBitRate is plenty for one voice, in bit/s.
const soundBitRate = 64000

// aacRates are the rates of AAC, in the order of their numbers in ADTS (ISO 14496-3, table 1.18).
var aacRates = []int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000}

// encodeSound encodes mono sound, s16le, from in to its end. MP3 is a sequence of frames, AAC has ADTS headers.
func encodeSound(format string, rate int, in io.Reader, out io.Writer) error {
	names := soundEncoders()[format]
	i := slices.IndexFunc(names, func(name string) bool { return has(name, true) })
	if i < 0 {
		return fmt.Errorf("libavcodec has no encoder for %q: install one with %v", format, names)
	}
	s, err := openSound(names[i], rate, soundBitRate)
	if err != nil {
		return err
	}
	defer s.close()
	index := slices.Index(aacRates, rate)
	if format == "aac" && index < 0 {
		return fmt.Errorf("expected a rate of AAC, got %d Hz", rate)
	}
	drain := func() error {
		for {
			packet, err := s.next()
			if err != nil || packet == nil {
				return err
			}
			if format == "aac" {
				packet = append(adts(index, len(packet)), packet...)
			}
			if _, err := out.Write(packet); err != nil {
				return fmt.Errorf("write the sound: %w", err)
			}
		}
	}
	r := bufio.NewReader(in)
	raw, pcm := make([]byte, 2*s.frame()), make([]int16, s.frame())
	for {
		n, rerr := io.ReadFull(r, raw)
		if rerr != nil && !errors.Is(rerr, io.EOF) && !errors.Is(rerr, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read the sound: %w", rerr)
		}
		if n > 0 {
			clear(raw[n:]) // silence to the end of the last frame
			for i := range pcm {
				pcm[i] = int16(binary.LittleEndian.Uint16(raw[2*i:])) //nolint:gosec // the same bits
			}
			if err := errors.Join(s.send(pcm), drain()); err != nil {
				return err
			}
		}
		if rerr != nil {
			return errors.Join(s.send(nil), drain())
		}
	}
}

// adts returns the header of an AAC-LC packet of one channel (ISO 13818-7, section 6.2).
func adts(rate, size int) []byte {
	const header = 7
	size += header
	return []byte{
		0xff, 0xf1, // MPEG-4, no CRC
		byte(1<<6 | rate<<2),                                               //nolint:gosec // bits, each number as long as its field, as below
		byte(1<<6 | size>>11), byte(size >> 3), byte(size<<5 | 0x1f), 0xfc, //nolint:gosec // above
	}
}
