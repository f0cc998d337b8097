package device

import (
	"errors"
	"fmt"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// Port describes the rows of an input or output: a row for each slot, of Shape.
type Port struct {
	Name  string
	Type  models.Type
	Shape []int64
	// Per is the number of rows of a slot, if it is not 1.
	Per int64
	// Host gives the rows memory on the host. Such inputs are copied to the device before each run.
	Host bool
}

// Rows is the memory of a port. Its address is fixed, because a captured graph reads
// and writes the addresses of its capture.
type Rows struct {
	port         Port
	width        int64 // bytes of a slot
	base         int64 // of the first slot in memory
	memory, host *ort.Memory
}

// NewRows allocates zeroed rows for n slots. See Err.
func (a *Arena) NewRows(p Port, n int) *Rows { return a.AllRows(p.Name, []Port{p}, n)[0] }

// AllRows is NewRows for several ports whose memory on the device is one piece: hundreds of small ones would each be rounded up.
func (a *Arena) AllRows(what string, ports []Port, n int) []*Rows {
	const aligned = 256
	rows, total := make([]*Rows, len(ports)), int64(0)
	for i, p := range ports {
		p.Per = max(p.Per, 1)
		r := &Rows{port: p, width: p.Per * int64(p.Type.Size()), base: total}
		for _, size := range p.Shape {
			r.width *= size
		}
		rows[i] = r
		total += (int64(n)*r.width + aligned - 1) / aligned * aligned
	}
	memory := a.Memory(what, total)
	for _, r := range rows {
		r.memory = memory
		if r.port.Host {
			r.host = a.Host(r.port.Name, int64(n)*r.width)
		}
	}
	if a.failed != nil {
		return rows
	}
	_ = a.fail("zero "+what, a.dev.Memset(memory.At(0), 0, memory.Size()))
	for _, r := range rows {
		if r.host != nil {
			clear(r.host.Bytes())
		}
	}
	return rows
}

// Port returns the port of the rows.
func (r *Rows) Port() Port { return r.port }

// Width returns the bytes of a slot.
func (r *Rows) Width() int64 { return r.width }

// Host returns the rows of n slots on the host. For an output, they come from the last Fetch.
func (r *Rows) Host(from, n int) []byte {
	return r.host.Bytes()[int64(from)*r.width : int64(from+n)*r.width]
}

// At returns the place of a slot's rows on the device.
func (r *Rows) At(slot int) ort.Pointer { return r.Within(slot, 0) }

// Within returns the place at an offset, in bytes, in a slot's rows on the device.
func (r *Rows) Within(slot int, offset int64) ort.Pointer {
	return r.memory.At(r.base + int64(slot)*r.width + offset)
}

// CopySlots queues copies of some slots of rows to as many slots of others, from to on, in few pieces where many rows lie at equal
// distances in both.
func (a *Arena) CopySlots(dst []*Rows, to int, src []*Rows, r kvcache.Range) error {
	step := func(rows []*Rows, i int) int64 {
		if rows[i].memory != rows[i-1].memory {
			return -1
		}
		return rows[i].base - rows[i-1].base
	}
	for i := 0; i < len(src); {
		bytes, n := int64(r.Size)*src[i].width, 1
		if dst[i].width != src[i].width {
			return fmt.Errorf("copy %s to %s: expected rows of equal size", src[i].port.Name, dst[i].port.Name)
		}
		dstStep, srcStep := bytes, bytes
		for ; i+n < len(src) && src[i+n].width == src[i].width && dst[i+n].width == dst[i].width; n++ {
			d, s := step(dst, i+n), step(src, i+n)
			if n == 1 {
				dstStep, srcStep = d, s
			}
			if d != dstStep || s != srcStep || min(d, s) < bytes {
				break
			}
		}
		if n == 1 {
			dstStep, srcStep = bytes, bytes
		}
		if err := a.dev.CopyRows(dst[i].At(to), dstStep, src[i].At(r.Start), srcStep, bytes, n); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// copyIn queues the copy of the rows of n slots to the device.
func (r *Rows) copyIn(dev *ort.Device, from, n int) error {
	if r.host == nil {
		return nil
	}
	return dev.CopyIn(r.At(from), r.Host(from, n))
}

// Fetch copies the rows of a range of slots to the host, and waits for them.
func (a *Arena) Fetch(r kvcache.Range, outputs ...*Rows) error {
	for _, rows := range outputs {
		if err := a.Copy(r, rows); err != nil {
			return err
		}
	}
	return a.dev.Synchronize()
}

// Copy queues the copy of the rows of a range of slots to the host.
func (a *Arena) Copy(r kvcache.Range, rows *Rows) error {
	return a.dev.CopyOut(rows.Host(r.Start, r.Size), rows.At(r.Start))
}

// NetworkOptions describe a network.
type NetworkOptions struct {
	Session *ort.Session
	Layout  kvcache.Layout // of the slots
	// Captured is the largest range that runs as a CUDA graph. Graphs is the number before the network's first graph; it differs among the
	// networks of a session.
	Captured, Graphs int
	// Async makes runs return once they are queued: their inputs on the host must not change before the next Fetch.
	Async bool
	// Inputs and Outputs by name. An input and an output may have the same rows.
	Inputs, Outputs map[string]*Rows
	// Shared are inputs that are the same for all slots and never change.
	Shared map[string]*ort.Tensor
}

// Network runs a graph over ranges of slots.
type Network struct {
	arena *Arena
	o     NetworkOptions
	runs  []*Run // by kvcache index, made when needed
}

// NewNetwork returns a network whose handles close with the arena.
func (a *Arena) NewNetwork(o NetworkOptions) *Network {
	return &Network{arena: a, o: o, runs: make([]*Run, len(o.Layout.Ranges(o.Layout.Slots)))}
}

// Run copies the inputs of a range to the device and queues the run.
func (n *Network) Run(r kvcache.Range) error {
	run, err := n.run(r)
	if err != nil {
		return err
	}
	for _, in := range n.o.Inputs {
		if err := in.copyIn(n.arena.dev, r.Start, r.Size); err != nil {
			return err
		}
	}
	return run.Do()
}

func (n *Network) run(r kvcache.Range) (*Run, error) {
	i := n.o.Layout.Index(r)
	if n.runs[i] != nil {
		return n.runs[i], nil
	}
	graph := ort.NoGraph
	if r.Size <= n.o.Captured {
		graph = n.o.Graphs + i + 1
	}
	run, err := n.arena.NewRun(n.o.Session, graph)
	if err != nil {
		return nil, err
	}
	if err := run.options.SetAsync(n.o.Async); err != nil {
		return nil, err
	}
	if err := n.bind(run, r); err != nil {
		return nil, fmt.Errorf("bind slots %d to %d: %w", r.Start, r.Start+r.Size-1, err)
	}
	n.runs[i] = run
	return run, nil
}

// bind binds the rows of a range.
func (n *Network) bind(run *Run, r kvcache.Range) error {
	err := errors.Join(n.arena.Bind(n.o.Inputs, r, run.BindInput), n.arena.Bind(n.o.Outputs, r, run.BindOutput))
	for name, t := range n.o.Shared {
		err = errors.Join(err, run.BindInput(name, t))
	}
	return err
}

// Bind calls bind with the tensor of each port's rows of a range.
func (a *Arena) Bind(ports map[string]*Rows, r kvcache.Range, bind func(string, *ort.Tensor) error) error {
	var err error
	for name, rows := range ports {
		t, failed := a.TensorAt(rows.At(r.Start), rows.port.Type, append([]int64{int64(r.Size) * rows.port.Per}, rows.port.Shape...)...)
		if failed == nil {
			failed = bind(name, t)
		}
		err = errors.Join(err, failed)
	}
	return err
}
