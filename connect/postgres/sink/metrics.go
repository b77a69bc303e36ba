package sink

import "github.com/prometheus/client_golang/prometheus"

// metrics are what a task counts.
type metrics struct {
	rows         *prometheus.CounterVec
	transactions prometheus.Counter
	retries      prometheus.Counter
	reported     prometheus.Counter
	ddl          prometheus.Counter
}

const metricPrefix = "millrace_connect_postgres_sink_"

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
	}
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + "rows_total",
			Help: "Rows sent to the database, by what is done with them."}, []string{"op"}),
		transactions: counter("transactions_total", "Transactions committed."),
		retries:      counter("retries_total", "Batches that are to be tried again."),
		reported:     counter("reported_records_total", "Records that could not be written and were reported."),
		ddl:          counter("table_changes_total", "Tables created or changed."),
	}
	for _, c := range []prometheus.Collector{m.rows, m.transactions, m.retries, m.reported, m.ddl} {
		_ = r.Register(c) // it is refused only to a run that another has taken the place of
	}
	return m
}

// wrote counts a transaction that committed.
func (m *metrics) wrote(w *write) {
	m.transactions.Inc()
	m.rows.WithLabelValues("write").Add(float64(w.written))
	m.rows.WithLabelValues("delete").Add(float64(w.deleted))
}
