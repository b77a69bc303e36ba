package protobuf

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/schemaregistry/schema"
)

// What holding a message in memory costs, about.
const (
	messageBytes = 120 // one without fields
	fieldsBytes  = 300 // more, for the first field
	fieldBytes   = 48  // for each further one, and for each element of a list
)

// layout is what walking a message needs to know of it.
type layout struct {
	name     protoreflect.FullName
	slots    map[protowire.Number]*slot
	required int
	defaults int // bytes of JSON that a message without any field takes
	any      bool
	entry    bool // of a map
}

// slot is one field of a layout.
type slot struct {
	name     protoreflect.Name
	wire     protowire.Type
	list     bool
	packable bool
	text     bool // UTF-8
	required int  // its bit among the required fields, from 1; 0 if it is not
	message  *layout
	output   int // bytes of JSON that a value takes, with the name, beside its own
}

// newLayout is the layout of a message without extensions.
func newLayout(d protoreflect.MessageDescriptor) *layout {
	return makeLayout(d, map[protoreflect.FullName]*layout{}, nil)
}

// makeLayout makes a message's layout and those of all that it holds, each once.
func makeLayout(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*layout, types *resolver) *layout {
	if l := known[d.FullName()]; l != nil {
		return l
	}
	l := &layout{name: d.FullName(), slots: map[protowire.Number]*slot{}, defaults: 2}
	l.any, l.entry = d.FullName() == "google.protobuf.Any", d.IsMapEntry()
	known[d.FullName()] = l
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		l.slots[f.Number()] = l.slot(f, known, types)
		if !f.HasPresence() {
			l.defaults += len(f.JSONName()) + 4 + 8
			if e := f.DefaultEnumValue(); e != nil {
				l.defaults += len(e.Name())
			}
		}
	}
	if v := l.slots[2]; l.entry && v != nil && v.message != nil {
		// An entry without its value has an empty message, which may lack what it requires.
		l.required++
		v.required = l.required
	}
	for r := types; r != nil; r = r.base {
		for n, x := range r.numbers[d.FullName()] {
			if l.slots[n] == nil {
				l.slots[n] = l.slot(x.TypeDescriptor(), known, types)
			}
		}
	}
	return l
}

func (l *layout) slot(
	f protoreflect.FieldDescriptor, known map[protoreflect.FullName]*layout, types *resolver,
) *slot {
	s := &slot{name: f.Name(), list: f.IsList(), packable: f.IsList(), output: len(f.JSONName()) + 4}
	if f.IsExtension() {
		s.output += len(f.FullName())
	}
	switch f.Kind() {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		s.wire = protowire.Fixed32Type
		s.output += 20
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		s.wire = protowire.Fixed64Type
		s.output += 26
	case protoreflect.StringKind, protoreflect.BytesKind:
		s.wire, s.text, s.packable = protowire.BytesType, f.Kind() == protoreflect.StringKind, false
	case protoreflect.MessageKind, protoreflect.GroupKind:
		s.wire, s.packable = protowire.BytesType, false
		if f.Kind() == protoreflect.GroupKind {
			s.wire = protowire.StartGroupType
		}
		s.message = makeLayout(f.Message(), known, types)
	case protoreflect.EnumKind:
		longest := 11
		for i := range f.Enum().Values().Len() {
			longest = max(longest, len(f.Enum().Values().Get(i).Name()))
		}
		s.wire, s.output = protowire.VarintType, s.output+longest+2
	default:
		s.wire = protowire.VarintType
		s.output += 22
	}
	if f.Cardinality() == protoreflect.Required {
		l.required++
		s.required = l.required
	}
	return s
}

// walker reads the bytes of a message without keeping anything, and adds up what it would cost to translate them.
type walker struct {
	messages             *messages // for Any; may be nil
	depth                int       // of messages, the most
	nodes                int       // values, the most
	output, memory       int
	maxOutput, maxMemory int
	missing              bool // a required field
}

func broken(l *layout, n int) error {
	return schema.Mismatch("%s: %s", l.name, words(protowire.ParseError(n)))
}

func (w *walker) affordable() error {
	if w.output > w.maxOutput {
		return schema.Mismatch("as JSON the value could take %d bytes, more than the %d allowed", w.output,
			w.maxOutput)
	}
	if w.memory > w.maxMemory {
		return schema.Mismatch("the value would take %d bytes of memory, more than the %d allowed", w.memory,
			w.maxMemory)
	}
	return nil
}

// message walks bytes that are one message.
func (w *walker) message(b []byte, l *layout, depth int) error {
	_, err := w.fields(b, l, depth, 0)
	return err
}

