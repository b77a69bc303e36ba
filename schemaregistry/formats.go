package schemaregistry

import (
	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// formats are the languages of schemas.
func formats() map[schema.Type]schema.Format {
	return map[schema.Type]schema.Format{
		schema.Avro:     avro.New(avro.Limits{}),
		schema.JSON:     jsonschema.New(jsonschema.Limits{}),
		schema.Protobuf: protobuf.New(protobuf.Limits{}),
	}
}
