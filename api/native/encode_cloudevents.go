package native

import (
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/record"
)

// maxEventAttributes bounds the context attributes taken from one record's headers.
const maxEventAttributes = 100

// eventEncoder writes records as CloudEvents in the JSON format, for a batch. A record that is an event by the Kafka
// binding, in binary or structured mode, comes as that event. Any other record is wrapped: its id is its partition
// and offset, its source the topic's path, its type recordEventType, its data the value.
type eventEncoder struct {
	topic string
	clock clock
	names []string // the attributes of the event in hand; kept for its memory
}

// recordEventType is the type of an event that wraps a record which is none.
const recordEventType = "millrace.record"

// append writes r behind dst as one JSON object.
func (e *eventEncoder) append(dst []byte, partition int32, r *record.Record) []byte {
	contentType := findHeader(r.Headers, "content-type")
	if strings.HasPrefix(string(contentType), "application/cloudevents") && isObject(r.Value) {
		return append(dst, r.Value...)
	}
	if isBinaryEvent(r.Headers) {
		return e.appendBinary(dst, r, string(contentType))
	}
	return e.appendWrapped(dst, partition, r, string(contentType))
}

func findHeader(headers []record.Header, name string) []byte {
	for i := range headers {
		if headers[i].Key == name {
			return headers[i].Value
		}
	}
	return nil
}

func isObject(b []byte) bool {
	value, _, ok := jsonText(b)
	return ok && value[0] == '{'
}

// isBinaryEvent says whether the headers hold every attribute that an event must have.
func isBinaryEvent(headers []record.Header) bool {
	for _, name := range [...]string{"ce_specversion", "ce_id", "ce_source", "ce_type"} {
		if len(findHeader(headers, name)) == 0 {
			return false
		}
	}
	return true
}

func (e *eventEncoder) appendBinary(dst []byte, r *record.Record, contentType string) []byte {
	dst = append(dst, '{')
	e.names = e.names[:0]
	for i := range r.Headers {
		name, ok := strings.CutPrefix(r.Headers[i].Key, "ce_")
		if !ok || !e.isNew(name) || r.Headers[i].Value == nil || !utf8.Valid(r.Headers[i].Value) {
			continue
		}
		e.names = append(e.names, name)
		if len(e.names) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = rawjson.AppendString(dst, r.Headers[i].Value)
	}
	if e.isNew("partitionkey") {
		dst = appendPartitionKey(dst, r.Key)
	}
	if contentType != "" {
		dst = append(dst, `,"datacontenttype":`...)
		dst = rawjson.AppendString(dst, contentType)
	}
	dst = appendData(dst, r.Value, contentType)
	return append(dst, '}')
}

// isNew says whether name may be an attribute and is not one yet. The content type and the data have members of
// their own.
func (e *eventEncoder) isNew(name string) bool {
	if name == "" || name == "data" || name == "datacontenttype" || len(e.names) == maxEventAttributes {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return !slices.Contains(e.names, name)
}

func (e *eventEncoder) appendWrapped(dst []byte, partition int32, r *record.Record, contentType string) []byte {
	dst = append(dst, `{"specversion":"1.0","id":"`...)
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, r.Offset, 10)
	dst = append(dst, `","source":"/v1/topics/`...)
	dst = append(dst, e.topic...)
	dst = append(dst, `","type":"`+recordEventType+`"`...)
	if r.Timestamp != noTimestamp && isInstant(r.Timestamp) {
		dst = append(dst, `,"time":"`...)
		dst = e.clock.append(dst, r.Timestamp)
		dst = append(dst, '"')
	}
	dst = appendPartitionKey(dst, r.Key)
	if contentType == "" {
		contentType = guessContentType(r.Value)
	}
	if contentType != "" {
		dst = append(dst, `,"datacontenttype":`...)
		dst = rawjson.AppendString(dst, contentType)
	}
	dst = appendData(dst, r.Value, contentType)
	return append(dst, '}')
}

func appendPartitionKey(dst, key []byte) []byte {
	if key == nil || !utf8.Valid(key) {
		return dst
	}
	dst = append(dst, `,"partitionkey":`...)
	return rawjson.AppendString(dst, key)
}

func guessContentType(value []byte) string {
	switch {
	case value == nil:
		return ""
	case isJSON(value):
		return "application/json"
	case utf8.Valid(value):
		return "text/plain"
	}
	return "application/octet-stream"
}

// appendData writes the data in the member that its content type asks for: JSON and text as data, the rest as
// data_base64. Data that is not what its type says is data_base64 too.
func appendData(dst, value []byte, contentType string) []byte {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = contentType
	}
	switch {
	case value == nil:
		return dst
	case isJSONType(media) && isJSON(value):
		dst = append(dst, `,"data":`...)
		return append(dst, value...)
	case isTextType(media) && utf8.Valid(value):
		dst = append(dst, `,"data":`...)
		return rawjson.AppendString(dst, value)
	}
	dst = append(dst, `,"data_base64":`...)
	return appendBase64(dst, value)
}

func isJSON(b []byte) bool {
	_, _, ok := jsonText(b)
	return ok
}

func isJSONType(media string) bool {
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

func isTextType(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
}
