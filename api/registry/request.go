package registry

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// schemaBody is a schema to register, look up or check.
type schemaBody struct {
	Schema              string             `json:"schema"`
	SchemaType          string             `json:"schemaType"`
	References          []schema.Reference `json:"references"`
	Metadata            *schema.Metadata   `json:"metadata"`
	RuleSet             *schema.RuleSet    `json:"ruleSet"`
	Version             int32              `json:"version"`
	ID                  *int32             `json:"id"`
	SchemaTagsToAdd     []schema.Tagged    `json:"schemaTagsToAdd"`
	SchemaTagsToRemove  []schema.Tagged    `json:"schemaTagsToRemove"`
	PropagateSchemaTags bool               `json:"propagateSchemaTags"`
}

// request is the body as the registry takes it.
func (b *schemaBody) request(normalize *bool) schemaregistry.RegisterRequest {
	q := schemaregistry.RegisterRequest{
		Content: schema.Content{
			Type: schema.Type(b.SchemaType), Text: b.Schema, References: b.References, Metadata: b.Metadata, RuleSet: b.RuleSet,
		},
		Version: int(b.Version), Normalize: is(normalize),
		TagsAdd: b.SchemaTagsToAdd, TagsRemove: b.SchemaTagsToRemove, PropagateTags: b.PropagateSchemaTags,
	}
	if b.SchemaType == "" {
		q.Content.Type = schema.Avro
	}
	if b.ID != nil {
		id := int(*b.ID)
		q.ID = &id
	}
	return q
}

// managementBytes bounds the bodies of requests that carry no schema.
const managementBytes = 1 << 20

// read reads the body of r into v, a pointer to a struct.
func (a *API) read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := a.body(w, r, managementBytes)
	defer body.Free()
	if err != nil {
		return err
	}
	return api.DecodeKnown(body.Bytes, v)
}

// readSchema is read for a body that carries a schema: one that is too large is so in the registry's own words.
func (a *API) readSchema(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := a.body(w, r, a.opts.BodyBytes)
	defer body.Free()
	if err != nil {
		return tooLarge(err)
	}
	return api.DecodeKnown(body.Bytes, v)
}

func tooLarge(err error) error {
	if e := api.FromError(err); e.Fault == api.BodyTooLarge {
		return api.RefuseCompat(schemaregistry.CodeTooLarge, "The schema is too large: %s.", e.Detail)
	}
	return err
}

// body reads the body of r. The caller frees it, after an error too.
func (a *API) body(w http.ResponseWriter, r *http.Request, limit int) (api.Body, error) {
	switch t := api.MediaType(r.Header.Get("Content-Type")); t {
	case api.RegistryType, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream", "":
	default:
		return api.Body{}, api.RefuseCompat(http.StatusUnsupportedMediaType,
			"HTTP 415 Unsupported Media Type: the body is %.100q, but %s is wanted.", t, api.RegistryType)
	}
	body, err := a.edge.ReadBody(w, r, limit)
	if err != nil {
		return body, err
	}
	if len(body.Bytes) > limit {
		return body, a.edge.OverLimit("body_bytes", api.Refuse(api.BodyTooLarge, "the body may have at most %d bytes", limit))
	}
	if rawjson.IsEmpty(body.Bytes) || rawjson.IsNull(bytes.TrimSpace(body.Bytes)) {
		return body, api.RefuseCompat(http.StatusUnprocessableEntity, "The request has no body, but a JSON object is wanted.")
	}
	return body, nil
}

// again is r with its body, which was read, to be read once more.
func again(r *http.Request, body []byte) *http.Request {
	out := *r
	out.Header = r.Header.Clone()
	out.Header.Del("Content-Encoding")
	out.Header.Set("Content-Length", strconv.Itoa(len(body)))
	out.ContentLength = int64(len(body))
	out.TransferEncoding = nil
	out.Body = io.NopCloser(bytes.NewReader(body))
	return &out
}
