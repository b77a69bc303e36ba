package avro

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// jsonKind is what a JSON value is.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonInteger // without fraction and exponent
	jsonDouble
	jsonString
	jsonArray
	jsonObject
)

func (k jsonKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a number", "a string", "an array", "an object"}[k]
}

// value is a JSON value. Texts of numbers are as they are printed, not as they were written.
type value struct {
	kind    jsonKind
	text    string // what a string stands for, or a number or literal as it is printed
	items   []value
	members []member // each name once, in the order of their first mention
}

type member struct {
	name  string
	value value
}

// get is the member with a name, nil if there is none.
func (v *value) get(name string) *value {
	if i := v.find(name); i >= 0 {
		return &v.members[i].value
	}
	return nil
}

func (v *value) find(name string) int {
	for i := range v.members {
		if v.members[i].name == name {
			return i
		}
	}
	return -1
}

// str is the text of a member that is a string.
func (v *value) str(name string) (string, bool) {
	if m := v.get(name); m != nil && m.kind == jsonString {
		return m.text, true
	}
	return "", false
}

// reader reads one JSON text. Comments count as white space, but not behind the value.
type reader struct {
	text     string
	data     []byte
	pos      int
	maxDepth int
	values   int // that may still come
	stack    []member
}

// errTooMany ends the reading of a text with too many values.
var errTooMany = errors.New("too many values")

const (
	noValue        = "a value is wanted"
	textEnds       = "the text ends too early"
	maxNumberBytes = 1000
	// indexFrom is how many members an object has when their names are looked up by hash.
	indexFrom = 16
)

// readJSON reads a text of so many levels and values at most.
func readJSON(text string, maxDepth, maxValues int) (value, error) {
	if !utf8.ValidString(text) {
		return value{}, schema.Invalid("the text is not valid UTF-8")
	}
	r := &reader{text: text, data: []byte(text), maxDepth: maxDepth, values: maxValues}
	if err := r.space(); err != nil {
		return value{}, err
	}
	if r.pos == len(text) {
		return value{}, schema.Invalid("there is no schema: the text is empty")
	}
	var v value
	if err := r.value(&v, 0); err != nil {
		if r.values < 0 {
			err = schema.Invalid("the text holds more than %d values", maxValues)
		}
		return value{}, err
	}
	r.blanks()
	if r.pos < len(text) {
		return value{}, r.fail("there is text after the schema")
	}
	return v, nil
}

func (r *reader) fail(reason string) error {
	before := r.text[:min(r.pos, len(r.text))]
	line := strings.Count(before, "\n") + 1
	column := len(before) - strings.LastIndexByte(before, '\n')
	return schema.Invalid("not valid JSON at line %d, column %d: %s", line, column, reason)
}

