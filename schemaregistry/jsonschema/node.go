package jsonschema

import "sync/atomic"

// node is a schema, read: what its keywords say. Keywords that its draft does not have are not in it.
type node struct {
	val    *value
	res    *resource
	always verdict // of a boolean schema

	ref     *node // $ref; up to draft 7 nothing else counts then
	dynamic *dynamicRef
	types   []string // nil: any
	list    bool     // types was a list
	enum    *valueSet
	con     *value // const
	not     *node
	cond    *condition

	combined [3][]*node // by criterion; nil where the keyword is absent

	str *stringWords
	num *numberWords
	arr *arrayWords
	obj *objectWords
}

type verdict uint8

const (
	depends verdict = iota
	alwaysTrue
	alwaysFalse
)

// criterion is a keyword that combines schemas.
type criterion uint8

const (
	allOf criterion = iota
	anyOf
	oneOf
)

func (c criterion) String() string { return [...]string{"allOf", "anyOf", "oneOf"}[c] }

// dynamicRef is a $dynamicRef or $recursiveRef: what it leads to unless a schema on the way has the anchor too.
type dynamicRef struct {
	keyword string
	to      *node
	anchor  string              // "": of $recursiveRef
	bound   bool                // whether the way matters
	from    map[*resource]*node // what each resource with the anchor makes it lead to
}

type condition struct{ test, then, otherwise *node }

type stringWords struct {
	minLength, maxLength *int
	pattern              *pattern
	format               string
}

type numberWords struct {
	minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf *limit
	// exclusiveLow and exclusiveHigh are draft 4's flags on minimum and maximum.
	exclusiveLow, exclusiveHigh bool
}

// limit is a number of a schema.
type limit struct {
	decimal
	text string
}

type arrayWords struct {
	all                      *node   // items of every place
	tuple                    []*node // items by place
	additional               *node   // of what is not in the tuple; also where, for want of a tuple, it does not count
	rest                     *node   // of what is not in the tuple, as values are checked
	hasTuple                 bool
	contains                 *node
	minContains, maxContains *int
	minItems, maxItems       *int
	unique                   bool
	unevaluated              *node
}

type objectWords struct {
	props                        []property
	index                        map[string]int // of many props
	required                     []string
	patterns                     []patternProperty
	additional                   *node
	names                        *node // propertyNames
	minProperties, maxProperties *int
	needs                        []dependency // names that need other names, or a schema
	unevaluated                  *node
}

type property struct {
	name   string
	schema *node
}

type patternProperty struct {
	pattern *pattern
	schema  *node
}

type dependency struct {
	name   string
	names  []string
	schema *node // nil: names
}

func (o *objectWords) prop(name string) *node {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return o.props[i].schema
		}
		return nil
	}
	for i := range o.props {
		if o.props[i].name == name {
			return o.props[i].schema
		}
	}
	return nil
}

// pattern is a regular expression of a schema. Its program is written when it is first needed.
type pattern struct {
	re   *regex
	size *atomic.Int64 // of all programs of the schema together
	prog atomic.Pointer[program]
}

// maxPrograms is how many instructions a schema keeps. Further programs are written anew each time.
const maxPrograms = 400_000

// match says whether the text holds a match anywhere. It takes steps also for writing the program.
func (p *pattern) match(s string, steps *int) (bool, error) {
	if *steps < 0 {
		return false, errRegexSteps
	}
	prog := p.prog.Load()
	if prog == nil {
		var err error
		prog, err = p.re.compile()
		if err != nil {
			*steps -= maxProgram
			return false, err
		}
		*steps -= 2 * len(prog.code)
		if p.size.Add(int64(len(prog.code))) <= maxPrograms {
			p.prog.Store(prog)
		} else {
			p.size.Add(-int64(len(prog.code)))
		}
	}
	return prog.match(s, steps)
}
