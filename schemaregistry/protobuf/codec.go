package protobuf

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"millrace/schemaregistry/schema"
)

// What a message may cost beside its own size, and how many times its size.
const (
	spareOutput, timesOutput = 1 << 20, 16  // bytes of JSON
	spareMemory, timesMemory = 16 << 20, 32 // bytes held while translating
)

// messages are the descriptors by which data is translated. The compiler's own search fields one by one, so these are
// made anew, once, by the library that reads data.
type messages struct {
	limits  Limits
	library *library
	files   map[string]protoreflect.FileDescriptor
	types   *resolver

	mu      sync.Mutex
	layouts map[protoreflect.FullName]*layout // guarded by mu
}

func (s *parsed) newMessages() (m *messages, err error) {
	defer refuse(&err)
	if s.main.fault != nil {
		return nil, s.main.fault
	}
	m = &messages{
		limits: s.format.limits, library: s.format.library, files: map[string]protoreflect.FileDescriptor{},
		types: newResolver(s.format.library.types), layouts: map[protoreflect.FullName]*layout{},
	}
	for _, u := range append(s.order[:len(s.order):len(s.order)], s.main) {
		if u.linked == nil {
			continue // nothing that compiles imports it
		}
		f, err := protodesc.NewFile(u.proto, m)
		if err != nil {
			return nil, schema.Invalid("%s", words(err))
		}
		m.files[u.name] = f
		m.types.add(f)
	}
	return m, nil
}

// FindFileByPath and FindDescriptorByName let the descriptors find what they import.
func (m *messages) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	known := m.library.files[path]
	f := m.files[path]
	switch {
	case known != nil && (f == nil || strings.HasPrefix(path, "google/protobuf/")):
		return known.linked, nil
	case f != nil:
		return f, nil
	}
	return nil, protoregistry.NotFound
}

// FindDescriptorByName finds a type of any file.
func (m *messages) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d := m.types.descriptor(name); d != nil {
		return d, nil
	}
	return nil, protoregistry.NotFound
}

// layout is a message's layout, made when it is first asked for.
func (m *messages) layout(d protoreflect.MessageDescriptor) *layout {
	m.mu.Lock()
	defer m.mu.Unlock()
	return makeLayout(d, m.layouts, m.types)
}

func (m *messages) codec(name string) (schema.Codec, error) {
	d := m.types.message(protoreflect.FullName(name))
	if d == nil {
		return nil, schema.Mismatch("the schema has no message %s", name)
	}
	return &codec{messages: m, descriptor: d, layout: m.layout(d)}, nil
}

// codec translates one message. Its JSON is that of the language: names in lower camel case, 64-bit numbers as
// strings, and fields that are not set with their default, unless the schema tells a field that is not set from one
// that is set to its default.
type codec struct {
	messages   *messages
	descriptor protoreflect.MessageDescriptor
	layout     *layout
}

func (c *codec) walker(n int) *walker {
	l := c.messages.limits
	return &walker{
		messages: c.messages, depth: l.ValueDepth, nodes: 1 << 30,
		maxOutput: min(l.OutputBytes, spareOutput+timesOutput*n), maxMemory: min(l.OutputBytes,
			spareMemory+timesMemory*n),
	}
}

// Check walks the bytes without making anything of them.
func (c *codec) Check(value []byte) (err error) {
	defer unfit(&err)
	w := c.walker(len(value))
	if err := w.message(value, c.layout, 1); err != nil {
		return err
	}
	if !w.missing {
		return nil
	}
	// A message may come in pieces that only together have all that is required.
	if err := w.affordable(); err != nil {
		return err
	}
	_, err = c.read(value)
	return err
}

// Decode appends a message as JSON.
func (c *codec) Decode(dst, value []byte) (out []byte, err error) {
	defer unfit(&err)
	w := c.walker(len(value))
	if err := w.message(value, c.layout, 1); err != nil {
		return nil, err
	}
	if err := w.affordable(); err != nil {
		return nil, err
	}
	m, err := c.read(value)
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true, Resolver: c.messages.types}.Marshal(m)
	if err != nil {
		return nil, schema.Mismatch("%s", words(err))
	}
	return appendCompact(dst, raw), nil
}

