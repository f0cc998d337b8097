package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/worker"
	"touchline/cmd/internal/wiring"
)

// agentCmd runs an agent worker. Its variables are those that LiveKit's own
// agents read.
type agentCmd struct {
	URL          string        `help:"LiveKit server (ws://, wss://), over LIVEKIT_URL." placeholder:"URL"`
	AgentName    string        `help:"Serve only rooms that ask for this name; without it, every new room." env:"LIVEKIT_AGENT_NAME_OVERRIDE,LIVEKIT_AGENT_NAME"` //nolint:lll // tags
	Type         string        `help:"What a job is about: ${enum}." enum:"room,publisher,participant" default:"room"`
	Slots        int           `help:"Rooms at most; 0 is four for each core." env:"TOUCHLINE_WORKER_SLOTS" default:"0"`
	DrainTimeout time.Duration `help:"How long sentences may take to end after the first signal." env:"TOUCHLINE_WORKER_DRAIN_TIMEOUT" default:"1h"`                      //nolint:lll // tags
	FullCPU      float64       `help:"Share of the CPU at which no more rooms are taken; 0 does not look." name:"full-cpu" env:"TOUCHLINE_WORKER_FULL_CPU" default:"0.9"` //nolint:lll // tags
	HTTP         string        `help:"Address of probes and metrics; off for none." name:"http" env:"TOUCHLINE_WORKER_HTTP" default:":8081"`
	Namespace    string        `help:"Namespace of an older server."`
	Deployment   string        `help:"Deployment that dispatches must name." env:"LIVEKIT_AGENT_DEPLOYMENT"`
	Simulate     string        `help:"Take a job for this room at once, for a try." placeholder:"ROOM"`

	modelFlags

	WorkerToken string  `hidden:"" env:"LIVEKIT_WORKER_TOKEN"`
	CPUs        float64 `hidden:"" env:"NUM_CPUS"`
	LiveKitLog  string  `hidden:"" env:"LIVEKIT_LOG_LEVEL"`
}

// slotsPerCore is how many rooms a core is trusted with before the CPU itself
// says that it is enough; one costs about a tenth.
const slotsPerCore = 4

// leaving is how long an agent's end may take beside the drain.
const leaving = 5 * time.Second

// patience is how long the program waits for this command after a signal.
func (c *agentCmd) patience() time.Duration { return c.DrainTimeout + leaving }

// Run serves rooms until it is interrupted: the first signal hands them over,
// the second ends them at once.
func (c *agentCmd) Run(ctx context.Context, a *app) error {
	log := a.log
	if c.LiveKitLog != "" {
		level, err := zerolog.ParseLevel(c.LiveKitLog)
		if err != nil {
			return fmt.Errorf("LIVEKIT_LOG_LEVEL: expected trace, debug, info, warn or error, got %q", c.LiveKitLog)
		}
		log = log.Level(level)
	}
	cfg := a.cfg
	if c.URL != "" {
		cfg.Agent.LiveKit.URL = c.URL
	}
	if err := c.apply(&cfg); err != nil {
		return err
	}
	jobs, err := wiring.NewJobs(wiring.JobsOptions{Config: cfg, Log: log})
	if err != nil {
		return err
	}
	w, err := c.worker(cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.APIKey, string(cfg.Agent.LiveKit.APISecret), cfg.Agent.LiveKit.Name, jobs, log)
	if err != nil {
		return err
	}
	var listener net.Listener
	if c.HTTP != "" && c.HTTP != "off" {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", c.HTTP); err != nil {
			return fmt.Errorf("open the address of probes and metrics (--http): %w", err)
		}
	}

	// The first signal has ended ctx; the second comes here, and the third ends the program.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	rooms, endRooms := context.WithCancel(context.WithoutCancel(ctx))
	defer endRooms()
	beside, endBeside := context.WithCancel(context.WithoutCancel(ctx))
	defer endBeside()

	var g errgroup.Group
	g.Go(func() error {
		err := jobs.Keep(beside)
		if err != nil { // without an engine there is nothing to serve rooms with
			w.Drain()
			timer := time.NewTimer(leaving)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-beside.Done():
			}
			endRooms()
		}
		return err
	})
	if listener != nil {
		g.Go(func() error { return serveProbes(beside, listener, w, jobs.Metrics(), log) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			w.Drain()
			drain(beside, signals)
			endRooms()
		case <-beside.Done():
		}
		return nil
	})
	if c.Simulate != "" {
		g.Go(func() error { return simulate(beside, w, c.Simulate) })
	}
	err = w.Run(rooms)
	endBeside()
	return errors.Join(err, g.Wait())
}

// drain returns at the second signal or at the end. The first one may have been
// noted here as well.
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

// simulate asks for a job as soon as the worker is registered.
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

func (c *agentCmd) worker(url, key, secret, name string, jobs *wiring.Jobs, log zerolog.Logger) (*worker.Worker, error) {
	jobType, err := worker.ParseJobType(c.Type)
	if err != nil {
		return nil, err
	}
	cores := c.CPUs
	if cores <= 0 {
		cores = float64(runtime.NumCPU())
	}
	slots := c.Slots
	if slots == 0 {
		slots = max(1, int(cores*slotsPerCore))
	}
	machine := jobs.Load
	if c.FullCPU > 0 {
		cpu, err := worker.NewCPU(os.DirFS("/"), cores)
		if err != nil {
			log.Warn().Err(err).Msg("the load is that of slots and engine alone")
		} else {
			machine = func(now time.Time) float64 { return max(jobs.Load(now), cpu.Load(now)/c.FullCPU) }
		}
	}
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return worker.New(worker.Options{
		URL: url, APIKey: key, APISecret: secret, WorkerToken: c.WorkerToken,
		AgentName: c.AgentName, Namespace: c.Namespace, Deployment: c.Deployment, JobType: jobType,
		Slots: slots, MachineLoad: machine, DrainTimeout: c.DrainTimeout, Name: name, Version: version,
		Runner: jobs, Log: log,
	})
}

// serveProbes answers probes and Prometheus until ctx ends.
func serveProbes(ctx context.Context, l net.Listener, w *worker.Worker, engines prometheus.Collector, log zerolog.Logger) error {
	node, err := os.Hostname()
	if err != nil {
		node = "unknown"
	}
	reg := prometheus.NewRegistry()
	err = errors.Join(
		prometheus.WrapRegistererWith(prometheus.Labels{"nodename": node}, reg).Register(w.Collector()),
		reg.Register(engines),
		reg.Register(collectors.NewGoCollector()),
		reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", w.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	log.Info().Str("address", l.Addr().String()).Msg("probes at / and /worker, metrics at /metrics")
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes and metrics: %w", err)
	}
	return nil
}
