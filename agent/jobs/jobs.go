// Package jobs runs the commentators of an agent worker: one bot for each job, with one shared engine of each kind.
//
// It owns the hand-over of a room to another worker and the load of the engines. It depends neither on the worker's protocol nor on
// the settings file: the caller's Configure turns a job into the settings of its bot.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/audioapi"
	"touchline/agent/bot"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/worker"
	"touchline/inference"
	"touchline/internal/redact"
	"touchline/internal/rescue"
	"touchline/media/codec"
)

// Options of a Manager.
type Options struct {
	// Settings are the defaults of a bot. Their engine is made at once.
	Settings bot.Settings
	// Configure returns the settings of a job's bot. An error refuses the job.
	Configure func(worker.Job) (bot.Settings, error)
	// LoopbackOnly keeps media sockets on 127.0.0.1, for a server on this machine.
	LoopbackOnly bool
	// OnBot is called with each bot before it runs, and done when the bot has ended. May be nil.
	OnBot func(job worker.Job, b *bot.Bot) (done func())
	// Texts are further outputs of each bot; may be nil.
	Texts func(job worker.Job) []agent.TextOutput
	// Hooks returns further hooks of a job's room; may be nil.
	Hooks func(job worker.Job) room.Hooks
	// Memory is shared by all decoders; nil for no bound.
	Memory *codec.Memory
	// Outputs are shared by all bots; may be nil.
	Outputs *bot.Outputs
	Log     zerolog.Logger
}

// Manager serves the rooms of an agent worker.
type Manager struct {
	opts    Options
	engines *bot.Engines
	first   *bot.Engine // the engine of the settings
	busy    engineUse
}

// New makes the engine of the settings, so that its errors appear at the start and not in the first room.
func New(o Options) (*Manager, error) {
	j := &Manager{opts: o, engines: bot.NewEngines(o.Settings.Engine.Voice, o.Log)}
	var err error
	j.first, err = j.engines.Pin(o.Settings)
	return j, err
}

// Keep runs the engines until ctx ends, and closes them. It must outlive the jobs.
func (j *Manager) Keep(ctx context.Context) error { return j.engines.Run(ctx) }

// Status reports the loading of the engine of the settings.
func (j *Manager) Status() inference.Status { return j.first.Status() }

// Load returns the load of the engines over the last seconds: 1 when all slots of one engine were always busy.
func (j *Manager) Load(now time.Time) float64 { return j.busy.load(now) }

// Ready returns nil while the engine of the settings is loaded, otherwise an error with its state.
func (j *Manager) Ready() error {
	s := j.first.Status()
	if s.Phase == inference.PhaseReady {
		return nil
	}
	return fmt.Errorf("engine %s: %v (%d %%) %s", j.first.Name(), s.Phase, s.Percent, s.Detail)
}

// Speech returns speech as a service, by the first engine's voices.
func (j *Manager) Speech(log zerolog.Logger) (*audioapi.Handler, error) {
	return j.engines.Speech(j.opts.Settings.Engine.Voice, func() *bot.Engine { return j.first }, log)
}

// Transcription returns transcription as a service; nil if the settings disable it.
func (j *Manager) Transcription() (*audioapi.Transcriber, error) {
	return j.engines.Transcription(j.opts.Settings, func() inference.Model { return j.first })
}

// Metrics returns the metrics of the engines, which depend on the jobs.
func (j *Manager) Metrics() prometheus.Collector { return j.engines }

// Run implements worker.Runner: it runs the bot of one job.
func (j *Manager) Run(ctx context.Context, job worker.Job) error {
	cfg, err := j.opts.Configure(job)
	if err != nil {
		j.Explain(ctx, job, err)
		return err
	}
	gate := newDrainTracker(&j.busy)
	closed := make(chan struct{})
	var b *bot.Bot
	shut := sync.OnceFunc(func() {
		b.Room.StayOut() // joining it again would open it again
		close(closed)
	})
	if b, err = j.bot(cfg, job, gate, shut); err != nil { //nolint:contextcheck // converting nano takes half a second, once
		return err
	}
	if j.opts.OnBot != nil {
		if done := j.opts.OnBot(job, b); done != nil {
			defer done()
		}
	}

	bctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ended := make(chan struct{})
	var result error // of the bot, once ended is closed
	go func() {
		defer close(ended)
		result = rescue.Call(func() error { return b.Run(bctx) })
	}()
	select {
	case <-ended:
		return outcome(result)
	case <-closed:
	case <-job.Draining:
		gate.finish(ctx, ended)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		b.Room.StayOut()
		gate.endWord(ended)
		// Comments that are not spoken get their record, with the reason.
		b.Leave("the worker: " + context.Cause(ctx).Error())
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
		gate.finish(rctx, ended)
		cancel()
	}
	if job.HandOver != nil {
		job.HandOver(b.HandOver(worker.MaxState))
	}
	job.Leaving(nil)
	leave()
	<-ended
	return outcome(result)
}

