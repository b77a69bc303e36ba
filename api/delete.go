package api

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// CheckDelete refuses the deletion of a topic whose loss would have ids mean something else: that of the schemas.
func (e *Edge) CheckDelete(topic string) error {
	if topic == "" || topic != e.opts.SchemasTopic {
		return nil
	}
	return client.Fault(kerr.PolicyViolation, "topic %s holds the schemas of the registry and cannot be deleted, since "+
		"ids would be given out again: delete subjects instead, with DELETE /subjects/{subject}", topic)
}
