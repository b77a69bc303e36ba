package connect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"millrace/connect/plugin"
	"millrace/connect/task"
)

// validateTime bounds the look at the outside that a validation takes, mostChecks how many of them are under way at
// once.
const (
	validateTime = 15 * time.Second
	mostChecks   = 16
)

// ConfigKey is the definition of a setting, as the REST API tells it.
type ConfigKey struct {
	Name          string   `json:"name"`
	Type          string   `json:"type"`
	Required      bool     `json:"required"`
	Default       *string  `json:"default_value"`
	Importance    string   `json:"importance"`
	Documentation string   `json:"documentation"`
	Group         *string  `json:"group"`
	Width         string   `json:"width"`
	DisplayName   string   `json:"display_name"`
	Dependents    []string `json:"dependents"`
	Order         int      `json:"order"`
}

// ConfigValue is a setting's value in a config, and what is wrong with it.
type ConfigValue struct {
	Name        string   `json:"name"`
	Value       *string  `json:"value"`
	Recommended []string `json:"recommended_values"`
	Errors      []string `json:"errors"`
	Visible     bool     `json:"visible"`
}

// CheckedKey is a setting and its value. Definition is nil where a key is not known and has errors.
type CheckedKey struct {
	Definition *ConfigKey  `json:"definition"`
	Value      ConfigValue `json:"value"`
}

// KeyUse says what becomes of the keys of a config.
type KeyUse struct {
	Understood []string     `json:"understood"`
	Ignored    []IgnoredKey `json:"ignored"`
	Refused    []string     `json:"refused"`
}

// IgnoredKey is a key that does nothing, and why.
type IgnoredKey struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Validation is all that there is to say about a config.
type Validation struct {
	Name       string       `json:"name"`
	ErrorCount int          `json:"error_count"`
	Groups     []string     `json:"groups"`
	Configs    []CheckedKey `json:"configs"`
	Settings   KeyUse       `json:"settings"`
}

// Validate checks a config against the class that name denotes, which its connector.class must be too. Keys in nulls
// have no value. A masked password stands for that of the connector of the same name. The answer has no secret in it.
func (w *Worker) Validate(ctx context.Context, name string, props map[string]string, nulls []string,
) (*Validation, error) {
	class, err := w.classOf(props)
	if err != nil {
		return nil, err
	}
	if asked, err := w.Class(name); err != nil || asked.Class != class.Class {
		return nil, refuse(badRequest, "The config is of the class %.200q, but the path asks for %.200q.",
			props[classKey], name)
	}
	stored := w.storedProps(ctx, props[nameKey])
	whole, masked := w.unmask(props, stored)
	c, err := w.check(ctx, class, whole, masked)
	if err != nil {
		return nil, err
	}
	for _, key := range nulls {
		c.bad(key, "Invalid value null for configuration %s: it must have a value", key)
	}
	return c.report(), nil
}

// classOf is the class of a config. Without one that there is, the config cannot be said anything of.
func (w *Worker) classOf(props map[string]string) (*plugin.Class, error) {
	name := strings.TrimSpace(props[classKey])
	if name == "" {
		return nil, refuse(badRequest, "The config has no %s, so nothing can be said of it.", classKey)
	}
	class, err := w.Class(name)
	if err != nil {
		return nil, refuse(badRequest, "%s: %v.", classKey, err)
	}
	return class, nil
}

// checkConfig checks a config that is about to be stored for a connector, and gives it whole: with its name in it, and
// with the passwords of the stored one, nil if there is none, where the config masks them. It takes as long as the look
// at the outside does. What is wrong is one Error.
func (w *Worker) checkConfig(ctx context.Context, name string, props, stored map[string]string,
) (map[string]string, *plugin.Class, error) {
	if given, ok := props[nameKey]; ok && given != name {
		return nil, nil, refuse(badRequest,
			"The config is of the connector %.300q, but the request is for %.300q.", given, name)
	}
	class, err := w.classOf(props)
	if err != nil {
		return nil, nil, err
	}
	named := maps.Clone(props)
	named[nameKey] = name
	whole, masked := w.unmask(named, stored)
	c, err := w.check(ctx, class, whole, masked)
	if err != nil {
		return nil, nil, err
	}
	if len(c.problems) > 0 {
		return nil, nil, c.refusal(props[classKey])
	}
	return whole, class, nil
}

// check gathers what is wrong with a config, beginning with what was found before.
func (w *Worker) check(ctx context.Context, class *plugin.Class, props map[string]string, before []plugin.Problem,
) (*checked, error) {
	c := w.assemble(class, props)
	c.problems = append(c.problems, before...)
	whole := c.references(w.providers)
	c.checkDefs()
	c.checkChain()
	c.checkConverters()
	c.checkOverrides(w.cfg.Settings.OverridePolicy)
	for _, p := range task.CheckSettings(class.Kind, props[nameKey], c.props) {
		c.another(p)
	}
	c.checkGroup(w.cfg.Settings.GroupID)
	if whole { // else what is outside would be asked with references instead of what they stand for
		seen, err := w.look(ctx, class, c.props)
		if err != nil {
			return nil, err
		}
		for _, p := range seen {
			c.add(p)
		}
	}
	c.scrub()
	return c, nil
}

