package native

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// bodyForm is how a produce body is read.
type bodyForm int

const (
	bodyJSON bodyForm = iota
	bodyJSONLines
	bodyRecords
	bodyRecordLines
	bodyEvent
	bodyEvents
	bodyBinaryEvent
	bodyText
	bodyBytes
	bodyBatches
)

// produceTypes are the media types of bodies and what they mean.
var produceTypes = []struct {
	mediaType string
	form      bodyForm
}{
	{"application/json", bodyJSON},
	{"application/x-ndjson", bodyJSONLines},
	{"application/vnd.millrace.records+json", bodyRecords},
	{"application/vnd.millrace.records+ndjson", bodyRecordLines},
	{"application/cloudevents+json", bodyEvent},
	{"application/cloudevents-batch+json", bodyEvents},
	{"text/plain", bodyText},
	{"application/octet-stream", bodyBytes},
	{"application/vnd.apache.kafka.recordbatch", bodyBatches},
	{"application/x-www-form-urlencoded", bodyJSON}, // what curl -d calls any body
	{"", bodyJSON},
}

const maxNameBytes = 255 // of a producer's name and of an idempotency key

// produceRequest is all of a produce request but its body.
type produceRequest struct {
	topic       string
	form        bodyForm
	contentType string // as sent; only for a binary event
	key         []byte // nil: none given
	partition   int32
	acks        int16
	timestamp   int64
	timed       bool            // the parameter timestamp is given
	headers     []record.Header // from Record-Header-NAME
	// keySchema and valueSchema write the keys and values of a body of JSON values.
	keySchema, valueSchema namedSchema
	event                  []record.Header // from ce-NAME

	// txn says that the records go into a transaction; then the topic is a parameter, or each record names its own.
	txn *txnRequest

	idempotencyKey string
	producer       client.NamedProducer
	hasProducer    bool
	expectedOffset int64
	expected       *int64 // &expectedOffset, or nil

	producerID, producerEpoch, producerSeq *string // as sent, only while parsing
}

func (q *produceRequest) reset() {
	clear(q.headers)
	clear(q.event)
	*q = produceRequest{headers: q.headers[:0], event: q.event[:0]}
}

func (q *produceRequest) parse(r *http.Request, now func() time.Time) error {
	q.partition = client.AnyPartition
	q.acks = client.AcksAll
	q.timestamp = now().UnixMilli()
	if q.txn == nil {
		if err := client.CheckTopicName(q.topic); err != nil {
			return err
		}
	}
	if err := q.parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := q.parseHeaders(r.Header); err != nil {
		return err
	}
	if err := q.parseProducer(); err != nil {
		return err
	}
	if err := q.parseForm(r.Header); err != nil || q.txn == nil {
		return err
	}
	return q.checkTxn()
}

func (q *produceRequest) parseQuery(query string) error {
	var seen [8]string // as many as there are parameters
	n := 0
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(value)
		if err != nil {
			return api.BadEscape(pair)
		}
		if slices.Contains(seen[:n], name) {
			return api.Refuse(api.InvalidParameter, "parameter %q is given twice", name)
		}
		if err := q.setParameter(name, value); err != nil {
			return err
		}
		seen[n], n = name, n+1
	}
	return nil
}

func (q *produceRequest) setParameter(name, value string) error {
	switch name {
	case "key":
		if !utf8.ValidString(value) {
			return api.Refuse(api.InvalidParameter, "key is not valid UTF-8; send such a key as key_base64 of a record")
		}
		q.key = append([]byte{}, value...)
	case "partition":
		p, err := strconv.ParseInt(value, 10, 32)
		if err != nil || p < 0 {
			return api.Refuse(api.InvalidParameter, "partition is a number from 0, not %q", value)
		}
		q.partition = int32(p)
	case "acks":
		switch value {
		case "all", "-1":
			q.acks = client.AcksAll
		case "1":
			q.acks = client.AcksLeader
		case "0":
			q.acks = client.AcksNone
		default:
			return api.Refuse(api.InvalidParameter, "acks is all, 1 or 0, not %q", value)
		}
	case "timestamp":
		t, fault := parseInstant(value)
		if fault != "" {
			return api.Refuse(api.InvalidParameter, "%s %q", fault, value)
		}
		q.timestamp, q.timed = t, true
	default:
		if q.txn != nil {
			return q.setTxnParameter(name, value)
		}
		return q.setSchemaParameter(name, value)
	}
	return nil
}

