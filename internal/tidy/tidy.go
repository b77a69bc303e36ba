// Package tidy holds the rules of the style guide that a machine can check, as tests.
//
// It owns no code of the product: it reads the module's source files and fails with the file, the line and the rule
// when one is broken. `make lint` and `make test` run it; a rule is changed by an ADR and here, never by an
// exception in a comment. This file loads the source; each rule is a test in a file named for its kind.
package tidy

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Module is the name every import of ours starts with.
const Module = "millrace"

// File is one parsed Go file of the module.
type File struct {
	Path      string // slash path from the repository's root
	Dir       string // its folder, "" for the root; the package is Module/Dir
	Source    []byte
	AST       *ast.File
	Test      bool // a _test.go file
	Generated bool // says "Code generated ... DO NOT EDIT."
}

// TestOnly reports whether the file may use what only tests may: it is a test, or belongs to a package named ...test.
func (f *File) TestOnly() bool {
	return f.Test || strings.HasSuffix(strings.TrimSuffix(f.AST.Name.Name, "_test"), "test")
}

// Main reports whether the file belongs to a command.
func (f *File) Main() bool { return f.AST.Name.Name == "main" }

// Tree is the module's source: every Go file parsed, and the name of every other file.
type Tree struct {
	Root  string
	Fset  *token.FileSet
	Files []*File
	Names []string // every file, Go or not, as slash paths from the root
}

// Load reads the module that holds the folder it is called from.
func Load() (*Tree, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	err = filepath.WalkDir(root, t.visit)
	if err != nil {
		return nil, fmt.Errorf("read the module at %s: %w", root, err)
	}
	return t, nil
}

// Pos renders a position as path:line.
func (t *Tree) Pos(f *File, p token.Pos) string {
	return fmt.Sprintf("%s:%d", f.Path, t.Fset.Position(p).Line)
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = up
	}
}

// visit takes one entry of the walk; folders that hold no source of ours are left out, and what another test had there
// for a moment.
func (t *Tree) visit(path string, d fs.DirEntry, err error) error {
	if errors.Is(err, fs.ErrNotExist) && path != t.Root {
		return nil
	}
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.Root, path)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	if d.IsDir() {
		switch rel {
		case ".git", "bin", "data", "node_modules":
			return filepath.SkipDir
		}
		return nil
	}
	t.Names = append(t.Names, rel)
	if strings.HasSuffix(rel, ".go") && !strings.Contains("/"+rel, "/testdata/") {
		return t.parse(rel, path)
	}
	return nil
}

func (t *Tree) parse(rel, path string) error {
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	a, err := parser.ParseFile(t.Fset, path, src, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := filepath.ToSlash(filepath.Dir(rel))
	if dir == "." {
		dir = ""
	}
	t.Files = append(t.Files, &File{
		Path: rel, Dir: dir, Source: src, AST: a,
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(a),
	})
	return nil
}
