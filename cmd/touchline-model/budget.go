package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/minicpmo"
	"touchline/inference/step"
)

// holdCmd holds memory of the first GPU, to see what a model does with less of it.
type holdCmd struct {
	modelcmd.RuntimeFlags

	Leave string `arg:"" help:"How much to leave free, such as 12GB."`
}

// Run holds the memory until its input ends, and prints the free bytes for each line of it.
func (c *holdCmd) Run() (err error) {
	leave, _ := minicpmo.Config{Memory: c.Leave}.Budget()
	if leave == 0 {
		return fmt.Errorf("expected a size such as 12GB, got %q", c.Leave)
	}
	_, dev, release, err := step.OpenDevice(c.Library, "cuda", 0, step.Commentary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	free, _, err := dev.MemInfo()
	if err != nil {
		return err
	}
	m, err := dev.Malloc(free - leave)
	if err != nil {
		return fmt.Errorf("leave %s of %s: %w", c.Leave, size(free), err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if free, _, err = dev.MemInfo(); err != nil {
			return err
		}
		fmt.Println(free)
	}
	return lines.Err()
}

// hold holds all memory of the GPU but --memory in another process, to the end of the part. The function returns the free bytes.
func (b *modelBench) hold() (free func() int64) {
	self, err := os.Executable()
	b.Check(err)
	cmd := exec.CommandContext(b.Context(), self, "hold", b.Memory)
	if b.Library != "" {
		cmd.Args = append(cmd.Args, "--ort", b.Library)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	b.Check(err)
	out, err := cmd.StdoutPipe()
	b.Check(err)
	b.Check(cmd.Start())
	b.Cleanup(func() { b.Fail(errors.Join(in.Close(), cmd.Wait())) })
	lines := bufio.NewScanner(out)
	return func() int64 {
		if _, err := fmt.Fprintln(in); err != nil || !lines.Scan() {
			b.Check(errors.New("the process that holds the GPU's memory ended"))
		}
		n, err := strconv.ParseInt(lines.Text(), 10, 64)
		b.Check(err)
		return n
	}
}

// budget measures one room with its voice, while another process holds all memory but --memory.
func (b *modelBench) budget() {
	c, d := b.config("auto"), minicpmo.DefaultSettings()
	c.MaxSlices, c.MaxTokens, c.Voice, c.MiniCPM.Memory = d.MaxSlices, d.MaxTokens, d.Voice, b.Memory
	b.Check(c.MiniCPM.Validate())
	most, _ := c.MiniCPM.Budget()
	if most == 0 {
		b.Check(errors.New("expected a size for --memory, such as 12GB"))
	}
	if len(b.GPUs) != 1 || b.GPUs[0] != 0 {
		b.Check(errors.New("--memory holds memory of GPU 0: leave --gpus out and choose the GPU by CUDA_VISIBLE_DEVICES"))
	}
	free := b.hold()
	before := free()
	e := b.open(b.Bundle, c)
	loaded := before - free()
	b.decode(e, b.Bundle, "auto")
	b.cycle(e)
	if e.Capabilities().Speech {
		b.firstSounds(e)
	}
	b.found.Used = before - free()
	const what = "memory of the process by the driver, "
	b.add(what+"loaded", "GB", "", []float64{float64(loaded) / 1e9}, float64(most)/1e9, true)
	b.add(what+"at the end", "GB", "", []float64{float64(b.found.Used) / 1e9}, float64(most)/1e9, true)
	st := e.Status()
	if st.VoiceProblem != "" {
		b.Fail(errors.New(st.VoiceProblem))
	}
	b.found.Device, b.found.Detail, b.found.Planned = e.Plan().Device, st.Detail, e.Plan().Total()
	fmt.Fprintf(os.Stderr, "plan: %v; used by loading, by the engine's count: %s\n", e.Plan(), size(e.Stats().MemoryUsed))
}
