package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"touchline/internal/child"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/source"
)

// readAhead is how many access units of a looping file are read ahead, so that the
// next run has begun when the last picture is due.
const readAhead = 32

// keysAhead bounds that time for key frames, which may be far apart: all pictures are tried again where reading is.
const keysAhead = 2 * time.Second

// play plays the clip in real time, repeatedly if it is a file that loops. played
// reports whether there was a picture.
func (c *Clip) play(ctx context.Context, in input, s stream, pace *pacer) (played bool, err error) {
	from := cmp.Or(c.slow.resume, c.opts.Start)
	p := &player{clip: c, in: in, stream: s, pace: pace, sounds: s.audio >= 0 && pace.out.Opus != nil, from: from, at: from}
	c.slow.since = time.Time{}
	loops, ahead := c.opts.Loop && c.opts.Address.Kind == source.File, 0
	if loops {
		ahead = readAhead
	}
	if text := p.advice(); text != "" {
		pace.advise(text)
	}
	runs, cancel := context.WithCancel(ctx)
	defer cancel()
	units := make(chan unit, ahead)
	read := make(chan error, 1)
	go func() {
		defer close(units)
		read <- rescue.Call(func() error {
			for {
				err := p.run(runs, units)
				if errors.Is(err, errPace) {
					continue
				}
				if err != nil || !loops {
					return err
				}
				p.from = 0
				if in.changed(c.opts.Address.Path) {
					return errChanged
				}
			}
		})
	}()
	for u := range units {
		if err := p.pace.emit(runs, u); err != nil {
			break // ctx ended
		}
		played = true
	}
	p.pace.end()
	if err = <-read; err != nil {
		cancel()
	}
	p.relaying.Wait()
	if played {
		c.slow.resume = 0
	}
	switch {
	case ctx.Err() != nil:
		p.stalled(ctx)
		return played, context.Cause(ctx)
	case err != nil:
		return played, err
	case c.opts.Address.Kind == source.File:
		return true, source.ErrEnded
	}
	return true, source.Errorf("the stream came to its end")
}

// errChanged is returned when a looping file was replaced.
var errChanged = source.Errorf("the file has changed")

// changed reports whether a file was replaced. One that is missing comes back.
func (in input) changed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && (info.Size() != in.info.Size() || !info.ModTime().Equal(in.info.ModTime()))
}

// player plays a clip in runs, each with one process. ffmpeg's own loop would leave a
// gap where the sound is longer than the picture. A short clip is read once and repeated from memory.
type player struct {
	clip   *Clip
	in     input
	stream stream
	pace   *pacer
	sounds bool

	line     timeline
	last     *run
	relaying sync.WaitGroup
	from     time.Duration // position of the next run
	at       time.Duration // of the newest picture that was read

	short  *memory // the newest run, nil if it was long
	repeat bool    // short is complete
}

// memory is a run of a short clip.
type memory struct {
	units  []unit
	bytes  int
	sounds []opusPackets // used by relaySound only
}

// Bounds of a short clip: of its sound if it has some, and of its pictures, which may be far apart.
const (
	shortTime  = 10 * time.Second
	shortUnits = 300
	shortBytes = 8 << 20
)

// keep records a unit with the times of its clip, and gives up when the clip is not short.
func (p *player) keep(u unit) {
	if m := p.short; m != nil {
		m.units, m.bytes = append(m.units, u), m.bytes+len(u.frame.Data)
		if m.bytes > shortBytes || len(m.units) > shortUnits || p.sounds && u.dts-m.units[0].dts > shortTime {
			m.units, p.short = nil, nil
		}
	}
}

// opusPackets are packets of sound and the time of the first.
type opusPackets struct {
	pts     time.Duration
	packets [][]byte
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
	first    time.Duration // DTS of the run's first unit
	last     time.Duration // DTS of the newest unit
	interval time.Duration // from the previous unit to the newest one
}

// A run shorter than tinyRun lasts leastRun, which is also the interval of a single picture.
const (
	tinyRun  = 500 * time.Millisecond
	leastRun = time.Second
)

// begin returns the offset for the times of a run by the DTS of its first unit.
func (t *timeline) begin(dts time.Duration) (base time.Duration) {
	if t.started {
		next := t.last + t.interval
		if next-t.first < tinyRun {
			next = t.first + leastRun
		}
		base = next - dts
	}
	t.started, t.first, t.last, t.interval = true, base+dts, base+dts, 0
	return base
}

