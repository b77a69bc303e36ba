package schemaregistry

import "context"

// HeldAs is the live version with which a subject holds the schema of an id, 0 if it does not. What is in memory
// answers; only before it says no is the log's end waited for. So a version that another node has just deleted may be
// named for a moment.
func (r *Registry) HeldAs(ctx context.Context, id int, subject string) (int, error) {
	if number := r.GlanceHeldAs(id, subject); number != 0 {
		return number, nil
	}
	if err := r.Fresh(ctx); err != nil {
		return 0, err
	}
	return r.GlanceHeldAs(id, subject), nil
}

// GlanceHeldAs is HeldAs of what is in memory now.
func (r *Registry) GlanceHeldAs(id int, subject string) (number int) {
	r.read(func(s *state) {
		c := s.byID(id, &subject)
		if c == nil {
			return
		}
		name := ParseSubject(subject)
		if v := s.holder(Subject{c.holders[0].subject.name.Context, name.Name}, c); v != nil && !v.deleted {
			number = v.number
		}
	})
	return number
}

// Glance is ByID of what is in memory now.
func (r *Registry) Glance(id int, subject *string) (v Version, ok bool) {
	r.read(func(s *state) {
		if c := s.byID(id, subject); c != nil {
			v, ok = s.shown(c, subject), true
		}
	})
	return v, ok
}

// GlanceGUID is a schema by its GUID as it is in memory now, with a version that holds it.
func (r *Registry) GlanceGUID(guid [16]byte) (v Version, ok bool) {
	r.read(func(s *state) {
		if all := s.byHash(guid); len(all) > 0 {
			v, ok = s.shown(all[0], nil), true
		}
	})
	return v, ok
}
