package connect

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"millrace/connect/convert"
	"millrace/connect/plugin"
	"millrace/connect/provider"
	"millrace/connect/transform"
)

// checked is a config on its way through validation: the definitions of all settings that a connector with this config
// has, and what is wrong with it.
type checked struct {
	class *plugin.Class
	given map[string]string // as it was given, but whole: with references
	props map[string]string // with what these stand for

	defs     plugin.Defs    // in order: the runner's, the chain's, the class's, the converters', the overrides'
	places   map[string]int // of defs by name
	chain    []link         // transforms and predicates
	convert  []converter
	problems []plugin.Problem
	secrets  map[string]string // what references stand for, to the references
}

// link is a transform or a predicate in a config.
type link struct {
	prefix string
	info   *plugin.Info // nil: there is none of that class
	err    error        // why not
	kind   plugin.Kind
}

// converter is a converter that a config names, or gives settings.
type converter struct {
	key   string // key.converter, value.converter or header.converter
	class string
	info  *plugin.Info
	err   error
}

// assemble finds the definitions of the settings that a connector has with a config. It looks at nothing outside.
func (w *Worker) assemble(class *plugin.Class, props map[string]string) *checked {
	c := &checked{class: class, given: props, props: props, places: map[string]int{}}
	c.define("", "", frameDefs(class.Kind))
	if class.Kind == plugin.SourceKind {
		c.defineCreation()
	}
	c.defineChain(w.catalog, transformsKey, plugin.TransformKind)
	c.defineChain(w.catalog, predicatesKey, plugin.PredicateKind)
	c.define("", "", class.Defs)
	c.defineConverters(w)
	c.define("", "", overrideDefs(class.Kind, props))
	return c
}

// define adds definitions under a prefix, and in a group if one is named. What is defined already stays, unless a class
// says more about one of the runner's settings.
func (c *checked) define(prefix, group string, defs plugin.Defs) {
	for _, d := range defs {
		d.Name = prefix + d.Name
		if prefix != "" {
			d.Dependents = slices.Clone(d.Dependents)
			for i := range d.Dependents {
				d.Dependents[i] = prefix + d.Dependents[i]
			}
		}
		if group != "" {
			d.Group, d.Order = group, 0
		}
		if at, ok := c.places[d.Name]; ok {
			d.Group, d.Order = c.defs[at].Group, c.defs[at].Order
			c.defs[at] = d
			continue
		}
		c.places[d.Name] = len(c.defs)
		c.defs = append(c.defs, d)
	}
}

// defineCreation adds the settings of groups of topics, if there are such groups.
func (c *checked) defineCreation() {
	groups := elements(c.props[creationKey])
	used := len(groups) > 0
	for key := range c.props {
		used = used || strings.HasPrefix(key, "topic.creation.default.")
	}
	if !used {
		return
	}
	c.define("topic.creation.default.", topicsGroup, creationDefs("default"))
	for _, g := range groups {
		if g != "default" {
			c.define("topic.creation."+g+".", topicsGroup, creationDefs(g))
		}
	}
}

// defineChain adds the settings of transforms or predicates.
func (c *checked) defineChain(all *catalog, list string, kind plugin.Kind) {
	own, title := transformDefs(), "Transforms: "
	if kind == plugin.PredicateKind {
		own, title = predicateDefs(), "Predicates: "
	}
	aliases := elements(c.props[list])
	if len(aliases) > mostAliases {
		aliases = nil // which is told already
	}
	for _, alias := range aliases {
		l := link{prefix: list + "." + alias + ".", kind: kind}
		c.define(l.prefix, title+alias, own)
		if class := strings.TrimSpace(c.props[l.prefix+"type"]); class != "" {
			if l.info, l.err = all.other(class, strings.TrimSuffix(list, "s"), kind); l.err == nil {
				c.define(l.prefix, title+alias, l.info.Defs)
			}
		}
		c.chain = append(c.chain, l)
	}
}

// defineConverters adds the settings of the converters that the config names, or gives settings: those go to the
// worker's own where the config names none.
func (c *checked) defineConverters(w *Worker) {
	own := map[string]string{
		"key": w.cfg.Settings.KeyConverter, "value": w.cfg.Settings.ValueConverter, "header": w.cfg.Settings.HeaderConverter,
	}
	for _, part := range []string{"key", "value", "header"} {
		key := part + ".converter"
		class := strings.TrimSpace(c.props[key])
		if class == "" && len(below(c.props, key+".")) > 0 {
			class = own[part]
		}
		if class == "" {
			continue
		}
		kinds := []plugin.Kind{plugin.ConverterKind}
		if part == "header" {
			kinds = []plugin.Kind{plugin.HeaderConverterKind, plugin.ConverterKind}
		}
		cv := converter{key: key, class: class}
		if cv.info, cv.err = w.catalog.other(class, key, kinds...); cv.err == nil {
			c.define(key+".", "", cv.info.Defs)
		}
		c.convert = append(c.convert, cv)
	}
}

// references puts what references stand for in their place. False: not all stand for something.
func (c *checked) references(p *provider.Providers) bool {
	props, problems := p.Resolve(c.given)
	c.props = props
	for _, r := range problems {
		c.bad(r.Setting, "Invalid value %s for configuration %s: %s", r.Reference, r.Setting, r.Why)
	}
	c.secrets = map[string]string{}
	for _, value := range c.given {
		for _, ref := range references(value) {
			one, _ := p.Resolve(map[string]string{"": ref})
			if one[""] != ref {
				c.secrets[one[""]] = ref
			}
		}
	}
	return len(problems) == 0
}

