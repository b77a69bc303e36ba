package jsonschema

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"millrace/api/rawjson"
)

// kind is what a JSON value is.
type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

func (k kind) String() string {
	return [...]string{"null", "boolean", "number", "string", "array", "object"}[k]
}

// value is a JSON value as it was written, but for white space, repeated members and needless escapes. It does not
// change once it is read.
type value struct {
	kind kind
	raw  bool      // of a string: text is what stood between the quotes, as it holds half of a surrogate pair
	text string    // "true", "false", a number as it was spelt, what a string stands for
	sub  *children // of an array or object that is not empty
}

// children are the elements of an array or the members of an object, in the order of the text. A repeated member
// stands where it stood first, with the last of its values.
type children struct {
	items []value
	names []string       // of an object, one for each item
	index map[string]int // of a large object
}

// linear is how many members are searched one by one.
const linear = 16

func (v *value) items() []value {
	if v.sub == nil {
		return nil
	}
	return v.sub.items
}

func (v *value) names() []string {
	if v.sub == nil {
		return nil
	}
	return v.sub.names
}

// member is the member of an object by that name, nil if there is none or v is no object.
func (v *value) member(name string) *value {
	if v.kind != object || v.sub == nil {
		return nil
	}
	if v.sub.index != nil {
		if i, ok := v.sub.index[name]; ok {
			return &v.sub.items[i]
		}
		return nil
	}
	for i, n := range v.sub.names {
		if n == name {
			return &v.sub.items[i]
		}
	}
	return nil
}

// str is the text of a string member, "" if there is none.
func (v *value) str(name string) string {
	if m := v.member(name); m != nil && m.kind == text {
		return m.text
	}
	return ""
}

// readValue reads a text that must be one JSON value and nothing else.
func readValue(data []byte, maxDepth int) (*value, error) {
	doc, _, err := rawjson.Document(data, maxDepth)
	if err != nil {
		return nil, err
	}
	r := reader{text: string(doc)}
	v := r.value()
	return &v, nil
}

// reader reads a text that is known to be JSON.
type reader struct {
	text  string
	pos   int
	items []value  // of the containers that are open, the innermost last
	names []string // likewise
}

func (r *reader) skip() {
	for r.pos < len(r.text) && r.text[r.pos] <= ' ' {
		r.pos++
	}
}

func (r *reader) value() value {
	r.skip()
	switch c := r.text[r.pos]; c {
	case '{', '[':
		return r.container(c)
	case '"':
		s, raw := r.string()
		return value{kind: text, text: s, raw: raw}
	case 'n':
		r.pos += len("null")
		return value{kind: null, text: "null"}
	case 't':
		r.pos += len("true")
		return value{kind: boolean, text: "true"}
	case 'f':
		r.pos += len("false")
		return value{kind: boolean, text: "false"}
	default:
		start := r.pos
		for r.pos < len(r.text) && strings.IndexByte("+-.0123456789Ee", r.text[r.pos]) >= 0 {
			r.pos++
		}
		return value{kind: number, text: r.text[start:r.pos]}
	}
}

// string takes a string; raw says that it is not decoded.
func (r *reader) string() (s string, raw bool) {
	start := r.pos
	r.pos++
	for escaped := false; ; {
		switch r.text[r.pos] {
		case '\\':
			escaped = true
			r.pos += 2
		case '"':
			r.pos++
			if !escaped {
				return r.text[start+1 : r.pos-1], false
			}
			if b, ok := rawjson.Unquote(nil, []byte(r.text[start:r.pos])); ok {
				return string(b), false
			}
			return r.text[start+1 : r.pos-1], true
		default:
			r.pos++
		}
	}
}

func (r *reader) container(open byte) value {
	r.pos++
	item, name := len(r.items), len(r.names)
	for {
		r.skip()
		switch c := r.text[r.pos]; {
		case c == '}' || c == ']':
			r.pos++
			v := value{kind: array}
			if open == '{' {
				v.kind = object
			}
			if len(r.items) > item {
				v.sub = newChildren(r.items[item:], r.names[name:])
			}
			r.items, r.names = r.items[:item], r.names[:name]
			return v
		case c == ',':
			r.pos++
		default:
			if open == '{' {
				n, _ := r.string()
				r.names = append(r.names, n)
				r.skip()
				r.pos++ // the colon
			}
			v := r.value()
			r.items = append(r.items, v)
		}
	}
}

func newChildren(items []value, names []string) *children {
	c := &children{}
	if len(names) == 0 {
		c.items = slices.Clone(items)
		return c
	}
	if len(names) > linear {
		c.index = make(map[string]int, len(names))
	}
	c.items, c.names = make([]value, 0, len(items)), make([]string, 0, len(names))
	for i, n := range names {
		at, ok := c.find(n)
		if ok {
			c.items[at] = items[i]
			continue
		}
		if c.index != nil {
			c.index[n] = len(c.names)
		}
		c.items, c.names = append(c.items, items[i]), append(c.names, n)
	}
	return c
}

func (c *children) find(name string) (int, bool) {
	if c.index != nil {
		i, ok := c.index[name]
		return i, ok
	}
	i := slices.Index(c.names, name)
	return i, i >= 0
}

