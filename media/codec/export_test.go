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

// HandOver empties the queue as a write to the process does.
func (d *Decoder) HandOver() { d.next() }

// Answers makes a Decoder handle the output of a process.
func (d *Decoder) Answers(output []byte) error {
	r := wire.NewReader(bytes.NewReader(output), 64)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = handle(d, m)
		}
		if err != nil {
			return err
		}
	}
}

// Lost simulates the end of the process.
func (d *Decoder) Lost() { d.lost() }

// Waiting returns the number of units held and unacknowledged, and the bytes of both.
func (d *Decoder) Waiting() (held, out, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue), len(d.out), d.bytes
}
