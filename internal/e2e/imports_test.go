// Package e2e_test checks the imports of the packages below internal/e2e.
package e2e_test

import (
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	moduleRoot = "../.."
	e2e        = "touchline/internal/e2e"
	sfu        = "touchline/agent/sfu"
)

// within reports whether a package is another one or below it.
func within(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

// isIntegration reports whether a file is built with the integration tag alone.
func isIntegration(t *testing.T, path, source string) bool {
	t.Helper()
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if constraint.IsGoBuild(line) {
			expr, err := constraint.Parse(line)
			require.NoError(t, err, path)
			return !expr.Eval(func(tag string) bool { return tag != "integration" && tag != "nodemo" })
		}
		if line != "" && !strings.HasPrefix(line, "//") {
			break // the package clause
		}
	}
	return false
}

// TestImports separates fast tests from integration tests, and test tools from the product: untagged tests start no
// server and no browser, and only tests and touchline-bench import internal/e2e.
func TestImports(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir():
			if path != moduleRoot && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(name) != ".go":
			return nil
		}
		files++
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(moduleRoot, path)
		if err != nil {
			return err
		}
		isTest := strings.HasSuffix(path, "_test.go")
		own := "touchline/" + filepath.ToSlash(filepath.Dir(relative))
		for _, imported := range file.Imports {
			pkg, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				return err
			}
			switch {
			case isTest && (within(pkg, sfu) || within(pkg, e2e)) && !isIntegration(t, path, string(source)):
				t.Errorf("%s imports %s without `//go:build integration`: untagged tests start no server and no browser", relative, pkg)
			case !isTest && within(pkg, e2e) && !within(own, e2e) && own != "touchline/cmd/touchline-bench":
				t.Errorf("%s imports %s: only tests and touchline-bench may", relative, pkg)
			}
		}
		return nil
	}))
	require.Greater(t, files, 500, "the whole module was read")
}
