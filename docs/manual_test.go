// Package docs_test holds the manuals against the source.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const moduleRoot = ".."

// complaints finds the messages that the source logs as warnings or errors, with one place of each.
func complaints(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "node_modules", "testdata", "shared"}, d.Name()) {
			return filepath.SkipDir
		}
		// The programs for measurements are not operated.
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/measure/") ||
			strings.Contains(path, "/touchline-bench/") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			f, ok := n.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				return true
			}
			collect(t, files, f.Body, found)
			return false
		})
		return nil
	}))
	return found
}

// collect finds the messages of one function: of log.Warn()...Msg("..."), and of an event that was kept in a variable.
func collect(t *testing.T, files *token.FileSet, body *ast.BlockStmt, found map[string]string) {
	t.Helper()
	loud := map[string]bool{} // variables that hold an event of a level that matters
	var isLoud func(e ast.Expr) bool
	isLoud = func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return loud[e.Name]
		case *ast.CallExpr:
			if s, ok := e.Fun.(*ast.SelectorExpr); ok {
				if (s.Sel.Name == "Warn" || s.Sel.Name == "Error") && len(e.Args) == 0 || s.Sel.Name == "WithLevel" {
					return true
				}
				return isLoud(s.X)
			}
		}
		return false
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if left, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && isLoud(right) {
					loud[left.Name] = true
				}
			}
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if ok && (s.Sel.Name == "complain" || s.Sel.Name == "tell") {
				// Those that log once a second; the message is an argument.
				for _, arg := range n.Args {
					if message := literal(arg); strings.Contains(message, " ") {
						found[message] = files.Position(n.Pos()).String()
					}
				}
				return true
			}
			if ok && len(n.Args) == 1 && s.Sel.Name == "Msg" {
				if msg, ok := n.Args[0].(*ast.Ident); ok && msg.Name == "msg" {
					return true
				}
			}
			if !ok || !slices.Contains([]string{"Msg", "Msgf", "Send"}, s.Sel.Name) || !isLoud(s.X) {
				return true
			}
			at := files.Position(n.Pos()).String()
			require.Equal(t, "Msg", s.Sel.Name, "%s: a line without a message of its own cannot be looked up", at)
			message := literal(n.Args[0])
			require.NotEmpty(t, message, "%s: expected a message that is written out", at)
			found[message] = at
		}
		return true
	})
}

// literal is the text of a string, also of one that is put together of several; "" of anything else.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err == nil {
			return s
		}
	case *ast.BinaryExpr:
		if a, b := literal(e.X), literal(e.Y); e.Op == token.ADD && a != "" && b != "" {
			return a + b
		}
	}
	return ""
}

func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "operating.md"))
	require.NoError(t, err)
	return string(text)
}

// TestManualHasEveryWarning holds the table of log lines against the source.
func TestManualHasEveryWarning(t *testing.T) {
	_, table, ok := strings.Cut(manual(t), "## Log lines")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .+ \\| .+ \\|$").FindAllStringSubmatch(table, -1) {
		require.False(t, listed[m[1]], "twice: %s", m[1])
		listed[m[1]] = true
	}
	logged := complaints(t, moduleRoot)
	require.Greater(t, len(logged), 30)
	for message, at := range logged {
		assert.True(t, listed[message], "%s logs %q, which docs/operating.md does not explain", at, message)
	}
	for message := range listed {
		assert.Contains(t, logged, message, "docs/operating.md explains a line that nothing logs")
	}
}

// TestManualHasEveryAlert holds the table of alerts against the rules.
func TestManualHasEveryAlert(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(moduleRoot, "deploy", "prometheus", "alerts.yml"))
	require.NoError(t, err)
	var want, have []string
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		want = append(want, m[1])
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Touchline\\w+)` \\|").FindAllStringSubmatch(manual(t), -1) {
		have = append(have, m[1])
	}
	require.Equal(t, want, have)
}

// TestManualQuotesMeasuredFigures: what the manual takes from the README's tables must still be there.
func TestManualQuotesMeasuredFigures(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(moduleRoot, "README.md"))
	require.NoError(t, err)
	_, sizing, _ := strings.Cut(manual(t), "## Sizing")
	sizing, _, _ = strings.Cut(sizing, "\n## ")
	for _, figure := range []string{
		"12.7 % of a core", "2.7 times", "91 MB with its codec process, 29 MB of it its own", "42 MB", "30.5 GB",
		"220", "273", "316", "415", "500", "805",
	} {
		require.Contains(t, sizing, figure, "figure not in docs/operating.md: the list here is old")
		require.Contains(t, string(readme), figure, "figure not in README.md any more: measured anew?")
	}
}
