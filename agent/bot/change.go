package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/internal/redact"
	"touchline/internal/wake"
)

// engineSwitcher owns the choice of a bot's engine.
type engineSwitcher struct {
	bot     *Bot
	engines *Engines
	wake    wake.Signal

	mu      sync.Mutex
	now     *sharedEngine      // in force
	good    agent.EngineChoice // the last that worked
	next    *sharedEngine      // chosen
	change  *agent.EngineChange
	problem string
	sensor  sensorState
}

// loadPoll is the time between two looks at an engine that loads.
const loadPoll = 100 * time.Millisecond

// errSuperseded ends a change when another engine is chosen.
var errSuperseded = errors.New("another engine was chosen")

// newEngineSwitcher returns the switcher of a bot, with the engines of Options, or its own if there are none.
func newEngineSwitcher(b *Bot) *engineSwitcher {
	c := &engineSwitcher{bot: b, engines: b.opts.Engines, wake: wake.New()}
	if c.engines == nil {
		c.engines = NewEngines(b.opts.Settings.Engine.Voice, b.log)
	}
	if e := b.opts.Engine; e != nil {
		c.engines.add(e, choiceOf(b.opts.Settings))
	}
	if r := b.opts.Recognition; r != nil {
		c.engines.addRecognition(r)
	}
	return c
}

// begin takes the engine that people chose in an earlier run, or else the one of the settings.
func (c *engineSwitcher) begin(kept *agent.EngineChoice) (err error) {
	cfg, shares := c.bot.opts.Settings, c.bot.opts.Engines != nil
	if kept != nil {
		if c.now, err = c.engines.take(cfg.with(*kept), true); err != nil {
			c.bot.log.Warn().Err(err).Stringer("engine", kept).Msg("kept engine not restored")
		}
	}
	restored := c.now != nil
	if !restored {
		if c.now, err = c.engines.take(cfg.with(choiceOf(cfg)), shares); err != nil { // one room's engine must not end the others
			return err
		}
	}
	c.good = c.now.choice
	c.engines.start(c.now, !restored)
	return nil
}

// inForce returns the engine in force.
func (c *engineSwitcher) inForce() *sharedEngine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// describe adds the present change to a snapshot.
func (c *engineSwitcher) describe(snap *agent.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap.EngineProblem = c.problem
	if c.change != nil {
		snap.EngineChange = new(*c.change)
	}
}

// chosen returns the engine that works, or that people want.
func (c *engineSwitcher) chosen() agent.EngineChoice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.good
}

// close ends the use of engines, once.
func (c *engineSwitcher) close() (err error) {
	for _, e := range []*sharedEngine{c.inForce(), c.takeNext()} {
		if e != nil {
			err = errors.Join(err, c.engines.release(e))
		}
	}
	return err
}

// takeNext returns the chosen engine, which is no longer chosen then; nil without one.
func (c *engineSwitcher) takeNext() *sharedEngine {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.next
	c.next = nil
	return next
}

// ChangeEngine begins to load another engine of Engines; the one in force goes on meanwhile where the memory allows.
// Snapshot reports its progress. It returns the errors that are known before loading: *settings.RangeError, perhaps joined.
func (b *Bot) ChangeEngine(ctx context.Context, choice agent.EngineChoice, by string) error {
	c := b.engine
	choice, err := c.find(ctx, choice)
	if err != nil {
		return err
	}
	e, err := c.engines.take(b.opts.Settings.with(choice), true)
	if err != nil {
		return &settings.RangeError{Name: "engine", Want: "one that can be prepared", Got: fmt.Sprintf("%s: %v", choice, err)}
	}
	if err := b.Fits(e); err != nil {
		return errors.Join(err, c.engines.release(e))
	}
	c.mu.Lock()
	before := c.next
	c.next = e
	c.change, c.problem = &agent.EngineChange{EngineChoice: choice, Detail: "waits for its turn"}, ""
	c.mu.Unlock()
	c.wake.Set()
	b.log.Info().Stringer("engine", choice).Str("by", by).Msg("engine chosen")
	if before != nil {
		return c.engines.release(before)
	}
	return nil
}

// run makes the changes until ctx ends. It returns the error of an engine in force that cannot go on.
func (c *engineSwitcher) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		next := c.takeNext()
		if next == nil {
			continue
		}
		err := c.switchTo(ctx, next)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errSuperseded) {
			continue
		}
		if err := c.settle(ctx, next.choice, err); err != nil && !errors.Is(err, errSuperseded) {
			return err
		}
	}
}

// settle ends a change. After a failed one the last engine that worked is in force again; the error is why it cannot be.
func (c *engineSwitcher) settle(ctx context.Context, choice agent.EngineChoice, err error) (lost error) {
	c.mu.Lock()
	if err == nil {
		c.good = choice
	}
	good, back := c.good, c.now.choice != c.good
	c.mu.Unlock()
	if err != nil {
		c.bot.log.Warn().Err(err).Stringer("engine", choice).Stringer("in_force", good).Msg("engine not changed")
		if back {
			lost = c.exchange(ctx, good)
			if _, failed := c.engines.state(c.inForce()); failed == nil {
				lost = nil // it is loaded again by itself
			}
		}
	}
	c.mu.Lock()
	if c.next == nil {
		c.change = nil
	}
	if err != nil {
		c.problem = fmt.Sprintf("the change to %s failed, %s goes on: %s", choice, good, redact.Addresses(err.Error()))
	}
	c.mu.Unlock()
	c.bot.save()
	return lost
}

