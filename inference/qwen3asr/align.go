package qwen3asr

import (
	"errors"
	"fmt"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// alignerDevice are the networks of the aligner.
type alignerDevice struct {
	encoder *encoder
	table   *networks.Table
	session *ort.Session
}

// openAligner loads the aligner at its first use.
func (d *device) openAligner() (err error) {
	s := d.sel.aligner
	if d.aligner != nil || s == nil {
		return nil
	}
	a := &alignerDevice{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("load the aligner: %w", errors.Join(err, a.close()))
		}
	}()
	if a.table, err = networks.OpenTable(s.bundle, s.embed, d.float.Size()); err != nil {
		return err
	}
	if a.encoder, err = d.openEncoder(s.bundle, s.encoder); err != nil {
		return err
	}
	if a.session, err = d.runtime.NewSession(s.bundle.Path(s.decoder.File), d.dev, d.decoding()); err != nil {
		return err
	}
	d.aligner = a
	return nil
}

func (a *alignerDevice) close() error {
	var err error
	if a.encoder != nil {
		err = a.encoder.close()
	}
	if a.session != nil {
		err = errors.Join(err, a.session.Close())
	}
	return errors.Join(err, a.table.Close())
}

// align runs the aligner over a whole prompt, whose sound is encoded.
func (d *device) align(j *job) (_ []int32, err error) {
	a := d.aligner
	arena := networks.NewArena(d.runtime, d.dev) // prompts differ in length
	defer func() { err = errors.Join(err, arena.Close()) }()
	n, hidden := len(j.prompt.ids), d.sel.aligner.dims().Hidden
	embeds := make([]byte, n*a.table.Row())
	if err := fill(embeds, a.table, j, 0, n); err != nil {
		return nil, err
	}
	run, err := arena.NewRun(a.session, ort.NoGraph)
	if err != nil {
		return nil, err
	}
	input := func(name string, t models.Type, data []byte, shape ...int64) {
		m, x, failed := arena.Tensor(name, t, shape...)
		if failed == nil {
			failed = errors.Join(d.dev.CopyIn(m.At(0), data), run.BindInput(name, x))
		}
		err = errors.Join(err, failed)
	}
	input("inputs_embeds", d.float, embeds, 1, int64(n), int64(hidden))
	input("seqlens_k", models.Int32, ort.Bytes([]int32{int32(n - 1)}), 1)
	input("positions", models.Int64, ort.Bytes(j.slots), int64(len(j.slots)))
	total, failed := arena.Scalar(n)
	out, classes, failed2 := arena.Tensor("classes", models.Int64, int64(len(j.slots)))
	if err = errors.Join(err, failed, failed2); err != nil {
		return nil, err
	}
	if err := errors.Join(run.BindInput("total_sequence_length", total), run.BindOutput("classes", classes)); err != nil {
		return nil, err
	}
	if err := run.Do(); err != nil {
		return nil, err
	}
	best := make([]int64, len(j.slots))
	if err := errors.Join(d.dev.CopyOut(ort.Bytes(best), out.At(0)), d.dev.Synchronize()); err != nil {
		return nil, err
	}
	found := make([]int32, len(best))
	for i, c := range best {
		found[i] = int32(c)
	}
	return found, nil
}
