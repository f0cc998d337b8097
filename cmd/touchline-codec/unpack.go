package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// unpackSound decodes the sound of the file with a descriptor. It writes pieces: the rate, the number of samples (both 32 bits,
// little-endian), and the samples of one channel as floats.
func unpackSound(fd int, out io.Writer) error {
	u, err := openUnpacker(fd)
	if err != nil {
		return err
	}
	defer u.close()
	w := bufio.NewWriterSize(out, 64<<10)
	var piece []byte
	for found := false; ; found = true {
		mono, rate, err := u.next()
		if err != nil {
			return err
		}
		if len(mono) == 0 {
			if !found {
				return errors.New("the file has no sound that can be decoded")
			}
			return w.Flush()
		}
		piece = binary.LittleEndian.AppendUint32(piece[:0], uint32(rate))  //nolint:gosec // both are below 2^31
		piece = binary.LittleEndian.AppendUint32(piece, uint32(len(mono))) //nolint:gosec // above
		for _, v := range mono {
			piece = binary.LittleEndian.AppendUint32(piece, math.Float32bits(v))
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}