// switchTo loads an engine next to the current one, then replaces it. Without memory for both, it closes the current one first.
func (c *engineSwitcher) switchTo(ctx context.Context, next *sharedEngine) error {
	old := c.inForce()
	if next.choice == old.choice && next.choice == c.chosen() {
		return c.engines.release(next)
	}
	err := c.load(ctx, next, false)
	if err == nil {
		err = c.swap(next)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, c.engines.release(next))
	if rooms, _ := c.engines.state(old); rooms == 1 && outOfMemory(err) {
		return c.exchange(ctx, next.choice)
	}
	return err
}

// exchange frees the engine in force first. There are no comments until the other one is loaded.
func (c *engineSwitcher) exchange(ctx context.Context, choice agent.EngineChoice) error {
	next, err := c.engines.take(c.bot.opts.Settings.with(choice), true)
	if err != nil {
		return err
	}
	if err := c.swap(next); err != nil {
		return errors.Join(err, c.engines.release(next))
	}
	if err := c.load(ctx, next, true); err != nil {
		return err
	}
	return c.bot.Fits(next)
}

// swap puts an engine in force and releases the one before.
func (c *engineSwitcher) swap(next *sharedEngine) error {
	if st, _ := c.engines.loaded(next); st.Phase == inference.PhaseReady { // what it can do is known
		if err := c.bot.Fits(next); err != nil {
			return err
		}
	}
	session, err := next.Open(c.bot.opts.Admission)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.now
	c.now = next // before the looks open a sensor for it
	c.mu.Unlock()
	c.bot.SetEngine(session, next.Note)
	return c.engines.release(old)
}

// load loads an engine, until another one is chosen.
func (c *engineSwitcher) load(ctx context.Context, e *sharedEngine, pauses bool) error {
	session, err := e.Open(nil) // a shared engine that is unloaded loads for it
	if err != nil {
		return err
	}
	defer func() {
		if err := session.Close(); err != nil {
			c.bot.log.Warn().Err(err).Msg("engine session not closed")
		}
	}()
	c.engines.start(e, false)
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		st, err := c.engines.loaded(e)
		if err != nil {
			return err
		}
		if st.Phase == inference.PhaseReady {
			c.engines.start(e, true)
			return nil
		}
		if !c.report(&agent.EngineChange{EngineChoice: e.choice, Percent: st.Percent, Detail: redact.Addresses(st.Detail), Pauses: pauses}) {
			return errSuperseded
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// report sets the progress of a change, unless another engine is chosen.
func (c *engineSwitcher) report(change *agent.EngineChange) (goOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		return false
	}
	c.change = change
	return true
}

// outOfMemory reports whether an engine did not fit the memory.
func outOfMemory(err error) bool {
	if errors.Is(err, minicpmo.ErrOutOfMemory) {
		return true
	}
	_, ok := errors.AsType[*minicpmo.DoesNotFitError](err)
	return ok
}

// Engines lists the engines that the room can have, including the model servers on this machine.
func (b *Bot) Engines(ctx context.Context) []agent.EngineOption {
	var out []agent.EngineOption
	for _, k := range kinds() {
		if k.options == nil {
			out = append(out, agent.EngineOption{EngineChoice: agent.EngineChoice{Engine: k.name}})
		} else {
			out = append(out, k.options(ctx, b.opts.Settings, b.engine.engines.discover)...)
		}
	}
	now := b.engine.inForce()
	i := slices.IndexFunc(out, func(o agent.EngineOption) bool { return o.EngineChoice == now.choice })
	if i < 0 && now.choice.Model == "" { // the server's only model
		i = slices.IndexFunc(out, func(o agent.EngineOption) bool { return o.Engine == now.choice.Engine && o.Server == now.choice.Server })
	}
	if i < 0 {
		out = append(out, agent.EngineOption{EngineChoice: now.choice})
		i = len(out) - 1
	}
	out[i].InForce = true
	if m, ok := now.Loaded().(*remote.Model); ok {
		out[i].Notes = m.Notes()
	}
	return out
}

// find returns the listed engine that a choice means: without a server, the first that has the model.
func (c *engineSwitcher) find(ctx context.Context, choice agent.EngineChoice) (agent.EngineChoice, error) {
	list := c.bot.Engines(ctx)
	var names []string
	for _, o := range list {
		if o.Engine == choice.Engine && cmp.Or(choice.Model, o.Model) == o.Model && cmp.Or(choice.Server, o.Server) == o.Server {
			if o.Refused != "" {
				return choice, &settings.RangeError{
					Name: "engine", Want: "an engine that this process can run", Got: fmt.Sprintf("%s: %s", o.EngineChoice, o.Refused),
				}
			}
			if o.InForce {
				return c.inForce().choice, nil
			}
			return o.EngineChoice, nil
		}
		if o.Refused == "" {
			names = append(names, o.EngineChoice.String())
		}
	}
	return choice, &settings.RangeError{Name: "engine", Want: "one of " + strings.Join(names, ", "), Got: strconv.Quote(choice.String())}
}
