package convert

import "context"

// WithSpace is Convert on a disk with free bytes, in files of at most maxData bytes.
func WithSpace(ctx context.Context, src Source, dst string, o Options, free, maxData int64) error {
	return convert(ctx, src, dst, o, machine{free: func(string) (int64, error) { return free, nil }, maxData: maxData})
}
