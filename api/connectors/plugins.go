package connectors

import (
	"net/http"

	"millrace/connect"
)

// listedPlugin is a plugin in a list.
type listedPlugin struct {
	Class   string `json:"class"`
	Type    string `json:"type"`
	Version string `json:"version,omitempty"`
}

// ListConnectorPlugins lists the classes of connectors, or all plugins.
func (a *API) ListConnectorPlugins(w http.ResponseWriter, r *http.Request, p ListConnectorPluginsParams) {
	all := p.ConnectorsOnly != nil && !*p.ConnectorsOnly
	out := []listedPlugin{}
	for _, i := range a.worker.Plugins(all) {
		out = append(out, listedPlugin{i.Class, string(i.Kind), i.Version})
	}
	a.answer(w, r, out, nil)
}

// GetConnectorPluginConfig lists the settings of a plugin.
func (a *API) GetConnectorPluginConfig(w http.ResponseWriter, r *http.Request, name string) {
	keys, err := a.worker.PluginConfig(name)
	a.answer(w, r, keys, err)
}

// ValidateConnectorConfig checks a config.
func (a *API) ValidateConnectorConfig(w http.ResponseWriter, r *http.Request, name string) {
	sent, err := a.readConfig(w, r)
	var props map[string]string
	var nulls []string
	if err == nil {
		props, nulls, err = sent.settings()
	}
	var v *connect.Validation
	if err == nil {
		v, err = a.worker.Validate(r.Context(), name, props, nulls)
	}
	a.answer(w, r, v, err)
}
