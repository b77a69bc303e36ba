package tidy

import (
	"bytes"
	"go/ast"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFunctionLines = 70
	maxFileLines     = 900
	maxParameters    = 6
	maxColumns       = 120
)

// A function fits a screen.
func TestFunctionsAreShort(t *testing.T) {
	tree := load(t)
	for _, f := range tree.Files {
		if f.Generated {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := tree.lines(fn); n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, more than %d: split it", tree.Pos(f, fn.Pos()), fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func (t *Tree) lines(n ast.Node) int {
	return t.Fset.Position(n.End()).Line - t.Fset.Position(n.Pos()).Line + 1
}

// A file of more than 900 lines holds two things.
func TestFilesAreShort(t *testing.T) {
	for _, f := range load(t).Files {
		if n := bytes.Count(f.Source, []byte("\n")); !f.Generated && n > maxFileLines {
			t.Errorf("%s: has %d lines, more than %d: split it", f.Path, n, maxFileLines)
		}
	}
}

// More than six parameters want a struct.
func TestParametersAreFew(t *testing.T) {
	tree := load(t)
	for _, f := range tree.Files {
		if f.Generated {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			ft, ok := n.(*ast.FuncType)
			if ok && ft.Params.NumFields() > maxParameters {
				t.Errorf("%s: more than %d parameters: pass a struct", tree.Pos(f, ft.Pos()), maxParameters)
			}
			return true
		})
	}
}

// Lines stay readable beside each other.
func TestLinesAreShort(t *testing.T) {
	for _, f := range load(t).Files {
		if f.Generated {
			continue
		}
		for i, line := range bytes.Split(f.Source, []byte("\n")) {
			if n := utf8.RuneCount(line); n > maxColumns && !bytes.Contains(line, []byte("://")) {
				t.Errorf("%s:%d: %d columns, more than %d", f.Path, i+1, n, maxColumns)
			}
		}
	}
}

// Ownership is visible in one place: the package's doc comment.
func TestPackagesAreDocumented(t *testing.T) {
	docs := map[string]string{}
	seen := map[string]string{}
	for _, f := range load(t).Files {
		if f.Test {
			continue
		}
		seen[f.Dir] = f.Path
		if f.AST.Doc != nil && !f.Generated {
			docs[f.Dir] += f.AST.Doc.Text()
		}
	}
	for dir, file := range seen {
		if len(strings.TrimSpace(docs[dir])) < 60 {
			t.Errorf("%s: package %s has no doc comment: what it owns, what it promises, who calls it", file, dir)
		}
	}
}

// A package called util says that no one knew what it is.
func TestNamesSaySomething(t *testing.T) {
	empty := map[string]bool{
		"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "base": true, "manager": true,
		"service": true, "misc": true, "shared": true,
	}
	for _, f := range load(t).Files {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		if empty[f.AST.Name.Name] {
			t.Errorf("%s: package %s: the name says nothing", f.Path, f.AST.Name.Name)
		}
		if empty[name] {
			t.Errorf("%s: the file's name says nothing", f.Path)
		}
	}
}

// Receivers are one or two letters and the same in every method, so that a reader knows what the letter means.
func TestReceiversAgree(t *testing.T) {
	type key struct{ dir, typ string }
	first := map[key]string{}
	tree := load(t)
	for _, f := range tree.Files {
		if f.Generated {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
				continue
			}
			name := fn.Recv.List[0].Names[0].Name
			k := key{f.Dir, receiverType(fn.Recv.List[0].Type)}
			if name == "_" {
				continue
			}
			if len(name) > 2 {
				t.Errorf("%s: receiver %s of %s has more than two letters", tree.Pos(f, fn.Pos()), name, k.typ)
			}
			if was, ok := first[k]; ok && was != name {
				t.Errorf("%s: receiver of %s is %s here and %s elsewhere", tree.Pos(f, fn.Pos()), k.typ, name, was)
			}
			first[k] = name
		}
	}
}

func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