// advance records the DTS of a further unit.
func (t *timeline) advance(dts time.Duration) {
	if step := dts - t.last; step > 0 {
		t.interval = step
	}
	t.last = dts
}

// arguments returns ffmpeg's arguments for a run.
func (p *player) arguments() (before, after []string) {
	before, filter := []string{"-nostdin"}, p.stream.filter
	if p.from > 0 {
		before = append(before, "-ss", strconv.FormatFloat(p.from.Seconds(), 'f', 3, 64))
	}
	switch {
	case p.clip.slow.keysOnly:
		before = append(before, "-skip_frame", "nokey")
		filter = keyFrames + filter
	case p.stream.skip:
		before = append(before, "-skip_frame", "noref")
	}
	if p.stream.rate > 0 && !p.clip.slow.keysOnly {
		filter = fmt.Sprintf("fps=%d,%s", p.stream.rate, filter)
	}
	after = []string{"-map", fmt.Sprintf("0:%d", p.stream.video), "-sn", "-dn"}
	if p.stream.copied {
		after = append(after, "-c:v", "copy")
	} else {
		rate := strconv.Itoa(p.stream.bitRate)
		after = append(after, "-vf", filter, "-c:v", "libx264", "-preset", "superfast", "-tune", "zerolatency",
			"-profile:v", "baseline", "-pix_fmt", "yuv420p", "-b:v", rate, "-maxrate", rate, "-bufsize", strconv.Itoa(p.stream.bitRate/2),
			"-force_key_frames", "expr:gte(t,n_forced)", "-threads", "2")
	}
	after = append(after, output(p.stream.container(), "pipe:1")...)
	if p.sounds {
		after = append(after, "-map", fmt.Sprintf("0:%d", p.stream.audio))
		if p.stream.opus {
			after = append(after, "-c:a", "copy")
		} else {
			after = append(after, "-c:a", "libopus", "-b:a", "64k", "-ac", "2", "-frame_duration", "20")
		}
		after = append(after, output("mpegts", "pipe:3")...)
	}
	return before, after
}

