package avro

import (
	"math"
	"strconv"
	"strings"

	hamba "github.com/hamba/avro/v2"

	"millrace/api/rawjson"
)

// encoder writes the value that a JSON text describes. The text is first cut into tokens, so that arrays are counted
// before they are written and members are found in whatever order they come: each byte of the text is read twice.
type encoder struct {
	wire     *hamba.Writer
	tokens   []token
	maxDepth int
	scratch  []byte
}

// token is a JSON value or the name of a member, which stands before its value. Members and elements follow their
// object or array.
type token struct {
	first byte   // of the value's text: '{', '[', '"', 't', 'f', 'n', a digit or '-'; 0 for a name
	text  []byte // of a name, unquoted; of a value that is not an object or array, as it is written
	count int    // of members or elements
	next  int    // the token behind this one and all that it holds
}

// maxTokens is how much memory is kept for the next value.
const maxTokens = 16 << 10

// forget lets go of the text and of what is too large to keep.
func (e *encoder) forget() {
	clear(e.tokens)
	e.tokens = e.tokens[:0]
	if cap(e.tokens) > maxTokens {
		e.tokens = nil
	}
	if e.wire.Buffered() > maxScratch {
		e.wire = hamba.NewWriter(nil, 512)
	}
}

// scan cuts the cursor's next value into tokens.
func (e *encoder) scan(c *rawjson.Cursor, depth int) error {
	if depth > 2*e.maxDepth { // tags of unions nest, too
		return c.Errorf("the value is nested more than " + strconv.Itoa(e.maxDepth) + " levels deep")
	}
	at := len(e.tokens)
	first := c.Peek()
	e.tokens = append(e.tokens, token{first: first})
	if first != '{' && first != '[' {
		text, _, err := c.Value(1)
		e.tokens[at].text, e.tokens[at].next = text, len(e.tokens)
		return err
	}
	bracket := first + 2 // as ASCII has it
	c.Pos++
	count := 0
	for {
		more, err := c.More(bracket, count == 0)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if first == '{' {
			name, err := c.Name()
			if err != nil {
				return err
			}
			e.tokens = append(e.tokens, token{text: name, next: len(e.tokens) + 1})
		}
		if err := e.scan(c, depth+1); err != nil {
			return err
		}
		count++
	}
	e.tokens[at].count, e.tokens[at].next = count, len(e.tokens)
	return nil
}

// show is a token's text in short, for messages.
func (e *encoder) show(t *token) string {
	switch t.first {
	case '{':
		return "an object"
	case '[':
		return "an array"
	default:
		return rawjson.Excerpt(t.text)
	}
}

// want says what a value should have been.
func (e *encoder) want(what string, t *token) *fault {
	return &fault{reason: what + " is wanted, not " + e.show(t)}
}

// node writes the value of the token at i.
func (e *encoder) node(n *node, i, depth int) *fault {
	t := &e.tokens[i]
	switch n.kind {
	case kindNull:
		if t.first != 'n' {
			return e.want("null", t)
		}
	case kindBoolean:
		if t.first != 't' && t.first != 'f' {
			return e.want("true or false", t)
		}
		e.wire.WriteBool(t.first == 't')
	case kindInt, kindLong:
		return e.integer(n, t)
	case kindFloat, kindDouble:
		return e.number(n, t)
	case kindString:
		text, ok := rawjson.Text(t.text)
		if !ok {
			return e.want("a string", t)
		}
		e.wire.WriteLong(int64(len(text)))
		_, _ = e.wire.Write(text)
	case kindBytes, kindFixed:
		return e.bytes(n, t)
	case kindEnum:
		return e.enum(n, t)
	default:
		if depth >= e.maxDepth {
			return &fault{reason: "the value is nested more than " + strconv.Itoa(e.maxDepth) + " levels deep"}
		}
		switch n.kind {
		case kindRecord:
			return e.record(n, i, depth)
		case kindUnion:
			return e.union(n, i, depth)
		case kindArray:
			return e.array(n, i, depth)
		default:
			return e.members(n, i, depth)
		}
	}
	return nil
}

