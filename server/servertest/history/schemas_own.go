package history

import (
	"fmt"
	"slices"
)

// ownSubject is a subject that one session alone changes: what it holds is known after each request, up to one whose
// outcome is not.
type ownSubject struct {
	versions []ownVersion // ascending
	gone     []ownVersion // removed for good
	level    string
	last     *Op // that changed something
	murky    bool
}

type ownVersion struct {
	number  int
	text    string
	deleted bool
}

// S2, S3: who changes a subject alone sees what it did, nothing else and nothing less. An accepted version satisfies
// the level, and only one that does not is refused.
func (c *schemas) own() *Violation {
	subjects := map[string]*ownSubject{}
	for _, o := range c.ops {
		if !o.Schema.Own {
			continue
		}
		s := subjects[o.Schema.Subject]
		if s == nil {
			s = &ownSubject{level: "NONE"}
			subjects[o.Schema.Subject] = s
		}
		if s.murky {
			continue
		}
		if invariant, text := s.step(o); invariant != "" {
			return &Violation{invariant, fmt.Sprintf("%s; the subject has %+v", text, s.versions), []*Op{s.last, o}}
		}
	}
	return nil
}

// step holds an operation to what is known, and says what is wrong.
func (s *ownSubject) step(o *Op) (invariant, text string) {
	t := o.Schema
	changes := o.Kind == Register || o.Kind == Remove || o.Kind == SetLevel
	if changes && o.Outcome == Info {
		s.murky = true
		return "", ""
	}
	switch o.Kind {
	case Register:
		invariant, text = s.register(o)
	case Remove:
		invariant, text = s.remove(o)
	case SetLevel:
		if o.Outcome == OK {
			s.level = t.Level
		}
	case ReadsLevel:
		if o.Outcome == OK && t.Fresh && t.Level != s.level {
			return "S3", fmt.Sprintf("the level is %q, not %q", s.level, t.Level)
		}
	case Versions:
		if want := s.live(); t.Fresh && (o.Outcome == OK || t.Missing) && !slices.Equal(t.Numbers, want) {
			return "S3", fmt.Sprintf("the versions are %v, not %v", want, t.Numbers)
		}
	case ByVersion:
		return s.read(o)
	}
	if changes && o.Outcome == OK {
		s.last = o
	}
	return invariant, text
}

func (s *ownSubject) live() (out []int) {
	for _, v := range s.versions {
		if !v.deleted {
			out = append(out, v.number)
		}
	}
	return out
}

func (s *ownSubject) next() int {
	if n := len(s.versions); n > 0 {
		return s.versions[n-1].number + 1
	}
	return 1
}

func (s *ownSubject) find(number int) *ownVersion {
	for i := range s.versions {
		if s.versions[i].number == number {
			return &s.versions[i]
		}
	}
	return nil
}

func (s *ownSubject) register(o *Op) (invariant, text string) {
	t := o.Schema
	known, latest := 0, ""
	for _, v := range s.versions {
		if !v.deleted {
			if latest = v.text; v.text == t.Text {
				known = v.number
			}
		}
	}
	fits := s.level == "NONE" || latest == "" || known > 0 || !t.Needs
	switch {
	case t.Refused && fits:
		return "S2", "a schema was refused that fits the level " + s.level
	case o.Outcome != OK || known > 0 && t.Version == known:
		return "", ""
	case !t.Fresh && s.was(t.Version, t.Text): // the node did not know better, or it came back
		s.murky = t.Version == s.next()
		return "", ""
	case known > 0:
		return "S2", fmt.Sprintf("a schema that is version %d was made version %d", known, t.Version)
	case !fits:
		return "S2", "a schema was accepted that does not fit the level " + s.level
	}
	if next := s.next(); t.Version != next {
		return "S2", fmt.Sprintf("the next version is %d, not %d", next, t.Version)
	}
	s.versions = slices.DeleteFunc(s.versions, func(v ownVersion) bool { // a schema that comes back leaves its old place
		if v.text == t.Text {
			s.gone = append(s.gone, v)
		}
		return v.text == t.Text
	})
	s.versions = append(s.versions, ownVersion{number: t.Version, text: t.Text})
	return "", ""
}

// was says whether a schema was a version once and is no longer.
func (s *ownSubject) was(number int, text string) bool {
	return slices.ContainsFunc(append(slices.Clone(s.versions), s.gone...), func(v ownVersion) bool {
		return v.number == number && v.text == text
	})
}

func (s *ownSubject) remove(o *Op) (invariant, text string) {
	t := o.Schema
	v := s.find(t.Version)
	can := v != nil && v.deleted == t.Deleted
	switch {
	case o.Outcome == OK && !can:
		return "S3", "a version was removed that was not there to be removed"
	case o.Outcome == Fail && t.Missing && can:
		return "S3", "a version was not there to be removed that is"
	case o.Outcome != OK:
		return "", ""
	case t.Deleted:
		s.gone = append(s.gone, *v)
		s.versions = slices.DeleteFunc(s.versions, func(v ownVersion) bool { return v.number == t.Version })
		if len(s.versions) == 0 {
			s.level = "NONE" // it goes with the last version
		}
	default:
		v.deleted = true
	}
	return "", ""
}

func (s *ownSubject) read(o *Op) (invariant, text string) {
	t := o.Schema
	v := s.find(t.Version)
	there := v != nil && (!v.deleted || t.Deleted)
	switch {
	case !t.Fresh:
	case t.Missing && there:
		return "S3", "a version is there and was not shown"
	case t.Missing:
	case o.Outcome == OK && !there:
		return "S3", "a version was shown that is not there"
	case o.Outcome == OK && v.text != t.Text:
		return "S2", fmt.Sprintf("the version is %q, not %q", v.text, t.Text)
	}
	return "", ""
}
