package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"touchline/internal/rescue"
	"touchline/media/source"
)

// readAhead is how many access units of a looping file are read ahead, so that the
// next run has begun when the last picture is due.
const readAhead = 32

// play plays the clip in real time, repeatedly if it is a file that loops. played
// reports whether there was a picture.
func (c *Clip) play(ctx context.Context, in input, s stream, out source.Sink) (played bool, err error) {
	p := &player{clip: c, in: in, stream: s, pace: newPacer(c.opts.Now, out), sounds: s.sound && out.Opus != nil && !c.mute}
	loops, ahead := c.opts.Loop && c.opts.Address.Kind == source.File, 0
	if loops {
		ahead = readAhead
	}
	runs, cancel := context.WithCancel(ctx)
	defer cancel()
	units := make(chan unit, ahead)
	read := make(chan error, 1)
	go func() {
		defer close(units)
		read <- rescue.Call(func() error {
			for {
				if err := p.run(runs, units); err != nil || !loops {
					return err
				}
			}
		})
	}()
	for u := range units {
		if err := p.pace.emit(runs, u); err != nil {
			break // ctx ended
		}
	}
	p.pace.end()
	if err = <-read; err != nil {
		cancel()
	}
	p.relaying.Wait()
	switch {
	case ctx.Err() != nil:
		return p.pace.began, context.Cause(ctx)
	case err != nil:
		return p.pace.began, err
	case c.opts.Address.Kind == source.File:
		return true, source.ErrEnded
	}
	return true, errors.New("the stream came to its end")
}

// player plays a clip in runs, each with one process. ffmpeg's own loop would leave a
// gap where the sound is longer than the picture.
type player struct {
	clip   *Clip
	in     input
	stream stream
	pace   *pacer
	sounds bool

	line     timeline
	last     *run
	relaying sync.WaitGroup
}

// run plays a clip once.
type run struct {
	placed chan struct{} // closed when base is known, or will not be
	base   time.Duration // offset of the run's times
	known  bool
	end    atomic.Int64  // start of the next run, in nanoseconds; 0 while unknown
	heard  chan struct{} // closed when its sound is over
}

// timeline places each run one frame interval after the last picture of the previous one.
type timeline struct {
	started  bool
	last     time.Duration // DTS of the newest unit
	interval time.Duration // from the previous unit to the newest one
}

// begin returns the offset for the times of a run by the DTS of its first unit.
func (t *timeline) begin(dts time.Duration) (base time.Duration) {
	if t.started {
		base = t.last + t.interval - dts
	}
	t.started, t.last = true, base+dts
	return base
}

// advance records the DTS of a further unit.
func (t *timeline) advance(dts time.Duration) {
	if step := dts - t.last; step > 0 && step < jump {
		t.interval = step
	}
	t.last = dts
}

// arguments returns ffmpeg's arguments for a run. Options.Start applies to the first one.
func (p *player) arguments(first bool) (before, after []string) {
	before = []string{"-nostdin"}
	if start := p.clip.opts.Start; start > 0 && first {
		before = append(before, "-ss", strconv.FormatFloat(start.Seconds(), 'f', 3, 64))
	}
	after = []string{"-map", "v:0", "-sn", "-dn"}
	if p.stream.copied {
		after = append(after, "-c:v", "copy")
	} else {
		after = append(after, "-vf", "scale=trunc(iw/2)*2:trunc(ih/2)*2", "-c:v", "libx264", "-preset", "superfast", "-tune", "zerolatency",
			"-profile:v", "baseline", "-pix_fmt", "yuv420p", "-b:v", "2500k", "-maxrate", "2500k", "-bufsize", "1250k",
			"-force_key_frames", "expr:gte(t,n_forced)", "-threads", "2")
	}
	after = append(after, output(p.stream.container(), "pipe:1")...)
	if p.sounds {
		after = append(after, "-map", "a:0")
		if p.stream.opus {
			after = append(after, "-c:a", "copy")
		} else {
			after = append(after, "-c:a", "libopus", "-b:a", "64k", "-ac", "2", "-frame_duration", "20")
		}
		after = append(after, output("mpegts", "pipe:3")...)
	}
	return before, after
}

