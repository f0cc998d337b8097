// Command touchline-bench measures Touchline from outside: alignment, relay,
// cost, recovery. It prints tables and fails when a figure misses its goal. It
// also writes films of the generated worlds with the truth about them, and judges
// what an engine says of them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/configs"
	"touchline/inference/conformance/bundles"
	"touchline/worlds/judge"
)

type cli struct {
	LogLevel string `help:"Level of the log on standard error." default:"error" enum:"trace,debug,info,warn,error"`

	Run  runCmd  `cmd:"" help:"Measure everything once and print tables."`
	Soak soakCmd `cmd:"" help:"Run under faults for long and print what happened."`

	Orders ordersCmd `cmd:"" help:"Measure the recognizer of spoken orders with synthetic voices, and print a table."`

	World worldCmd      `cmd:"" help:"Write a film of a generated world, and a record of what each picture shows."`
	Truth judge.Command `cmd:"" help:"Let an engine comment on generated worlds, and judge what it says by their truth."`

	Role roleCmd `cmd:"" hidden:"" help:"One process of a run, beside the bots."`
}

const description = "Measures Touchline from outside."

func main() {
	// ONNX Runtime reads it when it is loaded, and by then other threads may read the environment.
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1")
	var c cli
	kctx := kong.Parse(&c, kong.Name("touchline-bench"), kong.UsageOnError(), kong.Description(description))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	level, err := zerolog.ParseLevel(c.LogLevel)
	kctx.FatalIfErrorf(err)
	lines := zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, TimeFormat: time.TimeOnly}
	log := zerolog.New(lines).Level(level).With().Timestamp().Logger()
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.FatalIfErrorf(kctx.Run(log))
}

type runCmd struct {
	Only     []string      `help:"Only these parts." placeholder:"PART"`
	Markdown bool          `help:"Print Markdown, as in docs/benchmarks.md."`
	Comments int           `help:"Comments of each alignment run." default:"60"`
	Browser  int           `help:"Comments of each voice in each browser." default:"12"`
	Relay    time.Duration `help:"Length of the relay run." default:"10m"`
	Sound    bool          `help:"Camera with sound in alignment, steady and relay."`
	Cost     time.Duration `help:"Length of each cost run." default:"40s"`
	Cameras  time.Duration `help:"Length of each run with WHIP senders." default:"30s"`
	Decode   time.Duration `help:"Length of each decode run, best a multiple of 4 s." default:"16s"`
	Clips    string        `help:"Folder of recordings for decode, for machines without a browser; filled when empty." type:"existingdir"`
	Bundle   string        `help:"For rules, own-voice and browser: a bundle of the built-in model." type:"existingdir"`
	Ears     string        `help:"For ears, instead of a scripted recognizer: a bundle of speech recognition." type:"existingdir"`
	Off      time.Duration `help:"Downtime of the cameras that restart." default:"30s"`
}

// part is one table.
type part struct {
	name, title string
	run         func(ctx context.Context) ([]row, error)
}

