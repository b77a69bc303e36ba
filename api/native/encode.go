package native

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/record"
	"millrace/schemaregistry/serde"
)

// form is how keys or values are to be shown.
type form uint8

const (
	formAuto   form = iota // the first of the others that fits
	formJSON               // spliced in as it is
	formText               // a JSON string
	formBase64             // always fits

	// As the schema of the type says that the bytes name.
	formAvro
	formJSONSchema
	formProtobuf
)

// What decode_error says. A field that does not fit the form asked for comes as base64.
const (
	notJSON    = "is not JSON"
	notText    = "is not UTF-8"
	jsonNull   = "is the JSON text null, which would read as no "
	badInstant = "timestamp lies outside the years 0 to 9999: "
)

// jsonEncoder writes records as JSON objects. It copies what records hold once, from the batch into the answer, and
// decodes nothing but what names a schema. The zero value shows everything in the first form that fits.
type jsonEncoder struct {
	key, value form
	// lines keeps each record on one line: line ends between the tokens of a JSON key or value become spaces.
	lines bool

	decoder *decoder // nil: there is no registry

	// plain says that all values of the batch in hand are known to be JSON that can be spliced in as it stands,
	// plainSoFar that those seen now are.
	plain, plainSoFar bool

	clock clock
	head  []byte // what begins a record of partition of
	of    int32
}

// append writes r behind dst as one JSON object.
func (e *jsonEncoder) append(dst []byte, partition int32, r *record.Record) []byte {
	if e.of != partition || e.head == nil {
		e.begin(partition)
	}
	dst = append(dst, e.head...)
	dst = strconv.AppendInt(dst, r.Offset, 10)
	if r.Timestamp != noTimestamp && isInstant(r.Timestamp) {
		dst = append(dst, `,"timestamp":"`...)
		dst = e.clock.append(dst, r.Timestamp)
		dst = append(dst, '"')
	}
	var keyFault, valueFault string
	if r.Key != nil {
		dst = append(dst, `,"key`...)
		if e.decodes(e.key, serde.Key, r.Key, r.Headers) {
			dst, keyFault = e.appendDecoded(dst, e.key, serde.Key, r.Key, r.Headers)
		} else {
			dst, _, keyFault = e.appendField(dst, e.key, r.Key)
		}
	}
	switch {
	case r.Value == nil:
		dst = append(dst, `,"value":null`...)
	case e.plain:
		dst = append(dst, `,"value":`...)
		dst = append(dst, r.Value...)
	case e.decodes(e.value, serde.Value, r.Value, r.Headers):
		e.plainSoFar = false
		dst = append(dst, `,"value`...)
		dst, valueFault = e.appendDecoded(dst, e.value, serde.Value, r.Value, r.Headers)
	default:
		var spliced bool
		dst = append(dst, `,"value`...)
		dst, spliced, valueFault = e.appendField(dst, e.value, r.Value)
		e.plainSoFar = e.plainSoFar && spliced && !serde.Value.HasHeader(r.Headers)
	}
	if len(r.Headers) > 0 {
		dst = appendHeaders(dst, r.Headers)
	}
	if keyFault != "" || valueFault != "" || !isInstant(r.Timestamp) {
		dst = appendDecodeError(dst, r.Timestamp, keyFault, valueFault)
	}
	return append(dst, '}')
}

// begin prepares what records of a partition have in common.
func (e *jsonEncoder) begin(partition int32) {
	e.head = append(e.head[:0], `{"partition":`...)
	e.head = strconv.AppendInt(e.head, int64(partition), 10)
	e.head = append(e.head, `,"offset":`...)
	e.of = partition
}

// appendField writes the rest of a member whose name is begun, in the form asked for or the first that fits. spliced
// says that it wrote the bytes as they are, fault what is wrong with bytes that do not fit.
func (e *jsonEncoder) appendField(dst []byte, asked form, b []byte) (out []byte, spliced bool, fault string) {
	if asked == formJSON || asked == formAuto {
		value, flags, ok := jsonText(b)
		switch {
		case ok && !rawjson.IsNull(value):
			spliced = len(value) == len(b) && flags&rawjson.Newline == 0
			return e.appendJSON(dst, value, flags), spliced, ""
		case asked == formJSON && ok:
			fault = jsonNull
		case asked == formJSON:
			fault = notJSON
		}
	}
	if asked == formText || asked == formAuto {
		if utf8.Valid(b) {
			return rawjson.AppendString(append(dst, `_text":`...), b), false, ""
		}
		if asked == formText {
			fault = notText
		}
	}
	return appendBase64(append(dst, `_base64":`...), b), false, fault
}

// appendJSON splices a JSON value in. Line ends stand only between its tokens, so spaces can stand for them.
func (e *jsonEncoder) appendJSON(dst, value []byte, flags rawjson.Flags) []byte {
	dst = append(dst, '"', ':')
	at := len(dst)
	dst = append(dst, value...)
	if e.lines && flags&rawjson.Newline != 0 {
		for i, c := range dst[at:] {
			if c == '\n' || c == '\r' {
				dst[at+i] = ' '
			}
		}
	}
	return dst
}

