// Package provider puts values from files, folders and the environment into the settings of connectors, where they
// refer to them.
//
// It owns the syntax of references, ${provider:path:key}, and what may be read: nothing that is not below an allowed
// path or among the allowed names. It promises that a reference to what there is not, or what may not be read, stays as
// it is and is told as a problem, that no value is part of an error, and that nothing is kept between two calls. The
// worker resolves the settings of a connector when it starts, and what is stored stays unresolved.
package provider

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// Options say what may be read.
type Options struct {
	// Paths are the files that may be read, and the folders below which files may be read; none: no file.
	Paths []string
	// EnvAllow is a regular expression of whole names of variables that may be read; "": none.
	EnvAllow string
	// Environment looks up a variable; nil: there are none.
	Environment func(name string) (string, bool)
}

// Providers resolves references. It is safe for concurrent use.
type Providers struct {
	paths []string // absolute and clean
	allow *regexp.Regexp
	env   func(name string) (string, bool)
}

// New makes Providers. It does no I/O.
func New(o Options) (*Providers, error) {
	p := &Providers{env: o.Environment}
	for _, path := range o.Paths {
		if path == "" {
			continue
		}
		whole, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("allowed path %q: %w", path, err)
		}
		p.paths = append(p.paths, whole)
	}
	if o.EnvAllow != "" {
		allow, err := regexp.Compile("^(?:" + o.EnvAllow + ")$")
		if err != nil {
			return nil, fmt.Errorf("pattern of allowed variables: %w", err)
		}
		p.allow = allow
	}
	return p, nil
}