// append prints the value compactly; sorted orders the members of each object by their names.
func (v *value) append(dst []byte, sorted bool) []byte {
	switch v.kind {
	case object:
		return v.appendObject(dst, sorted)
	case array:
		dst = append(dst, '[')
		for i := range v.items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.sub.items[i].append(dst, sorted)
		}
		return append(dst, ']')
	case text:
		if v.raw {
			return append(append(append(dst, '"'), v.text...), '"')
		}
		return appendString(dst, v.text)
	default:
		return append(dst, v.text...)
	}
}

func (v *value) appendObject(dst []byte, sorted bool) []byte {
	names := v.names()
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	if sorted {
		slices.SortFunc(order, func(a, b int) int { return compareUTF16(names[a], names[b]) })
	}
	dst = append(dst, '{')
	for n, i := range order {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, names[i]), ':')
		dst = v.sub.items[i].append(dst, sorted)
	}
	return append(dst, '}')
}

// appendString escapes what must be escaped, with capital digits where other registries have them.
func appendString(dst []byte, s string) []byte {
	start := len(dst)
	dst = rawjson.AppendString(dst, s)
	for i := start; i+5 < len(dst); i++ {
		if dst[i] != '\\' {
			continue
		}
		if i++; dst[i] == 'u' && dst[i+4] >= 'a' {
			dst[i+4] -= 'a' - 'A'
		}
	}
	return dst
}

// compareUTF16 orders texts by their UTF-16 units.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			if (ra > 0xffff) != (rb > 0xffff) {
				return cmp.Compare(firstUnit(ra), firstUnit(rb))
			}
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

func firstUnit(r rune) rune {
	if r > 0xffff {
		return 0xd800
	}
	return r
}

// equal says whether two values are the same as JSON Schema sees it: the order of members and the spelling of numbers
// do not count.
func (v *value) equal(o *value) bool {
	if v.kind != o.kind || v.raw != o.raw || len(v.items()) != len(o.items()) {
		return false
	}
	switch v.kind {
	case number:
		return v.text == o.text || readDecimal(v.text) == readDecimal(o.text)
	case array:
		for i := range v.items() {
			if !v.sub.items[i].equal(&o.sub.items[i]) {
				return false
			}
		}
		return true
	case object:
		for i, n := range v.names() {
			m := o.member(n)
			if m == nil || !v.sub.items[i].equal(m) {
				return false
			}
		}
		return true
	default:
		return v.text == o.text
	}
}

// hash is the same for equal values.
func (v *value) hash(seed maphash.Seed) uint64 {
	switch v.kind {
	case number:
		d := readDecimal(v.text)
		return maphash.String(seed, d.digits) + uint64(d.exp)
	case array, object:
		return v.fold(seed, func(inner *value) uint64 { return inner.hash(seed) })
	default:
		return maphash.String(seed, v.text) + uint64(v.kind)
	}
}

// fold makes the hash of an array or object from the hashes of what is in it.
func (v *value) fold(seed maphash.Seed, hash func(inner *value) uint64) uint64 {
	sum := uint64(v.kind)
	for i := range v.items() {
		inner := hash(&v.sub.items[i])
		if v.kind == array {
			sum = sum*31 + inner
		} else {
			sum += maphash.String(seed, v.sub.names[i]) * (inner | 1)
		}
	}
	return sum
}

// valueSet are different values. It is made of its source when it is first needed.
type valueSet struct {
	source []value
	seed   maphash.Seed

	once   sync.Once
	values []*value // in the order of the text
	hashes []uint64 // of the values
	first  map[uint64]int32
	next   []int32 // of the values: the next one with the same hash, -1 if there is none
}

func (s *valueSet) fill() {
	s.once.Do(func() {
		s.first = make(map[uint64]int32, len(s.source))
		for i := range s.source {
			v := &s.source[i]
			h := v.hash(s.seed)
			if s.find(v, h) {
				continue
			}
			next, ok := s.first[h]
			if !ok {
				next = -1
			}
			s.first[h] = int32(len(s.values))
			s.values, s.hashes, s.next = append(s.values, v), append(s.hashes, h), append(s.next, next)
		}
	})
}

func (s *valueSet) find(v *value, hash uint64) bool {
	i, ok := s.first[hash]
	for ; ok && i >= 0; i = s.next[i] {
		if s.values[i].equal(v) {
			return true
		}
	}
	return false
}

func (s *valueSet) has(v *value) bool {
	s.fill()
	return s.find(v, v.hash(s.seed))
}

// same says at once that two sets were written alike.
func (s *valueSet) same(o *valueSet) bool {
	if len(s.source) != len(o.source) {
		return false
	}
	for i := range s.source {
		if !s.source[i].equal(&o.source[i]) {
			return false
		}
	}
	return true
}

func (s *valueSet) hasAll(o *valueSet) bool {
	s.fill()
	o.fill()
	for i, v := range o.values {
		h := o.hashes[i]
		if s.seed != o.seed {
			h = v.hash(s.seed)
		}
		if !s.find(v, h) {
			return false
		}
	}
	return true
}
