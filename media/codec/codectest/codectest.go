// Package codectest builds touchline-codec for tests.
package codectest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

const variable = "TOUCHLINE_CODEC_UNDER_TEST"

// Program returns the path of the touchline-codec that Run has built.
func Program() string { return os.Getenv(variable) } //nolint:forbidigo // the tests' own variable, no setting

// Main is the TestMain of a package whose tests run touchline-codec. It checks for leaked goroutines.
func Main(m *testing.M) {
	code := Run(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run builds touchline-codec in a temporary folder and runs the tests of a
// package. It returns their exit code, 1 if the program cannot be built.
func Run(m *testing.M) int {
	return withBuilt(func(dir string) int {
		return withVariable(variable, filepath.Join(dir, "touchline-codec"), m.Run)
	})
}

// OnPath calls run with touchline-codec on the PATH: from the folder TOUCHLINE_BIN, or
// built now. It returns the result of run, 1 if the program cannot be built.
func OnPath(run func() int) int {
	with := func(dir string) int {
		return withVariable("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"), run) //nolint:forbidigo // no setting
	}
	if dir := os.Getenv("TOUCHLINE_BIN"); dir != "" { //nolint:forbidigo // the tests' own variable, no setting
		return with(dir)
	}
	return withBuilt(with)
}

func withBuilt(run func(dir string) int) int {
	dir, err := os.MkdirTemp("", "codectest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := exec.Command("go", "build", "-o", dir+"/", "touchline/cmd/touchline-codec").CombinedOutput() //nolint:noctx // before any test
	if err != nil {
		fmt.Fprintf(os.Stderr, "build touchline-codec (apt: gcc pkg-config libavcodec-dev libswscale-dev): %v\n%s", err, out)
		return 1
	}
	return run(dir)
}

func withVariable(name, value string, run func() int) int {
	if err := os.Setenv(name, value); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}
