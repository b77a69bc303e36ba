package cdc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a task counts.
type metrics struct {
	connected, lagSeconds, storedLSN prometheus.Gauge
	retained, lagBytes, status       prometheus.Gauge
	spilled, pending                 prometheus.Gauge
	events, transactions, skipped    prometheus.Counter
	reconnects, snapshotRows         prometheus.Counter
	current                          *stream
}

const metricPrefix = "millrace_connect_postgres_cdc_"

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help})
		_ = r.Register(g) // it is refused only to a run that another has taken the place of
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
		_ = r.Register(c)
		return c
	}
	return &metrics{
		connected:    gauge("connected", "1 while the database is connected."),
		lagSeconds:   gauge("lag_seconds", "From the commit of the last transaction to its reading."),
		storedLSN:    gauge("stored_lsn_bytes", "Place in the write-ahead log up to which all is stored."),
		retained:     gauge("slot_retained_bytes", "Write-ahead log that the server keeps for the slot."),
		lagBytes:     gauge("slot_lag_bytes", "Write-ahead log behind what the slot has confirmed."),
		status:       gauge("slot_status", "0: reserved, 1: extended, 2: unreserved, 3: lost, -1: unknown."),
		spilled:      gauge("spilled_bytes", "Changes in files, of transactions that are not committed yet."),
		pending:      gauge("spilled_transactions", "Transactions in files, that are not committed yet."),
		events:       counter("records_total", "Records given to be written."),
		transactions: counter("transactions_total", "Transactions read."),
		skipped:      counter("skipped_total", "Changes that could not be made records and were left out."),
		reconnects:   counter("reconnects_total", "Connections that were lost or could not be made."),
		snapshotRows: counter("snapshot_rows_total", "Rows read by snapshots."),
	}
}

func (m *metrics) storedAt(at lsn) { m.storedLSN.Set(float64(at)) }

func (m *metrics) lag(now time.Time, commit micros) {
	m.lagSeconds.Set(float64(now.UnixMicro()-int64(commit)) / 1e6)
}

// look notes what a look at the slot showed.
func (m *metrics) look(x slot) {
	m.retained.Set(float64(x.retained))
	m.lagBytes.Set(float64(x.lag))
	status := -1.0
	switch x.status {
	case "reserved":
		status = 0
	case "extended":
		status = 1
	case "unreserved":
		status = 2
	case "lost":
		status = 3
	}
	m.status.Set(status)
	if m.current != nil {
		m.spilled.Set(float64(m.current.spilled.Load()))
		m.pending.Set(float64(m.current.pending.Load()))
	}
}
