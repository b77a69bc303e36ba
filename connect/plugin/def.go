package plugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Type is the type of a setting, in the words of the REST API.
type Type string

// The types of settings. All values are text; a list's elements are separated by commas.
const (
	Boolean  Type = "BOOLEAN"
	String   Type = "STRING"
	Int      Type = "INT"
	Short    Type = "SHORT"
	Long     Type = "LONG"
	Double   Type = "DOUBLE"
	List     Type = "LIST"
	ClassOf  Type = "CLASS"
	Password Type = "PASSWORD"
)

// Importance is HIGH, MEDIUM or LOW.
type Importance string

// The importances.
const (
	High   Importance = "HIGH"
	Medium Importance = "MEDIUM"
	Low    Importance = "LOW"
)

// Def is the definition of one setting.
type Def struct {
	Name       string
	Type       Type
	Required   bool   // it has no default
	Default    string // unless Required or Null
	Null       bool   // it is optional, and absent by default
	Importance Importance
	Doc        string
	Group      string
	Order      int    // in its group
	Width      string // NONE, SHORT, MEDIUM, LONG; "" is NONE
	Display    string // "": the name
	Dependents []string
	Values     []string                 // what it may be, whatever the case; nil: anything
	Check      func(value string) error // of a value that is given
	Unused     string                   // why it is understood and does nothing here; "" if it does something
}

// Defs are the settings of a plugin, in order.
type Defs []Def

// Problem is what is wrong with a setting. Key is its name.
type Problem struct{ Key, Message string }

// Find is the definition of a setting, nil if it has none.
func (d Defs) Find(name string) *Def {
	if i := slices.IndexFunc(d, func(x Def) bool { return x.Name == name }); i >= 0 {
		return &d[i]
	}
	return nil
}

// Check reports what is wrong with single settings, in the order of the definitions. What has no definition is not
// looked at.
func (d Defs) Check(props map[string]string) (out []Problem) {
	for i := range d {
		def := &d[i]
		value, given := props[def.Name]
		if !given {
			if def.Required {
				out = append(out, Problem{def.Name,
					fmt.Sprintf("Missing required configuration %q which has no default value.", def.Name)})
			}
			continue
		}
		if why := def.fault(strings.TrimSpace(value)); why != "" {
			shown := value
			if def.Type == Password {
				shown = Hidden
			}
			out = append(out, Problem{def.Name, fmt.Sprintf("Invalid value %s for configuration %s: %s", shown, def.Name, why)})
		}
	}
	return out
}

// fault says what is wrong with a trimmed value, "" if nothing is.
func (d *Def) fault(value string) string {
	if err := d.parse(value); err != nil {
		return err.Error()
	}
	if len(d.Values) > 0 && !slices.ContainsFunc(d.Values, func(v string) bool { return strings.EqualFold(v, value) }) {
		return "it must be one of " + strings.Join(d.Values, ", ")
	}
	if d.Check != nil {
		if err := d.Check(value); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Hidden is what is shown in place of a password.
const Hidden = "[hidden]"

func (d *Def) parse(value string) (err error) {
	switch d.Type {
	case Boolean:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return errors.New("it must be true or false")
		}
	case Short:
		_, err = strconv.ParseInt(value, 10, 16)
	case Int:
		_, err = strconv.ParseInt(value, 10, 32)
	case Long:
		_, err = strconv.ParseInt(value, 10, 64)
	case Double:
		_, err = strconv.ParseFloat(value, 64)
	}
	if err != nil {
		return fmt.Errorf("it must be a number of type %s", d.Type)
	}
	return nil
}

// Settings are values of settings that have passed Check, with their defaults.
type Settings struct {
	defs   map[string]*Def
	values map[string]string
}

// Settings reads props by the definitions. Asking for a setting without a definition panics.
func (d Defs) Settings(props map[string]string) Settings {
	s := Settings{defs: make(map[string]*Def, len(d)), values: maps.Clone(props)}
	for i := range d {
		s.defs[d[i].Name] = &d[i]
	}
	return s
}

// Given says whether a setting is there, and the value if it is.
func (s Settings) Given(name string) (string, bool) {
	v, ok := s.values[name]
	return v, ok
}

// String is a setting's value, trimmed; "" of an optional one that is absent.
func (s Settings) String(name string) string {
	def, ok := s.defs[name]
	if !ok {
		panic("setting " + name + " has no definition")
	}
	if v, given := s.values[name]; given {
		return strings.TrimSpace(v)
	}
	return def.Default
}

// Lower is String in lower case, for values of which the case does not matter.
func (s Settings) Lower(name string) string { return strings.ToLower(s.String(name)) }

// Bool is a setting's value.
func (s Settings) Bool(name string) bool { return strings.EqualFold(s.String(name), "true") }

// Int is a setting's value; 0 of an optional one that is absent.
func (s Settings) Int(name string) int { return int(s.Int64(name)) }

// Int64 is a setting's value; 0 of an optional one that is absent.
func (s Settings) Int64(name string) int64 {
	n, _ := strconv.ParseInt(s.String(name), 10, 64) // it was checked
	return n
}

// Float is a setting's value.
func (s Settings) Float(name string) float64 {
	n, _ := strconv.ParseFloat(s.String(name), 64) // it was checked
	return n
}

// Millis is a setting's value as a duration; the setting counts milliseconds.
func (s Settings) Millis(name string) time.Duration {
	return time.Duration(s.Int64(name)) * time.Millisecond
}

// List is a setting's value as its elements, trimmed; empty ones are left out.
func (s Settings) List(name string) (out []string) {
	for e := range strings.SplitSeq(s.String(name), ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
