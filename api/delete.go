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
	return &client.KafkaError{
		Err: kerr.InvalidTopicException, Topic: topic, Partition: -1,
		ExpectedSequence: -1, CurrentEpoch: -1, ActualOffset: -1, ResumeOffset: -1,
		Message: "topic " + topic + " holds the schemas of the registry and cannot be deleted: ids would be given out again. " +
			"Delete subjects instead, with DELETE /subjects/{subject}",
	}
}
