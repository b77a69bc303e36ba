package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// mountOperations adds the routes that belong to no API.
func (e *Edge) mountOperations(r chi.Router) {
	r.Get("/", e.root)
	r.Post("/", e.ping)
	r.Get("/health/live", e.live)
	r.Get("/health/ready", e.ready)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(e.opts.Registry, promhttp.HandlerOpts{}))
	r.Get("/openapi.yaml", e.openapiYAML)
	r.Get("/openapi.json", e.openapiJSON)
	r.Get("/docs", e.docs)
}

// WriteJSON answers with v, and a line end: curl's user wants the prompt on a line of its own.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		WriteProblem(w, err)
		return
	}
	writeBytes(w, status, "application/json", append(body, '\n'))
}

func writeBytes(w http.ResponseWriter, status int, mediaType string, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

type rootAnswer struct {
	Version        string `json:"version"`
	Commit         string `json:"commit"`
	KafkaClusterID string `json:"kafka_cluster_id"`
}

// root answers what the several kinds of clients ask `/` for: the registry's want a JSON object, Connect's
// version, commit and kafka_cluster_id, people a page.
func (e *Edge) root(w http.ResponseWriter, r *http.Request) {
	k, err := e.client.Cluster(r.Context())
	if err != nil {
		e.Fail(w, r, err)
		return
	}
	a := rootAnswer{Version: e.opts.Version, Commit: e.opts.Commit, KafkaClusterID: k.ID}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		e.startPage(w, r, a)
		return
	}
	mediaType := Negotiate(r.Header, "application/json", "application/vnd.kafka.v2+json", RegistryType)
	if mediaType == "" {
		mediaType = "application/json"
	}
	body, err := json.Marshal(a)
	if err != nil {
		e.Fail(w, r, err)
		return
	}
	writeBytes(w, http.StatusOK, mediaType, append(body, '\n'))
}

// ping answers what clients of schema registries post to see whether there is one.
func (e *Edge) ping(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, struct{}{}) }

type healthAnswer struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// live touches nothing but this process.
func (e *Edge) live(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, healthAnswer{Status: "live"})
}

func (e *Edge) ready(w http.ResponseWriter, _ *http.Request) {
	if err := e.opts.Ready(); err != nil {
		w.Header().Set("Retry-After", "1")
		WriteJSON(w, http.StatusServiceUnavailable, healthAnswer{Status: "not ready", Reason: err.Error()})
		return
	}
	WriteJSON(w, http.StatusOK, healthAnswer{Status: "ready"})
}
