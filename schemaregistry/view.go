package schemaregistry

import (
	"slices"

	"millrace/schemaregistry/schema"
)

// held is a version as decisions see it.
type held struct {
	number    int
	deleted   bool
	timestamp int64
	content   *content
}

// view is what a decision is made against: the state, and on top of it what the decision has proposed so far. Each
// call sees the state as it is then; whoever writes makes sure that it was the same for all of them.
type view struct {
	r        *Registry
	added    map[target]held // also in place of what the state has
	gone     map[target]bool
	contexts map[string]bool // whose CONTEXT records are proposed
}

func (r *Registry) view() *view { return &view{r: r} }

// versions lists the versions of a subject, ascending.
func (w *view) versions(of Subject) []held {
	var out []held
	w.r.read(func(s *state) {
		sub := s.subject(of)
		if sub == nil {
			return
		}
		out = make([]held, 0, len(sub.versions)+1)
		for _, v := range sub.versions {
			out = append(out, v.held())
		}
	})
	if w.gone != nil {
		out = slices.DeleteFunc(out, func(h held) bool { return w.gone[target{of, h.number}] })
	}
	for t, h := range w.added {
		if t.subject != of {
			continue
		}
		i, found := slices.BinarySearchFunc(out, h.number, func(a held, n int) int { return a.number - n })
		if found {
			out[i] = h
		} else {
			out = slices.Insert(out, i, h)
		}
	}
	return out
}

func (v *version) held() held { return held{v.number, v.deleted, v.timestamp, v.content} }

// at is one version.
func (w *view) at(t target) (h held, ok bool) {
	if h, ok := w.added[t]; ok {
		return h, true
	}
	if w.gone[t] {
		return held{}, false
	}
	w.r.read(func(s *state) {
		if v := s.subject(t.subject).find(t.version); v != nil {
			h, ok = v.held(), true
		}
	})
	return h, ok
}

// latest is the newest version that is not deleted.
func (w *view) latest(of Subject) (h held, ok bool) {
	if len(w.added)+len(w.gone) == 0 { // which needs no list
		w.r.read(func(s *state) {
			if v := s.subject(of).latest(); v != nil {
				h, ok = v.held(), true
			}
		})
		return h, ok
	}
	for _, v := range slices.Backward(w.versions(of)) {
		if !v.deleted {
			return v, true
		}
	}
	return held{}, false
}

// byID is the schema with an id, nil if there is none.
func (w *view) byID(context string, id int) (found *content) {
	for t, h := range w.added {
		if t.subject.Context == context && h.content.id == id {
			return h.content
		}
	}
	w.r.read(func(s *state) {
		if c := s.contexts[context]; c != nil {
			found = c.ids[id]
		}
	})
	return found
}

// same is a schema's lowest id in a context, nil if it has none. With a wanted id it is that one, if the schema has it.
func (w *view) same(context string, is identity, want *int) (found *content) {
	w.r.read(func(s *state) {
		c := s.contexts[context]
		if c == nil {
			return
		}
		for n := c.hashes[is]; n != nil && found == nil; n = n.next {
			if want == nil || n.id == *want {
				found = n
			}
		}
	})
	for t, h := range w.added {
		if c := h.content; t.subject.Context == context && c.identity == is && (want == nil || c.id == *want) {
			if found == nil || c.id < found.id {
				found = c
			}
		}
	}
	return found
}

// maxID is the greatest id that a context has given out.
func (w *view) maxID(context string) (id int) {
	w.r.read(func(s *state) {
		if c := s.contexts[context]; c != nil {
			id = c.maxID
		}
	})
	for t, h := range w.added {
		if t.subject.Context == context {
			id = max(id, h.content.id)
		}
	}
	return id
}

// referred reports whether any version refers to one.
func (w *view) referred(t target) (yes bool) {
	w.r.read(func(s *state) { yes = len(s.referrers[t]) > 0 })
	for by, h := range w.added {
		yes = yes || slices.Contains(targets(h.content.References, by.subject.Context), t)
	}
	return yes
}

// hasContext reports whether a context needs no record before it is used.
func (w *view) hasContext(name string) (yes bool) {
	if name == DefaultContext || w.contexts[name] {
		return true
	}
	w.r.read(func(s *state) {
		c := s.contexts[name]
		yes = c != nil && c.recorded
	})
	return yes
}

func (w *view) config(of Subject) (c SubjectConfig) {
	w.r.read(func(s *state) { c = s.configInScope(of, w.r.cfg.Compatibility) })
	return c
}

func (w *view) mode(of Subject) (mode string) {
	w.r.read(func(s *state) { mode = s.modeInScope(of) })
	return mode
}

// add proposes a version.
func (w *view) add(t target, h held) {
	if w.added == nil {
		w.added, w.gone, w.contexts = map[target]held{}, map[target]bool{}, map[string]bool{}
	}
	w.added[t] = h
	delete(w.gone, t)
}

// version is a held version as clients see it.
func (h held) version(of Subject) Version {
	return Version{
		Subject: of.String(), Version: h.number, ID: h.content.id, GUID: h.content.hash, Content: h.content.Content,
		Deleted: h.deleted, Timestamp: h.timestamp,
	}
}

func contentOf(c schema.Content) identity { return identity{c.ID(), c.Type} }
