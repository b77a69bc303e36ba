package restv2

import (
	"errors"
	"net/http"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
)

// Numbers of the REST Proxy.
const (
	codeUnauthenticated   = 40101
	codeForbidden         = 40301
	codePartitionNotFound = 40402
	codeUnknownPartition  = 40403 // of a topic or partition that is not there
	codeInstanceNotFound  = 40403 // the same number for another thing: the text tells which
	codeFormatMismatch    = 40601
	codeUndecodable       = 40801
	codeInstanceExists    = 40902
	codeIllegalState      = 40903
	codeConfigRange       = 40001 // with status 422
	codeNoKeySchema       = 42201
	codeNoValueSchema     = 42202
	codeInvalidConfig     = 42204
	codeInvalidSchema     = 42205
	codeSchemaRefused     = 42207 // by the registry, or not there
	codeFinal             = 50002 // a Kafka error that a repeat will meet again
	codeRetriable         = 50003 // a Kafka error that a repeat may not meet
)

var errPartitionNotFound = api.RefuseCompat(codePartitionNotFound, "Partition not found.")

func errNotANumber(name, value string) *api.Error {
	return api.RefuseCompat(http.StatusNotFound, "HTTP 404 Not Found: %s %q is not a number.", name, value)
}

func badRequest(format string, args ...any) *api.Error {
	return api.RefuseCompat(http.StatusBadRequest, "Bad Request: "+format, args...)
}

func malformed(err error) *api.Error {
	var kind *rawjson.TypeError
	if errors.As(err, &kind) {
		return badRequest("%v.", kind)
	}
	return badRequest("Malformed JSON: %v.", err)
}

func unprocessable(format string, args ...any) *api.Error {
	return api.RefuseCompat(http.StatusUnprocessableEntity, format, args...)
}

// recordCode is the number of a record's fault. This API knows four: finer ones of other APIs are not
// used here.
func recordCode(err error) int {
	switch api.FromError(err).Fault.Code {
	case codeUnauthenticated:
		return codeUnauthenticated
	case codeForbidden:
		return codeForbidden
	}
	var kafka *client.KafkaError
	switch {
	case !errors.As(err, &kafka): // no answer came
		return codeRetriable
	case kafka.Err.Retriable, kafka.Err == kerr.OperationNotAttempted:
		return codeRetriable
	default:
		return codeFinal
	}
}
