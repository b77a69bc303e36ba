package provider

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// maxFile bounds what is read of a file, and maxValues what is put in place of the references of a config.
const (
	maxFile   = 1 << 20
	maxValues = 16 << 20
)

// Problem is a reference that could not be resolved. It never holds a value.
type Problem struct {
	Setting   string
	Reference string // as it stands there
	Why       string
}

// Has says whether a text has a reference in it, of a provider that there is.
func Has(text string) bool {
	found := false
	replace(text, func(r reference) (string, error) {
		found = found || known(r.provider)
		return "", errUnknown
	}, nil)
	return found
}

// Resolve gives settings with the values in place of the references. What cannot be resolved stays as it is, and is
// told, unless it names a provider that there is not. The settings given stay as they are.
func (p *Providers) Resolve(props map[string]string) (map[string]string, []Problem) {
	out := maps.Clone(props)
	files := make(map[string]map[string]string) // properties by path: a file is read once
	var problems []Problem
	left := maxValues
	look := func(r reference) (string, error) {
		value, err := p.look(r, files)
		if left -= len(value); left < 0 {
			return "", errors.New("the references of the settings stand for more than 16 MiB")
		}
		return value, err
	}
	for name, text := range props {
		if !strings.Contains(text, "${") {
			continue
		}
		out[name] = replace(text, look,
			func(r reference, err error) {
				if !errors.Is(err, errUnknown) {
					problems = append(problems, Problem{Setting: name, Reference: r.text, Why: err.Error()})
				}
			})
	}
	return out, problems
}

// errUnknown says that there is no provider of that name, so that the text is no reference.
var errUnknown = errors.New("there is no such provider")

// reference is ${provider:path:key} or ${provider:key}.
type reference struct {
	text           string
	provider, path string
	key            string
}

// replace puts what look gives in place of each reference; failed is told what look did not give. Nothing is looked for
// in what was put in.
func replace(text string, look func(reference) (string, error), failed func(reference, error)) string {
	var out strings.Builder
	for {
		start := strings.Index(text, "${")
		if start < 0 {
			break
		}
		end := strings.IndexByte(text[start:], '}')
		if end < 0 {
			break
		}
		end += start
		if inner := strings.LastIndex(text[start:end], "${"); inner > 0 {
			start += inner // the outer one is no reference
		}
		out.WriteString(text[:start])
		r, ok := parse(text[start : end+1])
		value, err := "", errUnknown
		if ok {
			value, err = look(r)
		}
		if err != nil {
			value = text[start : end+1]
			if ok && failed != nil {
				failed(r, err)
			}
		}
		out.WriteString(value)
		text = text[end+1:]
	}
	out.WriteString(text)
	return out.String()
}

// parse reads a reference: the provider ends at the first colon, the path at the second, if there is one.
func parse(text string) (reference, bool) {
	name, rest, ok := strings.Cut(text[2:len(text)-1], ":")
	if !ok || name == "" {
		return reference{}, false
	}
	r := reference{text: text, provider: name, key: rest}
	if path, key, ok := strings.Cut(rest, ":"); ok {
		r.path, r.key = path, key
	}
	return r, r.key != ""
}

// The providers, and the classes by which Kafka Connect knows them.
const (
	fileProvider = "file"
	dirProvider  = "dir"
	envProvider  = "env"
)

func known(name string) bool {
	return name == fileProvider || name == dirProvider || name == envProvider
}

func (p *Providers) look(r reference, files map[string]map[string]string) (string, error) {
	switch r.provider {
	case fileProvider:
		return p.property(r, files)
	case dirProvider:
		return p.file(r)
	case envProvider:
		return p.variable(r)
	}
	return "", errUnknown
}

func (p *Providers) variable(r reference) (string, error) {
	if p.allow == nil || !p.allow.MatchString(r.key) {
		return "", errors.New("the environment variable is not among those that may be read")
	}
	if p.env != nil {
		if value, ok := p.env(r.key); ok {
			return value, nil
		}
	}
	return "", errors.New("there is no such environment variable")
}

// property reads a key of a properties file.
func (p *Providers) property(r reference, files map[string]map[string]string) (string, error) {
	props, ok := files[r.path]
	if !ok {
		text, err := p.read(r.path)
		if err != nil {
			return "", err
		}
		props = Properties(text)
		files[r.path] = props
	}
	value, ok := props[r.key]
	if !ok {
		return "", errors.New("the file has no such key")
	}
	return value, nil
}

// file reads a whole file of a folder.
func (p *Providers) file(r reference) (string, error) {
	if r.key != filepath.Base(r.key) || r.key == ".." || r.key == "." || strings.ContainsRune(r.key, filepath.Separator) {
		return "", errors.New("the key must be the name of a file")
	}
	return p.read(filepath.Join(r.path, r.key))
}

// errDenied is one text for what is not allowed and what is not there, so that nobody finds out what there is.
var errDenied = errors.New("the file is not below a path that may be read, or there is no such file")

// read reads a file below an allowed path, wherever links lead on the way to it.
func (p *Providers) read(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("the path must be absolute")
	}
	path = filepath.Clean(path)
	if !p.allowed(path, false) {
		return "", errDenied
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !p.allowed(real, true) {
		return "", errDenied
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() { // before it is opened: a pipe waits then
		return "", errors.New("it is no regular file")
	}
	f, err := os.Open(real)
	if err != nil {
		return "", errDenied
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", errors.New("the file cannot be read")
	case len(b) > maxFile:
		return "", errors.New("the file is larger than 1 MiB")
	}
	return string(b), nil
}

// allowed says whether a clean path is an allowed one or lies below one. Of a real path it is asked whether it lies
// below what the allowed ones really are.
func (p *Providers) allowed(path string, real bool) bool {
	for _, allowed := range p.paths {
		if real {
			r, err := filepath.EvalSymlinks(allowed)
			if err != nil {
				continue
			}
			allowed = r
		}
		if path == allowed || allowed == string(filepath.Separator) ||
			strings.HasPrefix(path, allowed+string(filepath.Separator)) {
			return true
		}
	}
	return false
}
