package device

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"touchline/models"
)

// Table holds the embeddings of a vocabulary, mapped from a bundle's data file; the
// only copy is in the page cache. Feeding a token copies its row to the device.
type Table struct {
	mapped []byte
	rows   []byte
	row    int // bytes
	count  int
}

// OpenTable maps the table of an embedding lookup. elem is the bytes of a number.
func OpenTable(b *models.Bundle, g models.Graph, elem int) (*Table, error) {
	d := b.Manifest.Dims.Decoder
	t := &Table{row: d.Hidden * elem, count: d.Vocab}
	at, err := b.Table(g, d.Vocab, d.Hidden)
	if err == nil {
		err = t.open(b.Path(at.File), at)
	}
	if err != nil {
		return nil, fmt.Errorf("map the embedding table: %w", err)
	}
	return t, nil
}

func (t *Table) open(path string, at *models.Tensor) error {
	want := int64(t.count) * int64(t.row)
	if at.Bytes() != want {
		return fmt.Errorf("%s: must have %d bytes for %d rows of %d, has %d", at.File, want, t.count, t.row, at.Bytes())
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if at.Offset < 0 || at.Offset > info.Size()-want {
		return fmt.Errorf("expected %d bytes at %d in %s, got %d", want, at.Offset, at.File, info.Size())
	}
	skip := at.Offset % int64(os.Getpagesize())
	if t.mapped, err = unix.Mmap(int(f.Fd()), at.Offset-skip, int(want+skip), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	// Read ahead: a row that is not in memory would delay every room.
	_ = unix.Madvise(t.mapped, unix.MADV_WILLNEED)
	t.rows = t.mapped[skip:]
	return nil
}

// Row returns the bytes of a row.
func (t *Table) Row() int { return t.row }

// Copy copies the row of an id to dst, or zeros for an id outside the vocabulary.
func (t *Table) Copy(dst []byte, id int32) {
	if id < 0 || int(id) >= t.count {
		clear(dst[:t.row])
		return
	}
	copy(dst[:t.row], t.rows[int(id)*t.row:])
}

// Close unmaps the table; a nil one has nothing to unmap.
func (t *Table) Close() error {
	if t == nil || t.mapped == nil {
		return nil
	}
	m := t.mapped
	t.mapped, t.rows = nil, nil
	return unix.Munmap(m)
}
