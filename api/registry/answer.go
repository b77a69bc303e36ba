package registry

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"millrace/api/rawjson"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// offsetHeader tells how much of the registry's log the node that answers has applied.
const offsetHeader = "Millrace-Registry-Offset"

// answer answers with v, or with err if there is one.
func (a *API) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := marshal(v)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.write(w, r, body)
}

// answerWrite is answer to a request that has changed something.
func (a *API) answerWrite(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		a.tellOffset(w)
	}
	a.answer(w, r, v, err)
}

func (a *API) tellOffset(w http.ResponseWriter) {
	w.Header().Set(offsetHeader, strconv.FormatInt(a.registry.Offset(), 10))
}

// write answers with JSON.
func (a *API) write(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	h["Content-Type"] = a.contentType(r)
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// marshal is json.Marshal without the escapes that only matter within HTML, which schemas are full of.
func marshal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// members say which members that not every form of a schema has an answer has.
type members struct {
	place bool // subject and version
	// registered tells version without subject, as the answer to a registration.
	registered bool
	id         bool
	maxID      int // 0: not told
	aliases    []string
}

// appendVersion appends a version as JSON. Members that are empty are left out.
func appendVersion(dst []byte, v *schemaregistry.Version, m members) ([]byte, error) {
	dst = append(dst, '{')
	if m.place {
		dst = append(rawjson.AppendString(append(dst, `"subject":`...), v.Subject), ',')
	}
	if m.place || m.registered {
		dst = append(strconv.AppendInt(append(dst, `"version":`...), int64(v.Version), 10), ',')
	}
	if m.id {
		dst = append(strconv.AppendInt(append(dst, `"id":`...), int64(v.ID), 10), ',')
	}
	if v.GUID != [16]byte{} {
		dst = append(append(append(dst, `"guid":"`...), schema.GUID(v.GUID)...), `",`...)
	}
	dst = rawjson.AppendString(append(dst, `"schemaType":`...), string(v.Content.Type))
	dst, err := appendContent(dst, &v.Content)
	if err != nil {
		return nil, err
	}
	dst = rawjson.AppendString(append(dst, `,"schema":`...), v.Content.Text)
	if dst, err = appendMember(dst, "schemaTags", v.Tags, len(v.Tags) > 0); err != nil {
		return nil, err
	}
	if m.maxID > 0 {
		dst = strconv.AppendInt(append(dst, `,"maxId":`...), int64(m.maxID), 10)
	}
	if v.Timestamp > 0 {
		dst = strconv.AppendInt(append(dst, `,"ts":`...), v.Timestamp, 10)
	}
	if v.Deleted {
		dst = append(dst, `,"deleted":true`...)
	}
	if dst, err = appendMember(dst, "aliases", m.aliases, len(m.aliases) > 0); err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// appendContent appends what a schema has beside its text.
func appendContent(dst []byte, c *schema.Content) ([]byte, error) {
	dst, err := appendMember(dst, "references", c.References, len(c.References) > 0)
	if err == nil {
		dst, err = appendMember(dst, "metadata", c.Metadata, c.Metadata != nil)
	}
	if err == nil {
		dst, err = appendMember(dst, "ruleSet", c.RuleSet, c.RuleSet != nil)
	}
	return dst, err
}

// appendMember appends a member behind others, if it is there.
func appendMember(dst []byte, name string, v any, there bool) ([]byte, error) {
	if !there {
		return dst, nil
	}
	text, err := marshal(v)
	if err != nil {
		return nil, err
	}
	return append(append(append(append(dst, `,"`...), name...), `":`...), text...), nil
}

// answerVersion answers with a version, or with err if there is one.
func (a *API) answerVersion(w http.ResponseWriter, r *http.Request, v *schemaregistry.Version, m members, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := appendVersion(nil, v, m)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.write(w, r, body)
}

// list is v, or an empty list, which is no null.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}
