package codec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/child"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/codec/wire"
)

const (
	// patience bounds the time without progress while the process has work.
	patience = 5 * time.Second
	// firstPause and slowest bound the pause before a restart. A run of at least steady resets it to none.
	firstPause = 50 * time.Millisecond
	slowest    = time.Second
	steady     = 10 * time.Second
	// linesPerSecond bounds the log of the process's stderr.
	linesPerSecond = 5

	readBuffer = 4 << 10
	pipeSize   = 1 << 20
)

var errStuck = errors.New("codec process hangs")

// duty is the user of a process. Its methods are called from process.run's goroutines:
// next only from one, messages only from another.
type duty interface {
	// next returns the data to write now, nil for none. The call means that all data
	// of earlier calls was written.
	next() [][]byte
	// The next four methods handle a message; an error ends the process.
	acked(wire.Ack) error
	picture(wire.Picture) error
	encoded(wire.Encoded) error
	problem(wire.Problem) error
	// up is called when a process has started; again is set for a restart.
	up(again bool)
	// lost is called when the process has ended.
	lost()
	// waitingSince returns when the process was last idle or made progress; zero if
	// it has no work.
	waitingSince() time.Time
}

// process keeps one touchline-codec running.
type process struct {
	path  string
	avoid []string
	log   zerolog.Logger
	duty  duty
	wake  wake.Signal // next has data
}

func newProcess(path string, avoid []string, log zerolog.Logger, d duty) (*process, error) {
	found, err := Find(path)
	if err != nil {
		return nil, err
	}
	return &process{
		path: found, avoid: avoid, duty: d, wake: wake.New(),
		log: log.With().Str("component", "codec").Logger(),
	}, nil
}

// runOnce is run with running set, which mu guards; ended is called with mu at the end.
func (p *process) runOnce(ctx context.Context, mu *sync.Mutex, running *bool, ended func()) error {
	mu.Lock()
	if *running {
		mu.Unlock()
		return errors.New("the codec is running already")
	}
	*running = true
	mu.Unlock()
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		*running = false
		ended()
	}()
	return p.run(ctx)
}

// run keeps a process running until ctx ends, and then returns nil. It restarts the process: the first time at once, then with pauses that
// grow up to slowest.
func (p *process) run(ctx context.Context) error {
	pause := time.Duration(0)
	for again := false; ; again = true {
		began := time.Now()
		err := p.once(ctx, again)
		p.duty.lost()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended the process
		}
		if _, crash := rescue.Of(err); crash || errors.Is(err, ErrVersion) {
			return err
		}
		if time.Since(began) >= steady {
			pause = 0
		}
		p.log.Warn().Err(err).Int64("retry_in_ms", pause.Milliseconds()).Msg("codec process ended")
		_ = wake.Sleep(ctx, pause) // once sees the end of ctx
		pause = min(max(2*pause, firstPause), slowest)
	}
}

// once runs one process to its end.
func (p *process) once(ctx context.Context, again bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	cmd := exec.CommandContext(ctx, p.path, "-avoid", strings.Join(p.avoid, ","))
	pipes, err := connect(cmd)
	if err != nil {
		return err
	}
	defer pipes.close()
	wait, err := child.Start(cmd, child.Limits{Self: true}, environment()...)
	if err != nil {
		return err
	}
	pipes.closeRemote()
	p.log.Debug().Int("pid", cmd.Process.Pid).Msg("codec process started")

	// A panic in a callback ends the process, with the panic as its error.
	var wg sync.WaitGroup
	part := func(f func() error) { wg.Go(func() { stop(rescue.Call(f)) }) }
	if err := rescue.Call(func() error { p.duty.up(again); return nil }); err != nil {
		stop(err)
	}
	part(func() error { return p.write(ctx, pipes.in) })
	part(func() error { return p.read(pipes.out) })
	part(func() error { return p.watch(ctx) })
	refused := ""
	wg.Go(func() { refused = p.forward(pipes.err) })
	err = wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	stop(io.EOF) // the reader ends with the process
	wg.Wait()
	if refused != "" {
		err = fmt.Errorf("%w: %s", err, refused)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return fmt.Errorf("%w (codec process: %w)", cause, err)
	}
	return fmt.Errorf("run the codec process: %w", err)
}

// environment of a codec process: one thread does the work, so one heap is enough.
func environment() []string {
	return []string{"GOTRACEBACK=single", "GOMAXPROCS=1"}
}