// run reads the clip once, or repeats a short one. It returns nil at the end of the clip.
func (p *player) run(ctx context.Context, units chan<- unit) error {
	r, previous := &run{placed: make(chan struct{}), heard: make(chan struct{})}, p.last
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
		if p.clip.slow.keysOnly {
			if err := wake.Sleep(ctx, p.pace.until(u.dts)-keysAhead); err != nil {
				return err
			}
		}
		select {
		case units <- u:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() {
		if !r.known {
			close(r.placed)
		}
	}()
	if p.repeat {
		return p.again(ctx, r, emit)
	}
	p.short = nil
	if p.clip.opts.Loop && p.from == 0 && !p.clip.slow.keysOnly {
		p.short = &memory{}
	}
	if err := p.read(ctx, r, emit); err != nil {
		return err
	}
	p.repeat = p.short != nil
	return nil
}

// again repeats a short clip.
func (p *player) again(ctx context.Context, r *run, emit func(unit) error) error {
	previous, m := p.last, p.short
	p.last = r
	if p.sounds {
		p.relay(ctx, r, previous, func(take func(time.Duration, [][]byte) error) error {
			for _, s := range m.sounds {
				if err := take(s.pts, s.packets); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, u := range m.units {
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// read reads the clip from an ffmpeg process.
func (p *player) read(ctx context.Context, r *run, emit func(unit) error) error {
	if err := p.clip.spaced(ctx, "ffmpeg"); err != nil {
		return err
	}
	before, after := p.arguments()
	cmd, stderr := p.in.command(ctx, "ffmpeg", before, after)
	pipe, wait, err := p.start(ctx, cmd, r)
	if err != nil {
		return source.Errorf("start ffmpeg: %w", err)
	}
	kept := func(u unit) error {
		p.keep(u)
		if err := emit(u); err != nil {
			return err
		}
		p.at = p.from + max(0, u.dts-shift)
		return p.judge()
	}
	if p.stream.container() == "mpegts" {
		err = readTS(pipe, p.stream, kept, nil)
	} else {
		err = readIVF(pipe, p.stream, kept)
	}
	if err != nil && ctx.Err() == nil && !isEnd(err) {
		_ = cmd.Process.Kill() // it may be blocked in a write
	}
	werr := wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errPace):
		return err
	case err != nil && !isEnd(err):
		return source.Errorf("read the video: %w", err)
	case !r.known && p.in.info != nil && p.from > p.clip.opts.Start: // it began after the last picture
		return nil
	case werr != nil && r.known && p.in.info != nil: // a file that is cut off plays up to there
		p.clip.opts.Log.Debug().Err(p.clip.explain(p.in, "play the video", werr, stderr)).Msg("clip ended early")
	case werr != nil:
		return p.clip.explain(p.in, "play the video", werr, stderr)
	case !r.known:
		return p.clip.explain(p.in, "play the video", source.Errorf("the video has no picture"), stderr)
	}
	return nil
}

// start starts ffmpeg and the relay of its sound, if there is one.
func (p *player) start(ctx context.Context, cmd *exec.Cmd, r *run) (pipe io.Reader, wait func() error, err error) {
	pipe, err = cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	limits := p.in.limits(p.stream.width * p.stream.height)
	previous := p.last
	p.last = r
	if !p.sounds {
		wait, err = child.Start(cmd, limits, p.in.env...)
		return pipe, wait, err
	}
	sound, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{w}
	wait, err = child.Start(cmd, limits, p.in.env...)
	w.Close()
	if err != nil {
		sound.Close()
		return nil, nil, err
	}
	m := p.short
	p.relay(ctx, r, previous, func(take func(time.Duration, [][]byte) error) error {
		stop := context.AfterFunc(ctx, func() { sound.Close() }) // ends readTS
		defer func() {
			if stop() {
				sound.Close()
			}
		}()
		err := readTS(sound, p.stream, nil, func(pts time.Duration, packets [][]byte) error {
			if m != nil && (len(m.sounds) == 0 || pts-m.sounds[0].pts <= 2*shortTime) {
				m.sounds = append(m.sounds, opusPackets{pts, packets})
			}
			return take(pts, packets)
		})
		if ctx.Err() == nil && !isEnd(err) {
			_, _ = io.Copy(io.Discard, sound) // ffmpeg must not block
		}
		return err
	})
	return pipe, wait, nil
}

// errNextRun ends the sound of a run at the start of the next one.
var errNextRun = source.Errorf("the next run has begun")

// earlySound is how many packets of sound are read before the first picture: ffmpeg reads no picture while its pipe of sound is full.
const earlySound = 3000

// relay emits the sound of a run that read yields, after the previous run's.
func (p *player) relay(ctx context.Context, r, previous *run, read func(take func(time.Duration, [][]byte) error) error) {
	p.relaying.Go(func() {
		defer close(r.heard)
		err := rescue.Call(func() error {
			select {
			case <-previous.over():
			case <-ctx.Done():
				return nil
			}
			var early []opusPackets
			flush := func() error {
				select {
				case <-r.placed:
				case <-ctx.Done():
					return nil
				}
				ready := early
				early = nil
				for _, s := range ready {
					pts := s.pts + r.base
					if end := r.end.Load(); end != 0 && int64(pts) >= end || !r.known {
						return errNextRun
					}
					if err := p.pace.sound(ctx, pts, s.packets); err != nil {
						return err
					}
				}
				return nil
			}
			return errors.Join(read(func(pts time.Duration, packets [][]byte) error {
				early = append(early, opusPackets{pts, packets})
				select {
				case <-r.placed:
				default:
					if len(early) < earlySound {
						return nil
					}
				}
				return flush()
			}), flush())
		})
		if err != nil && ctx.Err() == nil && !isEnd(err) && !errors.Is(err, errNextRun) {
			p.clip.opts.Log.Debug().Err(err).Msg("clip sound ended")
		}
	})
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

// shift is more than a key frame interval.
const shift = 600 * time.Second

// output returns the arguments of an output. The offset keeps all times positive:
// ffmpeg shifts negative times, for each output separately.
func output(format, to string) []string {
	after := []string{"-f", format, "-output_ts_offset", strconv.Itoa(int(shift.Seconds())), "-flush_packets", "1"}
	if format == "mpegts" {
		after = append(after, "-muxdelay", "0", "-muxpreload", "0", "-pat_period", "1", "-pes_payload_size", "0")
	}
	return append(after, to)
}
