// Package film is the command `touchline-bench world`: it writes films of the generated worlds with the truth about each picture.
package film

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"touchline/worlds"
)

// Command writes a film. Its fields are flags and arguments of kong.
type Command struct {
	World   string `help:"Generated world: ${enum}." default:"match" enum:"match,yard"`
	Seed    uint64 `help:"Seed of the world." default:"1"`
	Seconds int    `help:"Length of the video in seconds." default:"600"`
	Width   int    `help:"Width of the video in pixels." default:"1280"`
	Height  int    `help:"Height of the video in pixels." default:"720"`
	FPS     int    `help:"Pictures a second." default:"30"`
	BitRate int    `help:"Bit rate of the video in bit/s." default:"1500000"`
	Counter bool   `help:"Draw the frame counter."`

	Video string `arg:"" help:"Video file to write, H264, such as out.mp4."`
	Truth string `arg:"" help:"File for the truth: one JSON record per picture."`
}

// Run writes a film of a generated world, and what each picture shows.
func (w *Command) Run(ctx context.Context) error {
	if w.Seconds < 1 {
		return fmt.Errorf("--seconds: must be positive, is %d", w.Seconds)
	}
	world, err := worlds.New(worlds.Options{
		World: w.World, Seed: w.Seed, Width: w.Width, Height: w.Height, FPS: w.FPS, Counter: w.Counter,
	})
	if err != nil {
		return err
	}
	truth, err := os.Create(w.Truth)
	if err != nil {
		return fmt.Errorf("create the file of the truth: %w", err)
	}
	lines := bufio.NewWriter(truth)
	err = w.encode(ctx, world, lines)
	if err := errors.Join(err, lines.Flush(), truth.Close()); err != nil {
		return fmt.Errorf("write the world: %w", err)
	}
	return nil
}

// encode has ffmpeg encode every picture and writes its record.
func (w *Command) encode(ctx context.Context, world *worlds.World, lines io.Writer) error {
	rate := strconv.Itoa(w.BitRate)
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "yuv420p",
		"-s", fmt.Sprintf("%dx%d", w.Width, w.Height), "-r", strconv.Itoa(w.FPS), "-i", "pipe:0",
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", strconv.Itoa(2*w.FPS),
		"-b:v", rate, "-maxrate", rate, "-bufsize", rate, "-movflags", "+faststart", w.Video)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("connect to ffmpeg: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ffmpeg: %w", err)
	}
	err = errors.Join(w.pictures(world, in, json.NewEncoder(lines)), in.Close())
	if ended := cmd.Wait(); ended != nil {
		return fmt.Errorf("encode with ffmpeg: %w: %s", ended, bytes.TrimSpace(complaints.Bytes()))
	}
	return err
}

// pictures draws all pictures, and writes their records.
func (w *Command) pictures(world *worlds.World, out io.Writer, lines *json.Encoder) error {
	buf := make([]byte, world.I420Size())
	last := uint32(0)
	for n := range uint32(w.Seconds * w.FPS) {
		if err := world.Render(n, buf); err != nil {
			return err
		}
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("hand a picture to ffmpeg: %w", err)
		}
		if err := lines.Encode(world.Record(n, last)); err != nil {
			return fmt.Errorf("write a record: %w", err)
		}
		last = n
	}
	return nil
}
