package registry

import (
	"net/http"

	"millrace/api"
	"millrace/schemaregistry"
)

// ListRegistrySubjects lists subjects.
func (a *API) ListRegistrySubjects(w http.ResponseWriter, r *http.Request, p ListRegistrySubjectsParams) {
	part, err := page(p.Offset, p.Limit, 0)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	q := schemaregistry.SubjectsQuery{
		Prefix: schemaregistry.EveryContext, Deleted: is(p.Deleted), DeletedOnly: is(p.DeletedOnly), Page: part,
	}
	if p.SubjectPrefix != nil {
		q.Prefix = *p.SubjectPrefix
	}
	found, err := a.registry.Subjects(r.Context(), q)
	a.answer(w, r, list(found), err)
}

// LookUpSchema finds the version of a subject that a schema is.
func (a *API) LookUpSchema(w http.ResponseWriter, r *http.Request, subject string, p LookUpSchemaParams) {
	var body schemaBody
	if err := a.readSchema(w, r, &body); err != nil {
		a.fail(w, r, err)
		return
	}
	subject, err := a.subject(r, subject)
	var v schemaregistry.Version
	if err == nil {
		v, err = a.registry.Lookup(r.Context(), subject, body.request(p.Normalize), is(p.Deleted))
	}
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answerVersion(w, r, &v, members{place: true, id: true}, err)
}

// DeleteRegistrySubject deletes all versions of a subject.
func (a *API) DeleteRegistrySubject(
	w http.ResponseWriter, r *http.Request, subject string, p DeleteRegistrySubjectParams,
) {
	if a.forwarded(w, r) {
		return
	}
	subject, err := a.subject(r, subject)
	var gone []int
	if err == nil {
		gone, err = a.registry.DeleteSubject(r.Context(), subject, is(p.Permanent))
	}
	a.answerWrite(w, r, list(gone), err)
}

// GetSchemaByMetadata finds the newest version with some properties.
func (a *API) GetSchemaByMetadata(w http.ResponseWriter, r *http.Request, subject string, p GetSchemaByMetadataParams) {
	if len(p.Key) != len(p.Value) {
		a.fail(w, r, api.RefuseCompat(http.StatusBadRequest,
			"Bad Request: each key needs its value, but there are %d keys and %d values.", len(p.Key), len(p.Value)))
		return
	}
	properties := make([][2]string, len(p.Key))
	for i := range p.Key {
		properties[i] = [2]string{p.Key[i], p.Value[i]}
	}
	subject, err := a.subject(r, subject)
	var v schemaregistry.Version
	if err == nil {
		v, err = a.registry.Latest(r.Context(), subject, properties, is(p.Deleted))
	}
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answerVersion(w, r, &v, members{place: true, id: true}, err)
}
