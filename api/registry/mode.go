package registry

import "net/http"

// mode is a mode, both ways. A null one is none.
type mode struct {
	Mode *string `json:"mode,omitempty"`
}

// GetRegistryMode answers with the global mode.
func (a *API) GetRegistryMode(w http.ResponseWriter, r *http.Request, _ GetRegistryModeParams) {
	a.answerMode(w, r, "", true)
}

// SetRegistryMode sets the global mode.
func (a *API) SetRegistryMode(w http.ResponseWriter, r *http.Request, p SetRegistryModeParams) {
	a.SetSubjectMode(w, r, "", SetSubjectModeParams(p))
}

// ResetRegistryMode removes the global mode.
func (a *API) ResetRegistryMode(w http.ResponseWriter, r *http.Request, p ResetRegistryModeParams) {
	a.ResetSubjectMode(w, r, "", ResetSubjectModeParams(p))
}

// GetSubjectMode answers with a subject's mode.
func (a *API) GetSubjectMode(w http.ResponseWriter, r *http.Request, subject string, p GetSubjectModeParams) {
	a.answerMode(w, r, subject, is(p.DefaultToGlobal))
}

func (a *API) answerMode(w http.ResponseWriter, r *http.Request, subject string, inScope bool) {
	found, err := a.registry.Mode(r.Context(), subject, inScope)
	a.answer(w, r, mode{&found}, err)
}

// SetSubjectMode sets a subject's mode, and answers with the request.
func (a *API) SetSubjectMode(w http.ResponseWriter, r *http.Request, subject string, p SetSubjectModeParams) {
	if a.forwarded(w, r) {
		return
	}
	var body mode
	err := a.read(w, r, &body)
	if err == nil {
		err = a.registry.SetMode(r.Context(), subject, body.Mode, is(p.Force))
	}
	a.answerWrite(w, r, body, err)
}

// ResetSubjectMode removes a subject's mode, and answers with what it was.
func (a *API) ResetSubjectMode(w http.ResponseWriter, r *http.Request, subject string, p ResetSubjectModeParams) {
	if a.forwarded(w, r) {
		return
	}
	old, err := a.registry.DeleteMode(r.Context(), subject, is(p.Recursive))
	out := mode{&old}
	if old == "" {
		out.Mode = nil // only what lies below had one
	}
	a.answerWrite(w, r, out, err)
}
