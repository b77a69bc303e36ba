package registry

import (
	"errors"
	"net/http"

	"millrace/schemaregistry"
)

// verdict is the answer to a check. The lists are there only if the client wants reasons.
type verdict struct {
	Compatible  bool         `json:"is_compatible"`
	Messages    *[]string    `json:"messages,omitempty"`
	Differences []difference `json:"differences,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
}

type difference struct {
	Kind        string `json:"kind"`
	Path        string `json:"path"`
	Compatible  bool   `json:"compatible"`
	Description string `json:"description,omitempty"`
	Old         string `json:"old,omitempty"`
	New         string `json:"new,omitempty"`
	Version     int    `json:"version,omitempty"`
}

// CheckCompatibility checks a schema as registering would.
func (a *API) CheckCompatibility(w http.ResponseWriter, r *http.Request, subject string, p CheckCompatibilityParams) {
	a.check(w, r, subject, "", CheckCompatibilityWithVersionParams(p))
}

// CheckCompatibilityWithVersion checks a schema against one version.
func (a *API) CheckCompatibilityWithVersion(
	w http.ResponseWriter, r *http.Request, subject, version string, p CheckCompatibilityWithVersionParams,
) {
	a.check(w, r, subject, version, p)
}

func (a *API) check(
	w http.ResponseWriter, r *http.Request, subject, version string, p CheckCompatibilityWithVersionParams,
) {
	var body schemaBody
	if err := a.readSchema(w, r, &body); err != nil {
		a.fail(w, r, err)
		return
	}
	subject, err := a.subject(r, subject)
	var found schemaregistry.CompatibilityResult
	if err == nil {
		found, err = a.registry.Compatibility(r.Context(), subject, version, body.request(p.Normalize))
	}
	var refused *schemaregistry.Error
	if is(p.Verbose) && errors.As(err, &refused) && refused.Code == schemaregistry.CodeInvalidSchema {
		found, err = schemaregistry.CompatibilityResult{Messages: []string{refused.Message}}, nil
	}
	out := verdict{Compatible: found.Compatible}
	if is(p.Verbose) {
		out = withReasons(&found)
	}
	a.answer(w, r, out, err)
}

func withReasons(found *schemaregistry.CompatibilityResult) verdict {
	messages := list(found.Messages)
	out := verdict{Compatible: found.Compatible, Messages: &messages, Warnings: found.Warnings}
	for _, d := range found.Differences {
		out.Differences = append(out.Differences, difference(d))
	}
	return out
}

// CheckSchemas checks several schemas, of which one may refer to another.
func (a *API) CheckSchemas(w http.ResponseWriter, r *http.Request) {
	var body batchBody
	entries, err := a.readBatch(w, r, &body)
	var found []schemaregistry.CompatibilityResult
	if err == nil {
		found, err = a.registry.CheckBatch(r.Context(), entries)
	}
	out := struct {
		Results []verdict `json:"results"`
	}{}
	for i := range found {
		out.Results = append(out.Results, withReasons(&found[i]))
	}
	a.answer(w, r, out, err)
}
