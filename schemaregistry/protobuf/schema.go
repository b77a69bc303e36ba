package protobuf

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"millrace/schemaregistry/schema"
)

// parsed is a schema: its text, and what was made of it. It does not change but for what it works out once.
type parsed struct {
	format  *Format
	text    string
	written *file // what text was printed from
	main    *unit
	order   []*unit // the dependencies
	units   map[string]*unit

	view     func() *side              // for comparing
	messages func() (*messages, error) // for translating
}

func newProtobuf(c *compilation, u *unit, written *file, text string) *parsed {
	s := &parsed{format: c.format, text: text, written: written, main: u, order: c.order, units: c.units}
	for _, d := range append(slices.Clone(c.order), u) {
		d.release()
	}
	s.view = sync.OnceValue(func() *side { return newSide(c.format.library, u, c.order) })
	s.messages = sync.OnceValues(s.newMessages)
	return s
}

// release lets go of the parsed text, which is larger than all the rest.
func (u *unit) release() {
	u.parsed = nil
	if l, ok := u.linked.(interface{ RemoveAST() }); ok {
		l.RemoveAST()
	}
}

// Text is the canonical form.
func (s *parsed) Text() string { return s.text }

// Format knows "serialized", the descriptor in base64, and "ignore_extensions".
func (s *parsed) Format(name string) string {
	switch name {
	case "serialized":
		raw, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(s.main.proto)
		if err != nil {
			return s.text
		}
		return encoded(raw)
	case "ignore_extensions":
		return s.written.plain().String()
	}
	return s.text
}

// Name is the full name of the first message, or of the first enum of a file without messages.
func (s *parsed) Name() string {
	u := s.effective()
	switch f := u.written; {
	case len(f.messages) > 0:
		return join(f.pkg, f.messages[0].name)
	case len(f.enums) > 0:
		return join(f.pkg, f.enums[0].name)
	}
	return ""
}

// effective is the file whose messages the schema describes: one that it imports publicly, if it has no types of its
// own.
func (s *parsed) effective() *unit {
	u := s.main
	for range len(s.units) + 1 {
		next := (*unit)(nil)
		for _, i := range u.written.imports {
			if i.kind == "public" && next == nil {
				next = s.find(i.path)
			}
		}
		if len(u.written.messages)+len(u.written.enums) > 0 || next == nil {
			return u
		}
		u = next
	}
	return u
}

func (s *parsed) find(path string) *unit {
	c := compilation{format: s.format, units: s.units}
	return c.find(path)
}

// MessageIndex finds a message by its full name. The entries of maps and the bodies of groups are not counted.
func (s *parsed) MessageIndex(name string) ([]int, bool) {
	f := s.effective().written
	local := name
	if f.pkg != "" {
		var ok bool
		if local, ok = strings.CutPrefix(name, f.pkg+"."); !ok {
			return nil, false
		}
	}
	var index []int
	list := f.messages
	for part := range strings.SplitSeq(local, ".") {
		i := slices.IndexFunc(list, func(m *message) bool { return m.name == part })
		if i < 0 {
			return nil, false
		}
		index, list = append(index, i), list[i].messages
	}
	return index, true
}

// MessageName is the full name of the message at an index.
func (s *parsed) MessageName(index []int) (string, bool) {
	f := s.effective().written
	name, list := f.pkg, f.messages
	for _, i := range index {
		if i < 0 || i >= len(list) {
			return "", false
		}
		name, list = join(name, list[i].name), list[i].messages
	}
	return name, len(index) > 0
}

// Codec translates the first message.
func (s *parsed) Codec() (schema.Codec, error) { return s.Message([]int{0}) }

// Message is the codec of the message at an index.
func (s *parsed) Message(index []int) (schema.Codec, error) {
	name, ok := s.MessageName(index)
	if !ok {
		return nil, schema.Mismatch("the schema has no message at index %v", index)
	}
	m, err := s.messages()
	if err != nil {
		return nil, err
	}
	return m.codec(name)
}

// described is a library file as its author could have written it.
func described(d *descriptorpb.FileDescriptorProto, types *resolver) *file {
	b := describer{types: types, explicit: func(*descriptorpb.FieldDescriptorProto) bool { return false }}
	return b.file(d)
}
