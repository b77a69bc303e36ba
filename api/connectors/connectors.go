package connectors

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"millrace/api"
	"millrace/connect"
)

// expanded is a connector in an expanded list.
type expanded struct {
	Info   *connect.ConnectorInfo   `json:"info,omitempty"`
	Status *connect.ConnectorStatus `json:"status,omitempty"`
}

// ListConnectors lists the names of the connectors, or what is asked for of each.
func (a *API) ListConnectors(w http.ResponseWriter, r *http.Request, p ListConnectorsParams) {
	if len(p.Expand) == 0 {
		names, err := a.worker.Connectors(r.Context())
		if names == nil {
			names = []string{}
		}
		a.answer(w, r, names, err)
		return
	}
	all, err := a.worker.Describe(r.Context())
	out := map[string]expanded{}
	for name, d := range all {
		var e expanded
		if slices.Contains(p.Expand, "info") {
			e.Info = d.Info
		}
		if slices.Contains(p.Expand, "status") {
			e.Status = d.Status
		}
		out[name] = e
	}
	a.answer(w, r, out, err)
}

// CreateConnector makes a connector.
func (a *API) CreateConnector(w http.ResponseWriter, r *http.Request) {
	info, err := a.create(w, r)
	if err == nil {
		a.locate(w, r, info.Name)
	}
	a.answerAs(w, r, http.StatusCreated, info, err)
}

func (a *API) create(w http.ResponseWriter, r *http.Request) (*connect.ConnectorInfo, error) {
	var body newConnector
	if err := a.read(w, r, configBytes, &body); err != nil {
		return nil, err
	}
	if body.Config == nil {
		return nil, api.Required("config")
	}
	props, err := body.Config.whole()
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(orText(body.Name))
	if body.Name == nil {
		name = strings.TrimSpace(props["name"])
	}
	if name == "" {
		return nil, api.Refuse(api.MalformedBody, "the connector has no name")
	}
	return a.worker.Create(r.Context(), name, props, orText(body.InitialState))
}

// locate tells where the connector that was made is.
func (a *API) locate(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Location", a.edge.BaseURL(r)+"/connectors/"+url.PathEscape(name))
}

// GetConnector tells what a connector is.
func (a *API) GetConnector(w http.ResponseWriter, r *http.Request, name string) {
	info, err := a.worker.Info(r.Context(), name)
	a.answer(w, r, info, err)
}

// DeleteConnector deletes a connector.
func (a *API) DeleteConnector(w http.ResponseWriter, r *http.Request, name string) {
	a.done(w, r, http.StatusNoContent, a.worker.Delete(r.Context(), name))
}

// GetConnectorConfig tells the config of a connector.
func (a *API) GetConnectorConfig(w http.ResponseWriter, r *http.Request, name string) {
	info, err := a.worker.Info(r.Context(), name)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.answer(w, r, info.Config, nil)
}

// PutConnectorConfig makes a connector, or replaces its config.
func (a *API) PutConnectorConfig(w http.ResponseWriter, r *http.Request, name string) {
	sent, err := a.readConfig(w, r)
	var props map[string]string
	if err == nil {
		props, err = sent.whole()
	}
	var info *connect.ConnectorInfo
	status := http.StatusOK
	if err == nil {
		var created bool
		if info, created, err = a.worker.PutConfig(r.Context(), name, props); created {
			status = http.StatusCreated
			a.locate(w, r, info.Name)
		}
	}
	a.answerAs(w, r, status, info, err)
}

// PatchConnectorConfig changes some settings of a connector.
func (a *API) PatchConnectorConfig(w http.ResponseWriter, r *http.Request, name string) {
	sent, err := a.readConfig(w, r)
	changes := map[string]*string{}
	if err == nil {
		var props map[string]string
		var nulls []string
		props, nulls, err = sent.settings()
		for key, value := range props {
			changes[key] = &value
		}
		for _, key := range nulls {
			changes[key] = nil
		}
	}
	var info *connect.ConnectorInfo
	if err == nil {
		info, err = a.worker.PatchConfig(r.Context(), name, changes)
	}
	a.answer(w, r, info, err)
}

// topicsOf are the topics of a connector, as they are told.
type topicsOf struct {
	Topics []string `json:"topics"`
}

// GetConnectorTopics tells the topics that a connector uses.
func (a *API) GetConnectorTopics(w http.ResponseWriter, r *http.Request, name string) {
	topics, err := a.worker.Topics(r.Context(), name)
	a.answer(w, r, map[string]topicsOf{name: {topics}}, err)
}

// ResetConnectorTopics forgets the topics that a connector uses.
func (a *API) ResetConnectorTopics(w http.ResponseWriter, r *http.Request, name string) {
	a.done(w, r, http.StatusAccepted, a.worker.ResetTopics(r.Context(), name))
}
