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

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "millrace_postgres_polling_rows_total",
			Help: "Rows read, by table."}, []string{"table"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_postgres_polling_open_transactions",
			Help: "Numbers of transactions between the oldest that is open in the cluster and the next one: rows of these " +
				"wait."}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_postgres_polling_guard_wait_seconds",
			Help: "How long the horizon guard has held rows back, by table."}, []string{"table"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_postgres_polling_retries_total",
			Help: "Passing failures of the database after which reading was tried again."}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.rows, m.lag, m.waiting, m.retries} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) horizon(open uint64) { m.lag.Set(float64(open)) }

func (m *metrics) held(table string, g guard) {
	seconds := 0.0
	if g.pending != nil {
		seconds = time.Since(g.since).Seconds()
	}
	m.waiting.WithLabelValues(table).Set(seconds)
}
