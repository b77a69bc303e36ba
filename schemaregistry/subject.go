package schemaregistry

import "strings"

// DefaultContext is the context of subjects that name none.
const DefaultContext = "."

// globalContext is above all contexts. It has a config and a mode, and no subjects.
const globalContext = ".__GLOBAL"

// EveryContext begins a prefix of subjects in all contexts.
const EveryContext = ":*:"

// Subject is a name in a context. The name "" stands for the context itself where configs and modes are meant.
type Subject struct{ Context, Name string }

// ParseSubject reads a subject as clients write it: ":.ctx:name", or "name" for one in the default context.
func ParseSubject(s string) Subject {
	if strings.HasPrefix(s, ":.") {
		if end := strings.IndexByte(s[1:], ':'); end > 0 {
			return Subject{Context: s[1 : 1+end], Name: s[end+2:]}
		}
	}
	return Subject{Context: DefaultContext, Name: s}
}

// String is the subject as clients read it: with its context unless that is the default one.
func (s Subject) String() string {
	if s.Context == DefaultContext {
		return s.Name
	}
	return ":" + s.Context + ":" + s.Name
}

// In is a subject as one in context means it: as it is where it names a context.
func (s Subject) in(context string) Subject {
	if s.Context == DefaultContext {
		s.Context = context
	}
	return s
}

// Qualify is a subject as a request within a context means it.
func Qualify(context, subject string) string {
	if strings.HasPrefix(subject, ":.") || strings.HasPrefix(subject, EveryContext) || context == DefaultContext {
		return subject
	}
	return ":" + context + ":" + subject
}
