package ingest

// bits reads a bitstream, most significant bit first. Reading past the end returns
// zeros and sets short, so that a parser checks once at its end.
type bits struct {
	data  []byte
	pos   int // in bits
	short bool
}

func (b *bits) bit() uint32 {
	i := b.pos >> 3
	if i >= len(b.data) {
		b.short = true
		return 0
	}
	v := b.data[i] >> (7 - b.pos&7) & 1
	b.pos++
	return uint32(v)
}

// flag reads one bit as a boolean.
func (b *bits) flag() bool { return b.bit() == 1 }

// read reads n bits, at most 32.
func (b *bits) read(n int) uint32 {
	var v uint32
	for range n {
		v = v<<1 | b.bit()
	}
	return v
}

func (b *bits) skip(n int) {
	b.pos += n
	if b.pos > len(b.data)*8 {
		b.short = true
		b.pos = len(b.data) * 8
	}
}

// golomb reads an unsigned Exp-Golomb code (H.264 and H.265 section 9).
func (b *bits) golomb() uint32 {
	zeros := 0
	for b.bit() == 0 {
		zeros++
		if zeros > 31 || b.short {
			b.short = true
			return 0
		}
	}
	return 1<<zeros - 1 + b.read(zeros)
}
