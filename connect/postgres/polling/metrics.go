package polling

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a task's.
type metrics struct {
	rows    *prometheus.CounterVec
	lag     prometheus.Gauge
	waiting *prometheus.GaugeVec
	retries prometheus.Counter
}

const metricPrefix = "millrace_connect_postgres_polling_"

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + "rows_total",
			Help: "Rows read, by table."}, []string{"table"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "open_transactions",
			Help: "Numbers of transactions between the oldest that is open in the cluster and the next one: rows of these " +
				"wait."}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricPrefix + "guard_wait_seconds",
			Help: "How long the horizon guard has held rows back, by table."}, []string{"table"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + "retries_total",
			Help: "Passing failures of the database after which reading was tried again."}),
	}
	for _, c := range []prometheus.Collector{m.rows, m.lag, m.waiting, m.retries} {
		_ = r.Register(c) // it is refused only to a run that another has taken the place of
	}
	return m
}

func (m *metrics) horizon(open uint64) { m.lag.Set(float64(open)) }

func (m *metrics) held(table string, g guard) {
	seconds := 0.0
	if g.pending != nil {
		seconds = time.Since(g.since).Seconds()
	}
	m.waiting.WithLabelValues(table).Set(seconds)
}
