package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/partition"
)

// explain gives any error its Kafka code and message: the broker's own are Kafka errors already, the
// others are the partition's.
func explain(err error) partition.Refusal {
	var k *kerr.Error
	if errors.As(err, &k) {
		return partition.Refusal{Code: k.Code, Message: k.Description}
	}
	return partition.Explain(err)
}

// code is explain where the answer has no room for a message.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	return explain(err).Code
}
