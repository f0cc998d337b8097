package ort

import "sync/atomic"

type kind int

const (
	kindRuntime kind = iota
	kindDevice
	kindMemory
	kindTensor
	kindSession
	kindBinding
	kindRunOptions
	kinds
)

// live counts the native handles of the process.
var live [kinds]atomic.Int64 //nolint:gochecknoglobals // native handles are counted per process, as the library is one per process

// Handles counts native handles by kind.
type Handles struct {
	Runtimes, Devices, Memories, Tensors, Sessions, Bindings, RunOptions int64
}

// Live returns the open handles of the process, including closed ones that another handle still needs.
func Live() Handles {
	n := func(k kind) int64 { return live[k].Load() }
	return Handles{
		n(kindRuntime), n(kindDevice), n(kindMemory), n(kindTensor), n(kindSession), n(kindBinding), n(kindRunOptions),
	}
}

// life counts the users of a handle: its owner and every handle that needs it. free runs once, after the last release.
type life struct {
	users  atomic.Int64
	closed atomic.Bool
	kind   kind
	free   func()
}

// born starts the count. It is called once, before anything uses the handle.
func (l *life) born(k kind, free func()) {
	l.kind, l.free = k, free
	l.users.Store(1)
	live[k].Add(1)
}

// use keeps the handle until drop. It returns false if the handle is closed.
func (l *life) use() bool {
	return !l.closed.Load() && l.hold()
}

// hold is use that also accepts a closed handle that another one still needs.
func (l *life) hold() bool {
	for {
		n := l.users.Load()
		if n <= 0 {
			return false
		}
		if l.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *life) drop() {
	if l.users.Add(-1) == 0 {
		l.free()
		live[l.kind].Add(-1)
	}
}

// end releases the owner's use, once.
func (l *life) end() {
	if l.closed.CompareAndSwap(false, true) {
		l.drop()
	}
}