func (e *encoder) integer(n *node, t *token) *fault {
	v, ok := rawjson.Int64(t.text)
	switch {
	case !ok:
		return e.want("a whole number of at most 64 bits, without fraction or exponent,", t)
	case n.kind == kindLong:
		e.wire.WriteLong(v)
	case v < math.MinInt32 || v > math.MaxInt32:
		return e.want("a whole number of at most 32 bits", t)
	default:
		e.wire.WriteInt(int32(v))
	}
	return nil
}

// plainNaN is the NaN that Java writes.
const plainNaN = 0x7ff8 << 48

func (e *encoder) number(n *node, t *token) *fault {
	var v float64
	bits := 64
	if n.kind == kindFloat {
		bits = 32
	}
	switch text := string(t.text); text {
	case `"NaN"`:
		v = math.Float64frombits(plainNaN)
	case `"Infinity"`:
		v = math.Inf(1)
	case `"-Infinity"`:
		v = math.Inf(-1)
	default:
		if t.first != '-' && (t.first < '0' || t.first > '9') {
			return e.want(`a number or "NaN", "Infinity" or "-Infinity"`, t)
		}
		var err error
		if v, err = strconv.ParseFloat(text, bits); err != nil {
			return e.want("a number in the range of "+withArticle(n.kind), t)
		}
	}
	if n.kind == kindFloat {
		e.wire.WriteFloat(float32(v))
	} else {
		e.wire.WriteDouble(v)
	}
	return nil
}

func (e *encoder) bytes(n *node, t *token) *fault {
	text, ok := rawjson.Text(t.text)
	if !ok {
		return e.want("a string of one character for each byte", t)
	}
	if e.scratch, ok = appendLatin(e.scratch[:0], text); !ok {
		return &fault{reason: notLatin}
	}
	b := e.scratch
	if cap(b) > maxScratch {
		e.scratch = nil
	}
	if n.kind == kindBytes {
		e.wire.WriteBytes(b)
		return nil
	}
	if len(b) != n.size {
		return &fault{reason: "the fixed " + clip(n.name.full()) + " has " + strconv.Itoa(n.size) + " bytes, not " +
			strconv.Itoa(len(b))}
	}
	_, _ = e.wire.Write(b)
	return nil
}

func (e *encoder) enum(n *node, t *token) *fault {
	text, ok := rawjson.Text(t.text)
	if !ok {
		return e.want("a string, one of the symbols of the enum "+clip(n.name.full())+",", t)
	}
	i, known := n.symbolIndex[string(text)]
	if !known {
		return &fault{reason: "the enum " + clip(n.name.full()) + " has no symbol " + e.show(t) + ", only " +
			clip(strings.Join(n.symbols[:min(len(n.symbols), 50)], ", "))}
	}
	e.wire.WriteInt(int32(i))
	return nil
}

func (e *encoder) array(n *node, i, depth int) *fault {
	t := &e.tokens[i]
	if t.first != '[' {
		return e.want("an array", t)
	}
	count := t.count
	if count > 0 {
		e.wire.WriteLong(int64(count))
	}
	at := i + 1
	for k := range count {
		if f := e.node(n.item, at, depth+1); f != nil {
			return f.in(strconv.Itoa(k))
		}
		at = e.tokens[at].next
	}
	e.wire.WriteLong(0)
	return nil
}

// members writes a map.
func (e *encoder) members(n *node, i, depth int) *fault {
	t := &e.tokens[i]
	if t.first != '{' {
		return e.want("an object", t)
	}
	count := t.count
	if count > 0 {
		e.wire.WriteLong(int64(count))
	}
	at := i + 1
	for range count {
		name := e.tokens[at].text
		e.wire.WriteLong(int64(len(name)))
		_, _ = e.wire.Write(name)
		if f := e.node(n.item, at+1, depth+1); f != nil {
			return f.in(string(name))
		}
		at = e.tokens[at+1].next
	}
	e.wire.WriteLong(0)
	return nil
}