func (r *runCmd) parts(log zerolog.Logger) []part {
	align := func(least, most, pauseOff time.Duration) func(ctx context.Context) ([]row, error) {
		return func(ctx context.Context) ([]row, error) {
			res, err := measureAlignment(ctx, r.Comments, least, most, nil, r.Sound, log)
			return res.Rows(pauseOff), err
		}
	}
	return []part{
		{"alignment", "Alignment, model latency 0.4 to 3 s at random, 640x360", align(400*time.Millisecond, 3*time.Second, 300*time.Millisecond)},
		{"steady", "Alignment, model latency always 1.2 s, 640x360", align(1200*time.Millisecond, 1200*time.Millisecond, 150*time.Millisecond)},
		{"own-voice", "Alignment in the model's own voice, 640x360", func(ctx context.Context) ([]row, error) {
			return r.ownVoice(ctx, log)
		}},
		{"delay", "D forced 2 -> 5 -> 2 s", func(ctx context.Context) ([]row, error) { return measureDelay(ctx, 3*time.Second, log) }},
		{"relay", "Relay of the delayed copy", func(ctx context.Context) ([]row, error) { return measureRelay(ctx, r.Relay, r.Sound, log) }},
		{"sound", "The camera's sound beside the delayed picture", func(ctx context.Context) ([]row, error) {
			return measureSound(ctx, 35*time.Second, log)
		}},
		{"browser", "The voice after its picture, in browsers that show the page", func(ctx context.Context) ([]row, error) {
			return r.browser(ctx, log)
		}},
		{"instruction", "New instruction", func(ctx context.Context) ([]row, error) { return measureInstruction(ctx, log) }},
		{"rules", "16 alert rules beside the commentary, model latency 150 ms", func(ctx context.Context) ([]row, error) {
			return measureRules(ctx, r.Cost, r.Bundle, log)
		}},
		{"hearing", "People who speak in the room, recognizer latency 20 ms", func(ctx context.Context) ([]row, error) {
			return measureHearing(ctx, roleCommand, r.Cost, log)
		}},
		{"interrupt", "Somebody speaks while the voice does", func(ctx context.Context) ([]row, error) { return measureInterrupt(ctx, log) }},
		{"ears", "A partial text, without the model", func(ctx context.Context) ([]row, error) { return measureEars(ctx, r.Ears, log) }},
		{"mqtt", "Alerts at an MQTT subscriber, engine latency 300 ms, state on disk", func(ctx context.Context) ([]row, error) {
			return measureMQTT(ctx, 100, log)
		}},
		{"faults", "Recovery from faults", func(ctx context.Context) ([]row, error) { return measureFaults(ctx, 10*time.Second, log) }},
		{"decode", "Cost of decoding 720p30 and sampling 2 pictures a second", func(ctx context.Context) ([]row, error) {
			return measureDecode(ctx, r.Decode, r.Clips, log)
		}},
		{"cost", "Cost of whole bots (scene engine, speech, relay, one viewer each)", func(ctx context.Context) ([]row, error) {
			return measureCost(ctx, slimWorker, r.Cost, log)
		}},
		{"demo", "Cost of the demo (server, world, encoder, bot, voice): scene engine and nano", func(ctx context.Context) ([]row, error) {
			return measureDemo(ctx, demoCommand, 80*time.Second, r.Cost)
		}},
		{"rooms", "Rooms of 720p30 in one process (scene engine, speech, relay, one viewer each)", func(ctx context.Context) ([]row, error) {
			return measureRooms(ctx, slimWorker, roleCommand, r.Cost)
		}},
		{"dispatch", "Dispatch of agents in three ways, 25 rooms each", func(ctx context.Context) ([]row, error) {
			return measureDispatches(ctx, slimWorker, 25, log)
		}},
		{"cameras", "Cameras that restart, and WHIP senders to viewers", func(ctx context.Context) ([]row, error) {
			rows, err := measureRestarts(ctx, r.Off, log)
			if err != nil {
				return rows, err
			}
			more, err := measureCameras(ctx, roleCommand, r.Cameras)
			return append(rows, more...), err
		}},
	}
}

// speaking returns a bundle with a voice of its own: that of the settings, or the small one of the tests, which the source of the
// program has. done removes it.
func (r *runCmd) speaking(ctx context.Context) (bundle string, done func(), err error) {
	if r.Bundle != "" {
		return r.Bundle, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "touchline-voice-")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	bundle = filepath.Join(dir, "bundle")
	if err := bundles.Speaking(ctx, ".", dir, bundle); err != nil {
		done()
		return "", nil, fmt.Errorf("make a small model with a voice: %w: run the bench in the folder of its source, or give --bundle", err)
	}
	return bundle, done, nil
}

