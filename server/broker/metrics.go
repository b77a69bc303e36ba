package broker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
)

// metrics counts what the broker does. All are of this node alone.
type metrics struct {
	batchesIn prometheus.Counter
	recordsIn prometheus.Counter
	bytesIn   prometheus.Counter
	bytesOut  prometheus.Counter
	fedBytes  prometheus.Counter
	replicaIn prometheus.Counter

	scrubCorrupt prometheus.Counter

	cleanRounds, cleanFailures, cleanRead, cleanWritten, cleanDropped, cleanKeyless prometheus.Counter

	uncleanable prometheus.Gauge

	refusals *prometheus.CounterVec // by Kafka's name of the error
	waiting  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, b *Broker) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		batchesIn:     counter("millrace_produced_batches_total", "Record batches appended for clients."),
		recordsIn:     counter("millrace_produced_records_total", "Records appended for clients."),
		bytesIn:       counter("millrace_produced_bytes_total", "Bytes of record batches appended for clients."),
		bytesOut:      counter("millrace_fetched_bytes_total", "Bytes of record batches answered to fetches."),
		fedBytes:      counter("millrace_replication_out_bytes_total", "Bytes of record batches answered to followers."),
		replicaIn:     counter("millrace_replication_in_bytes_total", "Bytes of record batches fetched from leaders."),
		scrubCorrupt:  counter("millrace_scrub_corrupt_batches_total", "Damaged record batches that scrubs have found."),
		cleanRounds:   counter("millrace_cleaner_rounds_total", "Rounds of compaction that were completed."),
		cleanFailures: counter("millrace_cleaner_failures_total", "Rounds of compaction that failed."),
		cleanRead:     counter("millrace_cleaner_read_bytes_total", "Bytes that compaction has read."),
		cleanWritten:  counter("millrace_cleaner_written_bytes_total", "Bytes that compaction has written."),
		cleanDropped:  counter("millrace_cleaner_dropped_records_total", "Records that compaction has left out."),
		cleanKeyless: counter("millrace_cleaner_keyless_records_total",
			"Records that compaction has left out because they have no key."),
		uncleanable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_cleaner_uncleanable_partitions",
			Help: "Partitions whose compaction has failed; it is tried again when the node starts again.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_refused_batches_total",
			Help: "Record batches refused or not committed in time, by Kafka error.",
		}, []string{"error"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_waiting_fetches", Help: "Fetches that wait for records.",
		}),
	}
	r.MustRegister(m.refusals, m.waiting, m.uncleanable,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_leader_partitions", Help: "Partitions that this node leads.",
		}, func() float64 { led, _ := b.Partitions(); return float64(led) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_offline_partitions", Help: "Partitions of this node whose log cannot be used.",
		}, func() float64 { _, offline := b.Partitions(); return float64(offline) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_under_replicated_partitions", Help: "Partitions that this node leads with replicas out of sync.",
		}, func() float64 { return float64(b.underReplicated()) }))
	return m
}

func (m *metrics) appended(b record.Batch) {
	m.batchesIn.Inc()
	m.recordsIn.Add(float64(b.Count()))
	m.bytesIn.Add(float64(len(b)))
}

func (m *metrics) refused(code int16) {
	name := "UNKNOWN"
	if e := kerr.TypedErrorForCode(code); e != nil {
		name = e.Message
	}
	m.refusals.WithLabelValues(name).Inc()
}

func (m *metrics) fetched(bytes int) {
	if bytes > 0 {
		m.bytesOut.Add(float64(bytes))
	}
}

// fed counts what followers were answered.
func (m *metrics) fed(bytes int) {
	if bytes > 0 {
		m.fedBytes.Add(float64(bytes))
	}
}

// replicated counts what was fetched from a leader.
func (m *metrics) replicated(bytes int) {
	if bytes > 0 {
		m.replicaIn.Add(float64(bytes))
	}
}

// underReplicated counts the partitions that this node leads and that some replica is out of sync with.
func (b *Broker) underReplicated() (n int) {
	b.view.Load().all(func(h *hosted) {
		for i, p := range h.parts {
			if meta := &h.topic.Partitions[i]; p.leader != nil && len(meta.ISR) < len(meta.Target()) {
				n++
			}
		}
	})
	return n
}

// Partitions counts the partitions that this node leads, and those of them whose log is offline or
// could not be opened.
func (b *Broker) Partitions() (led, offline int) {
	b.view.Load().all(func(h *hosted) {
		for _, p := range h.parts {
			switch {
			case p.err != nil:
				offline++
			case p.replica != nil && p.replica.Offline() != nil:
				offline++
			}
			if p.leader != nil {
				led++
			}
		}
	})
	return led, offline
}
