package minicpmo

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"touchline/models"
	"touchline/models/onnx"
)

// table is the embeddings of the vocabulary, mapped from the bundle's data
// file: the one copy there is, in the page cache. A row goes to the device
// when its token is fed.
type table struct {
	mapped []byte
	rows   []byte
	row    int // bytes
	count  int
}

// openTable finds the table in the graph of the embedding lookup.
func openTable(b *models.Bundle, g models.Graph, elem int) (*table, error) {
	d := b.Manifest.Dims.Decoder
	fail := func(err error) (*table, error) {
		return nil, fmt.Errorf("map the embedding table of %s: %w", g.File, err)
	}
	raw, err := os.ReadFile(b.Path(g.File))
	if err != nil {
		return fail(err)
	}
	m, err := onnx.Unmarshal(raw)
	if err != nil {
		return fail(err)
	}
	want := int64(d.Vocab) * int64(d.Hidden) * int64(elem)
	for _, w := range m.Graph.Initializers {
		if w.External == nil || !slices.Equal(w.Shape, []int64{int64(d.Vocab), int64(d.Hidden)}) {
			continue
		}
		if w.External.Length != want {
			return fail(fmt.Errorf("expected %d bytes for [%d,%d], has %d", want, d.Vocab, d.Hidden, w.External.Length))
		}
		f, err := os.Open(b.Path(w.External.Location))
		if err != nil {
			return fail(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fail(err)
		}
		if w.External.Offset < 0 || w.External.Offset > info.Size()-want {
			return fail(fmt.Errorf("expected %d bytes at %d in %s, it has %d", want, w.External.Offset, w.External.Location, info.Size()))
		}
		page := int64(os.Getpagesize())
		begin := w.External.Offset / page * page
		skip := w.External.Offset - begin
		mapped, err := unix.Mmap(int(f.Fd()), begin, int(want+skip), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return fail(err)
		}
		// Read ahead: a token whose row is not in memory would hold up every room.
		_ = unix.Madvise(mapped, unix.MADV_WILLNEED)
		return &table{mapped: mapped, rows: mapped[skip:], row: d.Hidden * elem, count: d.Vocab}, nil
	}
	return fail(fmt.Errorf("no initializer of shape [%d,%d] in a data file", d.Vocab, d.Hidden))
}

// copy puts the row of an id into dst. An id outside gives zeros.
func (t *table) copy(dst []byte, id int32) {
	if id < 0 || int(id) >= t.count {
		clear(dst[:t.row])
		return
	}
	copy(dst[:t.row], t.rows[int(id)*t.row:])
}

func (t *table) close() error {
	if t == nil || t.mapped == nil {
		return nil
	}
	m := t.mapped
	t.mapped, t.rows = nil, nil
	return unix.Munmap(m)
}
