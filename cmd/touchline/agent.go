package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/console"
	"touchline/agent/jobs"
	"touchline/agent/room/conn"
	"touchline/agent/whep"
	"touchline/agent/worker"
	"touchline/configs"
	"touchline/internal/limit"
	"touchline/media/source"
)

// agentCmd runs an agent worker. Flags override the settings of their names (agent.worker), which the environment
// variables of LiveKit's own agents set as well.
type agentCmd struct {
	URL          string         `help:"LiveKit server (ws://, wss://); overrides LIVEKIT_URL." placeholder:"URL"`
	AgentName    *string        `help:"Serve only rooms that ask for this name; without it, every new room. Overrides LIVEKIT_AGENT_NAME." env:"LIVEKIT_AGENT_NAME_OVERRIDE"` //nolint:lll // tags
	Type         *string        `help:"Kind of job: room, publisher or participant."`
	Slots        *int           `help:"Largest number of rooms; 0 is four for each core."`
	DrainTimeout *time.Duration `help:"Time for rooms to finish their sentences after the first signal."`
	FullCPU      *float64       `help:"CPU load, as a share, from which no more rooms are accepted; 0 for no limit." name:"full-cpu"`
	HTTP         *string        `help:"Address of probes and metrics; off for none." name:"http"`
	Console      *string        `help:"Address of the page and the API for all rooms, such as 127.0.0.1:8199; off for none."`
	Deployment   *string        `help:"Deployment that dispatches must name; overrides LIVEKIT_AGENT_DEPLOYMENT."`
	Allow        []string       `help:"Sources that page and API may open; overrides sources.allow: public (the default), private, loopback, link-local, files, all, none." placeholder:"KIND,..."` //nolint:lll // tags
	Simulate     string         `help:"Serve this room at once, as a trial." placeholder:"ROOM"`

	modelFlags
	stateFlags

	WorkerToken string  `hidden:"" env:"LIVEKIT_WORKER_TOKEN"`
	CPUs        float64 `hidden:"" env:"NUM_CPUS"`
	LiveKitLog  string  `hidden:"" env:"LIVEKIT_LOG_LEVEL"`
}

// slotsPerCore is the number of rooms per core; a room needs about a tenth of a core, and --full-cpu is a second limit.
const slotsPerCore = 4

// leaveTimeout bounds the end of a worker after the drain.
const leaveTimeout = 5 * time.Second

// shutdownTimeout returns the time that this command has to end after a signal.
func (c *agentCmd) shutdownTimeout(cfg configs.Config) time.Duration {
	return c.over(cfg.Agent.Worker).DrainTimeout + leaveTimeout
}

// over returns the settings with the flags applied.
func (c *agentCmd) over(w worker.Config) worker.Config {
	override(c.AgentName, &w.AgentName)
	override(c.Type, &w.Type)
	override(c.Slots, &w.Slots)
	override(c.DrainTimeout, &w.DrainTimeout)
	override(c.FullCPU, &w.FullCPU)
	override(c.HTTP, &w.HTTP)
	override(c.Console, &w.Console)
	override(c.Deployment, &w.Deployment)
	return w
}

// override applies a flag that is set.
func override[T any](flag, setting *T) {
	if flag != nil {
		*setting = *flag
	}
}

// endless marks a command that serves until it is interrupted.
func (*agentCmd) endless() {}

// Run serves rooms until it is interrupted: the first signal hands them over,
// the second ends them at once.
func (c *agentCmd) Run(ctx context.Context, a *app) error {
	log := a.log
	if c.LiveKitLog != "" {
		level, err := zerolog.ParseLevel(c.LiveKitLog)
		if err != nil {
			return fmt.Errorf("LIVEKIT_LOG_LEVEL %q: unknown; choose trace, debug, info, warn or error", c.LiveKitLog)
		}
		log = log.Level(level)
	}
	cfg := a.cfg
	cfg.Agent.LiveKit.URL = cmp.Or(c.URL, cfg.Agent.LiveKit.URL)
	cfg.Agent.Worker = c.over(cfg.Agent.Worker)
	if err := c.apply(&cfg); err != nil {
		return err
	}
	return bot.WithOutputs(ctx, c.outputs(cfg), log, func(out *bot.Outputs) error { return c.serve(ctx, cfg, out, log) })
}

