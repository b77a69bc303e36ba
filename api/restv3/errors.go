package restv3

import (
	"net/http"

	"millrace/api"
)

// Numbers of the REST Proxy that no Kafka error stands for.
const (
	codeTopicNotFound     = 40401
	codePartitionNotFound = 40402
	codeInvalidSchema     = 42205
	codePayload           = 42206 // the body as a whole cannot be used
	codeSerializing       = 42207 // no schema to write a key or value with
	codeBatch             = 42208 // a batch is refused as a whole
	codeRetriable         = 50003 // a fault that a repeat may not meet
)

var (
	errPartitionNotFound = api.RefuseCompat(codePartitionNotFound, "Partition not found.")
	errEmptyBody         = api.RefuseCompat(codePayload, "Payload error. Request body is empty. Data is required.")
	errEmptyStream       = badRecord(errEmptyBody)
	errTooLong           = api.RefuseCompat(http.StatusRequestTimeout,
		"Streaming connection open for longer than allowed; connect again for further records.")
	errEnded     = api.RefuseCompat(0, "the stream has ended") // never told
	errTopicName = api.RefuseCompat(codePayload, "Payload error. Invalid topic name.")
)

func badRequest(format string, args ...any) *api.Error {
	return api.RefuseCompat(http.StatusBadRequest, "Bad Request: "+format, args...)
}

func missing(field string) *api.Error { return badRequest("Missing required field: %s", field) }

func unknownField(name string) *api.Error {
	return api.RefuseCompat(http.StatusUnprocessableEntity, "Unrecognized field: %s", name)
}

// badRecord is a fault as a receipt tells it: what is wrong with the shape of a record is a 400, and
// finer numbers than 422 stand in the text.
func badRecord(err *api.Error) *api.Error {
	switch code := err.Fault.Code; {
	case code == http.StatusUnprocessableEntity:
		return badRequest("%s", err.Text())
	case code > 42200 && code < 42300:
		return api.RefuseCompat(http.StatusUnprocessableEntity, "Error: %d : %s", code, err.Text())
	default:
		return err
	}
}
