package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"touchline/models/disk"
)

// writeData writes all data files. Workers take tasks in order; the worker that
// completes a file also computes its checksum.
func (c *conversion) writeData(ctx context.Context, progress *meter) (err error) {
	defer func() {
		for _, f := range c.layout.files {
			if f.f != nil {
				err = errors.Join(err, f.f.Close())
			}
		}
	}()
	for _, f := range c.layout.files {
		if f.f, err = os.OpenFile(c.folder.file(f.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err != nil {
			return err
		}
		if err := f.f.Truncate(f.size); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	tasks := c.layout.tasks()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(c.Workers, max(len(tasks), 1)) {
		group.Go(func() error {
			w := newWorker(c.Clamp)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tasks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := c.one(ctx, w, tasks[i], progress); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// one runs a task and hashes the files that it completes.
func (c *conversion) one(ctx context.Context, w *worker, t task, progress *meter) error {
	if err := w.do(t); err != nil {
		return fmt.Errorf("write %s: %w", t.outputs[0].file.name, err)
	}
	progress.add(t.sourceBytes(t.from, t.to), 0)
	for _, o := range t.outputs {
		if o.file.left.Add(-1) > 0 {
			continue
		}
		sum, err := disk.HashFile(ctx, c.folder.file(o.file.name), func(n int64) { progress.add(0, n) })
		if err != nil {
			return fmt.Errorf("checksum of %s: %w", o.file.name, err)
		}
		o.file.sum = sum
	}
	return nil
}