func (r *reader) blanks() {
	for r.pos < len(r.text) {
		switch r.text[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// space passes over white space and comments.
func (r *reader) space() error {
	for {
		r.blanks()
		rest := r.text[r.pos:]
		switch {
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return r.fail("a comment is not closed")
			}
			r.pos += end + 4
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexAny(rest, "\r\n")
			if end < 0 {
				end = len(rest)
			}
			r.pos += end
		default:
			return nil
		}
	}
}

// peek is the next byte that is neither white space nor comment, 0 at the end.
func (r *reader) peek() (byte, error) {
	if err := r.space(); err != nil {
		return 0, err
	}
	if r.pos >= len(r.text) {
		return 0, r.fail(textEnds)
	}
	return r.text[r.pos], nil
}

func (r *reader) value(v *value, depth int) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	if r.values--; r.values < 0 {
		return errTooMany
	}
	switch {
	case c == '{' || c == '[':
		if depth >= r.maxDepth {
			return r.fail("the text is nested more than " + strconv.Itoa(r.maxDepth) + " levels deep")
		}
		r.pos++
		if c == '{' {
			return r.object(v, depth)
		}
		return r.array(v, depth)
	case c == '"':
		v.kind = jsonString
		v.text, err = r.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return r.number(v)
	}
	for _, word := range [...]string{"null", "true", "false"} {
		if strings.HasPrefix(r.text[r.pos:], word) {
			r.pos += len(word)
			v.kind, v.text = jsonBool, word
			if word == "null" {
				v.kind = jsonNull
			}
			return nil
		}
	}
	return r.fail(noValue)
}

// str takes a string.
func (r *reader) str() (string, error) {
	end, _, err := rawjson.Scan(r.data, r.pos, 1)
	if err != nil {
		r.pos = min(r.pos, len(r.text))
		return "", r.fail(reasonOf(err))
	}
	raw := r.text[r.pos+1 : end-1]
	if strings.IndexByte(raw, '\\') >= 0 {
		text, ok := rawjson.Text(r.data[r.pos:end])
		if !ok {
			return "", r.fail("a string holds half of a surrogate pair")
		}
		raw = string(text)
	}
	r.pos = end
	return raw, nil
}

func (r *reader) number(v *value) error {
	end, _, err := rawjson.Scan(r.data, r.pos, 1)
	if err != nil {
		return r.fail(reasonOf(err))
	}
	raw := r.text[r.pos:end]
	if len(raw) > maxNumberBytes {
		return r.fail("a number has more than " + strconv.Itoa(maxNumberBytes) + " digits")
	}
	r.pos = end
	if !strings.ContainsAny(raw, ".eE") {
		if raw == "-0" {
			raw = "0"
		}
		v.kind, v.text = jsonInteger, raw
		return nil
	}
	n, _ := strconv.ParseFloat(raw, 64) // beyond the range it is infinite, which is what is printed
	*v = double(n)
	return nil
}

// double is a number as a JSON value. What JSON has no number for is printed in quotes.
func double(n float64) value {
	return value{kind: jsonDouble, text: string(appendDouble(nil, n, 64))}
}

// appendDouble prints a number as Java does, in the fewest digits that tell it apart.
func appendDouble(dst []byte, n float64, bits int) []byte {
	switch {
	case math.IsNaN(n):
		return append(dst, `"NaN"`...)
	case math.IsInf(n, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(n, -1):
		return append(dst, `"-Infinity"`...)
	}
	if abs := math.Abs(n); abs == 0 || abs >= 1e-3 && abs < 1e7 {
		start := len(dst)
		dst = strconv.AppendFloat(dst, n, 'f', -1, bits)
		if !strings.Contains(string(dst[start:]), ".") {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	text := strconv.FormatFloat(n, 'E', -1, bits)
	if !strings.Contains(text, ".") { // at least two digits
		text = strconv.FormatFloat(n, 'E', 1, bits)
	}
	digits, exponent, _ := strings.Cut(text, "E")
	dst = append(dst, digits...)
	e, _ := strconv.Atoi(exponent)
	return strconv.AppendInt(append(dst, 'E'), int64(e), 10)
}

func (r *reader) array(v *value, depth int) error {
	v.kind = jsonArray
	base := len(r.stack)
	for first := true; ; first = false {
		more, err := r.more(']', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		var item value
		if err := r.value(&item, depth+1); err != nil {
			return err
		}
		r.stack = append(r.stack, member{value: item})
	}
	v.items = make([]value, len(r.stack)-base)
	for i := range v.items {
		v.items[i] = r.stack[base+i].value
	}
	r.stack = r.stack[:base]
	return nil
}

func (r *reader) object(v *value, depth int) error {
	v.kind = jsonObject
	base := len(r.stack)
	var index map[string]int // of the members, once there are many
	for first := true; ; first = false {
		more, err := r.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		var m member
		if m.name, err = r.name(); err != nil {
			return err
		}
		if err := r.value(&m.value, depth+1); err != nil {
			return err
		}
		i := -1
		if index == nil {
			i = slices.IndexFunc(r.stack[base:], func(o member) bool { return o.name == m.name })
		} else if at, known := index[m.name]; known {
			i = at
		}
		if i >= 0 {
			r.stack[base+i] = m
			continue
		}
		r.stack = append(r.stack, m)
		index = indexMembers(index, r.stack[base:])
	}
	v.members = slices.Clone(r.stack[base:])
	r.stack = r.stack[:base]
	return nil
}

// name takes a member's name and the colon.
func (r *reader) name() (string, error) {
	if c, err := r.peek(); err != nil {
		return "", err
	} else if c != '"' {
		return "", r.fail("a member's name in double quotes is wanted")
	}
	name, err := r.str()
	if err != nil {
		return "", err
	}
	if c, err := r.peek(); err != nil {
		return "", err
	} else if c != ':' {
		return "", r.fail("a ':' is wanted after a member's name")
	}
	r.pos++
	return name, nil
}

// indexMembers keeps the index of an object's members, to which the last has just been added.
func indexMembers(index map[string]int, members []member) map[string]int {
	if index != nil {
		index[members[len(members)-1].name] = len(members) - 1
		return index
	}
	if len(members) < indexFrom {
		return nil
	}
	index = make(map[string]int, 4*len(members))
	for i := range members {
		index[members[i].name] = i
	}
	return index
}

// more says whether another member or element follows, and takes what lies before it.
func (r *reader) more(bracket byte, first bool) (bool, error) {
	c, err := r.peek()
	switch {
	case err != nil:
		return false, err
	case c == bracket:
		r.pos++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, r.fail("a ',' or '" + string(rune(bracket)) + "' is wanted")
	}
	r.pos++
	return true, nil
}

// reasonOf is the reason of a syntax error without the place, which is counted otherwise here.
func reasonOf(err error) string {
	_, reason, found := strings.Cut(err.Error(), ": ")
	if !found {
		return err.Error()
	}
	return reason
}

// appendValue prints a value. Names of members are sorted, at every level, if sorted is set.
func appendValue(dst []byte, v *value, sorted bool) []byte {
	switch v.kind {
	case jsonString:
		return appendText(dst, v.text)
	case jsonArray:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, &v.items[i], sorted)
		}
		return append(dst, ']')
	case jsonObject:
		dst = append(dst, '{')
		for i, m := range ordered(v.members, sorted) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, m.name), ':')
			dst = appendValue(dst, &m.value, sorted)
		}
		return append(dst, '}')
	case jsonNull:
		return append(dst, "null"...)
	default:
		return append(dst, v.text...)
	}
}

const upperHex = "0123456789ABCDEF"

// appendText prints a string with the escapes that Jackson writes, and no others.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = appendEscape(append(dst, s[start:i]...), c)
		start = i + 1
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
	}
}
