package task

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/connect/plugin"
)

// window is how long a value counts in what is the mean and the greatest of late.
const window = 30 * time.Second

// sample is the mean and the greatest of values of late: those of the present window and of the one before.
type sample struct {
	mu    sync.Mutex
	begun time.Time   // guarded by mu: of the present window
	parts [2]sampleOf // guarded by mu: the present one and that before
}

type sampleOf struct {
	sum, most, least float64
	count            int
}

func (s *sample) turnLocked(now time.Time) {
	switch age := now.Sub(s.begun); {
	case age < window:
	case age < 2*window:
		s.parts[1], s.parts[0], s.begun = s.parts[0], sampleOf{}, s.begun.Add(window)
	default:
		s.parts, s.begun = [2]sampleOf{}, now
	}
}

func (s *sample) add(v float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked(time.Now())
	p := &s.parts[0]
	if p.count == 0 {
		p.least, p.most = v, v
	}
	p.sum, p.most, p.least = p.sum+v, max(p.most, v), min(p.least, v)
	p.count++
}

func (s *sample) millis(d time.Duration) { s.add(float64(d) / float64(time.Millisecond)) }

func (s *sample) read() (mean, most, least float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked(time.Now())
	n, sum := 0, 0.0
	least = math.Inf(1)
	for _, p := range s.parts {
		if p.count > 0 {
			n, sum, most, least = n+p.count, sum+p.sum, max(most, p.most), min(least, p.least)
		}
	}
	if n == 0 {
		return 0, 0, 0
	}
	return sum / float64(n), most, least
}

// clock measures which part of its life a task spends in what state.
type clock struct {
	mu     sync.Mutex
	begun  time.Time     // guarded by mu
	since  time.Time     // guarded by mu: of paused
	paused bool          // guarded by mu
	pauses time.Duration // guarded by mu: that are over
}

func (c *clock) set(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.paused && !paused {
		c.pauses += now.Sub(c.since)
	} else if !c.paused && paused {
		c.since = now
	}
	c.paused = paused
}

func (c *clock) ratio() (paused float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	all, pauses := now.Sub(c.begun), c.pauses
	if c.paused {
		pauses += now.Sub(c.since)
	}
	if all <= 0 {
		return 0
	}
	return float64(pauses) / float64(all)
}

// metrics are those of one task. The names are Kafka Connect's.
type metrics struct {
	clock    clock
	commit   sample // milliseconds
	batch    sample // records
	commits  prometheus.Counter
	uncommit prometheus.Counter
	failures failures
	source   *sourceMetrics // nil of a sink
	sink     *sinkMetrics   // nil of a source
}

// failures count what went wrong with records.
type failures struct {
	failures, errors, skipped, retries, logged, letters, unlettered prometheus.Counter
	last                                                            prometheus.Gauge
}

type sourceMetrics struct {
	polled, written prometheus.Counter
	active          prometheus.Gauge
	poll, actives   sample
	transaction     sample
}

type sinkMetrics struct {
	read, sent                   prometheus.Counter
	active, partitions, sequence prometheus.Gauge
	completed, skipped           prometheus.Counter
	put, actives                 sample
	lag                          prometheus.Gauge
}

// maker makes and registers metrics.
type maker struct {
	to  prometheus.Registerer
	err error
}

func (m *maker) register(c prometheus.Collector) {
	if m.err == nil {
		m.err = m.to.Register(c)
	}
}

func (m *maker) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_connect_" + name, Help: help})
	m.register(c)
	return c
}

func (m *maker) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_connect_" + name, Help: help})
	m.register(g)
	return g
}

func (m *maker) read(name, help string, read func() float64) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_connect_" + name, Help: help}, read))
}

