package sight

import (
	"errors"
	"fmt"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
	"touchline/models"
)

// network is a graph on the CPU that uses one thread a run. Safe for concurrent use.
type network struct {
	runtime *ort.Runtime
	device  *ort.Device
	session *ort.Session
}

// openNetwork loads a graph with an ONNX Runtime, as for a model: a file, a folder, or "" to search.
func openNetwork(library, file string, o ort.SessionOptions) (*network, error) {
	n := &network{}
	var err error
	if n.runtime, err = ort.Open(library); err == nil {
		n.device, err = n.runtime.NewDevice(ort.CPU, 0)
	}
	if err == nil {
		o.Threads = 1
		n.session, err = n.runtime.NewSession(file, n.device, o)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close frees the network after its calls.
func (n *network) Close() error {
	var errs []error
	if n.session != nil {
		errs = append(errs, n.session.Close())
	}
	if n.device != nil {
		errs = append(errs, n.device.Close())
	}
	if n.runtime != nil {
		errs = append(errs, n.runtime.Close())
	}
	return errors.Join(errs...)
}

// call has the tensors of one run at a time.
type call struct {
	network *network
	binding *ort.Binding
	tensors []*ort.Tensor
}

func (n *network) newCall() (*call, error) {
	b, err := n.session.NewBinding()
	return &call{network: n, binding: b}, err
}

// input binds a new tensor and returns its numbers.
func (c *call) input(name string, shape ...int64) ([]float32, error) {
	return c.bind((*ort.Binding).BindInput, name, shape)
}

// output is input for an output.
func (c *call) output(name string, shape ...int64) ([]float32, error) {
	return c.bind((*ort.Binding).BindOutput, name, shape)
}

func (c *call) bind(to func(*ort.Binding, string, *ort.Tensor) error, name string, shape []int64) ([]float32, error) {
	t, err := c.network.device.NewHostTensor(models.Float32, shape...)
	if err != nil {
		return nil, err
	}
	c.tensors = append(c.tensors, t)
	if err := to(c.binding, name, t); err != nil {
		return nil, err
	}
	return ort.Data[float32](t)
}

func (c *call) run() error { return c.network.session.Run(c.binding, nil) }

// Close frees the tensors.
func (c *call) Close() error {
	var errs []error
	if c.binding != nil {
		errs = append(errs, c.binding.Close())
	}
	for _, t := range c.tensors {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// rect is a part of a picture in pixels; the right and the lower end are exclusive.
type rect struct{ x0, y0, x1, y1 int }

// whole returns the part that is the whole picture.
func whole(f inference.Frame) rect { return rect{0, 0, f.Width, f.Height} }

func checkFrame(f inference.Frame) error {
	if f.Width < 1 || f.Height < 1 || len(f.Pix) != f.Width*f.Height*3 {
		return fmt.Errorf("a picture of %dx%d pixels must have %d bytes, has %d", f.Width, f.Height, f.Width*f.Height*3, len(f.Pix))
	}
	return nil
}

// scaler makes inputs of networks from parts of pictures. Not safe for concurrent use.
type scaler struct {
	vision       *vision.Scaler
	part, scaled []byte
}

// fill scales a part of a picture to size and writes its planes, in the order of the channels, each byte times gain plus shift.
func (s *scaler) fill(planes []float32, size vision.Size, f inference.Frame, r rect, channels [3]int, gain, shift float32) {
	if s.vision == nil {
		s.vision = vision.NewBilinear()
	}
	pix := f.Pix
	if r != whole(f) {
		s.part = s.part[:0]
		for y := r.y0; y < r.y1; y++ {
			s.part = append(s.part, pix[3*(y*f.Width+r.x0):3*(y*f.Width+r.x1)]...)
		}
		pix = s.part
	}
	var stride int
	s.scaled, stride = s.vision.Scale(s.scaled, vision.Size{W: r.x1 - r.x0, H: r.y1 - r.y0}, pix, size)
	var table [256]float32
	for v := range table {
		table[v] = float32(v)*gain + shift
	}
	area := size.W * size.H
	for c, from := range channels {
		plane := planes[c*area:][:area]
		for y := range size.H {
			row, out := s.scaled[y*stride:][:3*size.W], plane[y*size.W:][:size.W]
			for x := range out {
				out[x] = table[row[3*x+from]]
			}
		}
	}
}
