package schemaregistry

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the Registry counts. Without a Registerer nobody sees them.
type metrics struct {
	skipped   prometheus.Counter
	conflicts prometheus.Counter
	hits      prometheus.Counter
	misses    prometheus.Counter
}

func newMetrics(to prometheus.Registerer, r *Registry) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_schema_registry_" + name, Help: help})
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_schema_registry_" + name, Help: help}, f)
	}
	m := &metrics{
		skipped:   counter("records_skipped_total", "Records of the log that were not understood."),
		conflicts: counter("id_conflicts_total", "Records of the log that gave an id to a second schema."),
		hits:      counter("parse_cache_hits_total", "Schemas that were there in parsed form."),
		misses:    counter("parse_cache_misses_total", "Schemas that had to be parsed."),
	}
	if to == nil {
		return m
	}
	to.MustRegister(m.skipped, m.conflicts, m.hits, m.misses,
		gauge("lag_records", "Records of the log that are not read yet.", func() float64 {
			lag, _ := r.tail.Heard()
			return float64(lag)
		}),
		gauge("schemas", "Schemas that have an id.", func() (n float64) {
			r.read(func(s *state) { n = float64(s.schemas()) })
			return n
		}),
		gauge("versions", "Versions of all subjects, softly deleted ones too.", func() (n float64) {
			r.read(func(s *state) { n = float64(s.versions) })
			return n
		}),
		gauge("parse_cache_bytes", "Texts of the schemas that are kept in parsed form.", func() float64 {
			return float64(r.parsed.bytes())
		}),
	)
	return m
}