// parseInstant reads a time given as RFC 3339 or as milliseconds since 1970. A fault is what is to be said before s.
func parseInstant(s string) (ms int64, fault string) {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return 0, "timestamp is RFC 3339 or milliseconds since 1970, not"
		}
		ms = t.UnixMilli()
	}
	if ms < 0 {
		return 0, "timestamp lies before 1970, where timestamps begin:"
	}
	return ms, ""
}

// parseHeaders takes what the request's headers say in one pass over them.
func (q *produceRequest) parseHeaders(h http.Header) error {
	for name, values := range h {
		switch name {
		case "Producer-Id":
			q.producerID = &values[0]
		case "Producer-Epoch":
			q.producerEpoch = &values[0]
		case "Producer-Seq":
			q.producerSeq = &values[0]
		case "Idempotency-Key":
			if q.idempotencyKey = values[0]; !goodName(q.idempotencyKey) {
				return badName("Idempotency-Key")
			}
		case "Expected-Offset":
			v, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil || v < 0 {
				return api.Refuse(api.InvalidParameter, "Expected-Offset is a number from 0, not %q", values[0])
			}
			q.expectedOffset = v
			q.expected = &q.expectedOffset
		default:
			if err := q.takeRecordHeader(name, values); err != nil {
				return err
			}
		}
	}
	// The map has no order; a record's headers have one, so that equal requests give equal bytes.
	slices.SortStableFunc(q.headers, byHeaderKey)
	slices.SortStableFunc(q.event, byHeaderKey)
	return nil
}

func byHeaderKey(a, b record.Header) int { return strings.Compare(a.Key, b.Key) }

// takeRecordHeader takes Record-Header-NAME and ce-NAME. HTTP has no case in names, so they become lower
// case.
func (q *produceRequest) takeRecordHeader(name string, values []string) error {
	list := &q.headers
	rest, ok := strings.CutPrefix(name, "Record-Header-")
	if !ok {
		if rest, ok = strings.CutPrefix(name, "Ce-"); !ok {
			return nil
		}
		list, name = &q.event, "ce-"+strings.ToLower(rest)
	}
	if rest == "" {
		return api.Refuse(api.InvalidParameter, "header %s: a name is wanted behind the last '-'", name)
	}
	for _, v := range values {
		if !utf8.ValidString(v) {
			return notUTF8(name)
		}
		*list = append(*list, record.Header{Key: strings.ToLower(rest), Value: []byte(v)})
	}
	return nil
}

// notUTF8 refuses the value of a request header, and says how to send it.
func notUTF8(name string) error {
	how := "send it as UTF-8, or in a full record as value_base64"
	if strings.HasPrefix(name, "ce-") {
		how = "percent-encode what is not ASCII, as UTF-8"
	}
	return api.Refuse(api.InvalidParameter, "the value of header %s is not valid UTF-8; %s", name, how)
}

func goodName(s string) bool {
	return s != "" && len(s) <= maxNameBytes && utf8.ValidString(s)
}

func badName(header string) error {
	return api.Refuse(api.InvalidParameter, "%s is 1 to %d bytes of UTF-8", header, maxNameBytes)
}

