package api

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// apiFamily is which API a path belongs to.
type apiFamily int

const (
	familyOperations apiFamily = iota
	familyV1
	familyV2
	familyV3
	familyRegistry
	familyConnect
	families
)

func (f apiFamily) String() string {
	return [families]string{"operations", "v1", "v2", "v3", "registry", "connect"}[f]
}

// family tells the API of a path. A path that no API claims is told in the v3 form, which all clients of
// the compatible APIs read.
func family(path string) apiFamily {
	switch {
	case isRegistry(path):
		return familyRegistry
	case isConnect(path):
		return familyConnect
	case strings.HasPrefix(path, "/v1/") || path == "/v1":
		return familyV1
	case strings.HasPrefix(path, "/topics"), strings.HasPrefix(path, "/consumers"), strings.HasPrefix(path, "/brokers"):
		return familyV2
	case path == "/" || strings.HasPrefix(path, "/health/") || path == "/metrics" || path == "/docs" ||
		strings.HasPrefix(path, "/openapi."):
		return familyOperations
	default:
		return familyV3
	}
}

// isRegistry says whether a path belongs to the schema registry's API.
func isRegistry(path string) bool {
	if path == "" {
		return false
	}
	switch first, _, _ := strings.Cut(path[1:], "/"); first {
	case "subjects", "schemas", "compatibility", "config", "mode", "contexts":
		return true
	case "v1":
		return strings.HasPrefix(path, "/v1/metadata/") || strings.HasPrefix(path, "/v1/schemas:")
	default:
		return false
	}
}

// connectHealth is the path of the health of connectors, which is told while a node starts too.
const connectHealth = "/health"

// isConnect says whether a path belongs to the API of connectors.
func isConnect(path string) bool {
	if path == connectHealth || path == connectHealth+"/" {
		return true
	}
	for _, of := range []string{"/connectors", "/connector-plugins", "/admin/loggers"} {
		if rest, ok := strings.CutPrefix(path, of); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// metrics counts what passes over the edge. The counters are looked up once, by API and status class.
type metrics struct {
	requests [families][6]prometheus.Counter // by status / 100
	seconds  [families]prometheus.Observer
	refused  *prometheus.CounterVec
	panics   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Edge) *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_http_requests_total", Help: "HTTP requests answered, by API and class of status.",
	}, []string{"api", "status"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "millrace_http_request_duration_seconds", Help: "Time from a request's header to the end of its answer.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"api"})
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_http_refused_total", Help: "HTTP requests refused at a limit of the node, by limit.",
		}, []string{"limit"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_http_panics_total", Help: "Handlers that panicked.",
		}),
	}
	inFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_http_body_in_flight_bytes", Help: "Memory taken by the bodies of requests being served.",
	}, func() float64 { return float64(e.inFlight.Load()) })
	streams := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_http_streams", Help: "Long polls and live streams that are open.",
	}, func() float64 { return float64(e.streams.Load()) })
	reg.MustRegister(requests, seconds, m.refused, m.panics, inFlight, streams)
	for f := range families {
		for class := range m.requests[f] {
			status := "none"
			if class > 0 {
				status = string(rune('0'+class)) + "xx"
			}
			m.requests[f][class] = requests.WithLabelValues(f.String(), status)
		}
		m.seconds[f] = seconds.WithLabelValues(f.String())
	}
	return m
}

func (m *metrics) done(f apiFamily, status int, d time.Duration) {
	class := status / 100
	if class < 0 || class > 5 {
		class = 0
	}
	m.requests[f][class].Inc()
	m.seconds[f].Observe(d.Seconds())
}
