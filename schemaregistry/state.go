package schemaregistry

import (
	"crypto/md5" //nolint:gosec // tells texts apart, guards nothing
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/schemaregistry/schema"
)

// state is what the log says up to an offset: a fold over its records. What a record changes depends on the state
// alone, and compaction of the log does not change where the fold ends. It does not parse the texts of schemas.
//
// It is not safe for concurrent use. Contents do not change but in who holds them.
type state struct {
	contexts  map[string]*contextState
	configs   map[Subject]*SubjectConfig
	modes     map[Subject]string
	referrers map[target]map[*version]struct{} // who refers to a version
	spellings map[key][]string                 // other bytes of keys whose records may be in the log
	versions  int                              // how many there are
	conflicts int                              // records that gave an id to a second schema
}

// target is a version as references name it.
type target struct {
	subject Subject
	version int
}

// contextState is one context.
type contextState struct {
	name     string
	recorded bool // there is a CONTEXT record
	subjects map[string]*subject
	ids      map[int]*content
	hashes   map[identity]*content // the first of those with a hash; others follow by next, with rising ids
	maxID    int                   // the greatest id seen or marked
	mark     int                   // the greatest id marked
}

// identity is what the same schemas share.
type identity struct {
	hash [16]byte
	typ  schema.Type
}

// subject is a subject with at least one version.
type subject struct {
	name     Subject
	versions []*version // ascending
}

// version is one version of a subject.
type version struct {
	subject   *subject
	number    int
	deleted   bool
	timestamp int64
	content   *content
}

// content is a schema under an id.
type content struct {
	schema.Content
	identity
	id      int
	own     bool       // the text is known to be canonical
	holders []*version // not empty while the content is in the state
	next    *content   // the next greater id of the same schema

	normal atomic.Pointer[normalForm] // remembered; nil before it was asked for
}

// normalForm is the text of a schema in its normal form.
type normalForm struct {
	deps [md5.Size]byte // digest of what its references led to
	text [md5.Size]byte // hash; zero where the text cannot be read
}

func newState() *state {
	return &state{
		contexts: map[string]*contextState{}, configs: map[Subject]*SubjectConfig{}, modes: map[Subject]string{},
		referrers: map[target]map[*version]struct{}{}, spellings: map[key][]string{},
	}
}

// apply takes in a record.
func (s *state) apply(e *entry) {
	if e.spelling != "" {
		s.spell(e)
	}
	switch e.key.kind {
	case kindSchema:
		s.applySchema(e)
	case kindConfig:
		if delete(s.configs, e.key.subject); !e.gone {
			s.configs[e.key.subject] = e.config
		}
	case kindMode:
		if delete(s.modes, e.key.subject); !e.gone && e.mode != "" {
			s.modes[e.key.subject] = e.mode
		}
	case kindDeleteSubject:
		if sub := s.subject(e.key.subject); sub != nil && !e.gone {
			for _, v := range sub.versions {
				v.deleted = v.deleted || v.number <= e.version
			}
		}
	case kindClearSubject:
		if !e.gone {
			s.clear(e.key.subject)
		}
	case kindContext:
		s.context(e.key.subject.Context).recorded = !e.gone
	case kindIDs:
		c := s.context(e.key.subject.Context)
		c.mark = max(c.mark, e.maxID)
		c.maxID = max(c.maxID, c.mark)
	}
}

// spell notes that a key is in the log in bytes that are not ours, or no longer.
func (s *state) spell(e *entry) {
	others := slices.DeleteFunc(s.spellings[e.key], func(o string) bool { return o == e.spelling })
	if !e.gone {
		others = append(others, e.spelling)
	}
	if s.spellings[e.key] = others; len(others) == 0 {
		delete(s.spellings, e.key)
	}
}

func (s *state) applySchema(e *entry) {
	sub := s.subject(e.key.subject)
	old := sub.find(e.key.version)
	if e.gone {
		if old != nil {
			s.remove(old)
		}
		return
	}
	c := s.context(e.key.subject.Context)
	id := e.schema.ID
	c.maxID = max(c.maxID, id)
	held := schema.Content{
		Type: e.schema.SchemaType, Text: e.schema.Schema, References: e.schema.References,
		Metadata: e.schema.Metadata, RuleSet: e.schema.RuleSet,
	}
	is := identity{held.ID(), held.Type}
	known := c.ids[id]
	if known != nil && known.identity != is && (old == nil || old.content != known || len(known.holders) > 1) {
		s.conflicts++ // an id keeps its first meaning
		return
	}
	deleted, timestamp := e.schema.Deleted, e.timestamp
	if old != nil {
		s.remove(old)
	}
	if known = c.ids[id]; known == nil {
		known = &content{Content: held, identity: is, id: id, own: e.own}
		c.add(known)
	}
	s.insert(e.key, &version{number: e.key.version, deleted: deleted, timestamp: timestamp, content: known})
}

