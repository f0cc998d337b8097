package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"touchline/models"
)

// The values of a pickle: nil, bool, int, float64, string, tuple, *list, *dict,
// global, storage, tensor.
type (
	tuple []any
	list  struct{ items []any }
	dict  struct{ pairs []pair }
	pair  struct{ key, value any }

	// global is a name of Python that the reader knows.
	global struct{ name string }

	// storage holds the numbers of one or more tensors.
	storage struct {
		of    element
		key   string // of the entry
		count int
	}

	// tensor is a view of a storage.
	tensor struct {
		storage        storage
		offset         int // in numbers
		shape, strides []int
	}

	// mark marks the start of a tuple's, list's or dictionary's items on the stack.
	mark struct{}
)

// element is a type of numbers.
type element struct {
	name string
	typ  models.Type // 0 for types that package models lacks
	size int
}

// elements has the type of each class of storage.
//
//nolint:gochecknoglobals // a table
var elements = map[string]element{
	"FloatStorage":    {"F32", models.Float32, 4},
	"HalfStorage":     {"F16", models.Float16, 2},
	"BFloat16Storage": {"BF16", models.BFloat16, 2},
	"LongStorage":     {"I64", models.Int64, 8},
	"IntStorage":      {"I32", models.Int32, 4},
	"CharStorage":     {"I8", models.Int8, 1},
	"ByteStorage":     {"U8", models.Uint8, 1},
	"DoubleStorage":   {"F64", 0, 8},
	"ShortStorage":    {"I16", 0, 2},
	"BoolStorage":     {"BOOL", 0, 1},
}

// element returns the type of a class of storage.
func (g global) element() (element, bool) {
	class, ok := strings.CutPrefix(g.name, "torch.")
	e, known := elements[class]
	return e, ok && known
}

// class returns the class of storage of a type.
func class(t models.Type) (string, bool) {
	for name, e := range elements {
		if e.typ == t && t != 0 {
			return name, true
		}
	}
	return "", false
}

const (
	orderedDict      = "collections.OrderedDict"
	rebuildTensor    = "torch._utils._rebuild_tensor_v2"
	rebuildParameter = "torch._utils._rebuild_parameter"
)

func (d *dict) hasTensors() bool {
	return slices.ContainsFunc(d.pairs, func(p pair) bool {
		_, ok := p.value.(tensor)
		return ok
	})
}

// kind names the type of a value, for errors. Text and numbers are printed; other values can
// contain themselves.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return fmt.Sprintf("%.100q", v)
	case tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dictionary"
	case tensor:
		return "a tensor"
	case storage:
		return "a storage"
	case global:
		return v.name
	case mark:
		return "a mark"
	}
	return fmt.Sprint(v) // a bool or a number
}

// maxSteps is the maximum number of operations, which bounds the memory. A tensor needs about 40.
const maxSteps = 1 << 21

// machine executes a pickle.
type machine struct {
	in    []byte
	at    int // of the current operation
	pos   int
	stack []any
	memo  map[uint64]any
}

// errTruncated is returned for a pickle without its end.
var errTruncated = errors.New("truncated")

// unpickle returns the value of a pickle of protocol 2 to 5.
func unpickle(in []byte) (any, error) {
	if len(in) < 2 || in[0] != opProto || in[1] < 2 || in[1] > 5 {
		return nil, errors.New("expected a pickle of protocol 2 to 5: save with torch.save's default")
	}
	m := &machine{in: in, pos: 2, memo: map[uint64]any{}}
	for range maxSteps {
		m.at = m.pos
		op, err := m.number(1)
		if err == nil && op == opStop {
			var v any
			if v, err = m.pop(); err == nil && (len(m.stack) != 0 || m.pos != len(in)) {
				err = errors.New("expected the end")
			}
			return v, err
		}
		if err == nil {
			err = m.step(byte(op)) //nolint:gosec // one byte
		}
		if err != nil {
			return nil, fmt.Errorf("byte %d: %w", m.at, err)
		}
	}
	return nil, fmt.Errorf("more than %d operations", maxSteps)
}

