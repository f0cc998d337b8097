package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
)

var errLost = fmt.Errorf("wait for the step: %w", errors.Join(ort.ErrDeviceLost, &ort.Error{CUDA: true, Code: 700}))

// markOf returns the mark of some kernels, as a new process does.
func markOf(folder string) mark {
	return newMark(folder, "card", [][]byte{[]byte("one row"), []byte("two rows")})
}

// killed begins a check in a process that does not end it.
func killed(t *testing.T, m mark) {
	t.Helper()
	require.NoError(t, m.refuse())
	m.Begin()
	require.NoError(t, m.lock.Close())
}

func requireFiles(t *testing.T, folder string, n int) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, n)
}

func TestMarkOfALoss(t *testing.T) {
	for name, lose := range map[string]func(*mark) error{
		"in the check": func(m *mark) error {
			m.Begin()
			return m.End(errLost)
		},
		"in a later step": func(m *mark) error {
			m.Begin()
			require.NoError(t, m.End(nil))
			require.NoError(t, m.End(nil), "steps")
			return m.End(errLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			m := markOf(folder)
			require.NoError(t, m.refuse())
			require.Equal(t, errLost.Error(), lose(&m).Error())
			require.Nil(t, m.lock)

			next := markOf(folder)
			err := next.refuse()
			require.ErrorIs(t, err, ErrNone)
			require.ErrorContains(t, err, "these kernels lost the GPU (20")
			require.ErrorContains(t, err, "remove "+next.file+" to try again")
			for _, other := range []mark{
				newMark(folder, "card", [][]byte{[]byte("one row"), []byte("changed")}),
				newMark(folder, "another card", [][]byte{[]byte("one row"), []byte("two rows")}),
				newMark("", "card", [][]byte{[]byte("one row"), []byte("two rows")}),
			} {
				require.NoError(t, other.refuse())
			}
			require.NoError(t, os.Remove(next.file))
			require.NoError(t, next.refuse())
		})
	}
}

func TestMarkOfChecksThatDoNotEnd(t *testing.T) {
	folder := t.TempDir()
	killed(t, markOf(folder))
	m := markOf(folder)
	require.NoError(t, m.refuse(), "the process may be killed once for another reason")
	m.Begin()
	failed := errors.New("a logit differs")
	require.Equal(t, failed, m.End(failed), "the check ends")
	requireFiles(t, folder, 0)

	killed(t, markOf(folder))
	killed(t, markOf(folder))
	next := markOf(folder)
	require.ErrorIs(t, next.refuse(), ErrNone)
	require.ErrorContains(t, next.refuse(), "two checks of these kernels did not end (20")
}

// TestMarkOfProcesses has several processes check the same kernels at the same time.
func TestMarkOfProcesses(t *testing.T) {
	folder := t.TempDir()
	first, second, third := markOf(folder), markOf(folder), markOf(folder)
	for _, m := range []*mark{&first, &second, &third} {
		require.NoError(t, m.refuse())
		m.Begin()
	}
	require.NoError(t, second.End(nil))
	requireFiles(t, folder, 1)
	require.NoError(t, first.End(nil))
	requireFiles(t, folder, 0)
	require.ErrorIs(t, third.End(errLost), ort.ErrDeviceLost)
	require.ErrorIs(t, first.refuse(), ErrNone)
}

// A process that starts while another is in its second check need not refuse the kernels.
func TestMarkBesideASecondCheck(t *testing.T) {
	folder := t.TempDir()
	killed(t, markOf(folder))
	first, second := markOf(folder), markOf(folder)
	first.Begin()
	require.NoError(t, second.refuse())
	require.NoError(t, first.End(nil))
	requireFiles(t, folder, 0)
}

// The mark of a loss outlives the checks of other processes that began before or after it.
func TestMarkOfALossStays(t *testing.T) {
	for name, order := range map[string]func(check, lose func()){
		"before": func(check, lose func()) { check(); lose() },
		"after":  func(check, lose func()) { lose(); check() },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			first, second := markOf(folder), markOf(folder)
			require.NoError(t, first.refuse())
			order(first.Begin, func() { require.ErrorIs(t, second.End(errLost), ort.ErrDeviceLost) })
			require.NoError(t, first.End(nil))
			require.ErrorContains(t, markOfRefusal(folder), "these kernels lost the GPU")
		})
	}
}

func markOfRefusal(folder string) error {
	m := markOf(folder)
	return m.refuse()
}

// A device that was lost by something else marks no kernels.
func TestMarkOfAnotherLoss(t *testing.T) {
	folder := t.TempDir()
	m := markOf(folder)
	for _, err := range []error{ort.ErrDeviceLost, errors.Join(ort.ErrDeviceLost, &ort.Error{CUDA: true, Code: 214})} {
		m.Begin()
		require.ErrorIs(t, m.End(err), ort.ErrDeviceLost)
		requireFiles(t, folder, 0)
	}
}

func TestMarkWithoutFolder(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, folder := range []string{"", missing} {
		m := markOf(folder)
		m.Begin()
		require.Nil(t, m.lock)
		require.NoError(t, m.refuse())
		require.NoError(t, m.End(nil))
		require.ErrorIs(t, m.End(errLost), ort.ErrDeviceLost)
	}
	m := markOf(missing)
	require.ErrorIs(t, m.End(errLost), os.ErrNotExist, "the report says why there is no mark")
}
