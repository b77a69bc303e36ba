package connectors

import (
	"net/http"

	"millrace/connect/plugin"
)

// offsetsAnswer is how far a connector has come.
type offsetsAnswer struct {
	Offsets []offsetAnswer `json:"offsets"`
}

type offsetAnswer struct {
	Partition map[string]any `json:"partition"`
	Offset    map[string]any `json:"offset"`
}

// message says what was done.
type message struct {
	Message string `json:"message"`
}

// GetConnectorOffsets tells how far a connector has come.
func (a *API) GetConnectorOffsets(w http.ResponseWriter, r *http.Request, name string) {
	offsets, err := a.worker.Offsets(r.Context(), name)
	out := offsetsAnswer{Offsets: make([]offsetAnswer, len(offsets))}
	for i, o := range offsets {
		out.Offsets[i] = offsetAnswer{Partition: o.Partition, Offset: o.Offset}
	}
	a.answer(w, r, out, err)
}

// AlterConnectorOffsets sets how far a connector has come.
func (a *API) AlterConnectorOffsets(w http.ResponseWriter, r *http.Request, name string) {
	var body offsetsBody
	err := a.read(w, r, 0, &body)
	var changes []plugin.Offset
	if err == nil {
		changes, err = body.changes()
	}
	text := ""
	if err == nil {
		text, err = a.worker.AlterOffsets(r.Context(), name, changes)
	}
	a.answer(w, r, message{text}, err)
}

// ResetConnectorOffsets forgets how far a connector has come.
func (a *API) ResetConnectorOffsets(w http.ResponseWriter, r *http.Request, name string) {
	text, err := a.worker.ResetOffsets(r.Context(), name)
	a.answer(w, r, message{text}, err)
}
