//nolint:gocritic // It reads the code that cgo makes of calls, and finds comparisons in it.
package main

/*
#cgo pkg-config: libavcodec libavutil libswscale
#cgo CFLAGS: -O2 -Wall
#include "libav.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"touchline/media/codec/wire"
)

// libavError returns an error with libav's text for a code.
func libavError(doing string, code C.int) error {
	var text [128]C.char
	C.tl_error(code, &text[0], C.int(len(text)))
	return fmt.Errorf("%s: %s", doing, C.GoString(&text[0]))
}

func setUpLibav() { C.tl_setup() }

// has reports whether libav was built with a decoder or encoder.
func has(name string, encoder bool) bool {
	var e C.int
	if encoder {
		e = 1
	}
	return C.tl_has(cString(name), e) != 0
}

// cString returns a C string in Go memory, valid for one call.
func cString(s string) *C.char {
	b := append([]byte(s), 0)
	return (*C.char)(unsafe.Pointer(&b[0]))
}

// decoder is an open libav decoder with its newest picture.
type decoder struct {
	c    C.tl_decoder
	name string
}

func openDecoder(name string) (*decoder, error) {
	d := &decoder{name: name}
	if err := C.tl_decoder_open(&d.c, cString(name), wire.MaxPixels); err < 0 {
		d.close()
		return nil, libavError("open decoder "+name, err)
	}
	return d, nil
}

func (d *decoder) close() { C.tl_decoder_close(&d.c) }

// send decodes one access unit, whose picture is turned by quarters. Empty data flushes the decoder.
func (d *decoder) send(data []byte, id uint64, quarters uint8) error {
	d.c.quarters = C.int(quarters)
	var p unsafe.Pointer
	if len(data) > 0 {
		p = unsafe.Pointer(&data[0])
	}
	if err := C.tl_send(&d.c, p, C.int(len(data)), C.int64_t(id)); err < 0 {
		return libavError(d.name, err)
	}
	return nil
}

// picture describes a decoded picture.
type picture struct {
	id            uint64
	width, height int
}

// receive fetches the next picture, if any, and keeps it as the newest.
func (d *decoder) receive() (p picture, ok bool, err error) {
	var id C.int64_t
	var w, h C.int
	switch n := C.tl_receive(&d.c, &id, &w, &h); {
	case n < 0:
		return picture{}, false, libavError(d.name, n)
	case n == 0:
		return picture{}, false, nil
	}
	return picture{id: uint64(max(id, 0)), width: int(w), height: int(h)}, true, nil
}

// cover makes the pixels of runs black in the newest picture; each run is a row, its first column and the one after its last.
func (d *decoder) cover(runs []int32) error {
	if len(runs) == 0 {
		return nil
	}
	if err := C.tl_cover(&d.c, (*C.int32_t)(unsafe.Pointer(&runs[0])), C.int(len(runs)/3)); err < 0 {
		return libavError("mask", err)
	}
	return nil
}

// slack is the space that rgb needs after a picture.
const slack = C.TL_SLACK

// rgb writes the newest picture into dst, of 3*w*h bytes and slack.
func (d *decoder) rgb(dst []byte, w, h int) error {
	if len(dst) < 3*w*h+slack {
		return fmt.Errorf("scale to %d x %d: the buffer of %d bytes is too small", w, h, len(dst))
	}
	if err := C.tl_rgb(&d.c, (*C.uint8_t)(unsafe.Pointer(&dst[0])), C.int(w), C.int(h)); err < 0 {
		return libavError("scale", err)
	}
	return nil
}

// matrix returns the newest picture's colour matrix as libav's constant.
func (d *decoder) matrix() int { return int(d.c.newest.colorspace) }

// matrixUnknown omits the colour matrix from the stream.
const matrixUnknown = C.AVCOL_SPC_UNSPECIFIED

// encoder is a libav encoder, open or closed, with a buffer for raw pictures.
type encoder struct {
	c             C.tl_encoder
	name          string
	codec         wire.Codec
	width, height int
	fps           int
}

// open opens the encoder for pictures of w x h pixels, both even.
func (e *encoder) open(name string, w, h, fps, bitRate, matrix int) error {
	e.close()
	err := C.tl_encoder_open(&e.c, cString(name), C.int(w), C.int(h), C.int(fps), C.int64_t(bitRate), C.int(matrix))
	if err < 0 {
		e.close()
		return libavError("open encoder "+name, err)
	}
	e.name, e.width, e.height, e.fps = name, w, h, fps
	return nil
}

func (e *encoder) close() {
	C.tl_encoder_close(&e.c)
	e.name, e.width, e.height = "", 0, 0
}

// newest encodes the decoder's newest picture.
func (e *encoder) newest(d *decoder, key bool) error {
	if err := C.tl_encode_newest(&e.c, &d.c, cBool(key)); err < 0 {
		return libavError(e.name, err)
	}
	return nil
}

// room returns the buffer for a raw picture's message of n bytes, or nil.
func (e *encoder) room(n int) []byte {
	if n < wire.RawHead {
		return nil
	}
	p := C.tl_raw_room(&e.c, wire.RawHead, C.int(n-wire.RawHead))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
}

// leave frees the buffer of room, which close keeps for the next encoder.
func (e *encoder) leave() { C.tl_raw_free(&e.c) }

// raw encodes the picture in the buffer.
func (e *encoder) raw(m wire.Raw) error {
	err := C.tl_encode_raw(&e.c, C.int(m.Width), C.int(m.Height), cBool(m.Flags&wire.FlagForceKey != 0))
	if err < 0 {
		return libavError(e.name, err)
	}
	return nil
}

// next returns the next access unit; data is valid until the next call.
func (e *encoder) next() (data []byte, key, ok bool, err error) {
	var p *C.uint8_t
	var n, k C.int
	switch r := C.tl_encoded(&e.c, &p, &n, &k); {
	case r < 0:
		return nil, false, false, libavError(e.name, r)
	case r == 0:
		return nil, false, false, nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n)), k != 0, true, nil
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// sound encodes mono sound of 16 bits.
type sound struct{ c C.tl_sound }

func openSound(name string, rate, bitRate int) (*sound, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	s := &sound{}
	if n := C.tl_sound_open(&s.c, cname, C.int(rate), C.int64_t(bitRate)); n < 0 {
		s.close()
		return nil, libavError("open the encoder "+name, n)
	}
	return s, nil
}

func (s *sound) close() { C.tl_sound_close(&s.c) }

// frame returns the number of samples of each call of send.
func (s *sound) frame() int { return int(C.tl_sound_frame(&s.c)) }

// send encodes one frame; nil ends the sound.
func (s *sound) send(pcm []int16) error {
	var first *C.int16_t
	if len(pcm) > 0 {
		first = (*C.int16_t)(unsafe.Pointer(&pcm[0]))
	}
	if n := C.tl_sound_send(&s.c, first); n < 0 {
		return libavError("encode sound", n)
	}
	return nil
}

// next returns the next packet, which is valid until the next call; nil when there is none yet.
func (s *sound) next() ([]byte, error) {
	var data *C.uint8_t
	var size C.int
	switch n := C.tl_sound_next(&s.c, &data, &size); {
	case n < 0:
		return nil, libavError("encode sound", n)
	case n == 0:
		return nil, nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)), nil
}

// loadUnpacker loads the demuxers of audio files. Call it before child.Pure.
func loadUnpacker() error {
	if C.tl_unpack_load() < 0 {
		return errors.New("libavformat is missing or was missing at the build: install it (libavformat-dev for the build)")
	}
	return nil
}

// unpacker decodes the audio of a file.
type unpacker struct{ c C.tl_unpack }

func openUnpacker(fd int) (*unpacker, error) {
	u := &unpacker{}
	if err := C.tl_unpack_open(&u.c, C.int(fd)); err < 0 {
		u.close()
		return nil, libavError("open the file", err)
	}
	return u, nil
}

func (u *unpacker) close() { C.tl_unpack_close(&u.c) }

// next returns the next samples, valid until the next call, and their rate; none at the end.
func (u *unpacker) next() (mono []float32, rate int, err error) {
	var data *C.float
	var r C.int
	n := C.tl_unpack_next(&u.c, &data, &r)
	if n < 0 {
		return nil, 0, libavError("decode the sound", n)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(data)), int(n)), int(r), nil
}
