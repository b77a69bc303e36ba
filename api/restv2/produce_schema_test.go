package restv2

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// A registry that cannot tell now is no fault of the schema, and the same request may succeed later.
func TestRefusedSchemas(t *testing.T) {
	for _, c := range []struct {
		err       error
		code      int
		retryable bool
	}{
		{schema.Invalid("bad"), codeInvalidSchema, false},
		{&schemaregistry.Error{Code: schemaregistry.CodeInvalidSchema}, codeInvalidSchema, false},
		{&schemaregistry.Error{Code: schemaregistry.CodeIncompatible}, codeSchemaRefused, false},
		{&schemaregistry.Error{Code: schemaregistry.CodeSchemaNotFound}, codeSchemaRefused, false},
		{&schemaregistry.Error{Code: schemaregistry.CodeStoreFailed}, codeUndecodable, true},
		{&schemaregistry.Error{Code: schemaregistry.CodeStoreTimeout, Unknown: true}, codeUndecodable, true},
		{errors.New("other"), 500, false},
	} {
		got := api.FromError(refuseSchema(serde.Value, c.err)).Fault
		require.Equal(t, c.code, got.Code, "%v", c.err)
		require.Equal(t, c.retryable, got.Retryable, "%v", c.err)
	}
}