// answer makes a bot answer worker.StateMethod.
func (j *Manager) answer(r *lksdk.Room, job worker.Job, b *bot.Bot) {
	err := r.RegisterRpcMethod(worker.StateMethod, func(in lksdk.RpcInvocationData) (string, error) {
		defer rescue.Guard(b.Room.Fail)
		claims, err := conn.Verify(j.opts.Settings.LiveKit.Keys(), in.Payload)
		if err != nil || claims.Video == nil || !claims.Video.RoomAdmin || claims.Video.Room != job.Room {
			return "", conn.ErrNoRight
		}
		return b.HandOver(lksdk.MaxPayloadBytes), nil
	})
	if err != nil {
		j.opts.Log.Warn().Err(err).Str("room", job.Room).Msg("RPC method not registered")
	}
}

// explainFor is how long a job that cannot run shows its reason in the room.
const explainFor = 10 * time.Second

// Explain implements worker.Explainer: it shows the reason in the room, as the state of an agent that has failed.
func (j *Manager) Explain(ctx context.Context, job worker.Job, reason error) {
	sup, err := room.New(room.Options{
		URL: job.URL, Keys: j.opts.Settings.LiveKit.Keys(), Room: job.Room, Identity: job.Identity, Name: job.Name,
		LoopbackOnly: j.opts.LoopbackOnly, Log: j.opts.Log.With().Str("room", job.Room).Logger(),
	})
	if err != nil {
		return
	}
	sup.StayOut()
	sup.SetState(agent.Status{State: agent.StateListening, Activity: agent.ActivityFailed, Detail: redact.Error(reason).Error()})
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- rescue.Call(func() error { return sup.Run(ctx) }) }()
	select {
	case err = <-ended:
	case <-job.Draining:
		cancel()
		err = <-ended
	}
	if err != nil {
		j.opts.Log.Debug().Err(err).Str("room", job.Room).Msg("reason not shown in the room")
	}
}

// bot makes the bot of a job. closed is called when the server closed the room.
func (j *Manager) bot(cfg bot.Settings, job worker.Job, gate *drainTracker, closed func()) (b *bot.Bot, err error) {
	var kept map[string]json.RawMessage
	if job.State != "" {
		if err := json.Unmarshal([]byte(job.State), &kept); err != nil {
			j.opts.Log.Warn().Err(err).Str("room", job.Room).Msg("state of the previous job not read")
		}
	}
	texts := []agent.TextOutput{gate}
	if j.opts.Texts != nil {
		texts = append(texts, j.opts.Texts(job)...)
	}
	hooks := []room.Hooks{{
		Created: func(r *lksdk.Room) { j.answer(r, job, b) },
		Joined: func(r *lksdk.Room) {
			// The server sets this attribute only in tokens that it makes.
			r.LocalParticipant.SetAttributes(map[string]string{"lk.agent_name": job.AgentName})
			job.Joined()
		},
		Left: func(r *lksdk.Room) {
			switch r.DisconnectReason() {
			case livekit.DisconnectReason_ROOM_CLOSED, livekit.DisconnectReason_ROOM_DELETED:
				closed()
			default:
			}
		},
	}}
	if j.opts.Hooks != nil {
		hooks = append(hooks, j.opts.Hooks(job))
	}
	b, err = bot.New(bot.Options{
		Settings: cfg, Engines: j.engines, Admission: gate, LoopbackOnly: j.opts.LoopbackOnly, Texts: texts, Outputs: j.opts.Outputs,
		Memory: j.opts.Memory,
		Kept:   kept, Replaced: job.Replaced, Hooks: hooks,
		OnCrash: job.Leaving, // the server gets the reason before the agent leaves
		Log:     j.opts.Log.With().Str("room", job.Room).Str("job", job.ID).Logger(),
	})
	return b, err
}

// outcome returns the error of a job whose bot ended with err.
func outcome(err error) error {
	switch {
	case errors.Is(err, conn.ErrReplaced):
		return nil // another worker serves the room
	case errors.Is(err, conn.ErrRemoved):
		return fmt.Errorf("%w: %w", worker.ErrUnwanted, err)
	}
	return rescue.UnlessCanceled(err)
}
