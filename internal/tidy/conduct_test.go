package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
	"testing"
)

// calls calls fn with every use of a package's name by its selector, as in time.Sleep. Which package the name before
// the dot means is read from the file's imports.
func (t *Tree) calls(f *File, fn func(pos, pkg, name string)) {
	imports := map[string]string{}
	for _, s := range f.AST.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			continue
		}
		name := p[strings.LastIndex(p, "/")+1:]
		if s.Name != nil {
			name = s.Name.Name
		}
		imports[name] = p
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if ok && imports[id.Name] != "" {
			fn(t.Pos(f, sel.Pos()), imports[id.Name], sel.Sel.Name)
		}
		return true
	})
}

// Rule 6, the calls: only a command reads the environment, exits, or sets the default logger.
func TestOnlyCommandsTouchTheProcess(t *testing.T) {
	bad := map[string]bool{
		"os.Exit": true, "os.Getenv": true, "os.LookupEnv": true, "os.Environ": true, "os.Args": true, "os.Setenv": true,
		"log/slog.SetDefault": true, "log.Fatal": true, "log.Fatalf": true, "log/slog.Default": true,
		"runtime/debug.SetGCPercent": true, "runtime/debug.SetMemoryLimit": true,
	}
	tree := load(t)
	for _, f := range tree.Files {
		if f.TestOnly() || f.Main() || f.Dir == "internal/tidy" {
			continue
		}
		tree.calls(f, func(pos, pkg, name string) {
			if bad[pkg+"."+name] {
				t.Errorf("%s: %s.%s: only a command may", pos, pkg, name)
			}
		})
	}
}

// Rule 3, the calls: what Raft and tests replay reads no clock and starts no goroutine.
func TestPurePackagesReadNoClock(t *testing.T) {
	bad := map[string]bool{
		"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.Sleep": true,
		"time.NewTimer": true, "time.NewTicker": true, "time.AfterFunc": true,
	}
	tree := load(t)
	for _, f := range tree.Files {
		if f.Test || !within(f.Dir, "record", "server/metadata", "internal/ktag") {
			continue
		}
		tree.calls(f, func(pos, pkg, name string) {
			if bad[pkg+"."+name] {
				t.Errorf("%s: %s is pure and may not call %s.%s", pos, f.Dir, pkg, name)
			}
		})
	}
}

// A sleep in a test is a guess about timing, except where time is fake.
func TestNoSleepOutsideFakeTime(t *testing.T) {
	tree := load(t)
	for _, f := range tree.Files {
		if !f.TestOnly() || imports(f, "testing/synctest") {
			continue
		}
		tree.calls(f, func(pos, pkg, name string) {
			if pkg == "time" && name == "Sleep" {
				t.Errorf("%s: sleeps; wait for what the test needs, or use testing/synctest", pos)
			}
		})
	}
}

func imports(f *File, path string) bool {
	for _, s := range f.AST.Imports {
		if s.Path.Value == strconv.Quote(path) {
			return true
		}
	}
	return false
}

// Wiring is read in server, not filled in by import.
func TestNoInit(t *testing.T) {
	tree := load(t)
	for _, f := range tree.Files {
		if f.Generated {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init()", tree.Pos(f, fn.Pos()))
			}
		}
	}
}

// A goroutine belongs to a type that awaits it: it is started with wg.Go.
func TestNoBareGo(t *testing.T) {
	tree := load(t)
	for _, f := range tree.Files {
		if f.TestOnly() || f.Generated {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: bare go statement; start it with the owner's wg.Go and await it in Close", tree.Pos(f, g.Pos()))
			}
			return true
		})
	}
}

// Many nodes run in one test process, so a package keeps no state. Tables, sentinel errors and compiled expressions are
// not state; nothing may assign to them, and none may be a lock, a channel, a counter or a pool.
func TestNoPackageState(t *testing.T) {
	tree := load(t)
	packages := map[string][]*File{}
	for _, f := range tree.Files {
		if f.TestOnly() || f.Generated {
			continue
		}
		packages[f.Dir] = append(packages[f.Dir], f)
		for _, d := range f.AST.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				if v := s.(*ast.ValueSpec); isState(v) {
					t.Errorf("%s: package-level %s is state; give it an owner", tree.Pos(f, v.Pos()), v.Names[0].Name)
				}
			}
		}
	}
	for _, files := range packages {
		tree.assignments(t, files)
	}
}

func isState(v *ast.ValueSpec) bool {
	state := false
	look := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // what a function makes when called is not the package's
		case *ast.ChanType:
			state = true
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				state = state || id.Name == "sync" || id.Name == "atomic" || id.Name == "prometheus" || id.Name == "rand"
			}
		}
		return true
	}
	if v.Type != nil {
		ast.Inspect(v.Type, look)
	}
	for _, x := range v.Values {
		ast.Inspect(x, look)
	}
	return state
}

// assignments reports each assignment to a package-level variable of ours, through an index or a field too. Names are
// resolved within the package alone: what other packages are does not matter, so their absence is no error.
func (t *Tree) assignments(tt *testing.T, files []*File) {
	tt.Helper()
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.AST)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, Importer: nowhere{}}
	pkg, _ := conf.Check(files[0].Dir, t.Fset, parsed, &info)
	for _, f := range files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					targets = n.Lhs
				}
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			}
			for _, x := range targets {
				id := rootIdent(x)
				if v, ok := info.Uses[id].(*types.Var); ok && id != nil && v.Parent() == pkg.Scope() {
					tt.Errorf("%s: assigns to the package-level variable %s", t.Pos(f, x.Pos()), id.Name)
				}
			}
			return true
		})
	}
}

// nowhere imports nothing.
type nowhere struct{}

func (nowhere) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not looked at", path)
}

func rootIdent(x ast.Expr) *ast.Ident {
	switch x := x.(type) {
	case *ast.Ident:
		return x
	case *ast.IndexExpr:
		return rootIdent(x.X)
	case *ast.SelectorExpr:
		return rootIdent(x.X)
	case *ast.StarExpr:
		return rootIdent(x.X)
	}
	return nil
}
