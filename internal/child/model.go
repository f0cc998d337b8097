package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// ModelProgram is the program with the commands on models, beside touchline.
const ModelProgram = "touchline-model"

// ErrNoModelProgram is returned by FindModelProgram if the program is neither beside this one nor in PATH.
var ErrNoModelProgram = errors.New(ModelProgram + " is neither beside this program nor in PATH: build it with `make models`, " +
	"or take it from the release's archive")

// FindModelProgram returns the path of ModelProgram.
func FindModelProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), ModelProgram)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(ModelProgram)
	if err != nil {
		return "", ErrNoModelProgram
	}
	return path, nil
}
