package registry

import "net/http"

// ListRegistryContexts lists contexts.
func (a *API) ListRegistryContexts(w http.ResponseWriter, r *http.Request, p ListRegistryContextsParams) {
	part, err := page(p.Offset, p.Limit, 0)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	found, err := a.registry.Contexts(r.Context(), text(p.ContextPrefix), part)
	a.answer(w, r, list(found), err)
}

// DeleteRegistryContext deletes an empty context.
func (a *API) DeleteRegistryContext(w http.ResponseWriter, r *http.Request, name string) {
	if a.forwarded(w, r) {
		return
	}
	name, err := contextNamed(name)
	if err == nil {
		err = a.registry.DeleteContext(r.Context(), name)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.tellOffset(w)
	w.WriteHeader(http.StatusNoContent)
}