// jsonText is the JSON value that b is, without white space around it; ok is false if b is not one.
func jsonText(b []byte) (value []byte, flags rawjson.Flags, ok bool) {
	if len(b) == 0 || !mayBeginJSON(b[0]) {
		return nil, 0, false
	}
	value, flags, err := rawjson.Document(b, rawjson.MaxDepth)
	return value, flags, err == nil
}

// mayBeginJSON spares most text the look that makes an error of it.
func mayBeginJSON(c byte) bool {
	switch c {
	case '{', '[', '"', '-', 't', 'f', 'n', ' ', '\t', '\r', '\n':
		return true
	}
	return c >= '0' && c <= '9'
}

func appendHeaders(dst []byte, headers []record.Header) []byte {
	dst = append(dst, `,"headers":[`...)
	for i, h := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = rawjson.AppendString(dst, h.Key) // what is not UTF-8 becomes U+FFFD
		switch {
		case h.Value == nil:
			dst = append(dst, `,"value":null}`...)
		case utf8.Valid(h.Value):
			dst = append(dst, `,"value":`...)
			dst = rawjson.AppendString(dst, h.Value)
			dst = append(dst, '}')
		default:
			dst = append(dst, `,"value_base64":`...)
			dst = appendBase64(dst, h.Value)
			dst = append(dst, '}')
		}
	}
	return append(dst, ']')
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

func appendDecodeError(dst []byte, timestamp int64, key, value string) []byte {
	var room [256]byte
	text := room[:0]
	for _, f := range [...]struct{ name, fault string }{{"key", key}, {"value", value}} {
		if f.fault == "" {
			continue
		}
		text = appendSeparator(text)
		text = append(text, f.name...)
		text = append(text, ' ')
		text = append(text, f.fault...)
		if f.fault == jsonNull {
			text = append(text, f.name...)
		}
	}
	if !isInstant(timestamp) {
		text = appendSeparator(text)
		text = append(text, badInstant...)
		text = strconv.AppendInt(text, timestamp, 10)
	}
	return rawjson.AppendString(append(dst, `,"decode_error":`...), text)
}

func appendSeparator(dst []byte) []byte {
	if len(dst) > 0 {
		return append(dst, "; "...)
	}
	return dst
}

// Milliseconds of the first and the last instant that RFC 3339 can write.
const (
	minInstant = -62_167_219_200_000
	maxInstant = 253_402_300_799_999
)

// noTimestamp marks a record that has none.
const noTimestamp = -1

// isInstant says whether RFC 3339 can write the timestamp.
func isInstant(ms int64) bool { return ms >= minInstant && ms <= maxInstant }

// clock writes timestamps as RFC 3339 in UTC with milliseconds. Neighbouring records mostly share their instant or at
// least their second, so it keeps the text of the last one.
type clock struct {
	ms     int64
	second int64
	text   [24]byte // "2006-01-02T15:04:05.000Z" of ms; not set when text[0] is 0
}

// append writes the instant ms, which lies between minInstant and maxInstant, behind dst.
func (c *clock) append(dst []byte, ms int64) []byte {
	if ms != c.ms || c.text[0] == 0 {
		second := floorDiv(ms, 1000)
		if second != c.second || c.text[0] == 0 {
			c.set(second)
		}
		rest := ms - second*1000
		c.text[20], c.text[21], c.text[22] = byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10)
		c.ms = ms
	}
	return append(dst, c.text[:]...)
}

// set works out the text of a second. The date comes from the count of days as in the proleptic Gregorian calendar
// whose years begin in March, so that the leap day is a year's last.
func (c *clock) set(second int64) {
	const perDay, daysTo1970, perEra = 86_400, 719_468, 146_097
	day := floorDiv(second, perDay)
	clockTime := second - day*perDay
	day += daysTo1970
	era := floorDiv(day, perEra)
	inEra := day - era*perEra
	year := (inEra - inEra/1460 + inEra/36_524 - inEra/146_096) / 365
	inYear := inEra - (365*year + year/4 - year/100)
	marchMonth := (5*inYear + 2) / 153
	dayOfMonth := inYear - (153*marchMonth+2)/5 + 1
	month := marchMonth + 3
	year += era * 400
	if month > 12 {
		month -= 12
		year++
	}
	t := c.text[:0]
	t = append2(t, year/100)
	t = append(append2(t, year%100), '-')
	t = append(append2(t, month), '-')
	t = append(append2(t, dayOfMonth), 'T')
	t = append(append2(t, clockTime/3600), ':')
	t = append(append2(t, clockTime/60%60), ':')
	_ = append(append2(t, clockTime%60), ".000Z"...) // t's memory is text
	c.second = second
}

// append2 writes n from 0 to 99 in two digits.
func append2(dst []byte, n int64) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
