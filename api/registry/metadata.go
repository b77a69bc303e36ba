package registry

import "net/http"

// identity is which registry this is.
type identity struct {
	ID    string `json:"id"`
	Scope scope  `json:"scope"`
}

type scope struct {
	Path     []string `json:"path"`
	Clusters clusters `json:"clusters"`
}

type clusters struct {
	Kafka    string `json:"kafka-cluster"`
	Registry string `json:"schema-registry-cluster"`
}

// GetRegistryID tells the cluster's id.
func (a *API) GetRegistryID(w http.ResponseWriter, r *http.Request) {
	cluster, err := a.client.Cluster(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.answer(w, r, identity{Scope: scope{Path: []string{}, Clusters: clusters{cluster.ID, "schema-registry"}}}, nil)
}

// GetRegistryVersion tells the server's version.
func (a *API) GetRegistryVersion(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, struct {
		Version string `json:"version"`
		Commit  string `json:"commitId"`
	}{a.opts.Version, a.opts.Commit}, nil)
}

// GetRegistryDeployment tells that nothing is particular about the deployment.
func (a *API) GetRegistryDeployment(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, struct {
		Attributes []string `json:"attributes"`
	}{[]string{}}, nil)
}
