package serde

import (
	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// codecOf is the codec of a schema's message at an index path; nil is the first.
func codecOf(s schema.Schema, index []int) (schema.Codec, error) {
	switch s := s.(type) {
	case *avro.Schema:
		return s.Payload()
	case schema.Messages:
		if index != nil {
			return s.Message(index)
		}
	}
	return s.Codec()
}
