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

	"github.com/stretchr/testify/require"
)

// TestProductsOfTicksAndSeconds searches the module for quotients whose dividend is a product that overflows after some days:
// of a count and time.Second (or another unit), or of a duration and a rate. Constants and floating point are exact enough.
func TestProductsOfTicksAndSeconds(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	packages := map[string][]*ast.File{} // by directory
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || path == filepath.Join(root, "internal", "ticks")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err == nil {
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(packages), 100)
	for _, q := range products(packages) {
		t.Errorf("%s: the product overflows after some days; use ticks.Duration or ticks.Count", set.Position(q.Pos()))
	}
}

// TestRule tests the rule of TestProductsOfTicksAndSeconds.
func TestRule(t *testing.T) {
	t.Parallel()
	for expression, found := range map[string]int{
		"time.Duration(n) * time.Second / rate":                 1,
		"time.Second * time.Duration(n) / rate":                 1,
		"time.Duration(n) * time.Second / time.Duration(hz)":    1,
		"(time.Duration(n) * time.Second) / hz":                 1,
		"time.Duration(n) * time.Millisecond / 90":              1,
		"int64(now.Sub(at)) * rate / int64(time.Second)":        1,
		"now.Sub(at) * rate / time.Second":                      1,
		"int(d * time.Duration(hz) / time.Second)":              1,
		"int64(d*rate) / int64(time.Second)":                    1,
		"now.Sub(at).Nanoseconds() * rate / 1e9":                1,
		"time.Duration(n/rate)*time.Second":                     0,
		"rate * time.Second / 50":                               0,
		"5 * time.Second * rate / time.Second":                  0,
		"time.Duration(float64(n) * float64(time.Second) / hz)": 0,
		"n * 1000 / rate":                                       0,
		"d / time.Second":                                       0,
	} {
		source := "package p\nconst rate = 16000\nfunc f() any { return " + expression + " }"
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Len(t, products(map[string][]*ast.File{"p": {file}}), found, expression)
	}
}

// products returns the quotients that the rule refuses.
func products(packages map[string][]*ast.File) (out []ast.Expr) {
	constants := map[string]bool{} // "directory.name" in the package itself, and "package.name"
	for dir, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
					for _, s := range d.Specs {
						for _, name := range s.(*ast.ValueSpec).Names {
							constants[dir+"."+name.Name] = true
							constants[file.Name.Name+"."+name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	for dir, files := range packages {
		isConstant := func(e ast.Expr) bool { return constant(e, dir, constants) }
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				q, ok := n.(*ast.BinaryExpr)
				if !ok || q.Op != token.QUO {
					return true
				}
				product, ok := bare(q.X).(*ast.BinaryExpr)
				if ok && product.Op == token.MUL && inTime(product, q.Y) && !isConstant(product) && !contains(product, "float64") {
					out = append(out, q)
				}
				return true
			})
		}
	}
	return out
}

// bare removes parentheses and conversions.
func bare(e ast.Expr) ast.Expr {
	switch v := e.(type) {
	case *ast.ParenExpr:
		return bare(v.X)
	case *ast.CallExpr:
		name, _ := v.Fun.(*ast.Ident)
		if len(v.Args) == 1 && (name != nil && strings.HasPrefix(strings.TrimPrefix(name.Name, "u"), "int") || contains(v.Fun, "Duration")) {
			return bare(v.Args[0])
		}
	}
	return e
}

// inTime reports whether a product or its divisor is a number of units of time.
func inTime(product *ast.BinaryExpr, divisor ast.Expr) bool {
	for _, e := range []ast.Expr{bare(product.X), bare(product.Y), bare(divisor)} {
		switch v := e.(type) {
		case *ast.SelectorExpr:
			if name, _ := v.X.(*ast.Ident); name != nil && name.Name == "time" {
				return true
			}
		case *ast.BinaryExpr:
			if v.Op == token.MUL && inTime(v, v.Y) {
				return true
			}
		case *ast.CallExpr:
			if contains(v.Fun, "Nanoseconds") {
				return true
			}
		}
	}
	return false
}

// constant reports whether an expression has literals, constants of the module and units of time only.
func constant(e ast.Expr, dir string, constants map[string]bool) bool {
	switch v := bare(e).(type) {
	case *ast.BasicLit:
		return true
	case *ast.BinaryExpr:
		return constant(v.X, dir, constants) && constant(v.Y, dir, constants)
	case *ast.Ident:
		return constants[dir+"."+v.Name]
	case *ast.SelectorExpr:
		name, _ := v.X.(*ast.Ident)
		return name != nil && cmp.Or(name.Name == "time", constants[name.Name+"."+v.Sel.Name])
	}
	return false
}

// contains reports whether an expression has an identifier of that name.
func contains(e ast.Expr, name string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return true
	})
	return found
}