// browser measures every voice in browsers.
func (r *runCmd) browser(ctx context.Context, log zerolog.Logger) ([]row, error) {
	bundle, done, err := r.speaking(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return measureBrowser(ctx, r.Browser, bundle, log)
}

// ownVoice measures the alignment with the model's own voice.
func (r *runCmd) ownVoice(ctx context.Context, log zerolog.Logger) ([]row, error) {
	bundle, done, err := r.speaking(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	cfg := configs.Default()
	cfg.Inference.MiniCPM.Path = bundle
	res, err := measureOwnVoice(ctx, r.Comments, cfg, r.Sound, log)
	if len(res.Comments) == 0 {
		return nil, cmp.Or(err, errors.New("no comment was seen and heard: see the log for the cycles"))
	}
	return res.Rows(500 * time.Millisecond), err
}

// Run measures the parts one after another.
func (r *runCmd) Run(ctx context.Context, log zerolog.Logger) error {
	parts := r.parts(log)
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	for _, only := range r.Only {
		if !slices.Contains(names, only) {
			return fmt.Errorf("--only %q: no such part; choose from %s", only, strings.Join(names, ", "))
		}
	}
	lksdk.SetLogger(logger.GetDiscardLogger()) // until the first bot of this process sets its own
	out := report{out: os.Stdout, markdown: r.Markdown}
	out.begin(time.Now(), commit(buildInfo()), machine())
	for _, p := range parts {
		if len(r.Only) > 0 && !slices.Contains(r.Only, p.name) {
			continue
		}
		rows, err := p.run(ctx)
		out.table(p.title, "touchline-bench run --only "+p.name, rows, err)
		if ctx.Err() != nil {
			break
		}
	}
	return out.err()
}

// buildInfo returns the build information of this program, nil without any.
func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// slimWorker is the agent worker of touchline-slim, the program for an existing server.
func slimWorker(ctx context.Context, url string, keys conn.Keys, agentName string) *exec.Cmd {
	return workerOf(ctx, beside("touchline-slim"), url, keys, agentName)
}

// demoCommand runs the demo of the program beside this one.
func demoCommand(ctx context.Context, engine, history string) *exec.Cmd {
	return demoOf(ctx, beside("touchline"), engine, history)
}

func demoOf(ctx context.Context, program, engine, history string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, "--log-level=error", "demo", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "TOUCHLINE_INFERENCE_ENGINE="+engine,
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+history)
	return cmd
}

// beside returns the path of a program in the folder of this one.
func beside(program string) string {
	if self, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(self), program)
	}
	return program
}

func workerOf(ctx context.Context, program, url string, keys conn.Keys, agentName string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, "--log-level=error", "agent", "--url", url, "--http", "127.0.0.1:0",
		"--full-cpu", "0", "--slots", "16")
	cmd.Env = append(os.Environ(), "LIVEKIT_API_KEY="+keys.APIKey, "LIVEKIT_API_SECRET="+keys.APISecret, "LIVEKIT_AGENT_NAME="+agentName)
	return cmd
}

// roleCommand runs this program as a process with a role.
func roleCommand(ctx context.Context, role processRole) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return exec.CommandContext(ctx, self, "role", string(role))
}

type roleCmd struct {
	Role string `arg:"" enum:"server,cameras,viewers,whip,people"`
}

// Run plays a role until it is interrupted.
func (r *roleCmd) Run(ctx context.Context, log zerolog.Logger) error {
	return playRole(ctx, processRole(r.Role), os.Stdin, os.Stdout, log)
}

type soakCmd struct {
	Length time.Duration `help:"Length of the run with faults, 0 for none; each fault is injected once at least." default:"30m"`
	Seed   uint64        `help:"Seed of the fault script." default:"1"`
	Quick  bool          `help:"Short faults without pauses between them."`
	Rounds int           `help:"Number of WHIP senders that connect and leave, 0 for none." default:"10000"`

	Markdown bool `help:"Print Markdown, as in docs/benchmarks.md."`
}

// Run connects WHIP senders again and again, then keeps one bot commenting under a script of faults, and reports
// alignment, comments and memory.
func (s *soakCmd) Run(ctx context.Context, log zerolog.Logger) error {
	out := report{out: os.Stdout, markdown: s.Markdown}
	out.begin(time.Now(), commit(buildInfo()), machine())
	if s.Rounds > 0 {
		rows, err := measureRounds(ctx, s.Rounds, time.Minute, log)
		out.table("WHIP senders that connect and leave", fmt.Sprintf("touchline-bench soak --length 0 --rounds %d", s.Rounds), rows, err)
	}
	if s.Length > 0 {
		if log.GetLevel() == zerolog.ErrorLevel {
			log = log.Level(zerolog.FatalLevel) // the client library's errors about a server that is away on purpose
		}
		rows, err := measureSoak(ctx, soakOptions{Length: s.Length, Seed: s.Seed, Quick: s.Quick, Out: os.Stderr, Log: log})
		out.table("Soak", fmt.Sprintf("touchline-bench soak --rounds 0 --length %v --seed %d", s.Length, s.Seed), rows, err)
	}
	return out.err()
}
