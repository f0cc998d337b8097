package codec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/media/codec/wire"
)

const (
	// patience is how long the process may work on something without a sign of progress.
	patience = 5 * time.Second
	// slowest is the longest pause between two starts, steady the age from
	// which a process's death is no longer held against the next one.
	firstPause = 50 * time.Millisecond
	slowest    = time.Second
	steady     = 10 * time.Second
	// linesPerSecond bounds what of the process's stderr goes to the log.
	linesPerSecond = 5

	readBuffer = 4 << 10
	pipeSize   = 1 << 20
)

var errStuck = errors.New("codec process hangs")

// duty is what a process is kept for. Its methods are called by process.run's
// goroutines: next only by one, handle only by another.
type duty interface {
	// next returns what is to be written now, nil when there is nothing. A
	// further call means that everything before was written.
	next() [][]byte
	// handle takes a message; an error ends the process.
	handle(m wire.Message) error
	// up is called when a process is there; again is set when it is not the first.
	up(again bool)
	// lost is called when the process is gone, with all it had.
	lost()
	// waitingSince is when the process was last seen idle or getting on
	// with its work; zero when it has nothing to do.
	waitingSince() time.Time
}

// process keeps one touchline-codec running.
type process struct {
	path  string
	avoid []string
	log   zerolog.Logger
	duty  duty
	// wake is set when next has something for the writer.
	wake chan struct{}
}

func newProcess(path string, avoid []string, log zerolog.Logger, d duty) (*process, error) {
	found, err := Find(path)
	if err != nil {
		return nil, err
	}
	return &process{
		path: found, avoid: avoid, duty: d, wake: make(chan struct{}, 1),
		log: log.With().Str("component", "codec").Logger(),
	}, nil
}

// poke wakes the writer.
func (p *process) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run keeps a process alive until ctx ends, and then returns nil. A dead
// process is replaced at once, one that dies again soon after a pause.
func (p *process) run(ctx context.Context) error {
	pause := time.Duration(0)
	for again := false; ; again = true {
		began := time.Now()
		err := p.once(ctx, again)
		p.duty.lost()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the process was ended by us
		}
		if _, crash := rescue.Of(err); crash || errors.Is(err, ErrVersion) {
			return err
		}
		if time.Since(began) >= steady {
			pause = 0
		}
		p.log.Warn().Err(err).Int64("retry_in_ms", pause.Milliseconds()).Msg("codec process ended")
		if pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
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

	// The kernel kills the process when the thread that started it ends, so
	// that thread is kept for this.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, p.path, "-avoid", strings.Join(p.avoid, ",")) //nolint:gosec // a path of ours
	// Nothing of the bot's environment: it holds secrets.
	// It has one thread that works, and so needs one heap.
	cmd.Env = []string{"GOTRACEBACK=single", "GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	pipes, err := connect(cmd)
	if err != nil {
		return err
	}
	defer pipes.close()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.path, err)
	}
	pipes.handedOver()
	p.log.Debug().Int("pid", cmd.Process.Pid).Msg("codec process started")

	// The receiver of the pictures may panic: that ends the process, and is its error.
	var wg sync.WaitGroup
	part := func(f func() error) { wg.Go(func() { stop(rescue.Call(f)) }) }
	if err := rescue.Call(func() error { p.duty.up(again); return nil }); err != nil {
		stop(err)
	}
	part(func() error { return p.write(ctx, pipes.in) })
	part(func() error { return p.read(pipes.out) })
	part(func() error { return p.watch(ctx) })
	wg.Go(func() { p.forward(pipes.err) })
	err = cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	// The end of the process ends the reading; this ends the rest.
	stop(io.EOF)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return fmt.Errorf("%w (codec process: %w)", cause, err)
	}
	return fmt.Errorf("run the codec process: %w", err)
}

// write hands the process its work.
func (p *process) write(ctx context.Context, w io.Writer) error {
	if _, err := w.Write(wire.Hello{Version: wire.Version}.Append(nil)); err != nil {
		return fmt.Errorf("greet the codec process: %w", err)
	}
	for {
		for bufs := p.duty.next(); bufs != nil; bufs = p.duty.next() {
			for _, b := range bufs {
				if _, err := w.Write(b); err != nil {
					// The reader knows better why: it sees the end first.
					<-ctx.Done()
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

// read takes the process's answers.
func (p *process) read(r io.Reader) error {
	in := wire.NewReader(r, readBuffer)
	m, err := in.Next()
	if err != nil {
		return fmt.Errorf("wait for the codec process: %w", err)
	}
	if m.Kind != wire.KindReady {
		return fmt.Errorf("%w: it began with a message of kind %d", ErrVersion, m.Kind)
	}
	ready, err := wire.ParseReady(m.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	if ready.Version != wire.Version {
		return fmt.Errorf("%w: expected messages of version %d, it has %d", ErrVersion, wire.Version, ready.Version)
	}
	for {
		m, err := in.Next()
		if err == nil {
			err = p.duty.handle(m)
		}
		if err != nil {
			return fmt.Errorf("read from the codec process: %w", err)
		}
	}
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

// forward logs what the process says on stderr: its complaints, and the stack when
// it crashes.
func (p *process) forward(r io.Reader) {
	lines := bufio.NewReaderSize(r, 4<<10)
	var second time.Time
	count, lost := 0, 0
	for {
		line, _, err := lines.ReadLine() // what is over 4 KiB comes as several
		if err != nil {
			break
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
}

// pipes are our ends of the process's three streams, and until it has
// started also its own.
type pipes struct {
	in, out, err *os.File
	theirs       []*os.File
}

func connect(cmd *exec.Cmd) (*pipes, error) {
	p := &pipes{}
	pair := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			p.close()
			return nil, nil, fmt.Errorf("open a pipe: %w", err)
		}
		return r, w, nil
	}
	r, w, err := pair()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, p.in, p.theirs = r, w, append(p.theirs, r)
	if r, w, err = pair(); err != nil {
		return nil, err
	}
	cmd.Stdout, p.out, p.theirs = w, r, append(p.theirs, w)
	if r, w, err = pair(); err != nil {
		return nil, err
	}
	cmd.Stderr, p.err, p.theirs = w, r, append(p.theirs, w)
	widen(p.in)
	widen(p.out)
	return p, nil
}

// widen makes a pipe large enough for a picture, so that handing one over
// takes few turns. It may be refused; then it takes more.
func widen(f *os.File) {
	const setPipeSize = 1031 // F_SETPIPE_SZ, fcntl(2)
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, pipeSize) })
	}
}

// handedOver closes what the process has got.
func (p *pipes) handedOver() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
	p.theirs = nil
}

func (p *pipes) close() {
	p.handedOver()
	for _, f := range []*os.File{p.in, p.out, p.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}
