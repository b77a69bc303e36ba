package restv3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// A registry that cannot tell now is no fault of the record, and the same one may be taken later.
func TestSchemaFaults(t *testing.T) {
	for code, want := range map[int]int{
		schemaregistry.CodeInvalidSchema: 422, schemaregistry.CodeIncompatible: 422, schemaregistry.CodeSchemaNotFound: 422,
		schemaregistry.CodeStoreFailed: codeRetriable, schemaregistry.CodeStoreTimeout: codeRetriable,
	} {
		require.Equal(t, want, schemaFault(serde.Key, &schemaregistry.Error{Code: code}).Fault.Code, "%d", code)
	}
}
