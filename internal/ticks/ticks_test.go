package ticks_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/ticks"
)

// TestTicks converts counts whose product with time.Second does not fit into an int64: 28 hours at 90 kHz, 53 at 48 kHz.
func TestTicks(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{8000, 44100, 48000, 90000} {
		for _, seconds := range []int64{0, 1, 3600, 30 * 3600, 60 * 3600, 10 * 365 * 24 * 3600} {
			for _, rest := range []int64{0, 1, rate / 3, rate - 1} {
				ticks := seconds*rate + rest
				want := time.Duration(seconds)*time.Second + time.Duration(rest*int64(time.Second)/rate)
				got := ticks.Duration(ticks, rate)
				require.Equal(t, want, got, "%d at %d Hz", ticks, rate)
				require.Equal(t, -want, ticks.Duration(-ticks, rate))
				require.InDelta(t, ticks, ticks.Count(got, rate), 1)
				require.InDelta(t, -ticks, ticks.Count(-got, rate), 1)
			}
		}
	}
}

// TestTicksAreConverted searches non-test code for time.Duration(x) * time.Second / rate
// with a variable x, which overflows after some days of samples. Engines are left out:
// they count the samples of one utterance.
func TestTicksAreConverted(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"agent", "cmd", "internal", "media"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() == "node_modules" {
				return cmp.Or(err, fs.SkipDir)
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.Name() == "ticks.go" {
				return nil
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if q, ok := n.(*ast.BinaryExpr); ok && q.Op == token.QUO {
					if m, ok := q.X.(*ast.BinaryExpr); ok && m.Op == token.MUL && isConversion(m.X) && isUnit(m.Y) {
						t.Errorf("%s: may overflow; use ticks.Duration", set.Position(q.Pos()))
					}
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
}

// isConversion reports whether e is time.Duration(...).
func isConversion(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isTime(s) && s.Sel.Name == "Duration"
}

// isUnit reports whether e is time.Second or another unit.
func isUnit(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && isTime(s)
}

func isTime(s *ast.SelectorExpr) bool {
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "time"
}
