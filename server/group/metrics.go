package group

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/server/coordinator"
)

// censusTimeout bounds how long a reader of the metrics waits for the loops.
const censusTimeout = 2 * time.Second

// metrics counts what the coordinator does. All are of this node alone.
type metrics struct {
	commits prometheus.Counter
	expired prometheus.Counter
	loads   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, c *Coordinator) *metrics {
	m := &metrics{
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_group_commits_total", Help: "Offsets of partitions that groups have committed.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_group_offsets_expired_total", Help: "Committed offsets that have expired.",
		}),
		loads: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_group_load_seconds", Help: "Time to read a partition of the offsets topic.",
			Buckets: []float64{.001, .01, .1, .3, 1, 3, 10, 30, 100},
		}),
	}
	if r != nil {
		r.MustRegister(m.commits, m.expired, m.loads, newCensus(c))
	}
	return m
}

// census counts the groups when somebody asks.
type census struct {
	coordinator *Coordinator
	groups      *prometheus.Desc
	offsets     *prometheus.Desc
}

func newCensus(c *Coordinator) *census {
	return &census{
		coordinator: c,
		groups: prometheus.NewDesc("millrace_groups", "Groups that this node coordinates, by type and state.",
			[]string{"type", "state"}, nil),
		offsets: prometheus.NewDesc("millrace_group_offsets", "Committed offsets that this node keeps.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *census) Describe(out chan<- *prometheus.Desc) {
	out <- c.groups
	out <- c.offsets
}

// Collect implements prometheus.Collector. Partitions that are loading or too busy are left out.
func (c *census) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	total, offsets := make(map[[2]string]int), int64(0)
	all, _, _ := coordinator.All(ctx, c.coordinator.run,
		func(st coordinator.State, reply *coordinator.Reply[count]) { reply.Now(st.(*shard).count()) })
	for _, got := range all {
		for of, n := range got.groups {
			total[of] += n
		}
		offsets += got.offsets
	}
	for of, n := range total {
		out <- prometheus.MustNewConstMetric(c.groups, prometheus.GaugeValue, float64(n), of[0], of[1])
	}
	out <- prometheus.MustNewConstMetric(c.offsets, prometheus.GaugeValue, float64(offsets))
}

// count is what one shard has.
type count struct {
	groups  map[[2]string]int // by type and state
	offsets int64
}

func (s *shard) count() count {
	n := count{groups: make(map[[2]string]int), offsets: s.offsets}
	for _, g := range s.groups {
		n.groups[[2]string{g.kind(), g.state()}]++
	}
	return n
}
