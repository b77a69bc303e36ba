package connectors

import (
	"net/http"
	"strings"

	"millrace/api"
)

// ListLoggers tells the levels of this node's loggers.
func (a *API) ListLoggers(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, a.loggers.List(), nil)
}

// GetLogger tells the level of a logger.
func (a *API) GetLogger(w http.ResponseWriter, r *http.Request, name string) {
	level, ok := a.loggers.Level(name)
	if !ok {
		a.fail(w, r, api.RefuseCompat(http.StatusNotFound, "There is no logger %.200q; GET /admin/loggers lists them.", name))
		return
	}
	a.answer(w, r, level, nil)
}

// newLevel is the body of a change of a level.
type newLevel struct {
	Level *string `json:"level"`
}

// SetLogger sets the level of a logger, on this node or on all.
func (a *API) SetLogger(w http.ResponseWriter, r *http.Request, name string, p SetLoggerParams) {
	var body newLevel
	err := a.read(w, r, configBytes, &body)
	if err == nil && orText(body.Level) == "" {
		err = api.Required("level")
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if strings.EqualFold(orText(p.Scope), "cluster") {
		a.done(w, r, http.StatusNoContent, a.worker.SetLogger(r.Context(), name, *body.Level))
		return
	}
	changed, err := a.loggers.Set(name, *body.Level)
	a.answer(w, r, changed, err)
}
