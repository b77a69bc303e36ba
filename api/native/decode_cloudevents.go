package native

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/record"
)

// eventContentType is the content-type header of a record that holds an event in its JSON form, as the
// CloudEvents Kafka binding has it.
const eventContentType = "application/cloudevents+json; charset=UTF-8"

// requiredAttributes must be in every event.
var requiredAttributes = [...]string{"specversion", "id", "source", "type"}

// takeEvent reads an event in its JSON form, which is stored as it is: the binding's structured mode.
func (in *intake) takeEvent(c *rawjson.Cursor) error {
	if err := c.Begin('{'); err != nil {
		return err
	}
	start := c.Pos - 1
	e := eventFields{}
	for first := true; ; first = false {
		more, err := c.More('}', first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		name, err := c.Name()
		if err != nil {
			return err
		}
		value, _, err := c.Value(rawjson.MaxDepth)
		if err != nil {
			return err
		}
		if err := e.take(string(name), value); err != nil {
			return err
		}
	}
	if err := e.check(); err != nil {
		return err
	}
	r := in.plain(in.body.Bytes[start:c.Pos:c.Pos])
	if e.key != nil {
		r.Key = e.key
	}
	r.Headers = in.eventHeaders(nil, eventContentType)
	return in.add(r, client.AnyPartition)
}

// eventFields is what was seen of an event.
type eventFields struct {
	seen     map[string]bool
	required int // how many of requiredAttributes
	key      []byte
}

// take checks one member of an event in its JSON form.
func (e *eventFields) take(name string, value []byte) error {
	if e.seen[name] {
		return api.Refuse(api.MalformedBody, "attribute %s is there twice", shorten([]byte(name)))
	}
	if e.seen == nil {
		e.seen = make(map[string]bool, 8)
	}
	switch {
	case name == "data":
		e.seen[name] = true
		return nil
	case name == "data_base64":
		e.seen[name] = true
		return checkBase64(value)
	case !isAttributeName(name):
		return api.Refuse(api.MalformedBody, "attribute %q: names are lower-case letters and digits", name)
	case rawjson.IsNull(value):
		return nil // as if it were not there
	}
	e.seen[name] = true
	switch value[0] {
	case '"':
		t, ok := rawjson.Text(value)
		if !ok {
			return api.Refuse(api.MalformedBody, "attribute %s holds half of a surrogate pair", name)
		}
		return e.attribute(name, t)
	}
	if isCoreAttribute(name) {
		return api.Refuse(api.MalformedBody, "attribute %s is a string, not %s", name, shorten(value))
	}
	if n, ok := rawjson.Int64(value); value[0] != 't' && value[0] != 'f' && (!ok || int64(int32(n)) != n) {
		return api.Refuse(api.MalformedBody, "attribute %s is a string, a whole number of 32 bits or a boolean, not %s",
			name, shorten(value))
	}
	return nil
}

// attribute checks one attribute whose value is text.
func (e *eventFields) attribute(name string, value []byte) error {
	for _, r := range requiredAttributes {
		if r == name {
			if len(value) == 0 {
				return api.Refuse(api.MalformedBody, "attribute %s may not be empty", name)
			}
			e.required++
		}
	}
	switch name {
	case "specversion":
		if string(value) != "1.0" {
			return api.Refuse(api.MalformedBody, "specversion is 1.0, not %s", shorten(value))
		}
	case "time":
		if _, err := time.Parse(time.RFC3339Nano, string(value)); err != nil {
			return api.Refuse(api.MalformedBody, "attribute time is RFC 3339, not %s", shorten(value))
		}
	case "partitionkey":
		e.key = nonNil(value)
	}
	return nil
}

// check finds what is missing or does not go together.
func (e *eventFields) check() error {
	if e.seen["data"] && e.seen["data_base64"] {
		return api.Refuse(api.MalformedBody, "at most one of data and data_base64 may be there")
	}
	if e.required == len(requiredAttributes) {
		return nil
	}
	for _, name := range requiredAttributes {
		if !e.seen[name] {
			return api.Refuse(api.MalformedBody, "the event has no attribute %s", name)
		}
	}
	return nil
}

func isAttributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func isCoreAttribute(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "partitionkey":
		return true
	default:
		return false
	}
}

func checkBase64(value []byte) error {
	t, ok := rawjson.Text(value)
	if !ok {
		return api.Refuse(api.MalformedBody, "data_base64 is a string of base64")
	}
	if err := validBase64(t); err != nil {
		return notBase64("data_base64", err)
	}
	return nil
}

// readBinaryEvent takes the body as the data of the event whose attributes came as ce- headers: the
// binding's binary mode.
func (in *intake) readBinaryEvent(data []byte) error {
	q := in.request
	e := eventFields{}
	attributes := make([]record.Header, 0, len(q.event))
	for _, h := range q.event {
		value := percentDecoded(string(h.Value))
		switch {
		case !isAttributeName(h.Key) || h.Key == "data":
			return api.Refuse(api.InvalidParameter, "header ce-%s: names are lower-case letters and digits", h.Key)
		case e.seen[h.Key]:
			return api.Refuse(api.InvalidParameter, "header ce-%s is there twice", h.Key)
		case !utf8.ValidString(value):
			return notUTF8("ce-" + h.Key)
		}
		if e.seen == nil {
			e.seen = make(map[string]bool, len(q.event))
		}
		e.seen[h.Key] = true
		if err := e.attribute(h.Key, []byte(value)); err != nil {
			return err
		}
		attributes = append(attributes, record.Header{Key: "ce_" + h.Key, Value: []byte(value)})
	}
	if err := e.check(); err != nil {
		return err
	}
	contentType := q.contentType
	mediaType := api.MediaType(contentType)
	if mediaType == "application/x-www-form-urlencoded" {
		contentType, mediaType = "application/json", "application/json" // what curl -d calls any body
	}
	if len(data) > 0 && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")) {
		if _, _, err := rawjson.Document(data, rawjson.MaxDepth); err != nil {
			return err
		}
	}
	r := in.plain(data)
	if len(data) == 0 {
		r.Value = nil // an event without data
	}
	if e.key != nil {
		r.Key = e.key
	}
	r.Headers = in.eventHeaders(attributes, contentType)
	return in.add(r, client.AnyPartition)
}

// percentDecoded decodes %XX as the HTTP binding wants it; what is not such an escape stays.
func percentDecoded(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// eventHeaders are an event's headers: its attributes, its content type, and the request's.
func (in *intake) eventHeaders(attributes []record.Header, contentType string) []record.Header {
	start := len(in.headers)
	in.headers = append(in.headers, attributes...)
	if contentType != "" {
		in.headers = append(in.headers, record.Header{Key: "content-type", Value: []byte(contentType)})
	}
	in.headers = append(in.headers, in.request.headers...)
	return in.headers[start:len(in.headers):len(in.headers)]
}
