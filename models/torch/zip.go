package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// entry is a file in the archive.
type entry struct {
	name string
	data []byte
	sum  uint32 // CRC-32
}

const (
	endSize, end64Size, locatorSize = 22, 56, 20
	headSize, localSize             = 46, 30

	// maxEntries is the maximum number of files in the archive.
	maxEntries = 1 << 20
)

// readDirectory reads the zip's directory at the end of the file. All entries
// must be stored without compression, as torch.save does.
func readDirectory(content []byte) ([]entry, error) {
	d, err := findDirectory(content)
	if err != nil {
		return nil, err
	}
	rest := content[d.offset : d.offset+d.size]
	var entries []entry
	for range d.count {
		h, used, err := readHead(rest)
		if err != nil {
			return nil, fmt.Errorf("zip: entry %d: %w", len(entries), err)
		}
		rest = rest[used:]
		e := entry{name: h.name, sum: h.sum}
		if e.data, err = h.data(content[:d.offset]); err != nil {
			return nil, fmt.Errorf("zip: entry %.100q: %w", h.name, err)
		}
		entries = append(entries, e)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("zip: %d bytes after the last entry of the directory", len(rest))
	}
	return entries, nil
}

// directory is the place of the directory.
type directory struct{ count, size, offset uint64 }

func findDirectory(content []byte) (d directory, err error) {
	at := len(content) - endSize
	if at < 0 || !signed(content[at:], "PK\x05\x06") {
		return d, errors.New("zip: no directory at the end: not a file of torch.save (1.6 or newer), or truncated")
	}
	le := binary.LittleEndian
	end := content[at:]
	d = directory{count: uint64(le.Uint16(end[10:])), size: uint64(le.Uint32(end[12:])), offset: uint64(le.Uint32(end[16:]))}
	if locator := at - locatorSize; locator >= 0 && signed(content[locator:], "PK\x06\x07") {
		at = locator - end64Size
		if at < 0 || !signed(content[at:], "PK\x06\x06") || le.Uint64(content[locator+8:]) != uint64(at) {
			return d, errors.New("zip: the 64-bit directory is damaged")
		}
		end = content[at:]
		d = directory{count: le.Uint64(end[32:]), size: le.Uint64(end[40:]), offset: le.Uint64(end[48:])}
	}
	if d.offset > uint64(at) || d.size != uint64(at)-d.offset {
		return d, fmt.Errorf("zip: the directory of %d bytes at %d does not end at %d", d.size, d.offset, at)
	}
	if d.count > maxEntries {
		return d, fmt.Errorf("zip: must have at most %d entries, has %d", maxEntries, d.count)
	}
	return d, nil
}

// head is an entry of the directory.
type head struct {
	name         string
	sum          uint32
	size, offset uint64
}

// readHead reads an entry and returns its size in the directory.
func readHead(b []byte) (h head, used int, err error) {
	if len(b) < headSize || !signed(b, "PK\x01\x02") {
		return h, 0, errors.New("no header")
	}
	le := binary.LittleEndian
	names, extras, comments := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	used = headSize + names + extras + comments
	if used > len(b) {
		return h, 0, errors.New("the header is truncated")
	}
	h = head{
		name: string(b[headSize:][:names]), sum: le.Uint32(b[16:]),
		size: uint64(le.Uint32(b[24:])), offset: uint64(le.Uint32(b[42:])),
	}
	packed := uint64(le.Uint32(b[20:]))
	if le.Uint16(b[8:])&1 != 0 || le.Uint16(b[10:]) != 0 {
		return h, 0, fmt.Errorf("%.100q: must be neither compressed nor encrypted", h.name)
	}
	wide := zip64(b[headSize+names:][:extras])
	for _, field := range []*uint64{&h.size, &packed, &h.offset} {
		if *field != 1<<32-1 {
			continue
		}
		if len(wide) < 8 {
			return h, 0, fmt.Errorf("%.100q: a 64-bit size is missing", h.name)
		}
		*field, wide = le.Uint64(wide), wide[8:]
	}
	if h.size != packed {
		return h, 0, fmt.Errorf("%.100q: must be stored as it is, has %d bytes of %d", h.name, packed, h.size)
	}
	return h, used, nil
}

// zip64 returns the field of 64-bit sizes among the extra fields, or nil.
func zip64(extra []byte) []byte {
	for len(extra) >= 4 {
		id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		extra = extra[4:]
		if n > len(extra) {
			return nil
		}
		if id == 1 {
			return extra[:n]
		}
		extra = extra[n:]
	}
	return nil
}

// data returns the entry's bytes, which follow its local header.
func (h head) data(files []byte) ([]byte, error) {
	n := uint64(len(files))
	if h.offset > n || n-h.offset < localSize || !signed(files[h.offset:], "PK\x03\x04") {
		return nil, errors.New("no local header")
	}
	local := files[h.offset:]
	from := localSize + uint64(binary.LittleEndian.Uint16(local[26:])) + uint64(binary.LittleEndian.Uint16(local[28:]))
	if rest := uint64(len(local)); from > rest || h.size > rest-from {
		return nil, fmt.Errorf("truncated: %d bytes exceed the file", h.size)
	}
	return local[from : from+h.size : from+h.size], nil
}

func signed(b []byte, signature string) bool {
	return len(b) >= 4 && string(b[:4]) == signature
}
