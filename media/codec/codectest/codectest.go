// Package codectest builds the codec's child program for the tests of the
// packages that run it.
package codectest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const variable = "TOUCHLINE_CODEC_UNDER_TEST"

// Program is the path where Run built touchline-codec from the present sources.
func Program() string { return os.Getenv(variable) } //nolint:forbidigo // the tests' own variable, no setting

// Run builds touchline-codec in a temporary folder and runs the tests of a
// package. It returns their exit code, 1 if the program cannot be built.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "codectest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "touchline-codec")
	out, err := exec.Command("go", "build", "-o", path, "touchline/cmd/touchline-codec").CombinedOutput() //nolint:noctx // before any test
	if err != nil {
		fmt.Fprintf(os.Stderr, "build touchline-codec (apt: gcc pkg-config libavcodec-dev libswscale-dev): %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(variable, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
