package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxLine bounds one line of input. A record may not be much larger than a megabyte by default, so this is plenty.
const maxLine = 64 << 20

// input turns standard input or a file into records in the API's JSON form, one a line.
type input struct {
	r       *bufio.Reader
	format  string // lines, json, records
	keySep  string // lines: what stands between key and value; empty: no keys
	key     *string
	headers []header
	// anywhere leaves out which partition a record names.
	anywhere bool
	line     int
	read     int64 // bytes of the input so far
}

// header is a record header given on the command line.
type header struct{ name, value string }

// next reads one record. It returns io.EOF at the end of the input.
func (in *input) next() ([]byte, error) {
	for {
		line, err := in.readLine()
		if err != nil {
			return nil, err
		}
		in.line++
		if in.format != "lines" && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		switch in.format {
		case "json":
			return in.value(line)
		case "records":
			return in.record(line)
		default:
			return in.text(string(line))
		}
	}
}

// readLine returns the next line without its end. The last line needs none.
func (in *input) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := in.r.ReadSlice('\n')
		line = append(line, part...)
		in.read += int64(len(part))
		if len(line) > maxLine {
			return nil, failf(exitFailed, "line %d: longer than %d bytes; is the input binary?", in.line+1, maxLine)
		}
		switch {
		case err == nil:
			return trimEnd(line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return trimEnd(line), nil
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, failf(exitFailed, "read the input after line %d: %w", in.line, err)
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// value makes a record whose value is the line, which must be JSON.
func (in *input) value(line []byte) ([]byte, error) {
	if !json.Valid(line) {
		return nil, failf(exitFailed, "line %d is not JSON: %.80q\nUse --format lines to send it as text.", in.line, line)
	}
	return in.join(in.key, `"value":`, line), nil
}

// record takes a whole record as it is; only that it is a JSON object is checked here, the rest by the server.
func (in *input) record(line []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, failf(exitFailed, "line %d is not a record, a JSON object: %.80q", in.line, line)
	}
	if _, ok := fields["partition"]; !ok || !in.anywhere {
		return line, nil
	}
	delete(fields, "partition")
	out := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		_, quoted := quote("", name)
		out = append(append(append(out, quoted...), ':'), fields[name]...) // values stay as they were written
	}
	return append(out, '}'), nil
}

// text makes a record of a line, or of the key and the value that a line holds.
func (in *input) text(line string) ([]byte, error) {
	key := in.key
	if in.keySep != "" {
		k, v, ok := strings.Cut(line, in.keySep)
		if !ok {
			return nil, failf(exitFailed, "line %d has no %q between key and value: %.80q", in.line, in.keySep, line)
		}
		key, line = &k, v
	}
	name, quoted := quote("value", line)
	return in.join(key, name, quoted), nil
}

// join writes {"key_text":...,"value...":...,"headers":[...]}; value is the member's name, quoted, with its colon.
func (in *input) join(key *string, value string, text []byte) []byte {
	b := []byte{'{'}
	if key != nil {
		name, quoted := quote("key", *key)
		b = append(append(append(b, name...), quoted...), ',')
	}
	b = append(append(b, value...), text...)
	if len(in.headers) > 0 {
		b = append(b, `,"headers":[`...)
		for i, h := range in.headers {
			if i > 0 {
				b = append(b, ',')
			}
			_, name := quote("name", h.name)
			member, v := quote("value", h.value)
			member = strings.Replace(member, "_text", "", 1) // a header's text is called value
			b = append(append(append(append(b, `{"name":`...), name...), ','), member...)
			b = append(append(b, v...), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// quote returns the member name and the JSON string that carry s exactly: as text when it is UTF-8, else in base64.
func quote(member, s string) (name string, quoted []byte) {
	if utf8.ValidString(s) {
		quoted, _ = json.Marshal(s)
		return `"` + member + `_text":`, quoted
	}
	return `"` + member + `_base64":`, []byte(`"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"`)
}
