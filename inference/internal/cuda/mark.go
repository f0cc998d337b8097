package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"touchline/inference/internal/ort"
)

// mark is a file in the cache folder that keeps kernels from running again after they lost the GPU, or after two checks that did not end: a
// process can be killed in one check for another reason. Other kernels have another file.
type mark struct {
	file string   // empty without a folder
	lock *os.File // from Begin to End
}

// The texts of a mark.
const (
	markOnce  = "a check of these kernels did not end"
	markTwice = "two checks of these kernels did not end"
	markLost  = "these kernels lost the GPU"
)

// newMark returns the mark of kernels on a device.
func newMark(folder, device string, cubins [][]byte) mark {
	if folder == "" {
		return mark{}
	}
	sum := sha256.Sum256(slices.Concat(slices.Concat(cubins...), []byte(device)))
	return mark{file: filepath.Join(folder, hex.EncodeToString(sum[:])+".failed")}
}

// refuse returns why the kernels must not run.
func (m *mark) refuse() error {
	text, _ := os.ReadFile(m.file)
	if s, err := os.Stat(m.file); err == nil && len(text) > 0 && string(text) != markOnce {
		return fmt.Errorf("%w: %s (%s); remove %s to try again", ErrNone, text, s.ModTime().Format(time.RFC3339), m.file)
	}
	return nil
}

// Begin marks the kernels before their check. End must follow. Of several processes that check the same kernels at a time, one marks them.
func (m *mark) Begin() {
	f, err := os.OpenFile(m.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return // the folder cannot be written to
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return
	}
	text := markOnce
	if s, err := f.Stat(); err == nil && s.Size() > 0 {
		text = markTwice
	}
	_ = os.WriteFile(m.file, []byte(text), 0o600)
	m.lock = f
}

// End ends a check or a step, and returns its error. After a loss of the device it marks the kernels, else it removes the mark of Begin.
func (m *mark) End(err error) error {
	lost := m.file != "" && errors.Is(err, ort.ErrDeviceLost)
	if lost {
		err = errors.Join(err, os.WriteFile(m.file, []byte(markLost), 0o600))
	}
	if m.lock == nil {
		return err
	}
	if !lost {
		_ = os.Remove(m.file)
	}
	_ = m.lock.Close()
	m.lock = nil
	return err
}