// record writes the fields in their order, for as long as the members come in that order, too.
func (e *encoder) record(n *node, i, depth int) *fault {
	t := &e.tokens[i]
	if t.first != '{' {
		return e.want("an object with the fields of the record "+clip(n.name.full()), t)
	}
	end, at := t.next, i+1
	k := 0
	for ; k < len(n.fields) && at < end && string(e.tokens[at].text) == n.fields[k].name; k++ {
		if f := e.node(n.fields[k].node, at+1, depth+1); f != nil {
			return f.in(n.fields[k].name)
		}
		at = e.tokens[at+1].next
	}
	if k == len(n.fields) && at == end {
		return nil
	}
	return e.rest(n, k, at, end, depth)
}

// rest writes the fields of a record from the k-th on, whose members are from at to end in any order.
func (e *encoder) rest(n *node, k, at, end, depth int) *fault {
	places := make(map[int]int)
	for at < end {
		name := string(e.tokens[at].text)
		field, known := n.fieldIndex[name]
		if !known {
			return &fault{reason: "the record " + clip(n.name.full()) + " has no field " + strconv.Quote(clip(name))}
		}
		if _, twice := places[field]; twice || field < k {
			return &fault{reason: "the field " + strconv.Quote(clip(name)) + " is there twice"}
		}
		places[field] = at + 1
		at = e.tokens[at+1].next
	}
	for ; k < len(n.fields); k++ {
		f := &n.fields[k]
		place, there := places[k]
		if !there {
			return missing(n, f)
		}
		if fault := e.node(f.node, place, depth+1); fault != nil {
			return fault.in(f.name)
		}
	}
	return nil
}

func missing(n *node, f *field) *fault {
	reason := "the field " + strconv.Quote(clip(f.name)) + " of the record " + clip(n.name.full()) + " is missing"
	if f.def != nil {
		reason += "; its default is for readers, so write it out: " + rawjson.Excerpt(appendValue(nil, f.def, false))
	}
	return &fault{reason: reason}
}

func (e *encoder) union(n *node, i, depth int) *fault {
	t := &e.tokens[i]
	if t.first == 'n' {
		if at, ok := n.branch["null"]; ok {
			e.wire.WriteLong(int64(at))
			return nil
		}
	}
	if t.first == '{' && t.count == 1 {
		if at, ok := n.branch[string(e.tokens[i+1].text)]; ok && n.branches[at].kind != kindNull {
			e.wire.WriteLong(int64(at))
			b := n.branches[at]
			return e.node(b, i+2, depth+1).in(b.tag)
		}
	}
	return e.untagged(n, i)
}

// untagged says how a value of a union should have been written.
func (e *encoder) untagged(n *node, i int) *fault {
	t := &e.tokens[i]
	var tags []string
	example := ""
	for _, b := range n.branches {
		if b.kind == kindNull {
			tags = append(tags, "null")
			continue
		}
		tag := strconv.Quote(clip(b.tag))
		tags = append(tags, tag)
		if example == "" && fitsToken(b.kind, t.first) {
			example = "{" + tag + ": " + e.show(t) + "}"
		}
		if len(tags) == 20 {
			tags = append(tags, "...")
			break
		}
	}
	reason := "a value of a union is an object with its type as the only name"
	if t.first == '{' && t.count == 1 {
		reason += ", not " + strconv.Quote(clip(string(e.tokens[i+1].text)))
	} else {
		reason += ", not " + e.show(t)
	}
	if example != "" && t.first != '{' {
		reason += ": write " + example
	}
	return &fault{reason: reason + " (the types are " + strings.Join(tags, ", ") + ")"}
}

// fitsToken says whether a value that begins so may be of a type.
func fitsToken(k kind, first byte) bool {
	switch k {
	case kindBoolean:
		return first == 't' || first == 'f'
	case kindInt, kindLong, kindFloat, kindDouble:
		return first == '-' || first >= '0' && first <= '9'
	case kindString, kindBytes, kindFixed, kindEnum:
		return first == '"'
	case kindArray:
		return first == '['
	default:
		return first == '{'
	}
}
