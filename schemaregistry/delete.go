package schemaregistry

import (
	"context"
	"slices"
)

// DeleteSubject deletes all versions of a subject, and lists them. Permanently it deletes what is softly deleted.
func (r *Registry) DeleteSubject(ctx context.Context, subject string, permanent bool) ([]int, error) {
	name := ParseSubject(subject)
	var numbers []int // all that are deleted, over several proposals
	err := r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			sub := s.subject(name)
			if permanent {
				p, err = s.eraseSubject(name, sub, len(numbers) > 0)
			} else {
				p, err = s.deleteSubject(name, sub)
			}
			all := union(numbers, sub, permanent)
			p.written = func() { numbers = all }
		})
		return p, err
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}

// union adds the numbers of a subject's versions that are to be deleted.
func union(numbers []int, s *subject, deleted bool) []int {
	if s == nil {
		return numbers
	}
	numbers = slices.Clone(numbers)
	for _, v := range s.versions {
		if v.deleted == deleted {
			numbers = append(numbers, v.number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// deleteSubject proposes a soft delete of all versions.
func (s *state) deleteSubject(name Subject, sub *subject) (p proposal, err error) {
	switch {
	case sub == nil:
		return p, errNoSubject(name)
	case sub.latest() == nil:
		return p, refuse(CodeSubjectSoftDeleted, "subject %s is deleted already; delete it permanently, or register a "+
			"schema in it", quoted(name.String()))
	}
	for _, v := range sub.versions {
		if by := s.referrer(v, false, sub); by != nil {
			return p, errReferenced(v, by)
		}
	}
	if err := s.checkWritable(name); err != nil {
		return p, err
	}
	highest := sub.versions[len(sub.versions)-1].number
	value := subjectValue{name.String(), highest}
	return proposal{records: []outRecord{{key{kind: kindDeleteSubject, subject: name}, value}}}, nil
}

// eraseSubject proposes to take all versions away, which are deleted softly. Of a subject with many versions it is a
// part only; begun says that there was one before.
func (s *state) eraseSubject(name Subject, sub *subject, begun bool) (p proposal, err error) {
	switch {
	case sub == nil && begun:
		return p, nil
	case sub == nil:
		return p, errNoSubject(name)
	case sub.latest() != nil:
		return p, refuse(CodeSubjectNotSoftDeleted, "subject %s must be deleted softly before it is permanently",
			quoted(name.String()))
	}
	for _, v := range sub.versions {
		if by := s.referrer(v, true, sub); by != nil {
			return p, errReferenced(v, by)
		}
	}
	if err := s.checkWritable(name); err != nil {
		return p, err
	}
	return s.removal(slices.Clone(sub.versions)), nil
}

// removal proposes to take versions away, the highest first, with the config and the mode of a subject that has none
// left, and marks the greatest id of a context where the log would forget it. Of many versions it is a part only.
func (s *state) removal(versions []*version) (p proposal) {
	slices.Reverse(versions)
	gone := map[*content]int{}
	left := map[*subject]int{}
	marked := map[string]bool{}
	var size part
	for _, v := range versions {
		if p.more = !size.takes(v.subject.name); p.more {
			break
		}
		if gone[v.content]++; gone[v.content] == len(v.content.holders) {
			c := s.contexts[v.subject.name.Context]
			if !marked[c.name] && c.mark < c.maxID {
				marked[c.name] = true
				p.records = append(p.records, outRecord{idsKey(c.name), idsValue{c.name, c.maxID}})
			}
		}
		p.records = append(p.records, outRecord{key: schemaKey(target{v.subject.name, v.number})})
		if left[v.subject]++; left[v.subject] < len(v.subject.versions) {
			continue
		}
		name := v.subject.name
		if s.configs[name] != nil && name.Name != "" {
			p.records = append(p.records, outRecord{key: key{kind: kindConfig, subject: name}})
		}
		if s.modes[name] != "" && name.Name != "" {
			p.records = append(p.records, outRecord{key: key{kind: kindMode, subject: name}})
		}
	}
	return p
}

// part is what one batch of a change that is made in parts has so far.
type part struct{ records, bytes int }

// The bounds of a part.
const (
	maxBatch     = 2000
	maxPartBytes = 256 << 10 // of names
)

// takes reports whether the part has room for what there is to say of a subject, and if so, takes it.
func (p *part) takes(name Subject) bool {
	if p.records == maxBatch || p.bytes > maxPartBytes {
		return false
	}
	p.records++
	p.bytes += len(name.Context) + len(name.Name)
	return true
}

func idsKey(context string) key { return key{kind: kindIDs, subject: Subject{Context: context}} }

// referrer is a version that refers to v, of another subject than except; nil if there is none.
func (s *state) referrer(v *version, deleted bool, except *subject) *version {
	var found *version
	for by := range s.referrers[target{v.subject.name, v.number}] {
		if by.subject == except || by.deleted && !deleted {
			continue
		}
		if found == nil || by.before(found) {
			found = by // the same one each time
		}
	}
	return found
}

func (v *version) before(o *version) bool {
	if c := v.subject.name.compare(o.subject.name); c != 0 {
		return c < 0
	}
	return v.number < o.number
}

func errReferenced(v, by *version) error {
	return refuse(CodeReferenced, "version %d of subject %s is referred to by version %d of subject %s", v.number,
		quoted(v.subject.name.String()), by.number, quoted(by.subject.name.String()))
}

// DeleteVersion deletes a version, and tells its number. Permanently it deletes one that is softly deleted.
func (r *Registry) DeleteVersion(ctx context.Context, subject, version string, permanent bool) (int, error) {
	name := ParseSubject(subject)
	number, err := parseVersion(version)
	if err != nil {
		return 0, err
	}
	var out int
	err = r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			v, e := s.version(name, number, true)
			if err = e; err != nil {
				return
			}
			out = v.number
			p, err = s.deleteVersion(v, permanent)
		})
		return p, err
	})
	return out, err
}

