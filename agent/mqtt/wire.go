package mqtt

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// maxPacket bounds packets from the broker, in bytes. They are acknowledgements and Home Assistant's retained messages.
const maxPacket = 64 << 10

var (
	errOldBroker = errors.New("the broker speaks MQTT 3.1.1 only; MQTT 5 is required (Mosquitto 1.6 or newer, EMQX, HiveMQ)")
	errClosed    = errors.New("the broker closed the connection without an answer; it may speak MQTT 3.1.1 only, or another protocol")
	errQoS2      = errors.New("the broker sent a packet of QoS 2, which nothing here uses")
	errLength    = errors.New("the broker sent a packet without a valid length")
)

// conn is a connection to a broker. It checks the size of each packet, so that a broker cannot make the client
// allocate too much, and recognises the answer of a broker without MQTT 5. Writers lock it.
type conn struct {
	net.Conn
	sync.Mutex

	header []byte // the bytes read of the present packet's header
	left   int    // unread bytes of the present packet's body
	began  bool   // a byte was read
	err    error  // of an earlier Read
}

// Read implements net.Conn. A packet's header is returned byte by byte.
func (c *conn) Read(p []byte) (int, error) {
	if c.err != nil || len(p) == 0 {
		return 0, c.err
	}
	if c.left == 0 {
		p = p[:1]
	}
	n, err := c.Conn.Read(p[:min(len(p), max(c.left, 1))])
	if n == 0 {
		if (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !c.began {
			err = errClosed
		}
		return 0, err
	}
	c.began = true
	if c.left > 0 {
		c.left -= n
		return n, err
	}
	c.header = append(c.header, p[0])
	size, whole, herr := packetSize(c.header)
	if herr != nil {
		c.err = herr
		return 0, herr
	}
	if whole {
		c.header, c.left = c.header[:0], size
	}
	return n, err
}

// packetSize reads the size of a packet's body from its header. whole is false for an incomplete header.
func packetSize(header []byte) (size int, whole bool, err error) {
	switch header[0] >> 4 {
	case 5, 6, 7: // PUBREC, PUBREL, PUBCOMP: the client would answer, also without a connection, and panic
		return 0, false, errQoS2
	}
	for i, b := range header[1:] {
		size |= int(b&0x7f) << (7 * i)
		switch {
		case b&0x80 == 0 && header[0] == 0x20 && size == 2: // CONNACK, which has three bytes or more in MQTT 5
			return 0, false, errOldBroker
		case b&0x80 == 0 && size > maxPacket:
			return 0, false, fmt.Errorf("the broker sent a packet of %d bytes; at most %d are read", size, maxPacket)
		case b&0x80 == 0:
			return size, true, nil
		case i == 3:
			return 0, false, errLength
		}
	}
	return 0, false, nil
}
