package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	if string(text) == markTwice && m.locked() {
		return nil // another process is in its second check
	}
	if s, err := os.Stat(m.file); err == nil && len(text) > 0 && string(text) != markOnce {
		return fmt.Errorf("%w: %s (%s); remove %s to try again", ErrLost, text, s.ModTime().Format(time.RFC3339), m.file)
	}
	return nil
}

// differs is the file with how the results of the last check differed from ONNX Runtime's, if they did.
func (m *mark) differs() string { return strings.TrimSuffix(m.file, ".failed") + ".differs" }

// differed returns what differs has. The kernels are checked again at the next start.
func (m *mark) differed() error {
	if why, err := os.ReadFile(m.differs()); err == nil {
		return fmt.Errorf("%w; at the last start: %s", ErrCheck, why)
	}
	return nil
}

// locked reports whether a process is in its check.
func (m *mark) locked() bool {
	f, err := os.Open(m.file)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// Begin marks the kernels before their check. End must follow. Of several processes that check the same kernels at a time, one marks them,
// and a check of the others that does not end leaves no mark.
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
	switch old, _ := os.ReadFile(m.file); {
	case string(old) == markLost: // by another process, since refuse
		_ = f.Close()
		return
	case len(old) > 0:
		text = markTwice
	}
	_ = os.WriteFile(m.file, []byte(text), 0o600)
	m.lock = f
}

// faulted reports whether a kernel lost the device, by CUDA's codes for an illegal address, a timeout, an assertion, and 714 to 719, for
// example a misaligned address. Others, as for an uncorrectable memory error, are no reason to mark kernels.
func faulted(err error) bool {
	var e *ort.Error
	if !errors.Is(err, ort.ErrDeviceLost) || !errors.As(err, &e) || !e.CUDA {
		return false
	}
	return e.Code == 700 || e.Code == 702 || e.Code == 710 || e.Code >= 714 && e.Code <= 719
}

// End ends a check or a step, and returns its error. After a kernel's loss of the device it marks the kernels, else it removes the mark of
// Begin.
func (m *mark) End(err error) error {
	lost := m.file != "" && faulted(err)
	if lost {
		err = errors.Join(err, os.WriteFile(m.file, []byte(markLost), 0o600))
	}
	if m.lock == nil {
		return err
	}
	if old, _ := os.ReadFile(m.file); !lost && string(old) != markLost {
		_ = os.Remove(m.file)
	}
	if errors.Is(err, ErrCheck) {
		_ = os.WriteFile(m.differs(), []byte(err.Error()), 0o600) // for Check
	} else if err == nil {
		_ = os.Remove(m.differs())
	}
	_ = m.lock.Close()
	m.lock = nil
	return err
}
