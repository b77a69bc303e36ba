package protobuf

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/schemaregistry/schema"
)

// Descriptor describes the message at an index path of a schema of this format, for callers that translate messages by
// themselves; nil is the first.
func Descriptor(s schema.Schema, index []int) (protoreflect.MessageDescriptor, error) {
	p, ok := s.(*parsed)
	if !ok {
		return nil, schema.Mismatch("it is no schema in Protobuf")
	}
	if index == nil {
		index = []int{0}
	}
	name, ok := p.MessageName(index)
	if !ok {
		return nil, schema.Mismatch("the schema has no message at index %v", index)
	}
	m, err := p.messages()
	if err != nil {
		return nil, err
	}
	d := m.types.message(protoreflect.FullName(name))
	if d == nil {
		return nil, schema.Mismatch("the schema has no message %s", name)
	}
	return d, nil
}
