package txn

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/server/coordinator"
)

const (
	// censusTimeout bounds how long a reader of the metrics waits for the loops.
	censusTimeout = 2 * time.Second
	// hangingAfter is when a transaction counts as hanging that should have been aborted, or whose markers should
	// have been written.
	hangingAfter = 5 * time.Minute
)

// metrics counts what the coordinator does. All are of this node alone.
type metrics struct {
	ended      *prometheus.CounterVec
	fenced     prometheus.Counter
	timedOut   prometheus.Counter
	expired    prometheus.Counter
	retries    prometheus.Counter
	completion prometheus.Histogram
	loads      prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, c *Coordinator) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_txn_" + name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_txn_" + name, Help: help,
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100},
		})
	}
	m := &metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_txn_ended_total", Help: "Transactions that were decided, by result.",
		}, []string{"result"}),
		fenced:     counter("fenced_total", "Transactions that were aborted because another producer took the id over."),
		timedOut:   counter("timed_out_total", "Transactions that were aborted because they were beyond their timeout."),
		expired:    counter("ids_expired_total", "Transactional ids that were removed because nobody used them."),
		retries:    counter("marker_retries_total", "Markers that were sent again."),
		completion: histogram("completion_seconds", "Time from a decision until all partitions have their marker."),
		loads:      histogram("load_seconds", "Time to read a partition of the transactions' topic."),
	}
	if r != nil {
		r.MustRegister(m.ended, m.fenced, m.timedOut, m.expired, m.retries, m.completion, m.loads, newCensus(c))
	}
	return m
}

func (m *metrics) decided(commit bool) {
	result := "abort"
	if commit {
		result = "commit"
	}
	m.ended.WithLabelValues(result).Inc()
}

// census counts the ids when somebody asks.
type census struct {
	coordinator *Coordinator
	ids         *prometheus.Desc
	hanging     *prometheus.Desc
}

func newCensus(c *Coordinator) *census {
	return &census{
		coordinator: c,
		ids: prometheus.NewDesc("millrace_txn_ids", "Transactional ids that this node coordinates, by state.",
			[]string{"state"}, nil),
		hanging: prometheus.NewDesc("millrace_txn_hanging",
			"Transactions that should have ended more than 5 minutes ago: readers of committed records get nothing new "+
				"of their partitions.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *census) Describe(out chan<- *prometheus.Desc) {
	out <- c.ids
	out <- c.hanging
}

// Collect implements prometheus.Collector. Partitions that are loading or too busy are left out.
func (c *census) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	total, hanging := make(map[string]int), 0
	all, _, _ := coordinator.All(ctx, c.coordinator.run,
		func(st coordinator.State, reply *coordinator.Reply[count]) { reply.Now(st.(*shard).count()) })
	for _, got := range all {
		for state, n := range got.states {
			total[state] += n
		}
		hanging += got.hanging
	}
	for state, n := range total {
		out <- prometheus.MustNewConstMetric(c.ids, prometheus.GaugeValue, float64(n), state)
	}
	out <- prometheus.MustNewConstMetric(c.hanging, prometheus.GaugeValue, float64(hanging))
}

// count is what one shard has.
type count struct {
	states  map[string]int
	hanging int
}

func (s *shard) count() count {
	n := count{states: make(map[string]int)}
	now := time.Now()
	for _, t := range s.ids {
		n.states[t.state.String()]++
		since := now
		switch {
		case t.ending != nil:
			since = t.ending.since
		case t.state == ongoing:
			since = t.due
		}
		if now.Sub(since) > hangingAfter {
			n.hanging++
		}
	}
	return n
}
