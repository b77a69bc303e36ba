package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The kinds of operations of the schema registry.
const (
	Register   Kind = "register"    // a schema became a version of a subject, or is one
	LookUp     Kind = "look-up"     // a schema was looked for in a subject
	ByID       Kind = "by-id"       // a schema was read by its id
	ByVersion  Kind = "by-version"  // a schema was read by its version
	Versions   Kind = "versions"    // the versions of a subject were listed
	Remove     Kind = "remove"      // a version was deleted
	SetLevel   Kind = "set-level"   // the level of a subject was set
	ReadsLevel Kind = "reads-level" // the level of a subject was read
)

// Schema is what is more about an operation of the schema registry.
type Schema struct {
	Context string `json:"context"`
	Subject string `json:"subject"` // with its context
	Text    string `json:"text,omitempty"`
	ID      int    `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
	Numbers []int  `json:"numbers,omitempty"` // of versions that were listed
	Level   string `json:"level,omitempty"`
	// Deleted says that what is softly deleted counts too, or that a removal is for good.
	Deleted bool `json:"deleted,omitempty"`
	// Missing says that the answer was that there is no such thing; Refused, that the schema is incompatible.
	Missing bool `json:"missing,omitempty"`
	Refused bool `json:"refused,omitempty"`
	// Fresh says that the answer must show everything that was acknowledged before.
	Fresh bool `json:"fresh,omitempty"`
	// Kept says that nobody removes the schema, or what is in the subject, for good.
	Kept bool `json:"kept,omitempty"`
	// Own says that the operation's session alone changes the subject, one request after the other.
	Own bool `json:"own,omitempty"`
	// Needs says that no schema but itself is compatible with data written before.
	Needs bool `json:"needs,omitempty"`
}

// String tells the schema for Op.String.
func (s *Schema) String() string {
	out := fmt.Sprintf("subject %q version %d id %d text %q", s.Subject, s.Version, s.ID, s.Text)
	if s.Numbers != nil {
		out += fmt.Sprintf(" versions %v", s.Numbers)
	}
	for name, set := range map[string]bool{"deleted": s.Deleted, "missing": s.Missing, "refused": s.Refused} {
		if set {
			out += " " + name
		}
	}
	return strings.TrimSpace(out + " " + s.Level)
}

// schemas is the state that the passes of CheckSchemas share.
type schemas struct {
	ops   []*Op
	known map[schemaPlace]schemaEvidence // when it was first certain that something is there
}

// schemaPlace is something that stays once it is there: a schema under its id in a context, or a version of a subject.
type schemaPlace struct {
	where  string
	number int
	isID   bool
}

type schemaEvidence struct {
	since time.Duration
	op    *Op
}

// CheckSchemas gives what is wrong with what a schema registry did, as Check does for the rest.
func CheckSchemas(ops []*Op) (found []*Violation) {
	c := &schemas{known: map[schemaPlace]schemaEvidence{}}
	for _, o := range ops {
		if o.Schema != nil {
			c.ops = append(c.ops, o)
		}
	}
	for _, pass := range []func() *Violation{c.ids, c.one, c.numbers, c.fresh, c.own} {
		if v := pass(); v != nil {
			found = append(found, v)
		}
	}
	return found
}

// S1: an id of a context is one schema for ever.
func (c *schemas) ids() *Violation {
	is := map[schemaPlace]*Op{}
	for _, o := range c.ops {
		s := o.Schema
		if o.Outcome != OK || s.ID == 0 || s.Text == "" {
			continue
		}
		at := schemaPlace{s.Context, s.ID, true}
		if was := is[at]; was == nil {
			is[at] = o
		} else if was.Schema.Text != s.Text {
			text := fmt.Sprintf("id %d of context %q is %q and %q", s.ID, s.Context, was.Schema.Text, s.Text)
			return &Violation{"S1", text, []*Op{was, o}}
		}
	}
	return nil
}

// S1: the same schemas of a context share an id.
func (c *schemas) one() *Violation {
	type same struct{ context, text string }
	has := map[same]*Op{}
	for _, o := range c.ops {
		s := o.Schema
		if o.Outcome != OK || s.ID == 0 || s.Text == "" || !s.Kept {
			continue
		}
		if was := has[same{s.Context, s.Text}]; was == nil {
			has[same{s.Context, s.Text}] = o
		} else if was.Schema.ID != s.ID {
			text := fmt.Sprintf("%q has the ids %d and %d in context %q", s.Text, was.Schema.ID, s.ID, s.Context)
			return &Violation{"S1", text, []*Op{was, o}}
		}
	}
	return nil
}

// S2: a version of a subject never becomes another schema.
func (c *schemas) numbers() *Violation {
	is := map[schemaPlace]*Op{}
	for _, o := range c.ops {
		s := o.Schema
		if o.Outcome != OK || s.Version == 0 || s.Text == "" || !s.Kept || s.Subject == "" {
			continue
		}
		at := schemaPlace{where: s.Subject, number: s.Version}
		if was := is[at]; was == nil {
			is[at] = o
		} else if was.Schema.Text != s.Text {
			text := fmt.Sprintf("version %d of %q is %q and %q", s.Version, s.Subject, was.Schema.Text, s.Text)
			return &Violation{"S2", text, []*Op{was, o}}
		}
	}
	return nil
}

// S3: what was told to somebody is told to everybody who asks afterwards.
func (c *schemas) fresh() *Violation {
	for _, o := range c.ops {
		s := o.Schema
		if o.Outcome != OK || !s.Kept {
			continue
		}
		if s.ID > 0 {
			c.note(schemaPlace{s.Context, s.ID, true}, o)
		}
		if s.Version > 0 && s.Subject != "" {
			c.note(schemaPlace{where: s.Subject, number: s.Version}, o)
		}
		for _, n := range s.Numbers {
			c.note(schemaPlace{where: s.Subject, number: n}, o)
		}
	}
	for _, o := range c.ops {
		if o.Schema.Fresh && o.Schema.Kept {
			if v := c.behind(o); v != nil {
				return v
			}
		}
	}
	return nil
}

// note takes down that something was there when an operation returned.
func (c *schemas) note(at schemaPlace, o *Op) {
	if was, ok := c.known[at]; !ok || o.Return < was.since {
		c.known[at] = schemaEvidence{o.Return, o}
	}
}

// behind says what an answer lacks.
func (c *schemas) behind(o *Op) *Violation {
	s := o.Schema
	lacks := func(at schemaPlace) *Violation {
		was, ok := c.known[at]
		if !ok || was.since >= o.Invoke {
			return nil
		}
		return &Violation{"S3", fmt.Sprintf("number %d of %q was acknowledged and is not shown", at.number, at.where),
			[]*Op{was.op, o}}
	}
	switch {
	case o.Kind == ByID && s.Missing:
		return lacks(schemaPlace{s.Context, s.ID, true})
	case o.Kind == ByVersion && s.Missing && s.Deleted:
		return lacks(schemaPlace{where: s.Subject, number: s.Version})
	case o.Kind == LookUp && s.Missing && s.Deleted:
		for _, was := range c.ops {
			t := was.Schema
			if was.Kind == Register && was.Outcome == OK && was.Return < o.Invoke && t.Subject == s.Subject && t.Text == s.Text {
				return &Violation{"S3", fmt.Sprintf("%q was registered and is not found", s.Text), []*Op{was, o}}
			}
		}
	case o.Kind == Versions && s.Deleted && (o.Outcome == OK || s.Missing):
		for _, at := range sortedPlaces(c.known) {
			if at.isID || at.where != s.Subject || slices.Contains(s.Numbers, at.number) {
				continue
			}
			if v := lacks(at); v != nil {
				return v
			}
		}
	}
	return nil
}

func sortedPlaces(m map[schemaPlace]schemaEvidence) []schemaPlace {
	return slices.SortedFunc(maps.Keys(m), func(a, b schemaPlace) int {
		if a.where != b.where {
			return strings.Compare(a.where, b.where)
		}
		return a.number - b.number
	})
}