func (c *agentCmd) serve(ctx context.Context, cfg configs.Config, out *bot.Outputs, log zerolog.Logger) error {
	logConfinement(log)
	allow, err := allowed(c.Allow, cfg.Sources.Allow, source.AllowPublic())
	if err != nil {
		return err
	}
	shown := console.NewRooms(0, log)
	keys := cfg.Agent.LiveKit.Keys()
	keys.Links = out.Links()
	players, err := agentPlayers(cfg.Agent, keys, log)
	if err != nil {
		return err
	}
	ingest, err := agentIngest(ctx, cfg, keys, log)
	if err != nil {
		return err
	}
	show := jobs.ConsoleRooms{Rooms: shown, Players: players, Ingest: ingest, Allow: allow, Log: log}
	manager, err := jobs.New(jobs.Options{
		Settings: cfg.Bot(), Configure: cfg.Job, Outputs: out, OnBot: show.OnBot, Memory: cfg.Sources.Decoders(), Log: log,
	})
	if err != nil {
		return err
	}
	w, err := c.worker(cfg.Agent, manager, log)
	if err != nil {
		return err
	}
	page, err := agentPage(cfg.Agent, keys, show, manager, jobs.Dispatcher{Jobs: manager, Worker: w}, out)
	if err != nil {
		return err
	}
	var listener net.Listener
	if address := cfg.Agent.Worker.HTTP; address != worker.HTTPOff {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
			return fmt.Errorf("open the address of probes and metrics (agent.worker.http, --http): %w", err)
		}
	}

	needed := []func(context.Context) error{manager.Keep} // no room can be served without an engine
	if page != nil {
		needed = append(needed, page.Run)
	}
	if ingest != nil {
		needed = append(needed, ingest.Run)
	}
	beside := []func(context.Context) error{}
	if listener != nil {
		beside = append(beside, func(ctx context.Context) error {
			return serveProbes(ctx, listener, w, log, manager.Metrics(), shown.Totals(), out)
		})
	}
	if c.Simulate != "" {
		beside = append(beside, func(ctx context.Context) error { return simulate(ctx, w, c.Simulate) })
	}
	return runWorker(ctx, w, needed, beside)
}

// runWorker runs a worker until its end, with required and optional parts. The end of a required part ends the worker after a
// drain. The first signal has ended ctx: the rooms drain until the second one; the third ends the program.
func runWorker(ctx context.Context, w *worker.Worker, needed, beside []func(context.Context) error) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	rooms, endRooms := context.WithCancel(context.WithoutCancel(ctx))
	defer endRooms()
	parts, endParts := context.WithCancel(context.WithoutCancel(ctx))
	defer endParts()
	var g errgroup.Group
	for _, run := range needed {
		g.Go(func() error {
			err := run(parts)
			if err != nil {
				w.Drain()
				timer := time.NewTimer(leaveTimeout)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-parts.Done():
				}
				endRooms()
			}
			return err
		})
	}
	for _, run := range beside {
		g.Go(func() error { return run(parts) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			w.Drain()
			drain(parts, signals)
			endRooms()
		case <-parts.Done():
		}
		return nil
	})
	err := w.Run(rooms)
	endParts()
	return errors.Join(err, g.Wait())
}

// agentPlayers returns the WHEP server on the page's address; nil without a page or with WHEP off.
func agentPlayers(cfg configs.Agent, keys conn.Keys, log zerolog.Logger) (*whep.Server, error) {
	if cfg.Worker.Console == worker.HTTPOff || !cfg.Console.WHEP.Enabled {
		return nil, nil
	}
	return bot.NewPlayers(bot.PlayersOptions{
		Config: cfg.Console.WHEP, ICE: cfg.Console.ICE, Keys: keys, Coming: true,
		LoopbackOnly: bot.OnLoopback(cfg.Worker.Console), Log: log,
	})
}

// agentIngest returns the WHIP server on the page's address, for any room; nil without a page or with WHIP off. It refuses senders after
// ctx has ended.
func agentIngest(ctx context.Context, cfg configs.Config, keys conn.Keys, log zerolog.Logger) (*camera.Ingest, error) {
	at := cfg.Agent.Worker.Console
	if at == worker.HTTPOff || !cfg.Sources.WHIP.Enabled {
		return nil, nil
	}
	return camera.NewIngest(camera.IngestOptions{
		Config: cfg.Sources, ICE: cfg.Agent.Console.ICE, URL: cfg.Agent.LiveKit.URL, Keys: keys,
		LoopbackOnly: bot.OnLoopback(at),
		Closing:      func() bool { return ctx.Err() != nil }, Log: log,
	})
}

