package native

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/record"
)

// intake turns a body into records. Keys and values are parts of the body wherever the body holds their
// bytes as they are. Nothing is stored before the whole body was read without a fault.
type intake struct {
	edge    *api.Edge
	request *produceRequest
	body    *api.Body

	records    []record.Record
	partitions []int32  // of records[i], or client.AnyPartition
	topics     []string // of records[i], where each names its own; empty otherwise
	lines      []int32  // the line of records[i] in a body of lines; empty otherwise
	headers    []record.Header
	uses       []schemaUse // the keys and values that have schemas, in the order of their records
	spare      []byte      // memory for decoded bytes; one block for the whole request
}

// keptRecords is how many records' worth of memory an intake keeps for the next request.
const keptRecords = 16_384

func (in *intake) begin(e *api.Edge, q *produceRequest, body *api.Body) {
	in.edge, in.request, in.body = e, q, body
}

// reset forgets the request; false when its memory grew too large to be kept.
func (in *intake) reset() bool {
	kept := cap(in.records) <= keptRecords && cap(in.headers) <= keptRecords && cap(in.uses) <= keptRecords
	clear(in.records)
	clear(in.headers)
	clear(in.topics)
	*in = intake{
		records: in.records[:0], partitions: in.partitions[:0], lines: in.lines[:0], headers: in.headers[:0],
		topics: in.topics[:0], uses: in.uses[:0],
	}
	return kept
}

// read reads the body in the request's form.
func (in *intake) read() error {
	data := in.body.Bytes
	switch in.request.form {
	case bodyJSON:
		return in.readJSON(data)
	case bodyJSONLines:
		return in.readLines(data, (*intake).takeValue)
	case bodyRecords:
		return in.readArray(data, (*intake).takeRecord)
	case bodyRecordLines:
		return in.readLines(data, (*intake).takeRecord)
	case bodyEvent:
		return in.readOne(data, (*intake).takeEvent)
	case bodyEvents:
		return in.readArray(data, (*intake).takeEvent)
	case bodyBinaryEvent:
		return in.readBinaryEvent(data)
	case bodyText:
		if !utf8.Valid(data) {
			return api.Refuse(api.MalformedBody,
				"the text is not valid UTF-8; send other bytes as application/octet-stream")
		}
		return in.add(in.plain(data), client.AnyPartition)
	case bodyBytes:
		return in.add(in.plain(data), client.AnyPartition)
	default:
		return fmt.Errorf("produce form %d has no reader", in.request.form)
	}
}

// plain is the record for a value that brings nothing but itself.
func (in *intake) plain(value []byte) record.Record {
	if value == nil {
		value = []byte{} // an empty value is not a null
	}
	return record.Record{
		Timestamp: in.request.timestamp, Key: in.request.key, Value: value, Headers: in.request.headers,
	}
}

// add takes a record. AnyPartition stands for the request's partition.
func (in *intake) add(r record.Record, partition int32) error {
	if len(in.records) == in.edge.Limits().Records {
		return tooManyRecords(in.edge)
	}
	if partition == client.AnyPartition {
		partition = in.request.partition
	}
	in.records = append(in.records, r)
	in.partitions = append(in.partitions, partition)
	return nil
}

func tooManyRecords(e *api.Edge) error {
	return e.OverLimit("records",
		api.Refuse(api.BodyTooLarge, "a request may hold at most %d records", e.Limits().Records))
}

// readJSON takes the body as one value.
func (in *intake) readJSON(data []byte) error {
	value, _, err := rawjson.Document(data, rawjson.MaxDepth)
	if err == nil {
		return in.addJSON(value)
	}
	e := api.FromError(err)
	if len(bytes.TrimSpace(data)) == 0 {
		e.Detail = "the body is empty, but a JSON value is wanted"
	}
	if in.request.contentType != "application/json" {
		e.Detail += "; a body that is not JSON needs a Content-Type, such as text/plain"
	}
	return e
}