// bytes reads n bytes.
func (m *machine) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(m.in)-m.pos) { //nolint:gosec // not negative
		return nil, errTruncated
	}
	b := m.in[m.pos:][:n]
	m.pos += len(b)
	return b, nil
}

// number reads a little-endian number of n bytes.
func (m *machine) number(n uint64) (uint64, error) {
	b, err := m.bytes(n)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// line reads text up to a line feed.
func (m *machine) line() (string, error) {
	text, _, ok := strings.Cut(string(m.in[m.pos:min(m.pos+200, len(m.in))]), "\n")
	if !ok {
		return "", errors.New("expected a name of at most 200 bytes")
	}
	m.pos += len(text) + 1
	return text, nil
}

func (m *machine) push(v any) error {
	m.stack = append(m.stack, v)
	return nil
}

// pop removes the top of the stack.
func (m *machine) pop() (any, error) {
	n := len(m.stack)
	if n == 0 {
		return nil, errors.New("the stack is empty")
	}
	v := m.stack[n-1]
	if _, ok := v.(mark); ok {
		return nil, errors.New("expected a value, got a mark")
	}
	m.stack = m.stack[:n-1]
	return v, nil
}

// popItems removes n values from the stack.
func (m *machine) popItems(n int) ([]any, error) {
	items := make([]any, n)
	for i := range n {
		v, err := m.pop()
		if err != nil {
			return nil, err
		}
		items[n-1-i] = v
	}
	return items, nil
}

// popMark removes the values above the last mark, and the mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, errors.New("no mark on the stack")
}

// top returns the top of the stack if it has the type T.
func top[T any](m *machine) (T, error) {
	var none T
	if len(m.stack) == 0 {
		return none, errors.New("the stack is empty")
	}
	v, ok := m.stack[len(m.stack)-1].(T)
	if !ok {
		return none, fmt.Errorf("expected %s, got %s", kind(none), kind(m.stack[len(m.stack)-1]))
	}
	return v, nil
}

// find pushes a name of Python.
func (m *machine) find(module, name string) error {
	g := global{module + "." + name}
	_, number := g.element()
	if !number && g.name != orderedDict && g.name != rebuildTensor && g.name != rebuildParameter {
		return fmt.Errorf("%.200q is refused: a file of weights needs no such object", g.name)
	}
	return m.push(g)
}

// call applies a function to its arguments.
func (m *machine) call() error {
	items, err := m.popItems(2)
	if err != nil {
		return err
	}
	f, ok := items[0].(global)
	args, isTuple := items[1].(tuple)
	if !ok || !isTuple {
		return fmt.Errorf("expected a call of a function, got one of %s", kind(items[0]))
	}
	switch {
	case f.name == orderedDict && len(args) == 0:
		return m.push(&dict{})
	case f.name == rebuildTensor && len(args) >= 6:
		t, err := newTensor(args)
		if err != nil {
			return err
		}
		return m.push(t)
	case f.name == rebuildParameter && len(args) == 3:
		if t, ok := args[0].(tensor); ok {
			return m.push(t)
		}
	}
	return fmt.Errorf("%s: unknown arguments", f.name)
}

// newTensor reads (storage, offset, shape, strides, requires_grad, hooks, …).
func newTensor(args tuple) (t tensor, err error) {
	var okStorage, okOffset bool
	t.storage, okStorage = args[0].(storage)
	t.offset, okOffset = args[1].(int)
	if !okStorage || !okOffset || t.offset < 0 {
		return t, fmt.Errorf("tensor: expected a storage and an offset, got %s and %s", kind(args[0]), kind(args[1]))
	}
	if t.shape, err = sizes(args[2]); err != nil {
		return t, fmt.Errorf("tensor: shape: %w", err)
	}
	if t.strides, err = sizes(args[3]); err != nil {
		return t, fmt.Errorf("tensor: strides: %w", err)
	}
	if len(t.shape) != len(t.strides) {
		return t, fmt.Errorf("tensor: expected as many strides as dimensions, got %d and %d", len(t.strides), len(t.shape))
	}
	return t, nil
}

