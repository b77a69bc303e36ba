// Package millrace is the root of the module. It holds what lies at the root because people look for it
// there: the public HTTP contract.
package millrace

import _ "embed"

// OpenAPI is openapi.yaml as it stands in the repository.
//
//go:embed openapi.yaml
var OpenAPI []byte