// fields walks the fields of a message, of a group up to its end, and returns how many bytes they took.
func (w *walker) fields(b []byte, l *layout, depth int, group protowire.Number) (int, error) {
	if depth > w.depth {
		return 0, schema.Mismatch("%s: messages are nested deeper than %d levels", l.name, w.depth)
	}
	w.output += l.defaults
	w.memory += messageBytes
	if len(b) > 0 {
		w.memory += fieldsBytes
	}
	seen := newBits(l.required)
	var content anyContent
	at := 0
	for at < len(b) {
		number, wire, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return 0, broken(l, n)
		}
		if number > protowire.MaxValidNumber {
			return 0, schema.Mismatch("%s: no field has the number %d", l.name, number)
		}
		if wire == protowire.EndGroupType {
			if group == 0 || number != group {
				return 0, schema.Mismatch("%s: a group ends that did not begin", l.name)
			}
			return at + n, w.finish(l, seen, content, depth)
		}
		at += n
		s := l.slots[number]
		if s != nil && s.required > 0 && s.wire == wire {
			seen.set(s.required)
		}
		if l.any && wire == protowire.BytesType {
			content.take(number, b[at:])
		}
		n, err := w.value(b[at:], l, s, tag{number, wire}, depth)
		if err != nil {
			return 0, err
		}
		at += n
	}
	if group != 0 {
		return 0, schema.Mismatch("%s: a group does not end", l.name)
	}
	return at, w.finish(l, seen, content, depth)
}

func (w *walker) finish(l *layout, seen bits, content anyContent, depth int) error {
	w.missing = w.missing || seen.count() < l.required
	if content.url == "" || w.messages == nil {
		return nil
	}
	t, err := w.messages.types.FindMessageByURL(content.url)
	if err != nil {
		return nil // opaque
	}
	w.output += len(content.url) + len(`"@type":"",`)
	return w.message(content.value, w.messages.layout(t.Descriptor()), depth+1)
}

// anyContent is what an Any holds: the last type and the last value in its bytes.
type anyContent struct {
	url   string
	value []byte
}

func (a *anyContent) take(number protowire.Number, b []byte) {
	v, n := protowire.ConsumeBytes(b)
	switch {
	case n < 0:
	case number == 1:
		a.url = string(v)
	case number == 2:
		a.value = v
	}
}

type tag struct {
	number protowire.Number
	wire   protowire.Type
}

// value walks the value of a field, known or not, and returns how many bytes it took.
func (w *walker) value(b []byte, l *layout, s *slot, t tag, depth int) (int, error) {
	w.nodes--
	w.memory += fieldBytes
	if w.nodes < 0 {
		return 0, schema.Mismatch("%s: the message holds too many values", l.name)
	}
	if s == nil || s.wire != t.wire {
		if s != nil && s.packable && t.wire == protowire.BytesType {
			return w.packed(b, l, s)
		}
		if s != nil && l.entry {
			// The library trips over a key that comes once more in another encoding.
			return 0, schema.Mismatch("%s.%s: the map's entry is encoded otherwise", l.name, s.name)
		}
		return w.unknown(b, l, t, depth)
	}
	w.output += s.output
	if t.wire == protowire.StartGroupType {
		return w.fields(b, s.message, depth+1, t.number)
	}
	if t.wire != protowire.BytesType {
		n := protowire.ConsumeFieldValue(t.number, t.wire, b)
		if n < 0 {
			return 0, broken(l, n)
		}
		return n, nil
	}
	v, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return 0, broken(l, n)
	}
	switch {
	case s.message != nil:
		return n, w.message(v, s.message, depth+1)
	case s.text && !utf8.Valid(v):
		return 0, schema.Mismatch("%s.%s: the string is not UTF-8", l.name, s.name)
	case s.text:
		w.output += 2 + quotedLen(v)
	default:
		w.output += 4 + (len(v)+2)/3*4
	}
	w.memory += len(v)
	return n, nil
}

// quotedLen is how long a string is within the quotes of JSON, at most.
func quotedLen(v []byte) int {
	n := len(v)
	for _, c := range v {
		switch {
		case c < ' ':
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// packed walks numbers that stand in one field.
func (w *walker) packed(b []byte, l *layout, s *slot) (int, error) {
	v, size := protowire.ConsumeBytes(b)
	if size < 0 {
		return 0, broken(l, size)
	}
	for len(v) > 0 {
		n := protowire.ConsumeFieldValue(1, s.wire, v)
		if n < 0 {
			return 0, broken(l, n)
		}
		v = v[n:]
		w.nodes--
		w.output += s.output
		w.memory += fieldBytes
	}
	if w.nodes < 0 {
		return 0, schema.Mismatch("%s: the message holds too many values", l.name)
	}
	return size, nil
}

// unknown walks a field that the schema does not have. Groups in it nest, too.
func (w *walker) unknown(b []byte, l *layout, t tag, depth int) (int, error) {
	if t.wire != protowire.StartGroupType {
		n := protowire.ConsumeFieldValue(t.number, t.wire, b)
		if n < 0 {
			return 0, broken(l, n)
		}
		w.memory += n
		return n, nil
	}
	return w.fields(b, &layout{name: l.name}, depth+1, t.number)
}

// json adds up what JSON would cost as a message.
func (w *walker) json(b []byte) {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			start := i
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			w.memory += i - start
		case '{':
			w.memory += messageBytes + fieldsBytes
		case ':':
			w.memory += fieldBytes
		case ',':
			w.memory += fieldBytes
		}
	}
}

// bits is a set of small numbers from 1.
type bits struct {
	first uint64
	more  map[int]bool
}

func newBits(n int) bits {
	if n > 64 {
		return bits{more: map[int]bool{}}
	}
	return bits{}
}

func (s *bits) set(i int) {
	if s.more != nil {
		s.more[i] = true
	} else {
		s.first |= 1 << (i - 1)
	}
}

func (s *bits) count() int {
	n := len(s.more)
	for x := s.first; x != 0; x &= x - 1 {
		n++
	}
	return n
}
