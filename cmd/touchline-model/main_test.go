package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/cmd/internal/modelcmd"
	"touchline/inference/conformance/check"
	"touchline/inference/minicpmo"
	"touchline/internal/contract"
	"touchline/models"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" { // A part of the benchmark, in its own process.
		command, err := parse(os.Args[1:])
		if err == nil {
			command.BindTo(context.Background(), (*context.Context)(nil))
			err = command.Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// parse parses a command line as the programs do.
func parse(args []string) (*kong.Context, error) {
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		return nil, err
	}
	return parser.Parse(args)
}

// TestHelpContract: names, flags and texts of the program and of the commands that touchline runs it for.
func TestHelpContract(t *testing.T) {
	var out strings.Builder
	for _, words := range []string{"bench", "bench model", "models check", "models synth", ""} {
		var c cli
		parser, err := kong.New(&c, kong.Name("touchline-model"), kong.Description(description), kong.Writers(&out, &out),
			kong.Exit(func(int) { panic(words) }))
		require.NoError(t, err)
		fmt.Fprintf(&out, "$ %s --help\n", strings.TrimSpace("touchline-model "+words))
		require.PanicsWithValue(t, words, func() { _, _ = parser.Parse(append(strings.Fields(words), "--help")) })
		out.WriteString("\n")
	}
	contract.Compare(t, "testdata/contract/help.txt", out.String())
}

const (
	root = "../../"
	// runtimeDir is the folder that `make runtime` fills.
	runtimeDir = root + "bin/runtime"
	// tiny is a small checkpoint.
	tiny = root + "models/testdata/tiny"
)

// run runs a command line as a program would, and returns its output.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	command, err := parse(args)
	require.NoError(t, err)
	command.BindTo(t.Context(), (*context.Context)(nil))

	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	read := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		_, _ = io.Copy(&text, r)
		read <- text.String()
	}()
	err = command.Run()
	os.Stdout = stdout
	require.NoError(t, w.Close())
	out = <-read
	require.NoError(t, r.Close())
	t.Logf("%s\n%s", strings.Join(args, " "), out)
	return out, err
}

func manifest(t *testing.T, dir string) models.Manifest {
	t.Helper()
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	return b.Manifest
}

func TestConvertVerifyList(t *testing.T) {
	dir := t.TempDir()
	bundle := filepath.Join(dir, "publisher", "tiny")
	out, err := run(t, "models", "convert", tiny, bundle, "--weights", "fp32,int4", "--device", "cpu", "--head", "4", "--name", "Tiny")
	require.NoError(t, err)
	require.Contains(t, out, bundle+": ")
	m := manifest(t, bundle)
	require.Equal(t, "Tiny", m.Name)
	require.Equal(t, tiny, filepath.ToSlash(relative(t, m.Source.Path)))
	require.False(t, m.Random)
	heads := map[models.Weights]int{}
	for _, g := range m.Graphs {
		require.Equal(t, models.DeviceCPU, g.Device)
		if g.Kind == models.KindDecoder {
			heads[g.Weights] = g.Head
		}
	}
	require.Equal(t, map[models.Weights]int{models.WeightsFloat32: 0, models.WeightsInt4: 4}, heads)

	_, err = run(t, "models", "convert", tiny, bundle)
	require.ErrorContains(t, err, "the folder is not empty")

	out, err = run(t, "models", "verify", bundle, "--ort", runtimeDir)
	require.NoError(t, err)
	require.Contains(t, out, "all checksums match")
	require.Contains(t, out, "4 graphs ran once on [cpu]: every output is finite")
	_, err = run(t, "models", "verify", bundle, "--ort", dir)
	require.ErrorContains(t, err, "make runtime")

	out, err = run(t, "models", "list", dir)
	require.NoError(t, err)
	require.Regexp(t, `publisher/tiny +Tiny +commentary +\S+ MB +(int4 on cpu, fp32 on cpu|fp32 on cpu, int4 on cpu)`, out)

	damage(t, filepath.Join(bundle, m.Graphs[0].Data[0]))
	out, err = run(t, "models", "verify", bundle, "--no-run")
	require.ErrorContains(t, err, m.Graphs[0].Data[0])
	require.ErrorContains(t, err, "the content is damaged")
	require.NotContains(t, out, "all checksums match")

	require.NoError(t, os.Remove(filepath.Join(bundle, m.Graphs[0].File)))
	out, err = run(t, "models", "list", dir)
	require.NoError(t, err)
	require.Contains(t, out, "cannot be used: ")
	_, err = run(t, "models", "list", t.TempDir())
	require.ErrorContains(t, err, "no bundle found")
}