// parseProducer makes a named producer of the triple, or of an idempotency key: one that sends one request.
func (q *produceRequest) parseProducer() error {
	id := q.producerID
	switch {
	case q.txn != nil:
		return q.parseTxnProducer()
	case id == nil && (q.producerEpoch != nil || q.producerSeq != nil):
		return api.Refuse(api.InvalidParameter, "Producer-Epoch and Producer-Seq go with a Producer-Id")
	case id != nil && q.idempotencyKey != "":
		return api.Refuse(api.InvalidParameter, "Idempotency-Key and Producer-Id exclude each other")
	case q.idempotencyKey != "":
		q.producer, q.hasProducer = client.NamedProducer{Name: "idempotency-key\x00" + q.idempotencyKey, Once: true}, true
		return nil
	case id == nil:
		return nil
	case !goodName(*id) || strings.ContainsRune(*id, 0):
		return badName("Producer-Id")
	case q.producerSeq == nil:
		return api.Refuse(api.InvalidParameter, "Producer-Id goes with a Producer-Seq")
	}
	q.producer, q.hasProducer = client.NamedProducer{Name: *id}, true
	if err := q.parseSeq(); err != nil || q.producerEpoch == nil {
		return err
	}
	epoch, err := strconv.ParseInt(*q.producerEpoch, 10, 16)
	if err != nil || epoch < 0 {
		return api.Refuse(api.InvalidParameter, "Producer-Epoch is a number from 0 to 32767, not %q", *q.producerEpoch)
	}
	q.producer.Epoch = int16(epoch)
	return nil
}

func (q *produceRequest) parseSeq() error {
	seq, err := strconv.ParseInt(*q.producerSeq, 10, 32)
	if err != nil || seq < 0 {
		return api.Refuse(api.InvalidParameter, "Producer-Seq is a number from 0 to 2147483647, not %q", *q.producerSeq)
	}
	q.producer.Seq = int32(seq)
	return nil
}

// parseForm decides how the body is read. ce- headers make any body the data of an event.
func (q *produceRequest) parseForm(h http.Header) error {
	q.contentType = h.Get("Content-Type")
	mediaType := api.MediaType(q.contentType)
	if len(q.event) > 0 && !strings.HasPrefix(mediaType, "application/cloudevents") {
		q.form = bodyBinaryEvent
		return q.checkSchemas()
	}
	for _, t := range produceTypes {
		if t.mediaType == mediaType {
			q.form = t.form
			if err := q.checkSchemas(); err != nil {
				return err
			}
			return q.checkForm()
		}
	}
	known := make([]string, 0, len(produceTypes))
	for _, t := range produceTypes[:len(produceTypes)-1] {
		known = append(known, t.mediaType)
	}
	return api.Refuse(api.UnsupportedMediaType, "the body is %s; read are %s", mediaType, strings.Join(known, ", "))
}

// checkForm checks what goes together with the form.
func (q *produceRequest) checkForm() error {
	if q.form == bodyBatches {
		switch {
		case q.partition == client.AnyPartition:
			return api.Refuse(api.InvalidParameter, "record batches need the parameter partition")
		case q.key != nil || len(q.headers) > 0:
			return api.Refuse(api.InvalidParameter, "record batches have their own keys and headers")
		case q.timed:
			return api.Refuse(api.InvalidParameter, "record batches have their own timestamps")
		}
	}
	isText := q.form == bodyText || q.form == bodyJSON || q.form == bodyJSONLines
	if isText && strings.IndexByte(q.contentType, ';') >= 0 {
		_, params, err := mime.ParseMediaType(q.contentType)
		charset := strings.ToLower(params["charset"])
		if err == nil && charset != "" && charset != "utf-8" && charset != "us-ascii" {
			return api.Refuse(api.UnsupportedMediaType,
				"charset %s; text is UTF-8, other bytes are application/octet-stream", charset)
		}
	}
	return nil
}

// oneBatchHeaders are the headers that make a partition's records one batch, which is stored whole or not at all.
const oneBatchHeaders = "Producer-Id, Idempotency-Key or Expected-Offset"

func (q *produceRequest) oneBatch() bool { return q.hasProducer || q.expected != nil }

func (q *produceRequest) sendOptions(timeout time.Duration) client.SendOptions {
	o := client.SendOptions{Acks: q.acks, Timeout: timeout, Expected: q.expected, CheckAll: true}
	if q.hasProducer {
		o.Producer = &q.producer
	}
	return o
}
