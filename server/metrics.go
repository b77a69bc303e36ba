package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observeSync makes the histogram of sync durations, which storage fills through a function and so knows no metrics
// library.
func observeSync(r prometheus.Registerer) func(time.Duration, int) {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "millrace_storage_sync_duration_seconds",
		Help:    "How long a commit took to make the appended batches of all waiting logs durable.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14),
	})
	logs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "millrace_storage_sync_logs",
		Help:    "How many logs one commit covered.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 7),
	})
	r.MustRegister(seconds, logs)
	return func(d time.Duration, n int) {
		seconds.Observe(d.Seconds())
		logs.Observe(float64(n))
	}
}

// nodeCollector reads the node's counters when asked, so that nothing is counted twice and an idle node counts nothing.
type nodeCollector struct {
	node    *Node
	figures []figure
}

// figure is one metric of the node.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func() float64
}

func newNodeCollector(n *Node) *nodeCollector {
	c := &nodeCollector{node: n}
	add := func(kind prometheus.ValueType, name, help string, read func() float64) {
		c.figures = append(c.figures, figure{prometheus.NewDesc("millrace_"+name, help, nil, nil), kind, read})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "connections_open", "Connections that hold one of the max-connections slots.",
		func() float64 { return float64(n.listener.open()) })
	add(gauge, "topics", "Topics of the cluster.", func() float64 { return float64(n.machine.Image().TopicCount()) })
	add(gauge, "partitions", "Partitions of the cluster.",
		func() float64 { return float64(n.machine.Image().PartitionCount()) })
	add(counter, "storage_appended_batches_total", "Batches appended to logs.",
		func() float64 { return float64(n.dir.Stats().AppendedBatches) })
	add(counter, "storage_appended_bytes_total", "Bytes appended to logs.",
		func() float64 { return float64(n.dir.Stats().AppendedBytes) })
	add(counter, "storage_commits_total", "Commits that made appended batches durable.",
		func() float64 { return float64(n.dir.Stats().Commits) })
	add(counter, "storage_synced_files_total", "Files synced one by one in commits.",
		func() float64 { return float64(n.dir.Stats().SyncedFiles) })
	add(counter, "storage_synced_all_total", "Commits that synced the whole file system instead of file by file.",
		func() float64 { return float64(n.dir.Stats().SyncedAll) })
	add(counter, "storage_rolled_segments_total", "Segments that were full or old and got a successor.",
		func() float64 { return float64(n.dir.Stats().Rolls) })
	add(counter, "storage_removed_segments_total", "Segments removed by retention or by deleting records.",
		func() float64 { return float64(n.dir.Stats().RemovedSegments) })
	add(gauge, "storage_offline_logs", "Logs that a failed write or sync took offline; each needs an operator.",
		func() float64 { return float64(n.dir.Stats().OfflineLogs) })
	add(gauge, "storage_open_files", "Files that logs hold open.",
		func() float64 { return float64(n.dir.Stats().OpenFiles) })
	return c
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(to chan<- prometheus.Metric) {
	for _, f := range c.figures {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.read())
	}
}
