package restv2

import (
	"net/http"

	"millrace/api"
	"millrace/api/rawjson"
)

// format is how keys and values are given.
type format uint8

const (
	formatBinary format = iota
	formatJSON
	formatAvro
	formatJSONSchema
	formatProtobuf
)

// hasSchema says whether keys and values of the format have schemas.
func (f format) hasSchema() bool { return f >= formatAvro }

// formatOf is what a Content-Type says about a produce request. The generic type is taken as binary.
func formatOf(contentType string) (format, error) {
	switch contentType { // the common case needs no parsing
	case jsonType:
		return formatJSON, nil
	case binaryType:
		return formatBinary, nil
	}
	switch t := api.MediaType(contentType); t {
	case jsonType:
		return formatJSON, nil
	case binaryType, genericType:
		return formatBinary, nil
	case avroType:
		return formatAvro, nil
	case jsonSchemaType:
		return formatJSONSchema, nil
	case protobufType:
		return formatProtobuf, nil
	default:
		return 0, api.RefuseCompat(http.StatusUnsupportedMediaType, "HTTP 415 Unsupported Media Type: "+
			"Content-Type chooses the format of keys and values; use %s, %s, %s, %s or %s.",
			jsonType, binaryType, avroType, jsonSchemaType, protobufType)
	}
}

// input is one record of a request. Its slices are parts of the body, as JSON until decode.
type input struct {
	key, value           []byte // nil is null
	partition            int32  // -1: none is named
	keyBlank, valueBlank bool   // there is white space between the tokens
}

// parse splits a body into its records, appended to dst, and takes down the schemas that it names. Only the boundaries
// of keys and values are found; their bytes stay where they are.
func parse(dst []input, named *schemas, data []byte, maxRecords int) ([]input, error) {
	c := rawjson.Cursor{Data: data}
	if rawjson.IsEmpty(data) {
		return dst, unprocessable("Request body is empty. Data is required.")
	}
	if err := c.Begin('{'); err != nil {
		return dst, malformed(err)
	}
	seen := 0
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return dst, malformed(err)
		}
		if !more {
			break
		}
		bit := seenRecords
		if string(name) == "records" {
			dst, err = parseRecords(dst, &c, maxRecords)
		} else {
			bit, err = named.field(&c, name)
		}
		if err != nil {
			return dst, err
		}
		if seen&bit != 0 {
			return dst, badRequest("Duplicate field: %s", name)
		}
		seen |= bit
	}
	if err := c.End(); err != nil {
		return dst, malformed(err)
	}
	if len(dst) == 0 {
		return dst, unprocessable("Request body has no records; it needs a records array with at least one.")
	}
	return dst, nil
}

// Bits of the members of a request that were seen.
const (
	seenRecords = 1 << iota
	seenKeySchema
	seenKeySchemaID
	seenValueSchema
	seenValueSchemaID
)

// field reads a member that names a schema, and returns the bit of its name. Its shape is checked whatever the format;
// schema formats alone use it.
func (n *schemas) field(c *rawjson.Cursor, name []byte) (int, error) {
	bit, to, isID := 0, &n.value, false
	switch string(name) {
	case "key_schema":
		bit, to = seenKeySchema, &n.key
	case "key_schema_id":
		bit, to, isID = seenKeySchemaID, &n.key, true
	case "value_schema":
		bit = seenValueSchema
	case "value_schema_id":
		bit, isID = seenValueSchemaID, true
	default:
		return 0, unprocessable("Unrecognized field: %s", name)
	}
	value, _, err := c.Value(rawjson.BodyDepth)
	if err != nil {
		return 0, malformed(err)
	}
	if rawjson.IsNull(value) {
		return bit, nil
	}
	if isID {
		id, ok := rawjson.Int64(value)
		if !ok || int64(int32(id)) != id {
			return 0, badRequest("%s=%s is not a 32-bit integer.", name, rawjson.Excerpt(value))
		}
		to.id = int(id)
	} else {
		text, ok := rawjson.Text(value)
		if !ok {
			return 0, badRequest("%s=%s is not a string.", name, rawjson.Excerpt(value))
		}
		to.text = string(text)
	}
	if to.id != 0 && to.text != "" {
		return 0, badRequest("A schema and a schema id exclude each other; %s is the second.", name)
	}
	return bit, nil
}

// parseRecords reads the array of records.
func parseRecords(dst []input, c *rawjson.Cursor, maxRecords int) ([]input, error) {
	if c.Peek() == 'n' {
		if _, _, err := c.Value(1); err != nil {
			return dst, malformed(err)
		}
		return dst, nil
	}
	if err := c.Begin('['); err != nil {
		return dst, malformed(rawjson.InField(err, "records"))
	}
	for first := true; ; first = false {
		more, err := c.More(']', first)
		if err != nil {
			return dst, malformed(err)
		}
		if !more {
			return dst, nil
		}
		if len(dst) == maxRecords {
			return dst, api.Refuse(api.BodyTooLarge, "a request may have at most %d records", maxRecords)
		}
		dst = append(dst, input{partition: -1})
		if err := parseRecord(&dst[len(dst)-1], c); err != nil {
			return dst, err
		}
	}
}

func parseRecord(in *input, c *rawjson.Cursor) error {
	if err := c.Begin('{'); err != nil {
		return malformed(rawjson.InField(err, "records"))
	}
	seen := 0
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return malformed(err)
		}
		if !more {
			return nil
		}
		value, flags, err := c.Value(rawjson.MaxDepth)
		if err != nil {
			return malformed(err)
		}
		null, bit := rawjson.IsNull(value), 0
		switch {
		case string(name) == "value":
			bit = 1
			if !null {
				in.value, in.valueBlank = value, flags&rawjson.Blank != 0
			}
		case string(name) == "key":
			bit = 2
			if !null {
				in.key, in.keyBlank = value, flags&rawjson.Blank != 0
			}
		case string(name) == "partition":
			bit = 4
			if err := in.setPartition(value); err != nil {
				return err
			}
		default:
			return unprocessable("Unrecognized field: %s", name)
		}
		if seen&bit != 0 {
			return badRequest("Duplicate field: %s", name)
		}
		seen |= bit
	}
}

func (in *input) setPartition(value []byte) error {
	if rawjson.IsNull(value) {
		return nil
	}
	n, ok := rawjson.Int64(value)
	switch {
	case !ok || int64(int32(n)) != n:
		return badRequest("partition=%s is not a 32-bit integer.", rawjson.Excerpt(value))
	case n < 0:
		return errPartitionNotFound
	}
	in.partition = int32(n)
	return nil
}

// decode turns keys and values from JSON into the bytes to store, in place: what they stand for is never
// longer than their text.
func decode(inputs []input, f format) error {
	for i := range inputs {
		in := &inputs[i]
		if f == formatJSON {
			if in.keyBlank {
				in.key = rawjson.Compact(in.key[:0], in.key)
			}
			if in.valueBlank {
				in.value = rawjson.Compact(in.value[:0], in.value)
			}
			continue
		}
		var err error
		if in.key, err = decodeBase64(in.key); err == nil {
			in.value, err = decodeBase64(in.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeBase64(value []byte) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	if value[0] != '"' {
		return nil, badRequest("%s is not a base64 string.", rawjson.Excerpt(value))
	}
	b, err := rawjson.Base64(value)
	if err != nil {
		return nil, badRequest("A key or value is not a base64 string: %v.", err)
	}
	return b, nil
}
