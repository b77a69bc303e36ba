package convert

import (
	"strings"

	"millrace/connect/data"
)

// The names by which the schema of a struct says that it stands for a union: that each value has one field set.
const (
	avroUnion     = "io.confluent.connect.avro.Union"
	jsonUnion     = "io.confluent.connect.json.OneOf"
	protobufUnion = "io.confluent.connect.protobuf.Union"

	generalUnion = "org.apache.kafka.connect.data.Union"
	generalEnum  = "org.apache.kafka.connect.data.Enum"
)

// isUnion says whether a struct stands for a union: by the name of its schema, or by a parameter.
func isUnion(s *data.Schema, name string) bool {
	if s.Type != data.Struct {
		return false
	}
	if name == protobufUnion && strings.HasPrefix(s.Name, name) || s.Name == name {
		return true
	}
	_, general := s.Parameters[generalUnion]
	return general
}