// look has a connector check a config by what is outside. It waits for its turn, but not for long.
func (w *Worker) look(ctx context.Context, class *plugin.Class, props map[string]string) ([]plugin.Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, validateTime)
	defer cancel()
	select {
	case w.checks <- struct{}{}:
		defer func() { <-w.checks }()
	case <-ctx.Done():
		return nil, refuse(unavailable, "%d configs are being checked already: nothing was done; try again.", mostChecks)
	}
	return class.New().Validate(ctx, maps.Clone(props)), nil
}

// bad notes a problem.
func (c *checked) bad(key, format string, args ...any) {
	c.add(plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

// add notes a problem, once.
func (c *checked) add(p plugin.Problem) {
	if !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

// another notes a problem of a setting that has none yet: the same may have been found in other words.
func (c *checked) another(p plugin.Problem) {
	if !c.hasProblem(p.Key) {
		c.problems = append(c.problems, p)
	}
}

func (c *checked) hasProblem(key string) bool {
	return slices.ContainsFunc(c.problems, func(p plugin.Problem) bool { return p.Key == key })
}

// refusal is the problems as one error.
func (c *checked) refusal(class string) error {
	var out strings.Builder
	fmt.Fprintf(&out, "The connector's config has %d error(s):", len(c.problems))
	for _, p := range c.problems {
		out.WriteString("\n" + p.Message)
		if !strings.Contains(p.Message, p.Key) {
			fmt.Fprintf(&out, " (%s)", p.Key)
		}
	}
	fmt.Fprintf(&out, "\nPUT /connector-plugins/%s/config/validate tells them by setting.", class)
	return &Error{Status: badRequest, Message: out.String()}
}

// report tells all that was found.
func (c *checked) report() *Validation {
	v := &Validation{
		Name: c.given[classKey], ErrorCount: len(c.problems), Groups: []string{}, Configs: []CheckedKey{},
		Settings: KeyUse{Understood: []string{}, Ignored: []IgnoredKey{}, Refused: []string{}},
	}
	faults := map[string][]string{}
	for _, p := range c.problems {
		faults[p.Key] = append(faults[p.Key], p.Message)
	}
	for _, key := range slices.Sorted(maps.Keys(faults)) {
		if _, known := c.places[key]; !known {
			v.Configs = append(v.Configs, CheckedKey{Value: c.value(nil, key, faults[key])})
		}
	}
	for i, key := range configKeys(c.defs) {
		v.Configs = append(v.Configs, CheckedKey{Definition: &key, Value: c.value(&c.defs[i], key.Name, faults[key.Name])})
		if g := c.defs[i].Group; g != "" && !slices.Contains(v.Groups, g) {
			v.Groups = append(v.Groups, g)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.given)) {
		reason, ignored := c.ignored(key)
		switch {
		case faults[key] != nil:
		case ignored:
			v.Settings.Ignored = append(v.Settings.Ignored, IgnoredKey{key, reason})
		default:
			v.Settings.Understood = append(v.Settings.Understood, key)
		}
	}
	v.Settings.Refused = append(v.Settings.Refused, slices.Sorted(maps.Keys(faults))...)
	return v
}

// value is what holds of a setting: what was given, with references in it, or the default.
func (c *checked) value(def *plugin.Def, key string, faults []string) ConfigValue {
	out := ConfigValue{Name: key, Recommended: []string{}, Errors: list(faults), Visible: true}
	given, ok := c.given[key]
	switch {
	case ok:
		shown := c.mask(key, given)
		out.Value = &shown
	case def != nil:
		out.Value = defaultOf(def)
	}
	if def != nil && len(def.Values) > 0 {
		out.Recommended = def.Values
	}
	return out
}

// configKey is a setting as it is told. place is its number in its group where it says none.
func configKey(d *plugin.Def, place int) ConfigKey {
	k := ConfigKey{
		Name: d.Name, Type: string(d.Type), Required: d.Required, Default: defaultOf(d), Importance: string(d.Importance),
		Documentation: d.Doc, Width: d.Width, DisplayName: d.Display, Dependents: list(d.Dependents), Order: d.Order,
	}
	if d.Unused != "" {
		k.Documentation = strings.TrimSpace(k.Documentation + " It does nothing here: " + d.Unused + ".")
	}
	if d.Group != "" {
		k.Group = &d.Group
	}
	if k.Type == "" {
		k.Type = string(plugin.String)
	}
	if k.Importance == "" {
		k.Importance = string(plugin.Medium)
	}
	if k.Width == "" {
		k.Width = "NONE"
	}
	if k.DisplayName == "" {
		k.DisplayName = d.Name
	}
	if k.Order == 0 {
		k.Order = place
	}
	return k
}

// defaultOf is the default of a setting, nil if it has none.
func defaultOf(d *plugin.Def) *string {
	if d.Required || d.Null {
		return nil
	}
	v := d.Default
	if d.Type == plugin.Password && v != "" {
		v = plugin.Hidden
	}
	return &v
}

// list is v, or an empty list, which is no null.
func list(v []string) []string {
	if v == nil {
		return []string{}
	}
	return v
}
