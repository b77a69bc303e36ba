package api

import (
	"net/http"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Outcome says whether a refused request may have taken effect.
type Outcome string

const (
	Failed  Outcome = "failed"  // nothing was done
	Unknown Outcome = "unknown" // it may or may not have taken effect
	Partial Outcome = "partial" // a part took effect and a part did not; each part's fate is told, and known
)

// Fault is one row of the error catalogue: how the HTTP edge tells one kind of failure, on every API.
// Rows are never changed.
type Fault struct {
	Name      string  // stable, in capitals; Kafka's own name where Kafka has one
	Kafka     int16   // Kafka's code, 0 for a fault of the HTTP edge
	Status    int     // HTTP status on /v1
	Code      int     // error_code on every API
	Title     string  // what it is, in a few words
	Retryable bool    // the same request may succeed later
	Outcome   Outcome // whether it may have taken effect
	Advice    string  // what to do next, a whole sentence
}

// CompatStatus is the HTTP status that the compatible APIs send with an error_code.
func CompatStatus(code int) int {
	switch code {
	case 40001, 42208:
		return http.StatusUnprocessableEntity
	case 50002, 50003, 50101, 50301:
		return http.StatusInternalServerError
	}
	for code >= 1000 {
		code /= 10
	}
	return code
}

// The faults of the HTTP edge itself. Kafka's are in kafkaFaults.
var (
	MalformedBody = &Fault{
		Name: "MALFORMED_BODY", Status: 400, Code: 400, Title: "The body is malformed",
		Outcome: Failed, Advice: "Correct the body and send it again.",
	}
	InvalidParameter = &Fault{
		Name: "INVALID_PARAMETER", Status: 400, Code: 400, Title: "A parameter is not valid",
		Outcome: Failed, Advice: "Correct the parameter and send the request again.",
	}
	Forbidden = &Fault{
		Name: "CROSS_ORIGIN", Status: 403, Code: 403, Title: "A page of another origin may not do this",
		Outcome: Failed, Advice: "Send the request from the server's own origin, or from a program that is not a browser.",
	}
	NotFound = &Fault{
		Name: "NOT_FOUND", Status: 404, Code: 404, Title: "There is nothing at this path",
		Outcome: Failed, Advice: "Look the path up in /docs.",
	}
	MethodNotAllowed = &Fault{
		Name: "METHOD_NOT_ALLOWED", Status: 405, Code: 405, Title: "This path has no such method",
		Outcome: Failed, Advice: "Use a method that the Allow header names.",
	}
	NotAcceptable = &Fault{
		Name: "NOT_ACCEPTABLE", Status: 406, Code: 406, Title: "No form of the answer fits the Accept header",
		Outcome: Failed, Advice: "Ask for one of the media types that the detail lists.",
	}
	SlowBody = &Fault{
		Name: "SLOW_BODY", Status: 408, Code: 408, Title: "The body arrived too slowly",
		Retryable: true, Outcome: Failed, Advice: "Send the request again over a better connection, or in smaller parts.",
	}
	BodyTooLarge = &Fault{
		Name: "BODY_TOO_LARGE", Status: 413, Code: 413, Title: "The body is too large",
		Outcome: Failed, Advice: "Split it into several requests.",
	}
	URITooLong = &Fault{
		Name: "URI_TOO_LONG", Status: 414, Code: 414, Title: "The URI is too long",
		Outcome: Failed, Advice: "Shorten the path or the query.",
	}
	UnsupportedMediaType = &Fault{
		Name: "UNSUPPORTED_MEDIA_TYPE", Status: 415, Code: 415, Title: "The body's media type is not supported here",
		Outcome: Failed, Advice: "Set Content-Type to one of the types that the detail lists.",
	}
	UnsupportedEncoding = &Fault{
		Name: "UNSUPPORTED_ENCODING", Status: 415, Code: 415, Title: "The body's encoding is not supported",
		Outcome: Failed, Advice: "Send the body plain, or with Content-Encoding gzip or zstd.",
	}
	UnprocessableBody = &Fault{
		Name: "UNPROCESSABLE_BODY", Status: 422, Code: 422, Title: "The body says something that cannot be done",
		Outcome: Failed, Advice: "Correct the body and send it again.",
	}
	SchemaMismatch = &Fault{
		Name: "SCHEMA_MISMATCH", Status: 422, Code: 42203, Title: "A key or value does not fit its schema",
		Outcome: Failed, Advice: "Correct it, or name the schema that it has; nothing was stored.",
	}
	SchemaNotFound = &Fault{
		Name: "SCHEMA_NOT_FOUND", Status: 422, Code: 42207, Title: "The schema registry has no such schema",
		Outcome: Failed,
		Advice:  "Name the id of a schema that is registered, or register one: POST /subjects/TOPIC-value/versions.",
	}
	SchemasUnavailable = &Fault{
		Name: "SCHEMAS_UNAVAILABLE", Status: 503, Code: 40801, Title: "The schema registry cannot be asked at the moment",
		Retryable: true, Outcome: Failed, Advice: "Send the request again a little later; nothing was stored.",
	}
	NoSuchMember = &Fault{
		Name: "NO_SUCH_MEMBER", Status: 404, Code: 404, Title: "The cluster has no such member",
		Outcome: Failed, Advice: "GET /v1/cluster/members lists the members.",
	}
	NoSuchKey = &Fault{
		Name: "NO_SUCH_KEY", Status: 404, Code: 404, Title: "The key has no value",
		Outcome: Failed, Advice: "Check the key and the partition, or produce a record with this key.",
	}
	NotCompacted = &Fault{
		Name: "NOT_COMPACTED", Status: 409, Code: 409, Title: "The topic does not keep the latest value of each key",
		Outcome: Failed,
		Advice:  "Read the topic's records, or set its cleanup.policy to compact or compact,delete.",
	}
	IndexBehind = &Fault{
		Name: "INDEX_BEHIND", Status: 503, Code: 50302, Title: "The keys of the partition are not all read yet",
		Retryable: true, Outcome: Failed, Advice: "Send the request again: the reading goes on from where it is.",
	}
	ClusterConflict = &Fault{
		Name: "CLUSTER_CONFLICT", Status: 409, Code: 409, Title: "The state of the cluster does not allow this",
		Outcome: Failed, Advice: "Nothing was changed.",
	}
	MemberConflict = &Fault{
		Name: "MEMBER_CONFLICT", Status: 409, Code: 409, Title: "The group's member is not as the request says",
		Outcome: Failed, Advice: "Read as another member, or have this one leave before.",
	}
	OffsetMoved = &Fault{
		Name: "COMMITTED_OFFSET_MOVED", Status: 409, Code: 409,
		Title: "The group's committed offset is not what the request comes from", Outcome: Failed,
		Advice: "Somebody else has done these records, or has set the group back: drop what was made of them, and go on " +
			"from what is committed, by reading as a new member for example.",
	}
	KeyInUse = &Fault{
		Name: "IDEMPOTENCY_KEY_IN_USE", Status: 409, Code: 409, Title: "The first request with this key is under way",
		Retryable: true, Outcome: Failed,
		Advice: "Send the request again after the time in Retry-After: it gets the first one's answer.",
	}
	KeyReused = &Fault{
		Name: "IDEMPOTENCY_KEY_REUSED", Status: 422, Code: 422, Title: "The key was used for another request",
		Outcome: Failed, Advice: "Use a new key for a new request, and send the same bytes when you repeat one.",
	}
	KeyOutcomeUnknown = &Fault{
		Name: "IDEMPOTENCY_OUTCOME_UNKNOWN", Status: 500, Code: 500,
		Title:   "What the first request with this key has done is not known",
		Outcome: Unknown, Advice: "Check whether it took effect; to do it again, use a new key.",
	}
	MembershipUnavailable = &Fault{
		Name: "MEMBERSHIP_UNAVAILABLE", Status: 503, Code: 50302,
		Title:     "The members of the cluster cannot be told or changed at the moment",
		Retryable: true, Outcome: Failed,
		Advice: "Send the request again a little later; if that does not help, see that a majority of the voters is up.",
	}
	Overloaded = &Fault{
		Name: "OVERLOADED", Status: 503, Code: 50302, Title: "The server is at one of its limits",
		Retryable: true, Outcome: Failed, Advice: "Send the request again after the time in Retry-After.",
	}
	Starting = &Fault{
		Name: "NODE_STARTING", Status: 503, Code: 50302, Title: "The node has not joined its cluster yet",
		Retryable: true, Outcome: Failed,
		Advice: "Send the request again a little later, or to another node; /health/ready says what the node waits for.",
	}
	NotStored = &Fault{
		Name: "NOT_STORED", Status: 507, Code: 50003, Title: "The server cannot store it at the moment",
		Retryable: true, Outcome: Failed,
		Advice: "Nothing was stored. Repair what the detail names, such as a full disk, and send it again.",
	}
	Internal = &Fault{
		Name: "INTERNAL_ERROR", Status: 500, Code: 500, Title: "The server made a mistake",
		Outcome: Unknown, Advice: "Check whether the request took effect, and report the fault with its id.",
	}
	DamagedBatch = &Fault{
		Name: "DAMAGED_BATCH", Status: 500, Code: 50002, Title: "A stored batch is damaged", Outcome: Failed,
		Advice: "Read on behind it, from the offset that resume_offset gives or the position that next gives; `millrace " +
			"log verify` lists the damage in the files of a stopped node.",
	}
	NoAnswer = &Fault{
		Name: "NO_ANSWER", Status: 504, Code: 50003, Title: "The cluster did not answer in time",
		Retryable: true, Outcome: Unknown,
		Advice: "Check whether the request took effect, or send it again in a way that is safe to repeat.",
	}
)

// forRead is how a fault is told of a request that changes nothing: what became of it is never unknown, and there is
// nothing to check.
func (f *Fault) forRead() *Fault {
	switch {
	case f.Kafka == kerr.CorruptMessage.Code:
		return DamagedBatch
	case f.Outcome == Failed:
		return f
	}
	read := *f
	read.Outcome = Failed
	read.Advice = "Look at the server's log, and report the fault if it stays."
	if f.Retryable {
		read.Advice = "Send the request again a little later; if that does not help, look at the server's log."
	}
	if f.Status == http.StatusGatewayTimeout {
		read.Status = http.StatusServiceUnavailable
	}
	return &read
}

// edgeFaults lists the faults above, in the order of the catalogue.
func edgeFaults() []*Fault {
	return []*Fault{
		MalformedBody, InvalidParameter, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, SlowBody,
		BodyTooLarge, URITooLong, UnsupportedMediaType, UnsupportedEncoding, UnprocessableBody, Internal,
		SchemaMismatch, SchemaNotFound, SchemasUnavailable,
		NoSuchMember, NoSuchKey, NotCompacted, IndexBehind, ClusterConflict, MemberConflict, OffsetMoved, KeyInUse,
		KeyReused, KeyOutcomeUnknown, MembershipUnavailable, Overloaded, Starting, NotStored, DamagedBatch, NoAnswer,
	}
}

// Catalogue lists every fault that an API can tell: the HTTP edge's, then Kafka's by code.
func Catalogue() []*Fault {
	out := edgeFaults()
	for i := range kafkaFaults {
		out = append(out, &kafkaFaults[i])
	}
	return out
}

// KafkaFault is the row of a Kafka error. A code that the table lacks is UNKNOWN_SERVER_ERROR's.
func KafkaFault(err *kerr.Error) *Fault {
	if c := int(err.Code); c > 0 && c < len(kafkaFaults) {
		return &kafkaFaults[c] // the row of code -1 stands where code 0's would
	}
	return &kafkaFaults[0]
}
