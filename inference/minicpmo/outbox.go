package minicpmo

import (
	"sync"

	"touchline/internal/wake"
)

// outbox carries the tokens of an answer from the loop to its reader. It has
// room for the whole answer, so the loop never waits.
type outbox struct {
	mu     sync.Mutex
	ids    []int32
	hidden []float32 // as many rows, if requested
	width  int
	taken  int
	ended  bool
	err    error
	wake   wake.Signal
}

func (o *outbox) init(most, width int) {
	o.ids = make([]int32, 0, most)
	if width > 0 {
		o.width = width
		o.hidden = make([]float32, 0, most*width)
	}
	o.wake = wake.New()
}

func (o *outbox) push(id int32, hidden []float32) {
	o.mu.Lock()
	o.ids = append(o.ids, id)
	if o.width > 0 {
		o.hidden = append(o.hidden, hidden...)
	}
	o.mu.Unlock()
	o.wake.Set()
}

// end closes the answer. Only the first call has an effect.
func (o *outbox) end(err error) {
	o.mu.Lock()
	if !o.ended {
		o.ended, o.err = true, err
	}
	o.mu.Unlock()
	o.wake.Set()
}

// take returns the next token. ok is false if there is none yet; ended reports
// whether the answer is complete.
func (o *outbox) take() (id int32, hidden []float32, ok, ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken < len(o.ids) {
		i := o.taken
		o.taken++
		if o.width > 0 {
			hidden = o.hidden[i*o.width : (i+1)*o.width : (i+1)*o.width]
		}
		return o.ids[i], hidden, true, false, nil
	}
	return 0, nil, false, o.ended, o.err
}
