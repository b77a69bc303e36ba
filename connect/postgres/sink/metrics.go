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

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_postgres_sink_" + name, Help: help})
	}
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "millrace_postgres_sink_rows_total",
			Help: "Rows sent to the database, by what is done with them."}, []string{"op"}),
		transactions: counter("transactions_total", "Transactions committed."),
		retries:      counter("retries_total", "Batches that are to be tried again."),
		reported:     counter("reported_records_total", "Records that could not be written and were reported."),
		ddl:          counter("table_changes_total", "Tables created or changed."),
	}
	if r != nil {
		r.MustRegister(m.rows, m.transactions, m.retries, m.reported, m.ddl)
	}
	return m
}

// wrote counts a transaction that committed.
func (m *metrics) wrote(w *write) {
	m.transactions.Inc()
	m.rows.WithLabelValues("write").Add(float64(w.written))
	m.rows.WithLabelValues("delete").Add(float64(w.deleted))
}