// sample shows the mean and the greatest value; name has a * where avg and max stand.
func (m *maker) sample(before, after, help string, s *sample) {
	m.read(before+"avg"+after, help+", the mean of the last minute.", func() float64 { v, _, _ := s.read(); return v })
	m.read(before+"max"+after, help+", the greatest of the last minute.", func() float64 { _, v, _ := s.read(); return v })
}

func newMetrics(to prometheus.Registerer, kind plugin.Kind) (*metrics, error) {
	m, mk := &metrics{}, &maker{to: to}
	m.clock.begun = time.Now()
	mk.read("task_pause_ratio", "Part of its life that the task was paused.", m.clock.ratio)
	mk.read("task_running_ratio", "Part of its life that the task was not paused.",
		func() float64 { return 1 - m.clock.ratio() })
	mk.sample("task_offset_commit_", "_time_ms", "Time to commit offsets, in milliseconds", &m.commit)
	mk.sample("task_batch_size_", "", "Records of a poll of a source, or a batch for a sink", &m.batch)
	m.commits = mk.counter("task_offset_commit_success_total", "Commits of offsets.")
	m.uncommit = mk.counter("task_offset_commit_failure_total", "Commits of offsets that failed.")
	m.failures = failures{
		failures: mk.counter("total_record_failures", "Records that could not go on."),
		errors:   mk.counter("total_record_errors", "Records that could not go on, and failed the task."),
		skipped:  mk.counter("total_records_skipped", "Records that were passed over."),
		retries:  mk.counter("total_retries", "Operations on records that were tried again."),
		logged:   mk.counter("total_errors_logged", "Records that could not go on and were logged."),
		letters:  mk.counter("deadletterqueue_produce_requests", "Records for the dead-letter topic."),
		unlettered: mk.counter("deadletterqueue_produce_failures",
			"Records that could not be written to the dead-letter topic."),
		last: mk.gauge("last_error_timestamp", "When a record could not go on last, in milliseconds since 1970."),
	}
	if kind == plugin.SinkKind {
		m.sink = newSinkMetrics(mk)
	} else {
		m.source = newSourceMetrics(mk)
	}
	return m, mk.err
}

func newSourceMetrics(mk *maker) *sourceMetrics {
	m := &sourceMetrics{
		polled:  mk.counter("source_record_poll_total", "Records that the source gave."),
		written: mk.counter("source_record_write_total", "Records of the source that are in topics, committed."),
		active:  mk.gauge("source_record_active_count", "Records that the source gave and that are not committed."),
	}
	mk.sample("poll_batch_", "_time_ms", "Time that the source took for a poll, in milliseconds", &m.poll)
	mk.sample("source_record_active_count_", "", "Records that are not committed", &m.actives)
	mk.sample("transaction_size_", "", "Records of a transaction", &m.transaction)
	mk.read("transaction_size_min", "Records of a transaction, the smallest of the last minute.",
		func() float64 { _, _, v := m.transaction.read(); return v })
	return m
}

func newSinkMetrics(mk *maker) *sinkMetrics {
	m := &sinkMetrics{
		read:       mk.counter("sink_record_read_total", "Records that were read for the sink."),
		sent:       mk.counter("sink_record_send_total", "Records that the sink took."),
		active:     mk.gauge("sink_record_active_count", "Records that were read and that the sink has not taken."),
		partitions: mk.gauge("partition_count", "Partitions that the sink reads."),
		sequence:   mk.gauge("offset_commit_seq_no", "Number of the last commit of offsets."),
		completed:  mk.counter("offset_commit_completion_total", "Commits of offsets that succeeded."),
		skipped:    mk.counter("offset_commit_skip_total", "Commits of offsets that were left out: nothing had changed."),
		lag:        mk.gauge("sink_record_lag_max", "Records that the sink is behind, in the partition where it is most."),
	}
	mk.sample("put_batch_", "_time_ms", "Time that the sink took for a batch, in milliseconds", &m.put)
	mk.sample("sink_record_active_count_", "", "Records that the sink had to take", &m.actives)
	return m
}
