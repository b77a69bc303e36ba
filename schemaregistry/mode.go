package schemaregistry

import (
	"context"
	"slices"
	"strings"
)

// The modes.
const (
	ReadWrite        = "READWRITE"
	ReadOnly         = "READONLY"
	ReadOnlyOverride = "READONLY_OVERRIDE" // of a context or of all: whatever the modes of the subjects are
	Import           = "IMPORT"            // ids and versions come with the schemas
	ForwardMode      = "FORWARD"           // as IMPORT
)

// modeInScope is the mode in force for a subject.
func (s *state) modeInScope(of Subject) string {
	out := ""
	for _, scope := range of.scopes() {
		switch m := s.modes[scope]; {
		case m == ReadOnlyOverride:
			return m
		case out == "":
			out = m
		}
	}
	if out == "" {
		return ReadWrite
	}
	return out
}

// checkWritable refuses changes where the mode forbids all.
func (s *state) checkWritable(of Subject) error {
	if m := s.modeInScope(of); m == ReadOnly || m == ReadOnlyOverride {
		return refuse(CodeNotPermitted, "%s is in mode %s", describe(of), m)
	}
	return nil
}

func imports(mode string) bool { return mode == Import || mode == ForwardMode }

// Mode is the mode of a subject: its own, or with inScope what is in force. The global one is never missing.
func (r *Registry) Mode(ctx context.Context, subject string, inScope bool) (mode string, err error) {
	if err := r.Fresh(ctx); err != nil {
		return "", err
	}
	name := ParseSubject(subject)
	r.read(func(s *state) {
		mode = s.modes[name]
		switch {
		case inScope || mode == "" && name == Subject{Context: DefaultContext}:
			mode = s.modeInScope(name)
		case mode == "":
			err = refuse(CodeModeNotFound, "%s has no mode of its own", describe(name))
		}
	})
	return mode, err
}

// SetMode sets a mode; nil removes it. IMPORT needs a scope without versions, and takes away what is softly deleted
// there, unless it is forced.
func (r *Registry) SetMode(ctx context.Context, subject string, mode *string, force bool) error {
	name, err := checkScope(subject)
	if err != nil {
		return err
	}
	to := ""
	if mode != nil {
		to = strings.ToUpper(*mode)
		if err := checkMode(to, name); err != nil {
			return err
		}
	}
	if r.cfg.ModeFixed {
		return errModeFixed()
	}
	return r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			if to == Import && !force && s.modes[name] != Import {
				p, err = s.clearing(name)
			}
			k := key{kind: kindMode, subject: name}
			switch {
			case err != nil || p.more:
			case to != "":
				p.records = append(p.records, outRecord{k, modeValue{name.String(), to}})
			case s.modes[name] != "":
				p.records = append(p.records, outRecord{key: k})
			}
		})
		return p, err
	})
}

func checkMode(mode string, of Subject) error {
	switch mode {
	case ReadWrite, ReadOnly, ReadOnlyOverride, Import:
		return nil
	case ForwardMode:
		if of.Context == globalContext {
			return nil
		}
		return refuse(CodeInvalidMode, "mode FORWARD is only for :%s:", globalContext)
	}
	return refuse(CodeInvalidMode, "%s is no mode: READWRITE, READONLY, READONLY_OVERRIDE and IMPORT are", quoted(mode))
}

func errModeFixed() error { return refuse(CodeNotPermitted, "changes of modes are switched off") }

// clearing is what takes away all that is softly deleted in a scope, so that it can be imported into.
func (s *state) clearing(scope Subject) (p proposal, err error) {
	var gone []*version
	for _, sub := range s.inScope(scope) {
		if live := sub.latest(); live != nil {
			return p, refuse(CodeNotPermitted, "%s has version %d: mode IMPORT needs that there is none",
				describe(sub.name), live.number)
		}
		gone = append(gone, sub.versions...)
	}
	for _, v := range gone {
		for by := range s.referrers[target{v.subject.name, v.number}] {
			if !scope.covers(by.subject.name) { // else it is among them
				return p, errReferenced(v, by)
			}
		}
	}
	p = s.removal(gone)
	if !p.more && len(gone) > 0 {
		value := subjectValue{Subject: scope.String()}
		p.records = append(p.records, outRecord{key{kind: kindClearSubject, subject: scope}, value})
	}
	return p, nil
}

// DeleteMode removes a mode, with recursive also those of everything in its scope, and tells what it was: "" if only
// others had one.
func (r *Registry) DeleteMode(ctx context.Context, subject string, recursive bool) (old string, err error) {
	name := ParseSubject(subject)
	if r.cfg.ModeFixed {
		return "", errModeFixed()
	}
	err = r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			var scopes []Subject
			for scope := range s.modes {
				if scope == name || recursive && name.covers(scope) && scope.Context != globalContext {
					scopes = append(scopes, scope)
				}
			}
			slices.SortFunc(scopes, Subject.compare)
			var size part
			for _, scope := range scopes {
				if p.more = !size.takes(scope); p.more {
					break
				}
				p.records = append(p.records, outRecord{key: key{kind: kindMode, subject: scope}})
			}
			switch m := s.modes[name]; {
			case m != "":
				old = m
			case name == Subject{Context: DefaultContext} && old == "":
				old = s.modeInScope(name)
			case !recursive:
				err = refuse(CodeSubjectNotFound, "%s has no mode of its own", describe(name))
			}
		})
		return p, err
	})
	return old, err
}
