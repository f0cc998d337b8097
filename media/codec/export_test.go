package codec

import (
	"bytes"
	"errors"
	"io"

	"touchline/media/codec/wire"
)

// Begin lets a Decoder take access units without a process.
func (d *Decoder) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = true
}

// HandOver has what waits written, to nobody.
func (d *Decoder) HandOver() { d.next() }

// Answers has a Decoder take what a process said.
func (d *Decoder) Answers(said []byte) error {
	r := wire.NewReader(bytes.NewReader(said), 64)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = d.handle(m)
		}
		if err != nil {
			return err
		}
	}
}

// Lost is the end of the process.
func (d *Decoder) Lost() { d.lost() }

// Waiting is what is held, handed over and not done, and the bytes of both.
func (d *Decoder) Waiting() (held, out, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue), len(d.out), d.bytes
}
