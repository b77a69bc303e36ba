package api

import (
	"errors"
	"fmt"

	"millrace/client"
)

// ErrorOfRecord is FromError for one record of several that went in a batch. If the batch was refused for another one
// it says for which, by the place in the request: place gives that for a place among the records sent.
func ErrorOfRecord(err error, place func(sent int32) int) *Error {
	e := FromError(err)
	var k *client.KafkaError
	if !errors.As(err, &k) || len(k.Records) == 0 {
		return e
	}
	told, first := *e, k.Records[0]
	told.Detail = fmt.Sprintf("not stored, since record %d was refused: %s", place(first.Index), first.Message)
	return &told
}