// relative returns a path relative to this package.
func relative(t *testing.T, path string) string {
	t.Helper()
	if !filepath.IsAbs(path) {
		return path
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	path, err = filepath.Rel(here, path)
	require.NoError(t, err)
	return path
}

// damage changes a byte in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func TestConvertWantsACheckpoint(t *testing.T) {
	dir := t.TempDir()
	_, err := run(t, "models", "convert", dir, filepath.Join(dir, "bundle"))
	require.ErrorContains(t, err, "config.json")
	_, err = run(t, "models", "convert", tiny, filepath.Join(dir, "bundle"), "--weights", "fp16", "--device", "cpu")
	require.ErrorContains(t, err, "fp16")
	require.NoDirExists(t, filepath.Join(dir, "bundle"))
}

func TestSynth(t *testing.T) {
	dir := t.TempDir()
	bundle, source := filepath.Join(dir, "bundle"), filepath.Join(dir, "checkpoint")
	_, err := run(t, "models", "synth", "--shape", "tiny", bundle, "--weights", weights, "--device", "cpu")
	require.NoError(t, err)
	require.True(t, manifest(t, bundle).Random)
	out, err := run(t, "models", "list", bundle)
	require.NoError(t, err)
	require.Contains(t, out, "(random weights)")

	awq := filepath.Join(dir, "awq")
	_, err = run(t, "models", "synth", "--shape", "tiny", awq, "--awq", "--weights", "int4", "--device", "cpu,cuda")
	require.NoError(t, err)
	decoders := 0
	for _, g := range manifest(t, awq).Graphs {
		if g.Kind == models.KindDecoder {
			require.Equal(t, 128, g.Block)
			require.True(t, g.ZeroPoints)
			decoders++
		}
	}
	require.Equal(t, 2, decoders)
	_, err = run(t, "models", "synth", "--shape", "tiny", awq, "--awq", "--checkpoint")
	require.ErrorContains(t, err, "omit --checkpoint")

	out, err = run(t, "models", "synth", "--shape", "tiny", source, "--checkpoint", "--shard-bytes", "2000000")
	require.NoError(t, err)
	require.Contains(t, out, "of random weights")
	again := filepath.Join(dir, "again")
	_, err = run(t, "models", "convert", source, again, "--weights", weights, "--device", "cpu")
	require.NoError(t, err)
	same := map[string]string{}
	for _, f := range manifest(t, bundle).Files {
		same[f.Name] = f.SHA256
	}
	for _, f := range manifest(t, again).Files {
		require.Equal(t, same[f.Name], f.SHA256, "%s comes out the same by way of a checkpoint", f.Name)
	}
}

func TestHearing(t *testing.T) {
	const golden = root + "models/testdata/qwen3-asr/"
	dir := t.TempDir()
	for name, task := range map[string]models.Task{"checkpoint": models.TaskRecognition, "aligner": models.TaskAligner} {
		bundle := filepath.Join(dir, name)
		_, err := run(t, "models", "convert", golden+name, bundle, "--weights", "fp32,int4", "--device", "cpu")
		require.NoError(t, err)
		m := manifest(t, bundle)
		require.Equal(t, task, m.Task)
		require.Equal(t, models.FormatVersion, m.Format)
		out, err := run(t, "models", "verify", bundle, "--ort", runtimeDir, "--device", "cpu")
		require.NoError(t, err)
		require.Contains(t, out, fmt.Sprintf("%d graphs ran once", len(m.Graphs)))
		out, err = run(t, "models", "list", bundle)
		require.NoError(t, err)
		require.Contains(t, out, string(task))
		require.Contains(t, out, "fp32 on cpu")
	}
	out, err := run(t, "models", "check", "--golden", golden, "--ort", runtimeDir)
	require.NoError(t, err, out)
	require.Contains(t, out, "all rows pass")
}

func TestCheck(t *testing.T) {
	golden := t.TempDir()
	_, err := run(t, "models", "check", "--golden", golden, "--ort", runtimeDir)
	require.Error(t, err, "nothing was checked")
	require.Equal(t, 1, modelcmd.ExitCode(err))

	require.NoError(t, os.Mkdir(filepath.Join(golden, "checkpoint"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(golden, "checkpoint", "config.json"), []byte("{}"), 0o600))
	out, err := run(t, "models", "check", "--golden", golden, "--ort", runtimeDir)
	require.ErrorIs(t, err, check.ErrFailed)
	require.ErrorContains(t, err, "see the table above")
	require.Regexp(t, `checkpoint +checkpoint .*NO: `, out)
}

func TestExitCode(t *testing.T) {
	require.Equal(t, 0, modelcmd.ExitCode(nil))
	require.Equal(t, 1, modelcmd.ExitCode(errors.New("any")))
	require.Equal(t, 130, modelcmd.ExitCode(fmt.Errorf("convert: %w", context.Canceled)))
	require.Equal(t, 71, modelcmd.ExitCode(fmt.Errorf("run: %w", minicpmo.ErrDeviceLost)))
}