// agentPage returns the page and the API for all rooms; nil if the settings turn it off.
func agentPage(
	cfg configs.Agent, keys conn.Keys, show jobs.ConsoleRooms, manager *jobs.Manager, calls console.Dispatcher, out prometheus.Collector,
) (*console.Server, error) {
	if cfg.Worker.Console == worker.HTTPOff {
		return nil, nil
	}
	cfg.Console.Listen = cfg.Worker.Console
	metrics := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{manager.Metrics(), out} {
		if err := metrics.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the process: %w", err)
		}
	}
	speech, err := manager.Speech(show.Log)
	if err != nil {
		return nil, err
	}
	words, err := manager.Transcription()
	if err != nil {
		return nil, err
	}
	o := console.Options{
		Speech: speech, Transcription: words,
		Config: cfg.Console.Config, Rooms: show.Rooms, Engine: manager.Status, Dispatcher: calls, SignalURL: cfg.LiveKit.URL, Registry: metrics,
		Keys:     keys,
		Announce: func(url string) { fmt.Fprintf(os.Stdout, "\n  The rooms of this worker: %s\n\n", url) },
		Log:      show.Log,
	}
	if show.Players != nil { // a nil pointer would make a non-nil interface
		o.WHEP = show.Players
	}
	if show.Ingest != nil {
		o.WHIP = show.Ingest.Handler()
	}
	page, err := console.New(o)
	if err != nil {
		return nil, fmt.Errorf("prepare the page (agent.worker.console, --console): %w", err)
	}
	return page, nil
}

// drain returns at the second signal or when ctx ends. The first signal may arrive here as well.
func drain(ctx context.Context, signals chan os.Signal) {
	first := time.NewTimer(100 * time.Millisecond)
	defer first.Stop()
	for seen := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-first.C:
			seen = max(seen, 1)
		case <-signals:
			if seen++; seen > 1 {
				signal.Stop(signals)
				return
			}
		}
	}
}

// simulate requests a job as soon as the worker is registered.
func simulate(ctx context.Context, w *worker.Worker, room string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if w.State().Registered {
				return w.Simulate(room, "")
			}
		}
	}
}

func (c *agentCmd) worker(cfg configs.Agent, manager *jobs.Manager, log zerolog.Logger) (*worker.Worker, error) {
	jobType, err := worker.ParseJobType(cfg.Worker.Type)
	if err != nil {
		return nil, err
	}
	cores := c.CPUs
	if cores <= 0 {
		cores = float64(runtime.NumCPU())
	}
	slots := cfg.Worker.Slots
	if slots == 0 {
		slots = max(1, int(cores*slotsPerCore))
	}
	machine := manager.Load
	if cfg.Worker.FullCPU > 0 {
		cpu, err := worker.NewCPU(os.DirFS("/"), cores)
		if err != nil {
			log.Warn().Err(err).Msg("CPU load unavailable")
		} else {
			machine = func(now time.Time) float64 { return max(manager.Load(now), cpu.Load(now)/cfg.Worker.FullCPU) }
		}
	}
	return worker.New(worker.Options{
		URL: cfg.LiveKit.URL, APIKey: cfg.LiveKit.APIKey, APISecret: string(cfg.LiveKit.APISecret), WorkerToken: c.WorkerToken,
		AgentName: cfg.Worker.AgentName, Deployment: cfg.Worker.Deployment, JobType: jobType,
		Slots: slots, MachineLoad: machine, DrainTimeout: cfg.Worker.DrainTimeout, Name: cfg.LiveKit.Name, Version: moduleVersion(buildInfo()),
		Runner: manager, Ready: manager.Ready, Log: log,
	})
}

// boundedServer returns an HTTP server that bounds the time of a request and of an answer.
func boundedServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 40 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
	}
}

// maxConnections bounds the connections of such a server.
const maxConnections = 1024

// serveProbes answers probes and Prometheus until ctx ends.
func serveProbes(ctx context.Context, l net.Listener, w *worker.Worker, log zerolog.Logger, more ...prometheus.Collector) error {
	node, err := os.Hostname()
	if err != nil {
		node = "unknown"
	}
	reg := prometheus.NewRegistry()
	err = errors.Join(
		prometheus.WrapRegistererWith(prometheus.Labels{"nodename": node}, reg).Register(w.Collector()),
		reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	places := limit.NewConnections(maxConnections, nil)
	for _, c := range append(more, places) {
		err = errors.Join(err, reg.Register(c))
	}
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", w.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := boundedServer(mux)
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	log.Info().Str("address", l.Addr().String()).Msg("probes and metrics ready")
	if err := s.Serve(places.Bind(l)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes and metrics: %w", err)
	}
	return nil
}
