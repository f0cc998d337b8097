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
	kindEvent
	kindPrepacked
	kinds
)

// live counts the native handles of the process.
var live [kinds]atomic.Int64 //nolint:gochecknoglobals // native handles are counted per process, as the library is one per process

// Handles counts native handles by kind.
type Handles struct {
	Runtimes, Devices, Memories, Tensors, Sessions, Bindings, RunOptions, Events, Prepacked int64
}

// Live counts what is open in the process at this moment, including what was closed but is still needed by another handle.
func Live() Handles {
	n := func(k kind) int64 { return live[k].Load() }
	return Handles{
		n(kindRuntime), n(kindDevice), n(kindMemory), n(kindTensor), n(kindSession), n(kindBinding), n(kindRunOptions), n(kindEvent),
		n(kindPrepacked),
	}
}

// life counts the users of a handle: its owner and every handle that needs it. free runs once, when all of them have let go.
type life struct {
	users  atomic.Int64
	closed atomic.Bool
	kind   kind
	free   func()
}

// born must be called once, before the handle is handed out.
func (l *life) born(k kind, free func()) {
	l.kind, l.free = k, free
	l.users.Store(1)
	live[k].Add(1)
}

// use keeps the handle from being freed until drop; false if it is closed.
func (l *life) use() bool {
	return !l.closed.Load() && l.hold()
}

// hold is use for what is closed but still needed by another handle as well.
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

// end takes the owner's hold away, the first time it is called.
func (l *life) end() {
	if l.closed.CompareAndSwap(false, true) {
		l.drop()
	}
}