// insert makes a version that the state does not have.
func (s *state) insert(k key, v *version) {
	c := s.context(k.subject.Context)
	sub := c.subjects[k.subject.Name]
	if sub == nil {
		sub = &subject{name: k.subject}
		c.subjects[k.subject.Name] = sub
	}
	v.subject = sub
	i, _ := slices.BinarySearchFunc(sub.versions, v.number, (*version).compare)
	sub.versions = slices.Insert(sub.versions, i, v)
	v.content.holders = append(v.content.holders, v)
	for _, t := range v.targets() {
		if s.referrers[t] == nil {
			s.referrers[t] = map[*version]struct{}{}
		}
		s.referrers[t][v] = struct{}{}
	}
	s.versions++
}

// remove forgets a version, and its schema and subject where it was the last one.
func (s *state) remove(v *version) {
	c := s.context(v.subject.name.Context)
	for _, t := range v.targets() {
		if delete(s.referrers[t], v); len(s.referrers[t]) == 0 {
			delete(s.referrers, t)
		}
	}
	v.content.holders = slices.DeleteFunc(v.content.holders, func(o *version) bool { return o == v })
	if len(v.content.holders) == 0 {
		c.drop(v.content)
	}
	sub := v.subject
	i, _ := slices.BinarySearchFunc(sub.versions, v.number, (*version).compare)
	sub.versions = slices.Delete(sub.versions, i, i+1)
	if len(sub.versions) == 0 {
		delete(c.subjects, sub.name.Name)
	}
	s.versions--
}

// clear forgets what is softly deleted in a scope.
func (s *state) clear(scope Subject) {
	for _, sub := range s.inScope(scope) {
		for _, v := range slices.Clone(sub.versions) {
			if v.deleted {
				s.remove(v)
			}
		}
	}
}

// inScope lists the subjects that a config or mode of a scope is for, sorted: one subject, a context, or all.
func (s *state) inScope(scope Subject) []*subject {
	var out []*subject
	for _, c := range s.contexts {
		for _, sub := range c.subjects {
			if scope.covers(sub.name) {
				out = append(out, sub)
			}
		}
	}
	slices.SortFunc(out, func(a, b *subject) int { return a.name.compare(b.name) })
	return out
}

// covers reports whether a scope holds a subject.
func (s Subject) covers(of Subject) bool {
	switch {
	case s.Context == globalContext, s == Subject{Context: DefaultContext}:
		return true
	case s.Name == "":
		return s.Context == of.Context
	}
	return s == of
}

// compare sorts subjects as clients see them: by their qualified names.
func (s Subject) compare(o Subject) int { return strings.Compare(s.String(), o.String()) }

// context is a context, made where it is not known.
func (s *state) context(name string) *contextState {
	c := s.contexts[name]
	if c == nil {
		c = &contextState{
			name: name, subjects: map[string]*subject{}, ids: map[int]*content{}, hashes: map[identity]*content{},
		}
		s.contexts[name] = c
	}
	return c
}

// subject is a subject, nil if it has no version.
func (s *state) subject(name Subject) *subject {
	if c := s.contexts[name.Context]; c != nil {
		return c.subjects[name.Name]
	}
	return nil
}

// find is a version of a subject, nil if there is none.
func (s *subject) find(number int) *version {
	if s == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(s.versions, number, (*version).compare); ok {
		return s.versions[i]
	}
	return nil
}

// latest is the newest version that is not deleted, nil if there is none.
func (s *subject) latest() *version {
	if s == nil {
		return nil
	}
	for _, v := range slices.Backward(s.versions) {
		if !v.deleted {
			return v
		}
	}
	return nil
}

func (v *version) compare(number int) int { return v.number - number }

// targets are the versions that the schema refers to, each once.
func (v *version) targets() []target {
	if len(v.content.References) == 0 {
		return nil
	}
	return targets(v.content.References, v.subject.name.Context)
}

func targets(references []schema.Reference, context string) []target {
	out := make([]target, 0, len(references))
	for _, ref := range references {
		t := target{ParseSubject(ref.Subject).in(context), ref.Version}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// add puts a content under its id.
func (c *contextState) add(n *content) {
	c.ids[n.id] = n
	first := c.hashes[n.identity]
	if first == nil || n.id < first.id {
		n.next, c.hashes[n.identity] = first, n
		return
	}
	for first.next != nil && first.next.id < n.id {
		first = first.next
	}
	n.next, first.next = first.next, n
}

// drop takes a content out that nobody holds.
func (c *contextState) drop(old *content) {
	delete(c.ids, old.id)
	first := c.hashes[old.identity]
	switch {
	case first == old && old.next == nil:
		delete(c.hashes, old.identity)
	case first == old:
		c.hashes[old.identity] = old.next
	default:
		for first.next != old {
			first = first.next
		}
		first.next = old.next
	}
	old.next = nil
}

// unmarked reports whether the log, once compacted, would forget the greatest id.
func (c *contextState) unmarked() bool { return c.maxID > c.mark && c.ids[c.maxID] == nil }

// contextNames lists the contexts that there are, the default one first.
func (s *state) contextNames() []string {
	out := []string{DefaultContext}
	for _, name := range slices.Sorted(maps.Keys(s.contexts)) {
		if c := s.contexts[name]; name != DefaultContext && (c.recorded || len(c.subjects) > 0) {
			out = append(out, name)
		}
	}
	return out
}

// schemas counts the schemas that have ids.
func (s *state) schemas() int {
	n := 0
	for _, c := range s.contexts {
		n += len(c.ids)
	}
	return n
}