// checkDefs checks each setting by itself.
func (c *checked) checkDefs() {
	for _, p := range c.defs.Check(c.props) {
		c.another(p)
	}
}

// checkChain checks that transforms and predicates can be made.
func (c *checked) checkChain() {
	predicates := elements(c.props[predicatesKey])
	for _, l := range c.chain {
		at := l.prefix + "type"
		if l.err != nil {
			c.bad(at, "Invalid value %s for configuration %s: %v", c.props[at], at, l.err)
		}
		if l.kind == plugin.TransformKind {
			c.checkPredicateOf(l, predicates)
		}
		if l.info == nil || c.anyProblem(l.prefix) {
			continue
		}
		own := below(c.props, l.prefix)
		var err error
		if l.kind == plugin.TransformKind {
			_, err = transform.New(l.info.Class, own)
		} else {
			_, err = transform.NewPredicate(l.info.Class, own)
		}
		if err != nil {
			c.bad(at, "%s: %v", strings.TrimSuffix(l.prefix, "."), err)
		}
	}
}

func (c *checked) checkPredicateOf(l link, predicates []string) {
	at := l.prefix + "predicate"
	switch name := strings.TrimSpace(c.props[at]); {
	case name != "" && !slices.Contains(predicates, name):
		c.bad(at, "Invalid value %s for configuration %s: it is not one of the names in %s", name, at, predicatesKey)
	case name == "" && c.given[l.prefix+"negate"] != "":
		c.bad(l.prefix+"negate", "Invalid value %s for configuration %s: there is no %s that could be negated",
			c.given[l.prefix+"negate"], l.prefix+"negate", at)
	}
}

// anyProblem says whether any setting with a prefix has one.
func (c *checked) anyProblem(prefix string) bool {
	return slices.ContainsFunc(c.problems, func(p plugin.Problem) bool { return strings.HasPrefix(p.Key, prefix) })
}

// checkConverters checks that converters can be made.
func (c *checked) checkConverters() {
	for _, cv := range c.convert {
		if cv.err != nil {
			c.bad(cv.key, "Invalid value %s for configuration %s: %v", cv.class, cv.key, cv.err)
			continue
		}
		if cv.key == "header.converter" {
			continue // whose settings were checked one by one
		}
		for _, p := range convert.Check(cv.info.Class, below(c.props, cv.key+".")) {
			p.Key = cv.key + "." + p.Key
			c.another(p)
		}
	}
}

// below are the settings with a prefix, without it.
func below(props map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range props {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out[rest] = v
		}
	}
	return out
}

// ignored says why a key that was given does nothing, if it does nothing.
func (c *checked) ignored(key string) (reason string, is bool) {
	if at, ok := c.places[key]; ok {
		return c.defs[at].Unused, c.defs[at].Unused != ""
	}
	if c.class.Dynamic != nil && c.class.Dynamic(key) {
		return "", false
	}
	if prefix, _ := overridePrefix(key); prefix != "" {
		return "the client inside the server has no such setting", true
	}
	if g, ok := strings.CutPrefix(key, "topic.creation."); ok && c.class.Kind == plugin.SourceKind {
		for _, name := range append(elements(c.props[creationKey]), "default") {
			if strings.HasPrefix(g, name+".") {
				return "", false // a config of the topics
			}
		}
	}
	return c.unknown(key), true
}

// unknown says that nobody reads a key, and which one might be meant.
func (c *checked) unknown(key string) string {
	best, least := "", 3
	for _, d := range c.defs {
		if n := distance(key, d.Name, least); n < least {
			best, least = d.Name, n
		}
	}
	if _, taken := c.given[best]; best == "" || taken {
		return "no setting of this connector has this name"
	}
	return "no setting of this connector has this name; " + best + " is one"
}

// distance is how many letters must be put in, taken out or changed to make b of a; most if it is that or more.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, before+1)
		}
	}
	return min(row[len(b)], most)
}

// references are the parts of a value that refer to something.
func references(value string) (out []string) {
	for {
		at := strings.Index(value, "${")
		if at < 0 {
			return out
		}
		end := strings.IndexByte(value[at:], '}')
		if end < 0 {
			return out
		}
		inner := value[at : at+end+1]
		inner = inner[strings.LastIndex(inner, "${"):]
		if provider.Has(inner) {
			out = append(out, inner)
		}
		value = value[at+end+1:]
	}
}

// A text that is shorter is a word like any other: plainSecret is for passwords, shortSecret for what references stand
// for.
const (
	plainSecret = 8
	shortSecret = 3
)

// scrub takes out of the messages what references stand for, and passwords that a connector has put there.
func (c *checked) scrub() {
	hide := c.hidden()
	for i := range c.problems {
		c.problems[i].Message = hide.Replace(c.problems[i].Message)
	}
}

// hidden puts what may be told in the place of what references stand for, and of passwords.
func (c *checked) hidden() *strings.Replacer {
	told := map[string]string{}
	add := func(secret, instead string, least int) {
		if secret = strings.TrimSpace(secret); len(secret) < least {
			return
		}
		quoted := strconv.Quote(secret) // as messages have it
		told[secret], told[quoted[1:len(quoted)-1]] = instead, instead
	}
	for key, value := range c.props {
		if shown := c.mask(key, value); shown != value {
			add(value, shown, plainSecret)
		}
	}
	for secret, ref := range c.secrets {
		add(secret, ref, shortSecret)
	}
	var pairs []string
	for _, secret := range slices.SortedFunc(maps.Keys(told), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b)) // the longest counts where two begin at one place
	}) {
		pairs = append(pairs, secret, told[secret])
	}
	return strings.NewReplacer(pairs...)
}
