package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// shown is a record as the API answers it with format=base64: keys and values byte for byte.
type shown struct {
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Timestamp string        `json:"timestamp"`
	Key       []byte        `json:"key_base64"`
	Value     []byte        `json:"value_base64"`
	Headers   []shownHeader `json:"headers"`
}

type shownHeader struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Base64 []byte  `json:"value_base64"`
}

// template is a --format, taken apart: literal text and fields in turn.
type template struct {
	parts []part
}

type part struct {
	text  string // literal, when field is empty
	field string
}

// fields are the names that may stand in braces.
var fields = []string{"value", "key", "headers", "partition", "offset", "timestamp"}

// parseTemplate reads a --format. A brace that opens no known field is an error, since it is most likely a slip.
func parseTemplate(s string) (*template, error) {
	s = strings.NewReplacer(`\t`, "\t", `\n`, "\n", `\\`, `\`).Replace(s)
	t := &template{}
	for s != "" {
		text, rest, found := strings.Cut(s, "{")
		if text != "" {
			t.parts = append(t.parts, part{text: text})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isField(name) {
			return nil, usagef("--format: {%.20s is none of {%s}", rest, strings.Join(fields, "} {"))
		}
		t.parts = append(t.parts, part{field: name})
		s = after
	}
	return t, nil
}

func isField(name string) bool {
	for _, f := range fields {
		if f == name {
			return true
		}
	}
	return false
}

// print writes one record by the template, and a newline.
func (t *template) print(w *bufio.Writer, raw json.RawMessage) error {
	var r shown
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the server's record: %w", err)
	}
	for _, p := range t.parts {
		switch p.field {
		case "":
			w.WriteString(p.text)
		case "value":
			w.Write(r.Value)
		case "key":
			w.Write(r.Key)
		case "headers":
			w.WriteString(r.headers())
		case "partition":
			w.WriteString(strconv.Itoa(int(r.Partition)))
		case "offset":
			w.WriteString(strconv.FormatInt(r.Offset, 10))
		case "timestamp":
			w.WriteString(r.Timestamp)
		}
	}
	return w.WriteByte('\n')
}

// headers renders a record's headers as name=value, by commas.
func (r *shown) headers() string {
	var b strings.Builder
	for i, h := range r.Headers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(h.Name)
		b.WriteByte('=')
		if h.Value != nil {
			b.WriteString(*h.Value)
		} else {
			b.Write(h.Base64)
		}
	}
	return b.String()
}

// printJSON writes a record as the API sent it, on one line.
func printJSON(w *bufio.Writer, raw json.RawMessage) error {
	if bytes.IndexByte(raw, '\n') < 0 {
		w.Write(raw)
		return w.WriteByte('\n')
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("the server's record: %w", err)
	}
	w.Write(line.Bytes())
	return w.WriteByte('\n')
}
