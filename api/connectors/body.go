package connectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/connect/plugin"
)

// Bounds of bodies.
const (
	configBytes = 1 << 20 // of a config
	mostKeys    = 2000    // of a config
	keyBytes    = 1 << 10 // of a key
	mostOffsets = 100_000 // of a change of offsets; its bytes have the bound of all bodies
)

// marshal is json.Marshal without the escapes that only matter within HTML.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// read reads the body of r, at most limit bytes, into v, a pointer.
func (a *API) read(w http.ResponseWriter, r *http.Request, limit int, v any) error {
	switch t := api.MediaType(r.Header.Get("Content-Type")); t {
	case jsonType, "":
	default:
		return api.RefuseCompat(http.StatusUnsupportedMediaType,
			"HTTP 415 Unsupported Media Type: the body is %.100q, but %s is wanted.", t, jsonType)
	}
	body, err := a.edge.ReadBody(w, r, limit)
	defer body.Free()
	if err != nil {
		return err
	}
	if limit > 0 && len(body.Bytes) > limit {
		return a.edge.OverLimit("body_bytes", api.Refuse(api.BodyTooLarge, "the body may have at most %d bytes", limit))
	}
	if rawjson.IsEmpty(body.Bytes) || rawjson.IsNull(bytes.TrimSpace(body.Bytes)) {
		return api.Refuse(api.MalformedBody, "the request has no body, but a JSON object is wanted")
	}
	return api.Decode(bytes.Clone(body.Bytes), v) // what is kept of it outlives the body
}

// config is a config as it was sent.
type config map[string]json.RawMessage

// settings are the values as texts, and the keys whose value is null, sorted.
func (c config) settings() (props map[string]string, nulls []string, err error) {
	if len(c) > mostKeys {
		return nil, nil, api.Refuse(api.MalformedBody,
			"a config may have at most %d keys, but this one has %d", mostKeys, len(c))
	}
	props = make(map[string]string, len(c))
	for _, key := range slices.Sorted(maps.Keys(c)) {
		value := bytes.TrimSpace(c[key])
		switch {
		case len(key) > keyBytes:
			return nil, nil, api.Refuse(api.MalformedBody, "a key may have at most %d bytes: %.60q", keyBytes, key)
		case rawjson.IsNull(value):
			nulls = append(nulls, key)
		case value[0] == '{' || value[0] == '[':
			return nil, nil, api.Refuse(api.MalformedBody,
				"the value of %.200q is an object or an array, but a text, a number, or true or false is wanted", key)
		case value[0] == '"':
			text := ""
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, nil, err
			}
			props[key] = text
		default:
			props[key] = string(value) // a number as it was sent: 1.0 is not 1
		}
	}
	return props, nulls, nil
}

// whole is settings where each key must have a value.
func (c config) whole() (map[string]string, error) {
	props, nulls, err := c.settings()
	if err == nil && len(nulls) > 0 {
		err = api.Refuse(api.MalformedBody, "the value of %.200q is null, but it must have one", nulls[0])
	}
	return props, err
}

// readConfig reads a body that is a config.
func (a *API) readConfig(w http.ResponseWriter, r *http.Request) (config, error) {
	var c config
	err := a.read(w, r, configBytes, &c)
	return c, err
}

// newConnector is the body of a creation.
type newConnector struct {
	Name         *string `json:"name"`
	Config       config  `json:"config"`
	InitialState *string `json:"initial_state"`
}

// offsetsBody is the body of a change of offsets.
type offsetsBody struct {
	Offsets []offsetBody `json:"offsets"`
}

type offsetBody struct {
	Partition json.RawMessage `json:"partition"`
	Offset    json.RawMessage `json:"offset"`
}

// changes are the offsets that the body sets.
func (b *offsetsBody) changes() ([]plugin.Offset, error) {
	if n := len(b.Offsets); n == 0 || n > mostOffsets {
		return nil, api.Refuse(api.MalformedBody, "field offsets has 1 to %d entries, but here are %d", mostOffsets, n)
	}
	out := make([]plugin.Offset, len(b.Offsets))
	for i := range b.Offsets {
		var err error
		at := fmt.Sprintf("offsets[%d].", i)
		if out[i].Partition, err = primitives(at+"partition", b.Offsets[i].Partition); err != nil {
			return nil, err
		}
		if out[i].Partition == nil {
			return nil, api.Refuse(api.MalformedBody, "%spartition is null, but it must say which one", at)
		}
		if out[i].Offset, err = primitives(at+"offset", b.Offsets[i].Offset); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// primitives reads an object whose values are no objects and no arrays; null is nil.
func primitives(at string, text json.RawMessage) (map[string]any, error) {
	if text == nil {
		return nil, api.Required(at)
	}
	if rawjson.IsNull(text) {
		return nil, nil
	}
	if text[0] != '{' {
		return nil, api.Refuse(api.MalformedBody, "%s must be an object", at)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	for key, v := range out {
		switch v := v.(type) {
		case json.Number:
			n, err := number(v)
			if err != nil {
				return nil, api.Refuse(api.MalformedBody, "%s.%.100s: the number %s is out of range", at, key, v)
			}
			out[key] = n
		case map[string]any, []any:
			return nil, api.Refuse(api.MalformedBody, "%s.%.100s may not be an object or an array", at, key)
		}
	}
	return out, nil
}

// number is an int64, or a float64 if it is not whole.
func number(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	return n.Float64()
}

// orText is a text that may be absent.
func orText(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
