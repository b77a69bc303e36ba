package store

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the Store counts. Without a Registerer nobody sees them.
type metrics struct {
	skipped   *prometheus.CounterVec // by topic
	conflicts prometheus.Counter
}

func newMetrics(to prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_connect_store_records_skipped_total",
			Help: "Records of the topics of connectors that were not understood.",
		}, []string{"topic"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_connect_store_conflicts_total",
			Help: "Changes of configs that were decided anew, because others had changed something meanwhile.",
		}),
	}
	if to == nil {
		return m
	}
	to.MustRegister(m.skipped, m.conflicts, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_connect_connectors", Help: "Connectors that are configured.",
	}, func() float64 { return float64(len(s.Configs().Connectors)) }))
	return m
}

// skip takes note of something that is passed over.
type skip func(what string, partition int32, offset int64, err error)

// skipper counts what is passed over in a topic, and logs the first of it.
func (s *Store) skipper(topic string) skip {
	var warned atomic.Bool
	return func(what string, partition int32, offset int64, err error) {
		s.metrics.skipped.WithLabelValues(topic).Inc()
		if warned.CompareAndSwap(false, true) {
			s.log.Warn("something in a topic of connectors is not understood, and is passed over; more of it is only counted",
				"topic", topic, "partition", partition, "offset", offset, "what", what, "err", err)
		}
	}
}
