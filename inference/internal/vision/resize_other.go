//go:build !amd64

package vision

// bestLevel returns the fastest level of this machine.
func bestLevel() level { return levelPlain }

func (f *filter) rowsFast(_ level, dst []byte, stride int, src []byte, distance, n int) {
	for i := range n {
		f.row(dst[i*stride:][:3*f.out], src[i*distance:])
	}
}

func (f *filter) columnFast(dst, src []byte, stride, y, n int) {
	f.column(dst[:n], src, stride, y)
}
