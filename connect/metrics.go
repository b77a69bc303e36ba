package connect

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what a worker counts, under the names that Kafka Connect gives it. Without a Registerer nobody sees it.
type metrics struct {
	herd *herd

	mu         sync.Mutex
	connectors startups      // guarded by mu
	tasks      startups      // guarded by mu
	rebalances float64       // guarded by mu: that have ended
	since      time.Time     // guarded by mu: when the last one ended
	began      time.Time     // guarded by mu: of the one under way; zero without one
	longest    time.Duration // guarded by mu
	total      time.Duration // guarded by mu
	generation int32         // guarded by mu
	leader     string        // guarded by mu

	descs map[string]*prometheus.Desc
}

// startups counts how often something was started, and how that went.
type startups struct{ attempts, successes, failures float64 }

const metricPrefix = "millrace_connect_"

// The metrics, in the order in which they are collected.
func metricHelps() map[string]string {
	return map[string]string{
		"worker_connector_count":                   "Connectors that this worker runs.",
		"worker_task_count":                        "Tasks that this worker runs.",
		"worker_connector_startup_attempts_total":  "Connectors that were started.",
		"worker_connector_startup_success_total":   "Connectors that were started and came to work.",
		"worker_connector_startup_failure_total":   "Connectors that were started and failed before they worked.",
		"worker_task_startup_attempts_total":       "Tasks that were started.",
		"worker_task_startup_success_total":        "Tasks that were started and came to work.",
		"worker_task_startup_failure_total":        "Tasks that were started and failed before they worked.",
		"worker_rebalance_epoch":                   "The generation of the group of workers.",
		"worker_rebalance_completed_total":         "Rebalances that this worker has seen the end of.",
		"worker_rebalance_rebalancing":             "1 while this worker waits for its work.",
		"worker_rebalance_max_time_seconds":        "The longest time that this worker waited for its work.",
		"worker_rebalance_avg_time_seconds":        "The mean time that this worker waited for its work.",
		"worker_rebalance_time_since_last_seconds": "Time since this worker was told its work; -1 if it never was.",
	}
}

func newMetrics(to prometheus.Registerer, h *herd) *metrics {
	m := &metrics{herd: h, descs: make(map[string]*prometheus.Desc)}
	for name, help := range metricHelps() {
		m.descs[name] = prometheus.NewDesc(metricPrefix+name, help, nil, nil)
	}
	m.descs["task_states"] = prometheus.NewDesc(metricPrefix+"worker_connector_task_count",
		"Tasks of a connector that this worker runs, by state.", []string{"connector", "state"}, nil)
	m.descs["connector_states"] = prometheus.NewDesc(metricPrefix+"connector_status",
		"1 for the state of each connector that this worker runs.",
		[]string{"connector", "class", "type", "version", "state"}, nil)
	m.descs["leader"] = prometheus.NewDesc(metricPrefix+"worker_rebalance_leader",
		"1 for the worker that divides the work.", []string{"leader_name", "connect_protocol"}, nil)
	if to != nil {
		to.MustRegister(m)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	units := m.herd.owned.Load()
	connectors, tasks := 0.0, 0.0
	type cell struct{ connector, state string }
	states := make(map[cell]float64)
	if units != nil {
		for id, u := range *units {
			state := u.last().State
			if id.Task == connectorObject {
				connectors++
				m.connector(out, u, state)
				continue
			}
			tasks++
			states[cell{id.Connector, state}]++
		}
	}
	for c, n := range states {
		out <- prometheus.MustNewConstMetric(m.descs["task_states"], prometheus.GaugeValue, n, c.connector, c.state)
	}
	m.gauge(out, "worker_connector_count", connectors)
	m.gauge(out, "worker_task_count", tasks)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countsLocked(out)
}

func (m *metrics) connector(out chan<- prometheus.Metric, u *unit, state string) {
	class, kind, version := u.plan.props["connector.class"], "unknown", ""
	if c := u.plan.class; c != nil {
		class, kind, version = c.Info.Class, string(c.Kind), c.Version
	}
	out <- prometheus.MustNewConstMetric(m.descs["connector_states"], prometheus.GaugeValue, 1,
		u.id.Connector, class, kind, version, state)
}

func (m *metrics) gauge(out chan<- prometheus.Metric, name string, v float64) {
	out <- prometheus.MustNewConstMetric(m.descs[name], prometheus.GaugeValue, v)
}

func (m *metrics) countsLocked(out chan<- prometheus.Metric) {
	counter := func(name string, v float64) {
		out <- prometheus.MustNewConstMetric(m.descs[name], prometheus.CounterValue, v)
	}
	counter("worker_connector_startup_attempts_total", m.connectors.attempts)
	counter("worker_connector_startup_success_total", m.connectors.successes)
	counter("worker_connector_startup_failure_total", m.connectors.failures)
	counter("worker_task_startup_attempts_total", m.tasks.attempts)
	counter("worker_task_startup_success_total", m.tasks.successes)
	counter("worker_task_startup_failure_total", m.tasks.failures)
	counter("worker_rebalance_completed_total", m.rebalances)
	m.gauge(out, "worker_rebalance_epoch", float64(m.generation))
	rebalancing, mean, since := 0.0, 0.0, -1.0
	if !m.began.IsZero() {
		rebalancing = 1
	}
	if m.rebalances > 0 {
		mean, since = m.total.Seconds()/m.rebalances, time.Since(m.since).Seconds()
	}
	m.gauge(out, "worker_rebalance_rebalancing", rebalancing)
	m.gauge(out, "worker_rebalance_max_time_seconds", m.longest.Seconds())
	m.gauge(out, "worker_rebalance_avg_time_seconds", mean)
	m.gauge(out, "worker_rebalance_time_since_last_seconds", since)
	if m.leader != "" {
		out <- prometheus.MustNewConstMetric(m.descs["leader"], prometheus.GaugeValue, 1, m.leader, groupProtocol)
	}
}

// of is what counts the starts of a unit.
func (m *metrics) ofLocked(id workID) *startups {
	if id.Task == connectorObject {
		return &m.connectors
	}
	return &m.tasks
}

// attempt counts a start, started one that came to work, failed one that did not.
func (m *metrics) attempt(id workID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ofLocked(id).attempts++
}

func (m *metrics) started(id workID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ofLocked(id).successes++
}

func (m *metrics) failed(id workID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ofLocked(id).failures++
}

// joining notes that the worker waits for its work.
func (m *metrics) joining() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = time.Now()
	}
}

// begin notes that the worker was told its work.
func (m *metrics) begin(t *tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = time.Now()
	if !m.began.IsZero() {
		took := m.since.Sub(m.began)
		m.longest, m.total, m.began = max(m.longest, took), m.total+took, time.Time{}
	}
	m.rebalances++
	m.generation, m.leader = t.generation, t.Leader
}

// end notes that the worker has no work any more.
func (m *metrics) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leader = ""
}
