package registry

import (
	"encoding/json"
	"net/http"

	"millrace/schemaregistry"
)

// ListSchemaVersions lists the numbers of a subject's versions.
func (a *API) ListSchemaVersions(w http.ResponseWriter, r *http.Request, subject string, p ListSchemaVersionsParams) {
	part, err := page(p.Offset, p.Limit, 0)
	if err == nil {
		subject, err = a.subject(r, subject)
	}
	var found []int
	if err == nil {
		found, err = a.registry.Versions(r.Context(), subject, schemaregistry.VersionsQuery{
			Deleted: is(p.Deleted), DeletedOnly: is(p.DeletedOnly), DeletedAsNegative: is(p.DeletedAsNegative), Page: part,
		})
	}
	a.answer(w, r, list(found), err)
}

// GetSchemaVersion answers with a version.
func (a *API) GetSchemaVersion(
	w http.ResponseWriter, r *http.Request, subject, version string, p GetSchemaVersionParams,
) {
	v, err := a.version(r, subject, version, p.Deleted)
	if err == nil {
		v, err = a.shown(r.Context(), v, form{text(p.Format), text(p.ReferenceFormat), p.FindTags})
	}
	a.answerVersion(w, r, &v, members{place: true, id: true}, err)
}

func (a *API) version(r *http.Request, subject, version string, deleted *bool) (
	v schemaregistry.Version, err error,
) {
	if subject, err = a.subject(r, subject); err != nil {
		return v, err
	}
	return a.registry.VersionAnywhere(r.Context(), subject, version, is(deleted))
}

// GetSchemaVersionText answers with the text of a version.
func (a *API) GetSchemaVersionText(
	w http.ResponseWriter, r *http.Request, subject, version string, p GetSchemaVersionTextParams,
) {
	v, err := a.version(r, subject, version, p.Deleted)
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answer(w, r, json.RawMessage(v.Content.Text), err)
}

// ListSchemaReferrers lists the ids of schemas that refer to a version.
func (a *API) ListSchemaReferrers(
	w http.ResponseWriter, r *http.Request, subject, version string, p ListSchemaReferrersParams,
) {
	part, err := page(p.Offset, p.Limit, mostListed)
	if err == nil {
		subject, err = a.subject(r, subject)
	}
	var found []int
	if err == nil {
		found, err = a.registry.ReferencedBy(r.Context(), subject, version, is(p.Deleted), part)
	}
	a.answer(w, r, list(found), err)
}

// DeleteSchemaVersion deletes a version.
func (a *API) DeleteSchemaVersion(
	w http.ResponseWriter, r *http.Request, subject, version string, p DeleteSchemaVersionParams,
) {
	if a.forwarded(w, r) {
		return
	}
	subject, err := a.subject(r, subject)
	gone := 0
	if err == nil {
		gone, err = a.registry.DeleteVersion(r.Context(), subject, version, is(p.Permanent))
	}
	a.answerWrite(w, r, gone, err)
}

// UndeleteSchemaVersion takes the soft deletion of a version back.
func (a *API) UndeleteSchemaVersion(w http.ResponseWriter, r *http.Request, subject, version string) {
	if a.forwarded(w, r) {
		return
	}
	subject, err := a.subject(r, subject)
	var v schemaregistry.Version
	if err == nil {
		v, err = a.registry.Undelete(r.Context(), subject, version)
	}
	a.answerRegistered(w, r, &v, err)
}

// answerRegistered answers with a version that has been written.
func (a *API) answerRegistered(w http.ResponseWriter, r *http.Request, v *schemaregistry.Version, err error) {
	if err == nil {
		a.tellOffset(w)
	}
	a.answerVersion(w, r, v, members{registered: true, id: true}, err)
}
