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
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/internal/wake"
)

// changer owns the choice of a bot's engine.
type changer struct {
	bot     *Bot
	engines *Engines
	given   *lease // the caller's engine; nil without
	wake    wake.Signal

	mu      sync.Mutex
	lease   *lease             // in force
	good    agent.EngineChoice // the last that worked
	next    *lease             // chosen
	now     *agent.EngineChange
	problem string
}

// loadPoll is the time between two looks at an engine that loads.
const loadPoll = 100 * time.Millisecond

// errSuperseded ends a change when another engine is chosen.
var errSuperseded = errors.New("another engine was chosen")

// begin takes the engine that people chose in an earlier run, or else the one of the settings.
func (c *changer) begin(kept *agent.EngineChoice) (err error) {
	cfg := c.bot.opts.Settings
	if e := c.bot.opts.Engine; e != nil {
		c.given = &lease{Engine: e, choice: choiceOf(cfg)}
	}
	if kept != nil {
		if c.lease, err = c.take(*kept); err == nil {
			c.lease.setPatient()
		} else {
			c.bot.log.Warn().Err(err).Stringer("engine", kept).Msg("kept engine not restored")
		}
	}
	if c.lease == nil {
		if c.lease, err = c.take(choiceOf(cfg)); err != nil {
			return err
		}
		if c.bot.opts.Engines != nil { // one room's engine must not end the others
			c.lease.setPatient()
		}
		c.lease.prove()
	}
	c.good = c.lease.choice
	c.lease.start()
	return nil
}

// take returns an engine that is not started.
func (c *changer) take(choice agent.EngineChoice) (*lease, error) {
	if c.given != nil && c.given.choice == choice {
		return c.given, nil
	}
	return c.engines.take(c.bot.opts.Settings.with(choice))
}

// inForce returns the engine in force.
func (c *changer) inForce() *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lease
}

// describe adds the change under way to a snapshot.
func (c *changer) describe(snap *agent.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap.EngineProblem = c.problem
	if c.now != nil {
		snap.EngineChange = new(*c.now)
	}
}

// chosen returns the engine that works, or that people want.
func (c *changer) chosen() agent.EngineChoice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.good
}

// close ends the use of engines.
func (c *changer) close() error {
	c.mu.Lock()
	leases := []*lease{c.lease, c.next}
	c.next = nil
	c.mu.Unlock()
	var errs []error
	for _, l := range leases {
		if l != nil {
			errs = append(errs, l.release())
		}
	}
	return errors.Join(errs...)
}

// ChangeEngine begins to load another engine of Engines; the one in force goes on meanwhile where the memory allows.
// Snapshot tells how it goes. It returns the errors that are known before loading: *agent.RangeError, perhaps joined.
func (b *Bot) ChangeEngine(ctx context.Context, choice agent.EngineChoice, by string) error {
	c := b.changer
	choice, err := c.find(ctx, choice)
	if err != nil {
		return err
	}
	l, err := c.take(choice)
	if err != nil {
		return &agent.RangeError{Name: "engine", Want: "one that can be prepared", Got: fmt.Sprintf("%s: %v", choice, err)}
	}
	if err := b.Fits(l); err != nil {
		return errors.Join(err, l.release())
	}
	c.mu.Lock()
	before := c.next
	c.next = l
	c.now, c.problem = &agent.EngineChange{EngineChoice: choice, Detail: "waits for its turn"}, ""
	c.mu.Unlock()
	c.wake.Set()
	b.log.Info().Stringer("engine", choice).Str("by", by).Msg("engine chosen")
	if before != nil {
		return before.release()
	}
	return nil
}

// run makes the changes until ctx ends. It returns the error of an engine in force that cannot go on.
func (c *changer) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		c.mu.Lock()
		next := c.next
		c.next = nil
		c.mu.Unlock()
		if next == nil {
			continue
		}
		err := c.change(ctx, next)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.settle(ctx, next.choice, err); err != nil {
			return err
		}
	}
}

// settle ends a change. After a failed one the last engine that worked is in force again.
func (c *changer) settle(ctx context.Context, choice agent.EngineChoice, err error) error {
	if errors.Is(err, errSuperseded) {
		return nil
	}
	c.mu.Lock()
	if err == nil {
		c.good = choice
	}
	good, back := c.good, c.lease.choice != c.good
	c.mu.Unlock()
	var lost error
	if err != nil {
		c.bot.log.Warn().Err(err).Stringer("engine", choice).Stringer("in_force", good).Msg("engine not changed")
		if back {
			if lost = c.exchange(ctx, good); !c.inForce().over() {
				lost = nil // it is loaded again by itself
			}
		}
	}
	c.mu.Lock()
	if c.next == nil {
		c.now = nil
	}
	if err != nil {
		c.problem = fmt.Sprintf("the change to %s failed, %s goes on: %v", choice, good, err)
	}
	c.mu.Unlock()
	c.bot.save()
	if errors.Is(lost, errSuperseded) {
		return nil
	}
	return lost
}