// write sends messages to the process.
func (p *process) write(ctx context.Context, w io.Writer) error {
	if _, err := w.Write(wire.Hello{Version: wire.Version}.Append(nil)); err != nil {
		return fmt.Errorf("greet the codec process: %w", err)
	}
	for {
		for bufs := p.duty.next(); bufs != nil; bufs = p.duty.next() {
			for _, b := range bufs {
				if _, err := w.Write(b); err != nil {
					<-ctx.Done() // the reader has a better error
					return fmt.Errorf("write to the codec process: %w", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.wake:
		}
	}
}

// read handles the process's messages.
func (p *process) read(r io.Reader) error {
	in := wire.NewReader(r, readBuffer)
	m, err := in.Next()
	if err != nil {
		return fmt.Errorf("wait for the codec process: %w", err)
	}
	hello, err := wire.ParseHello(m.Body)
	switch {
	case m.Kind != wire.KindReady:
		return fmt.Errorf("%w: expected a ready message, got kind %d", ErrVersion, m.Kind)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrVersion, err)
	case hello.Version != wire.Version:
		return fmt.Errorf("%w: expected protocol version %d, got %d", ErrVersion, wire.Version, hello.Version)
	}
	for {
		m, err := in.Next()
		if err == nil {
			err = handle(p.duty, m)
		}
		if err != nil {
			return fmt.Errorf("read from the codec process: %w", err)
		}
	}
}

// errUnexpected is returned for a message that the duty never requests.
var errUnexpected = fmt.Errorf("%w: unexpected kind", wire.ErrMalformed)

// handle processes a message of the process.
func handle(d duty, m wire.Message) error {
	switch m.Kind {
	case wire.KindAck:
		return parsed(m, wire.ParseAck, d.acked)
	case wire.KindPicture:
		return parsed(m, wire.ParsePicture, d.picture)
	case wire.KindEncoded:
		return parsed(m, wire.ParseEncoded, d.encoded)
	case wire.KindProblem:
		return parsed(m, wire.ParseProblem, d.problem)
	case wire.KindHello, wire.KindUnit, wire.KindLatest, wire.KindSetup, wire.KindRaw, wire.KindReady, wire.KindMasks:
	}
	return fmt.Errorf("%w: kind %d is not for the bot", wire.ErrMalformed, m.Kind)
}

// parsed calls f with a parsed message.
func parsed[T any](m wire.Message, parse func([]byte) (T, error), f func(T) error) error {
	v, err := parse(m.Body)
	if err != nil {
		return err
	}
	return f(v)
}

// watch ends a process that hangs.
func (p *process) watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-tick.C:
			if since := p.duty.waitingSince(); !since.IsZero() && now.Sub(since) > patience {
				return fmt.Errorf("%w: no progress for %v", errStuck, patience)
			}
		}
	}
}

// forward logs the process's stderr: its errors, and the stack of a crash. It returns the line with the system call that ended it, if any.
func (p *process) forward(r io.Reader) (refused string) {
	lines := bufio.NewReaderSize(r, 4<<10)
	var second time.Time
	count, lost := 0, 0
	for {
		line, _, err := lines.ReadLine() // of up to 4 KiB
		if err != nil {
			break
		}
		if strings.HasPrefix(string(line), child.Refused) {
			refused = string(line)
		}
		if now := time.Now(); now.Sub(second) >= time.Second {
			second, count = now, 0
		}
		if count++; count > linesPerSecond {
			lost++
			continue
		}
		p.log.Warn().Int("lines_lost", lost).Bytes("line", line).Msg("codec process output")
		lost = 0
	}
	if lost > 0 {
		p.log.Warn().Int("lines_lost", lost).Msg("codec process output dropped")
	}
	return refused
}

// pipes are the bot's ends of the process's three streams, and until it has started
// also the process's.
type pipes struct {
	in, out, err *os.File
	remote       []*os.File
}

func connect(cmd *exec.Cmd) (*pipes, error) {
	var files [6]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			(&pipes{remote: files[:i]}).close()
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	p := &pipes{in: files[1], out: files[2], err: files[4], remote: []*os.File{files[0], files[3], files[5]}}
	widen(p.in)
	widen(p.out)
	return p, nil
}

// widen makes a pipe large enough for a picture, for fewer context switches. The kernel may refuse.
func widen(f *os.File) {
	const setPipeSize = 1031 // F_SETPIPE_SZ, fcntl(2)
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, pipeSize) })
	}
}

// closeRemote closes the process's ends.
func (p *pipes) closeRemote() {
	for _, f := range p.remote {
		_ = f.Close()
	}
	p.remote = nil
}

func (p *pipes) close() {
	p.closeRemote()
	for _, f := range []*os.File{p.in, p.out, p.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}
