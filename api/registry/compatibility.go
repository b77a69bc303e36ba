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
		messages := list(found.Messages)
		out.Messages, out.Warnings = &messages, found.Warnings
		for _, d := range found.Differences {
			out.Differences = append(out.Differences, difference(d))
		}
	}
	a.answer(w, r, out, err)
}
