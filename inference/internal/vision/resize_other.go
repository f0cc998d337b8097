//go:build !amd64

package vision

// vectorised tells whether the fast passes run on this machine.
func vectorised() bool { return false }

func (f *filter) rowsFast(dst []byte, stride int, src []byte, distance, n int) {
	for i := range n {
		f.row(dst[i*stride:][:3*f.out], src[i*distance:])
	}
}

func (f *filter) columnFast(dst, src []byte, stride, y, n int) {
	f.column(dst[:n], src, stride, y)
}