func (s *state) deleteVersion(v *version, permanent bool) (p proposal, err error) {
	name := v.subject.name
	switch {
	case v.deleted && !permanent:
		return p, refuse(CodeVersionSoftDeleted, "version %d of subject %s is deleted already; delete it permanently, or "+
			"register its schema again", v.number, quoted(name.String()))
	case !v.deleted && permanent:
		return p, refuse(CodeVersionNotSoftDeleted, "version %d of subject %s must be deleted softly before it is "+
			"permanently", v.number, quoted(name.String()))
	}
	if by := s.referrer(v, permanent, nil); by != nil {
		return p, errReferenced(v, by)
	}
	if err := s.checkWritable(name); err != nil {
		return p, err
	}
	if permanent {
		return s.removal([]*version{v}), nil
	}
	return rewrite(v, true), nil
}

// rewrite proposes the record of a version again, deleted or not.
func rewrite(v *version, deleted bool) proposal {
	t := target{v.subject.name, v.number}
	h := v.held()
	h.deleted = deleted
	return proposal{records: []outRecord{{schemaKey(t), schemaRecord(t, h)}}}
}

// Undelete takes a soft delete of a version back. A version that is not deleted stays as it is.
func (r *Registry) Undelete(ctx context.Context, subject, version string) (out Version, err error) {
	name := ParseSubject(subject)
	number, err := parseVersion(version)
	if err != nil {
		return out, err
	}
	err = r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			v, e := s.version(name, number, true)
			if err = e; err != nil {
				return
			}
			if err = s.checkWritable(name); err != nil {
				return
			}
			out = v.version()
			if v.deleted {
				p = rewrite(v, false)
			}
		})
		return p, err
	})
	if err != nil {
		return out, err
	}
	out.Deleted = false
	if h, ok := r.view().at(target{name, out.Version}); ok && !h.deleted {
		out = h.version(name)
	}
	return out, nil
}

// DeleteContext removes an empty context, with its config and mode. The ids that it gave out stay taken.
func (r *Registry) DeleteContext(ctx context.Context, name string) error {
	scope := Subject{Context: name}
	if name == DefaultContext || name == globalContext {
		return refuse(CodeNotPermitted, "context %s cannot be deleted", name)
	}
	return r.write(ctx, func(context.Context) (p proposal, err error) {
		r.read(func(s *state) {
			c := s.contexts[name]
			if c != nil && len(c.subjects) > 0 {
				err = refuse(CodeContextNotEmpty, "context %s has %d subjects, softly deleted ones included", name,
					len(c.subjects))
				return
			}
			if c != nil && c.recorded {
				p.records = append(p.records, outRecord{key: key{kind: kindContext, subject: scope}})
			}
			if s.configs[scope] != nil {
				p.records = append(p.records, outRecord{key: key{kind: kindConfig, subject: scope}})
			}
			if s.modes[scope] != "" {
				p.records = append(p.records, outRecord{key: key{kind: kindMode, subject: scope}})
			}
		})
		return p, err
	})
}

// version is a version that a client names, and why there is none.
func (s *state) version(name Subject, number int, deleted bool) (*version, error) {
	sub := s.subject(name)
	if !sub.visible(deleted) {
		return nil, errNoSubject(name)
	}
	v := sub.latest()
	if number != latestVersion {
		v = sub.find(number)
	}
	if v == nil || v.deleted && !deleted {
		return nil, errNoVersion(name, number)
	}
	return v, nil
}
