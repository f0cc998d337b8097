package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"touchline/configs"
	"touchline/internal/contract"
)

// TestHelpContract: names, flags, variables and texts of all commands.
func TestHelpContract(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Name("touchline"))
	require.NoError(t, err)
	var out strings.Builder
	var walk func(n *kong.Node, args []string)
	walk = func(n *kong.Node, args []string) {
		stdout, stderr, code := touchline(t, append(slices.Clone(args), "--help")...)
		require.Zero(t, code, stderr)
		out.WriteString("$ touchline " + strings.Join(append(slices.Clone(args), "--help"), " ") + "\n" + stdout + "\n")
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden && !child.Passthrough { // touchline-model has the help of those
				walk(child, append(slices.Clone(args), child.Name))
			}
		}
	}
	walk(parser.Model.Node, nil)
	contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/help"+variant()+".txt", scrubbed(out.String()))
}

// variant tells the slim program, which has fewer commands, from the full one.
func variant() string {
	var c cli
	parser, err := kong.New(&c)
	if err == nil && slices.ContainsFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "demo" }) {
		return ""
	}
	return ".slim"
}

// TestVariablesContract: each setting's environment variable and path, with the errors of values of another kind, too low
// and too high; and the defaults.
func TestVariablesContract(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, v := range configs.Variables() {
		out.WriteString(strings.Join(strings.Fields(v.Name+" "+v.WellKnown), " = ") + "  " + v.Path)
		if v.Secret {
			out.WriteString("  (secret)")
		}
		out.WriteString("\n")
		seen := map[string]bool{}
		for _, value := range []string{"neither", "-1000000000", "1000000000", "-100000h", "100000h"} {
			_, err := configs.Load("", []string{v.Name + "=" + value})
			if err == nil || v.Secret {
				continue
			}
			_, text, _ := strings.Cut(err.Error(), "\n") // after the number of errors
			text = strings.ReplaceAll(text, v.Name+" "+v.Path+": ", "")
			if rule, _, _ := strings.Cut(text, ", is "); !seen[rule] {
				out.WriteString("  " + strings.ReplaceAll(text, "\n", "\n    ") + "\n")
				seen[rule] = true
			}
		}
	}
	contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/variables.txt", scrubbed(out.String()))
	var defaults strings.Builder
	require.NoError(t, configs.Default().Print(&defaults))
	contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/defaults.yaml", defaults.String())
}

// TestCheckContract: what `touchline check` prints of some settings.
func TestCheckContract(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, yaml string }{
		{"default", ""},
		{"preset", "preset: owl\ndetail: large\ninference:\n  engine: scene\n"},
		{"remote", "inference:\n  engine: remote\n  remote:\n    url: http://127.0.0.1:9/v1\n    model: none\n"},
		{"minicpmo", "inference:\n  engine: minicpmo\n  minicpmo:\n    path: /nowhere/bundle\n    runtime: /nowhere/runtime\n"},
		{"outputs", "inference:\n  engine: scene\n  recognizer:\n    program: model\n    bundle: /nowhere/ears\nagent:\n" +
			"  mqtt:\n    url: mqtt://127.0.0.1:9\n  webhook:\n    urls: [http://127.0.0.1:9/hook]\n"},
		{"unknown key", "agent:\n  frames: 3\n"},
		{"out of bounds", "agent:\n  frames_per_look: 99\nmedia:\n  capture_fps: 0\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "touchline.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tt.yaml), 0o600))
			stdout, stderr, code := touchline(t, "-c", file, "check")
			_, found, _ := strings.Cut(stdout, "# what they mean")
			text := strings.TrimSpace(strings.Join(differing(stdout), "\n")+"\n"+found) + "\n"
			if code > 1 { // 0 or 1 depends on what the machine has
				text += "exit code " + strconv.Itoa(code) + "\n" + strings.ReplaceAll(stderr, file, "touchline.yaml")
			}
			contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/check/"+strings.ReplaceAll(tt.name, " ", "_")+".txt", scrubbed(text))
		})
	}
}

// differing returns the lines of printed settings that are not the default's.
func differing(stdout string) (out []string) {
	var defaults strings.Builder
	if err := configs.Default().Print(&defaults); err != nil {
		return []string{err.Error()}
	}
	known := strings.Split(defaults.String(), "\n")
	printed, _, _ := strings.Cut(stdout, "# what they mean")
	for line := range strings.SplitSeq(printed, "\n") {
		if !slices.Contains(known, line) {
			out = append(out, line)
		}
	}
	return out
}

// scrubbed removes what depends on the machine: paths of the source and of programs, and what is installed.
func scrubbed(text string) string {
	text = strings.ReplaceAll(contract.Scrub(text), moduleRoot, "ROOT")
	const installed = `(?m)^((ok|missing|optional) +(codec program|codecs|voice|page|ffmpeg|speech detector|GPU|nano|sight|confinement of programs)|(ok|optional) +ONNX Runtime|` +
		`missing +ONNX Runtime: no ONNX Runtime:).*\n`
	text = regexp.MustCompile(installed).ReplaceAllString(text, "")
	return text
}

// TestOldHistoryContract: `touchline history` prints the same of both stores that 9b77654 wrote.
func TestOldHistoryContract(t *testing.T) {
	t.Parallel()
	dir := contract.Unpack(t, moduleRoot+"/internal/contract/testdata/9b77654.tar.gz")
	for _, store := range []string{"history", "history.db"} {
		var out strings.Builder
		for _, args := range [][]string{
			{"-f", "json"},
			{"match", "-f", "json"},
			{"süd yard", "-f", "json", "--all", "--from", "2000-01-02T06:00:00Z", "--last", "3"},
			{"match", "-f", "json", "--alerts"},
			{"match", "-f", "json", "--heard"},
			{"match", "-f", "json", "--heard", "--by", "ana", "--to", "2000-01-02T00:00:00Z"},
			{"match", "-f", "srt", "--from", "2000-01-03T00:00:00Z"},
			{"süd yard", "-f", "vtt", "--last", "2", "--zero", "2000-01-03T12:00:00Z"},
			{"nowhere", "-f", "json"},
		} {
			stdout, stderr, code := touchline(t, append([]string{"history", "--store", filepath.Join(dir, store)}, args...)...)
			require.Zero(t, code, stderr)
			out.WriteString("$ touchline history " + strings.Join(args, " ") + "\n" + stdout + stderr + "\n")
		}
		contract.Compare(t, moduleRoot+"/cmd/touchline/testdata/contract/history.txt", out.String())
	}
}
