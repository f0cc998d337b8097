package file

import (
	"bytes"
	"time"

	"touchline/media"
)

// ReadTS, ReadIVF and ReadProbe read what ffmpeg made of strangers' files.
func ReadTS(b []byte, codec media.Codec) (n int, err error) {
	err = readTS(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil },
		func(time.Duration, [][]byte) error { return nil })
	return n, err
}

// ReadIVF reads the format of libvpx.
func ReadIVF(b []byte, codec media.Codec) (n int, err error) {
	err = readIVF(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil })
	return n, err
}

// ReadProbe reads what ffprobe found.
func ReadProbe(b []byte) error {
	_, err := readProbe(b)
	return err
}