func (c *codec) read(value []byte) (*dynamicpb.Message, error) {
	m := dynamicpb.NewMessage(c.descriptor)
	o := proto.UnmarshalOptions{Resolver: c.messages.types, RecursionLimit: c.messages.limits.ValueDepth + 1}
	if err := o.Unmarshal(value, m); err != nil {
		return nil, schema.Mismatch("%s", words(err))
	}
	return m, nil
}

// Encode appends the message that JSON describes. Names may be those of the schema or those of its JSON; others are
// refused.
func (c *codec) Encode(dst, json []byte) (out []byte, err error) {
	defer unfit(&err)
	w := c.walker(len(json))
	w.json(json)
	if err := w.affordable(); err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(c.descriptor)
	o := protojson.UnmarshalOptions{Resolver: c.messages.types, RecursionLimit: c.messages.limits.ValueDepth}
	if err := o.Unmarshal(json, m); err != nil {
		return nil, mismatchAt(json, err)
	}
	out, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil {
		return nil, schema.Mismatch("%s", words(err))
	}
	return out, nil
}

// unfit turns a panic of the libraries, over a descriptor that they did not expect, into an error.
func unfit(err *error) {
	if r := recover(); r != nil {
		*err = schema.Mismatch("the value cannot be translated: %v", r)
	}
}

// words is an error of the library without its mark, whose spelling it varies.
func words(err error) string {
	s := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(s, "proto: ")
}

// mismatchAt names the path of a fault in JSON; the library tells line and column.
func mismatchAt(json []byte, err error) error {
	s := words(err)
	rest := s
	if i := strings.Index(s, "(line "); i >= 0 {
		at, after, ok := strings.Cut(s[i+len("(line "):], ")")
		line, column, ok2 := strings.Cut(at, ":")
		l, err1 := strconv.Atoi(line)
		col, err2 := strconv.Atoi(column)
		if ok && ok2 && err1 == nil && err2 == nil {
			rest = strings.TrimPrefix(strings.TrimSpace(s[:i])+strings.TrimPrefix(after, ":"), "syntax error")
			rest = strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(rest, ":")), "unexpected token ")
			return schema.Mismatch("%s: %s", pathAt(json, l, col), strings.TrimSpace(rest))
		}
	}
	return schema.Mismatch("$: %s", strings.TrimSpace(rest))
}

// pathAt is the path of the value at a line and column of JSON, as $.orders[3].name.
func pathAt(json []byte, line, column int) string {
	type level struct {
		key   string
		index int // -1 in an object
	}
	var stack []level
	var last string
	row, col := 1, 1
	for i := 0; i < len(json) && (row < line || row == line && col < column); {
		switch json[i] {
		case '{':
			stack = append(stack, level{index: -1})
		case '[':
			stack = append(stack, level{})
		case '}', ']':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
		case ',':
			if n := len(stack); n > 0 && stack[n-1].index >= 0 {
				stack[n-1].index++
			}
		case ':':
			if n := len(stack); n > 0 {
				stack[n-1].key = last
			}
		case '"':
			end := endOfString(json, i)
			last = string(json[i+1 : max(end-1, i+1)])
			col += utf8.RuneCount(json[i:end])
			i = end
			continue
		case '\n':
			row, col = row+1, 0
		}
		_, n := utf8.DecodeRune(json[i:])
		i += n
		col++
	}
	var b strings.Builder
	b.WriteByte('$')
	for _, l := range stack {
		if l.index >= 0 {
			b.WriteString("[" + itoa(l.index) + "]")
		} else if l.key != "" {
			b.WriteString("." + l.key)
		}
	}
	return b.String()
}

// appendCompact appends JSON without the blanks that the library strews in.
func appendCompact(dst, json []byte) []byte {
	for i := 0; i < len(json); i++ {
		switch json[i] {
		case ' ', '\n', '\t', '\r':
		case '"':
			start := i
			for i++; json[i] != '"'; i++ {
				if json[i] == '\\' {
					i++
				}
			}
			dst = append(dst, json[start:i+1]...)
		default:
			dst = append(dst, json[i])
		}
	}
	return dst
}