// jsonRecord is the record for a JSON value; null is a tombstone.
func (in *intake) jsonRecord(value []byte) record.Record {
	r := in.plain(value)
	if rawjson.IsNull(value) {
		r.Value = nil
	}
	return r
}

// taker reads one record's JSON at the cursor.
type taker func(*intake, *rawjson.Cursor) error

func (in *intake) takeValue(c *rawjson.Cursor) error {
	value, _, err := c.Value(rawjson.MaxDepth)
	if err != nil {
		return err
	}
	return in.addJSON(value)
}

// addJSON takes the record for a JSON value.
func (in *intake) addJSON(value []byte) error {
	err := in.add(in.jsonRecord(value), client.AnyPartition)
	if err == nil && (in.request.keySchema.given() || in.request.valueSchema.given()) {
		in.useRequestSchemas()
	}
	return err
}

// readLines takes one record from each line that is not blank, in one pass.
func (in *intake) readLines(data []byte, take taker) error {
	c := rawjson.Cursor{Data: data}
	for line := int32(1); ; line++ {
		end := skipBlank(data, c.Pos)
		if end < len(data) && data[end] != '\n' {
			start := end
			c.Pos = start
			if err := take(in, &c); err != nil {
				return atLine(err, line, start)
			}
			in.lines = append(in.lines, line)
			if i := bytes.IndexByte(data[start:c.Pos], '\n'); i >= 0 {
				return atLine(&rawjson.SyntaxError{Offset: start + i, Reason: "the value goes on over the end of the line"},
					line, start)
			}
			if end = skipBlank(data, c.Pos); end < len(data) && data[end] != '\n' {
				return atLine(&rawjson.SyntaxError{Offset: end, Reason: "there is text after the value"}, line, start)
			}
		}
		if end >= len(data) {
			break
		}
		c.Pos = end + 1
	}
	if len(in.records) == 0 {
		return api.Refuse(api.MalformedBody, "the body holds no record")
	}
	return nil
}

// skipBlank passes over white space within a line.
func skipBlank(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// atLine says in which line a fault is. Positions are counted from the start of the line's value.
func atLine(err error, line int32, start int) error {
	var s *rawjson.SyntaxError
	if errors.As(err, &s) {
		err = &rawjson.SyntaxError{Offset: s.Offset - start, Reason: s.Reason}
	}
	return prefixed(err, "line "+strconv.Itoa(int(line))+": ")
}

// prefixed puts where a fault is before what it is.
func prefixed(err error, where string) error {
	e := *api.FromError(err)
	e.Detail = where + e.Detail
	return &e
}

// place says which record an error is about, when there are several.
func (in *intake) place(i int, err error) error {
	if len(in.records) == 1 && len(in.lines) == 0 {
		return err
	}
	return prefixed(err, in.where(int32(i))+": ")
}

// readArray takes one record from each element of an array.
func (in *intake) readArray(data []byte, take taker) error {
	c := rawjson.Cursor{Data: data}
	if err := c.Begin('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := c.More(']', i == 0)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := take(in, &c); err != nil {
			return prefixed(err, "record "+strconv.Itoa(i)+": ")
		}
	}
	if err := c.End(); err != nil {
		return err
	}
	if len(in.records) == 0 {
		return api.Refuse(api.MalformedBody, "the array holds no record")
	}
	return nil
}

// readOne takes the one record of a document.
func (in *intake) readOne(data []byte, take taker) error {
	c := rawjson.Cursor{Data: data}
	if err := take(in, &c); err != nil {
		return err
	}
	return c.End()
}

// room is n bytes of memory that live as long as the request.
func (in *intake) room(n int) []byte {
	if n > cap(in.spare)-len(in.spare) {
		in.spare = in.body.Arena().Alloc(max(n, len(in.body.Bytes)))[:0]
	}
	start := len(in.spare)
	in.spare = in.spare[:start+n]
	return in.spare[start : start+n : start+n]
}
