package camera

import (
	"context"
	"fmt"
	"sync"

	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// Worlds is a participant that plays one generated world at a time. For another
// world it leaves the room and joins again.
type Worlds struct {
	opts    DemoOptions
	changed wake.Signal // next was set

	mu      sync.Mutex
	chosen  bool // by a person
	playing *Demo
	next    *Demo // replaces playing; may be nil
}

// NewWorlds checks the options; nothing runs yet. A world in the options counts as chosen, see Suggest.
func NewWorlds(o DemoOptions) (*Worlds, error) {
	first, err := NewDemo(o)
	if err != nil {
		return nil, err
	}
	return &Worlds{opts: o, changed: wake.New(), chosen: o.World != "", playing: first}, nil
}

// Play changes to the world that a person chose.
func (w *Worlds) Play(world string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.playLocked(world); err != nil {
		return err
	}
	w.chosen = true
	return nil
}

// Suggest changes to a world unless a person has chosen one.
func (w *Worlds) Suggest(world string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chosen {
		return nil
	}
	return w.playLocked(world)
}

func (w *Worlds) playLocked(world string) error {
	switch world {
	case w.presentLocked().World.Name():
		return nil
	case w.playing.World.Name():
		w.next = nil
		return nil
	}
	o := w.opts
	o.World = world
	next, err := NewDemo(o)
	if err != nil {
		return fmt.Errorf("play the world %q: %w", world, err)
	}
	w.next = next
	w.changed.Set()
	return nil
}

// Present returns the camera of the present world, or of the world that is about to replace it.
func (w *Worlds) Present() *Demo {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.presentLocked()
}

func (w *Worlds) presentLocked() *Demo {
	if w.next != nil {
		return w.next
	}
	return w.playing
}

// take makes the next world, if any, the present one.
func (w *Worlds) take() *Demo {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.playing, w.next = w.presentLocked(), nil
	return w.playing
}

// Run publishes until ctx ends.
func (w *Worlds) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.play(ctx, w.take()); err != nil {
			return err
		}
	}
	return nil
}

// play publishes one world until ctx ends or another world replaces it.
func (w *Worlds) play(ctx context.Context, demo *Demo) error {
	ctx, leave := context.WithCancel(ctx)
	g, ctx := rescue.WithContext(ctx)
	defer leave()
	g.Go(func() error { return demo.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.changed:
				if w.Present() != demo {
					leave()
					return nil
				}
			}
		}
	})
	return g.Wait()
}
