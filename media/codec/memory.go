package codec

import (
	"fmt"
	"sync"

	"touchline/media/codec/wire"
)

// Memory bounds the memory of all decoders of a program whose pictures have more than 4096 x 2304 pixels, by the declared sizes. A nil
// Memory has no bound. It is safe for concurrent use.
type Memory struct {
	most int64

	mu   sync.Mutex
	used int64
}

// NewMemory returns a Memory of so many bytes.
func NewMemory(most int64) *Memory { return &Memory{most: most} }

// perPixel is the memory of a decoder for each pixel of its source, in bytes: a dozen pictures as 8-bit 4:2:0.
const perPixel = 18

// reserve changes what a decoder holds to what a picture needs, and returns it. A decoder keeps what it holds for a smaller picture.
func (m *Memory) reserve(held int64, width, height int) (int64, error) {
	need := int64(width) * int64(height) * perPixel
	if m == nil || need <= held || width*height <= wire.MaxPicture {
		return held, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if used := m.used - held; used+need > m.most {
		const mb = 1 << 20
		return held, fmt.Errorf("a picture of %d x %d pixels needs %d MB of memory; %d of the %d MB of sources.memory are in use",
			width, height, need/mb, used/mb, m.most/mb)
	}
	m.used += need - held
	return need, nil
}

// free returns what a decoder holds.
func (m *Memory) free(held int64) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.used -= held
	}
}