// run reads the clip once. It returns nil at the end of the clip.
func (p *player) run(ctx context.Context, units chan<- unit) error {
	before, after := p.arguments(p.last == nil)
	cmd, stderr := p.in.command(ctx, "ffmpeg", before, after)
	r := &run{placed: make(chan struct{}), heard: make(chan struct{})}
	previous := p.last
	pipe, err := p.start(ctx, cmd, r)
	if err != nil {
		return fmt.Errorf("start ffmpeg: %w", err)
	}
	p.last = r
	emit := func(u unit) error {
		if !r.known {
			r.base, r.known = p.line.begin(u.dts), true
			if previous != nil {
				previous.end.Store(int64(r.base + u.pts))
			}
			close(r.placed)
		}
		u.pts, u.dts = u.pts+r.base, u.dts+r.base
		p.line.advance(u.dts)
		select {
		case units <- u:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.stream.container() == "mpegts" {
		err = readTS(pipe, p.stream, emit, nil)
	} else {
		err = readIVF(pipe, p.stream, emit)
	}
	if !r.known {
		close(r.placed)
	}
	if err != nil && ctx.Err() == nil && !isEnd(err) {
		_ = cmd.Process.Kill() // it may be blocked in a write
	}
	werr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !isEnd(err):
		return fmt.Errorf("read the video: %w", err)
	case werr != nil && strings.Contains(stderr.text(), "libopus"): // the next attempt is without sound
		p.clip.mute = true
		return errors.New("ffmpeg has no Opus encoder; the sound is left out")
	case werr != nil:
		return p.clip.explain(p.in, "play the video", werr, stderr)
	case !r.known && (previous != nil || !p.clip.opts.Loop || p.clip.opts.Start == 0):
		return errors.New("the video has no picture")
	}
	return nil
}

// start starts ffmpeg and the reader of its sound, and returns the picture's pipe.
func (p *player) start(ctx context.Context, cmd *exec.Cmd, r *run) (io.Reader, error) {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if !p.sounds {
		return pipe, cmd.Start()
	}
	sound, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		sound.Close()
		return nil, err
	}
	previous := p.last
	p.relaying.Go(func() {
		defer close(r.heard)
		err := rescue.Call(func() error { return p.relaySound(ctx, sound, r, previous) })
		if err != nil && ctx.Err() == nil {
			p.clip.opts.Log.Debug().Err(err).Msg("clip sound ended")
		}
	})
	return pipe, nil
}

// errNextRun ends the sound of a run at the start of the next one.
var errNextRun = errors.New("the next run has begun")

// relaySound emits a run's sound, after the previous run's.
func (p *player) relaySound(ctx context.Context, pipe *os.File, r, previous *run) error {
	stop := context.AfterFunc(ctx, func() { pipe.Close() }) // ends readTS
	defer func() {
		if stop() {
			pipe.Close()
		}
	}()
	for _, done := range []chan struct{}{previous.over(), r.placed} {
		select {
		case <-done:
		case <-ctx.Done():
			return nil
		}
	}
	if !r.known {
		return nil
	}
	err := readTS(pipe, p.stream, nil, func(pts time.Duration, packets [][]byte) error {
		pts += r.base
		if end := r.end.Load(); end != 0 && int64(pts) >= end {
			return errNextRun
		}
		return p.pace.sound(ctx, pts, packets)
	})
	if ctx.Err() != nil || isEnd(err) || errors.Is(err, errNextRun) {
		return nil
	}
	_, _ = io.Copy(io.Discard, pipe) // ffmpeg must not block
	return err
}

// over returns a channel that is closed when the run's sound is over, or if there is no run.
func (r *run) over() chan struct{} {
	if r == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return r.heard
}

// output returns the arguments of an output. The offset keeps all times positive:
// ffmpeg shifts negative times, for each output separately.
func output(format, to string) []string {
	const shift = "600" // seconds; more than a key frame interval
	after := []string{"-f", format, "-output_ts_offset", shift, "-flush_packets", "1"}
	if format == "mpegts" {
		after = append(after, "-muxdelay", "0", "-muxpreload", "0", "-pat_period", "1", "-pes_payload_size", "0")
	}
	return append(after, to)
}