// maxDims is the maximum number of dimensions.
const maxDims = 16

func sizes(v any) ([]int, error) {
	items, ok := v.(tuple)
	if !ok || len(items) > maxDims {
		return nil, fmt.Errorf("expected a tuple of at most %d numbers, got %s", maxDims, kind(v))
	}
	list := make([]int, len(items))
	for i, item := range items {
		n, ok := item.(int)
		if !ok || n < 0 {
			return nil, fmt.Errorf("expected a size, got %s", kind(item))
		}
		list[i] = n
	}
	return list, nil
}

// load replaces the description of a storage by the storage.
func (m *machine) load() error {
	v, err := m.pop()
	if err != nil {
		return err
	}
	// ("storage", class, key, device, numbers)
	if id, ok := v.(tuple); ok && len(id) == 5 && id[0] == "storage" {
		class, okClass := id[1].(global)
		key, okKey := id[2].(string)
		count, okCount := id[4].(int)
		if e, known := class.element(); okClass && okKey && okCount && known && count >= 0 {
			return m.push(storage{e, key, count})
		}
	}
	return errors.New("expected a storage")
}

// build sets attributes of an object. Those of a dictionary (_metadata) are dropped.
func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	if _, ok := state.(*dict); !ok {
		return fmt.Errorf("expected attributes, got %s", kind(state))
	}
	_, err = top[*dict](m)
	return err
}

// set adds pairs to the dictionary on the stack.
func (m *machine) set(items []any, err error) error {
	if err != nil {
		return err
	}
	if len(items)%2 != 0 {
		return errors.New("expected pairs of key and value")
	}
	d, err := top[*dict](m)
	if err != nil {
		return err
	}
	for i := 0; i < len(items); i += 2 {
		d.pairs = append(d.pairs, pair{items[i], items[i+1]})
	}
	return nil
}

// add adds items to the list on the stack.
func (m *machine) add(items []any, err error) error {
	if err != nil {
		return err
	}
	l, err := top[*list](m)
	if err == nil {
		l.items = append(l.items, items...)
	}
	return err
}

// remember stores the top of the stack.
func (m *machine) remember(at uint64, err error) error {
	if err != nil {
		return err
	}
	v, err := m.pop()
	if err != nil {
		return err
	}
	m.memo[at] = v
	return m.push(v)
}

// recall pushes a stored value.
func (m *machine) recall(at uint64, err error) error {
	if err != nil {
		return err
	}
	v, ok := m.memo[at]
	if !ok {
		return fmt.Errorf("no stored value %d", at)
	}
	return m.push(v)
}

// text pushes text with a length field of n bytes.
func (m *machine) text(n uint64) error {
	length, err := m.number(n)
	if err != nil {
		return err
	}
	b, err := m.bytes(length)
	if err != nil {
		return err
	}
	return m.push(string(b))
}

// long pushes an integer of up to 8 bytes in two's complement.
func (m *machine) long() error {
	n, err := m.number(1)
	if err != nil {
		return err
	}
	if n > 8 {
		return fmt.Errorf("an integer of %d bytes is too large", n)
	}
	v, err := m.number(n)
	if err != nil || n == 0 {
		return errors.Join(err, m.push(0))
	}
	shift := 64 - 8*n
	return m.push(int(int64(v<<shift) >> shift)) //nolint:gosec // the sign is meant
}

// float pushes a big-endian float64.
func (m *machine) float() error {
	b, err := m.bytes(8)
	if err != nil {
		return err
	}
	return m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
}
