package registry

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// mostListed is the greatest limit of lists that have one by default.
const mostListed = 1000

// ListSchemas lists versions with their schemas.
func (a *API) ListSchemas(w http.ResponseWriter, r *http.Request, p ListSchemasParams) {
	part, err := page(p.Offset, p.Limit, mostListed)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	found, err := a.registry.Schemas(r.Context(), schemaregistry.SchemasQuery{
		Prefix: text(p.SubjectPrefix), Aliases: is(p.Aliases), Deleted: is(p.Deleted), LatestOnly: is(p.LatestOnly),
		RuleType: text(p.RuleType), Page: part,
	})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, begun := []byte{'['}, false
	for i := range found {
		if i > 0 {
			body = append(body, ',')
		}
		v := &found[i]
		body, err = appendVersion(body, &v.Version, members{place: true, id: true, aliases: v.Aliases})
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler) // the client must not take it for whole
		case err != nil:
			a.fail(w, r, err)
			return
		case len(body) < pieceBytes:
			continue
		case !begun:
			w.Header()["Content-Type"] = a.contentType(r)
			begun = true
		}
		if _, err := w.Write(body); err != nil {
			return // the client has gone
		}
		body = body[:0]
	}
	if body = append(body, ']'); !begun {
		a.write(w, r, body)
		return
	}
	_, _ = w.Write(body) // as above
}

// pieceBytes is how much of a list is sent at a time: all of it may be a thousand times what one schema may have.
const pieceBytes = 1 << 20

// readByID is the way of GetSchemaByID that consumers take: without parameters it passes by the router, and answers
// with bytes that are kept.
func (a *API) readByID(w http.ResponseWriter, r *http.Request, param string) {
	id, ok := plainID(param)
	mediaType := a.contentType(r)
	if !ok || mediaType == nil || r.URL.RawQuery != "" {
		entered, err := a.enter(w, r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.routes.ServeHTTP(w, entered)
		return
	}
	identify(w, r)
	v, err := a.registry.ByID(r.Context(), id, nil)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	found, err := a.cache.get(&v)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = mediaType
	h["Content-Length"] = found.length
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(found.body) // a client that has gone needs no answer
}

// plainID reads an id that is written as ids are.
func plainID(s string) (id int, ok bool) {
	if len(s) == 0 || len(s) > 9 || s[0] == '0' {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		id = 10*id + int(c-'0')
	}
	return id, true
}

// GetSchemaByID answers with a schema by its id.
func (a *API) GetSchemaByID(w http.ResponseWriter, r *http.Request, id int32, p GetSchemaByIDParams) {
	m := members{place: p.Subject != nil}
	v, err := a.byID(r, id, p.Subject)
	if err == nil && is(p.FetchMaxId) {
		m.maxID, err = a.registry.MaxID(r.Context(), text(p.Subject))
	}
	if err == nil {
		v, err = a.shown(r.Context(), v, form{text(p.Format), text(p.ReferenceFormat), p.FindTags})
	}
	a.answerVersion(w, r, &v, m, err)
}

func (a *API) byID(r *http.Request, id int32, subject *string) (v schemaregistry.Version, err error) {
	if subject, err = a.ofSubject(r, subject); err != nil {
		return v, err
	}
	return a.registry.ByID(r.Context(), int(id), subject)
}

// GetSchemaTextByID answers with a schema's text by its id.
func (a *API) GetSchemaTextByID(w http.ResponseWriter, r *http.Request, id int32, p GetSchemaTextByIDParams) {
	v, err := a.byID(r, id, p.Subject)
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answer(w, r, json.RawMessage(v.Content.Text), err)
}

// form is how a client wants a schema.
type form struct {
	format, references string
	tags               []string // inline ones to find
}

// shown is a version in the form that the client wants.
func (a *API) shown(ctx context.Context, v schemaregistry.Version, f form) (_ schemaregistry.Version, err error) {
	if len(f.tags) > 0 {
		if v, err = a.registry.Tagged(ctx, v, f.tags); err != nil {
			return v, err
		}
	}
	qualified := f.references == "qualified"
	if f.format == "" && !qualified {
		return v, nil
	}
	return a.registry.Render(ctx, v, f.format, qualified)
}

// ListSubjectsOfSchema lists the subjects that hold a schema.
func (a *API) ListSubjectsOfSchema(w http.ResponseWriter, r *http.Request, id int32, p ListSubjectsOfSchemaParams) {
	q, err := a.holders(r, p.Subject, p.Deleted, p.Offset, p.Limit)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	found, err := a.registry.SubjectsOfID(r.Context(), int(id), q)
	a.answer(w, r, list(found), err)
}

// ListVersionsOfSchema lists the versions that hold a schema.
func (a *API) ListVersionsOfSchema(w http.ResponseWriter, r *http.Request, id int32, p ListVersionsOfSchemaParams) {
	q, err := a.holders(r, p.Subject, p.Deleted, p.Offset, p.Limit)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	found, err := a.registry.VersionsOfID(r.Context(), int(id), q)
	a.answer(w, r, list(found), err)
}

func (a *API) holders(r *http.Request, subject *string, deleted *bool, offset, limit *int32) (
	q schemaregistry.HoldersQuery, err error,
) {
	q.Deleted = is(deleted)
	if q.Page, err = page(offset, limit, 0); err == nil {
		q.Subject, err = a.ofSubject(r, subject)
	}
	return q, err
}

// GetSchemaByGUID answers with a schema by its GUID.
func (a *API) GetSchemaByGUID(w http.ResponseWriter, r *http.Request, guid string, p GetSchemaByGUIDParams) {
	id, err := uuid.Parse(guid)
	if err != nil {
		a.fail(w, r, &schemaregistry.Error{
			Code: schemaregistry.CodeSchemaNotFound, Message: "There is no schema " + guid + ": that is no GUID.",
		})
		return
	}
	v, err := a.registry.ByGUID(r.Context(), id)
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answerVersion(w, r, &v, members{}, err)
}

// ListIDsOfSchemaGUID lists the ids of a GUID.
func (a *API) ListIDsOfSchemaGUID(w http.ResponseWriter, r *http.Request, guid string) {
	id, err := uuid.Parse(guid)
	if err != nil {
		a.answer(w, r, []schemaregistry.ContextID{}, nil) // no schema has it
		return
	}
	found, err := a.registry.GUIDIDs(r.Context(), id)
	a.answer(w, r, list(found), err)
}

// ListSchemaTypes lists the languages of schemas.
func (a *API) ListSchemaTypes(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, []schema.Type{schema.JSON, schema.Protobuf, schema.Avro}, nil)
}