// change loads an engine beside the one in force and puts it in its place. Without the memory for both, it exchanges them.
func (c *changer) change(ctx context.Context, next *lease) error {
	old := c.inForce()
	if next.choice == old.choice && next.choice == c.chosen() {
		return next.releaseUnless(old)
	}
	next.setPatient()
	err := c.load(ctx, next, false)
	if err == nil {
		err = c.swap(next)
	}
	if err != nil {
		err = errors.Join(err, next.releaseUnless(old))
	}
	if outOfMemory(err) && old.alone() {
		return c.exchange(ctx, next.choice)
	}
	return err
}

// exchange frees the engine in force first. There are no comments until the other one is loaded.
func (c *changer) exchange(ctx context.Context, choice agent.EngineChoice) error {
	next, err := c.take(choice)
	if err != nil {
		return err
	}
	next.setPatient()
	if err := c.swap(next); err != nil {
		return err
	}
	if err := c.load(ctx, next, true); err != nil {
		return err
	}
	return c.bot.Fits(next)
}

// swap puts an engine in force and releases the one before.
func (c *changer) swap(next *lease) error {
	if st, _ := next.loaded(); st.Phase == inference.PhaseReady { // what it can do is known
		if err := c.bot.Fits(next); err != nil {
			return err
		}
	}
	session, err := next.Open(c.bot.opts.Admission)
	if err != nil {
		return err
	}
	old := c.inForce()
	c.bot.SetEngine(session, next.Note)
	c.mu.Lock()
	c.lease = next
	c.mu.Unlock()
	return old.releaseUnless(next)
}

// load loads an engine, until another one is chosen.
func (c *changer) load(ctx context.Context, l *lease, pauses bool) error {
	session, err := l.NewSession() // a shared engine that is unloaded loads for it
	if err != nil {
		return err
	}
	defer func() {
		if err := session.Close(); err != nil {
			c.bot.log.Warn().Err(err).Msg("engine session not closed")
		}
	}()
	l.start()
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		st, err := l.loaded()
		if err != nil {
			return err
		}
		if st.Phase == inference.PhaseReady {
			l.prove()
			return nil
		}
		c.mu.Lock()
		superseded := c.next != nil
		if !superseded {
			c.now = &agent.EngineChange{EngineChoice: l.choice, Percent: st.Percent, Detail: st.Detail, Pauses: pauses}
		}
		c.mu.Unlock()
		if superseded {
			return errSuperseded
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// outOfMemory reports whether an engine did not fit the memory.
func outOfMemory(err error) bool {
	if errors.Is(err, minicpmo.ErrOutOfMemory) {
		return true
	}
	_, ok := errors.AsType[*minicpmo.DoesNotFitError](err)
	return ok
}

// Engines lists the engines that the room can have, with those of model servers on this machine.
func (b *Bot) Engines(ctx context.Context) []agent.EngineOption {
	var out []agent.EngineOption
	for _, k := range kinds() {
		if k.options == nil {
			out = append(out, agent.EngineOption{EngineChoice: agent.EngineChoice{Engine: k.name}})
		} else {
			out = append(out, k.options(ctx, b.opts.Settings, b.changer.engines.discover)...)
		}
	}
	now := b.changer.inForce()
	i := slices.IndexFunc(out, func(o agent.EngineOption) bool { return o.EngineChoice == now.choice })
	if i < 0 && now.choice.Model == "" { // the server's only model
		i = slices.IndexFunc(out, func(o agent.EngineOption) bool { return o.Engine == now.choice.Engine && o.Server == now.choice.Server })
	}
	if i < 0 {
		out = append(out, agent.EngineOption{EngineChoice: now.choice})
		i = len(out) - 1
	}
	out[i].InForce = true
	return out
}

// find returns the listed engine that a choice means: without a server, the first that has the model.
func (c *changer) find(ctx context.Context, choice agent.EngineChoice) (agent.EngineChoice, error) {
	list := c.bot.Engines(ctx)
	var names []string
	for _, o := range list {
		if o.Engine == choice.Engine && cmp.Or(choice.Model, o.Model) == o.Model && cmp.Or(choice.Server, o.Server) == o.Server {
			if o.Refused != "" {
				return choice, &agent.RangeError{
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
	return choice, &agent.RangeError{Name: "engine", Want: "one of " + strings.Join(names, ", "), Got: strconv.Quote(choice.String())}
}
