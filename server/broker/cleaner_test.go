package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// cleaned are brokers whose cleaners look once a second.
func cleaned(members int, static ...string) clusterOptions {
	o := clusterOptions{members: members, policy: storage.SyncAck, static: map[string]string{
		"log.cleaner.backoff.ms": "1000", "log.cleaner.min.cleanable.ratio": "0", "log.scrub.interval.ms": "0",
		"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000",
	}}
	for i := 0; i < len(static); i += 2 {
		o.static[static[i]] = static[i+1]
	}
	return o
}

// metric is what a member's metric says.
func (m *member) metric(name string) float64 {
	families, err := m.metrics.Gather()
	require.NoError(m.c.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	m.c.t.Fatalf("there is no metric %s", name)
	return 0
}

// put writes records with keys, each in a batch of its own.
func (m *member) put(topic string, from, to, keys int) {
	for i := from; i < to; i++ {
		var b record.Builder
		value := strings.Repeat("v", 100) + fmt.Sprint(i)
		b.Append(&record.Record{
			Timestamp: time.Now().UnixMilli(), Key: fmt.Append(nil, "k", i%keys), Value: []byte(value),
		})
		resp, err := m.produceRequest(topic, -1, b.Build()).RequestWith(m.c.t.Context(), m.broker)
		require.NoError(m.c.t, err)
		require.Zero(m.c.t, resp.Topics[0].Partitions[0].ErrorCode)
	}
	synctest.Wait()
}

// count is how many records a reader from the start of a topic gets.
func (m *member) count(topic string) (n int) {
	resp, err := m.fetchRequest(topic, 0, "").RequestWith(m.c.t.Context(), m.broker)
	require.NoError(m.c.t, err)
	part := &resp.Topics[0].Partitions[0]
	for offset := part.LogStartOffset; offset < part.HighWatermark; {
		resp, err := m.fetchRequest(topic, offset, "").RequestWith(m.c.t.Context(), m.broker)
		require.NoError(m.c.t, err)
		require.Zero(m.c.t, resp.Topics[0].Partitions[0].ErrorCode)
		for rest := resp.Topics[0].Partitions[0].RecordBatches; len(rest) > 0; {
			b, after, err := record.Next(rest)
			require.NoError(m.c.t, err)
			n, offset, rest = n+int(b.Count()), b.NextOffset(), after
		}
	}
	return n
}

// One log that cannot be compacted is left alone, and told of; the others are compacted.
func TestCleanerGoesOnPastAFailure(t *testing.T) {
	simulate(t, cleaned(1), func(t *testing.T, c *cluster) {
		for _, topic := range []string{"bad", "good"} {
			c.create(topic, [][]int32{{1}}, "cleanup.policy", "compact", "internal.segment.bytes", "2000")
		}
		m := c.members[1]
		m.disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
			if op == storagetest.OpSync && strings.HasPrefix(name, "bad-0/") && strings.HasSuffix(name, ".cleaned") {
				return 0, fmt.Errorf("a disk that fails")
			}
			return 0, nil
		})
		m.put("bad", 0, 100, 5)
		m.put("good", 0, 100, 5)
		c.await("compacted", func() bool { return m.count("good") < 40 })
		require.Equal(t, 100, m.count("bad"))
		c.await("told of", func() bool { return m.metric("millrace_cleaner_uncleanable_partitions") == 1 })
		require.Equal(t, 1.0, m.metric("millrace_cleaner_failures_total"))
		m.put("bad", 100, 120, 5)
		m.disk.SetFault(nil)
		time.Sleep(time.Minute)
		require.Equal(t, 1.0, m.metric("millrace_cleaner_failures_total"), "it is not tried again")
		require.Equal(t, 120, m.count("bad"), "it is read and written as ever")
		m.stop()
		m.start()
		c.await("compacted after a restart", func() bool { return m.count("bad") < 40 })
	})
}

// A disk without room is no failure for good.
func TestCleanerWaitsForRoom(t *testing.T) {
	simulate(t, cleaned(1), func(t *testing.T, c *cluster) {
		c.create("t", [][]int32{{1}}, "cleanup.policy", "compact", "internal.segment.bytes", "20000",
			"min.cleanable.dirty.ratio", "0.9", "file.delete.delay.ms", "0")
		m := c.members[1]
		m.put("t", 0, 400, 300) // little is superfluous, so that room is needed
		m.disk.SetQuota(m.disk.Used() + 4000)
		m.put("t", 400, 401, 300)
		c.await("failed", func() bool { return m.metric("millrace_cleaner_failures_total") > 1 })
		require.Equal(t, 401, m.count("t"))
		require.Zero(t, m.metric("millrace_cleaner_uncleanable_partitions"))
		m.disk.SetQuota(0)
		c.await("compacted", func() bool { return m.count("t") < 390 })
	})
}

// Where both are asked for, old segments go and the rest is compacted, on leaders and followers alike.
func TestCompactAndDelete(t *testing.T) {
	simulate(t, cleaned(3), func(t *testing.T, c *cluster) {
		c.create("t", three(), "cleanup.policy", "compact,delete", "internal.segment.bytes", "2000",
			"retention.ms", "3600000", "file.delete.delay.ms", "0")
		m := c.members[c.partition("t", 0).Leader]
		m.put("t", 0, 100, 90)
		c.await("compacted", func() bool { return m.count("t") < 100 })
		time.Sleep(30 * time.Minute)
		m.put("t", 100, 200, 5)
		c.await("compacted again", func() bool { return m.count("t") < 130 })
		require.Greater(t, m.count("t"), 85, "what is not superfluous stays for an hour")
		time.Sleep(40 * time.Minute)
		require.Less(t, m.count("t"), 60, "and goes then")
		for id, other := range c.members {
			require.Positive(t, other.metric("millrace_cleaner_dropped_records_total"), "member %d", id)
			require.Empty(t, other.files("t-0/00000000000000000000.log"), "member %d", id)
		}
	})
}

// The throttle holds, and a round under way ends with the broker, with the topic, and with the policy.
func TestCleanerIsThrottledAndStops(t *testing.T) {
	simulate(t, cleaned(1, "log.cleaner.io.max.bytes.per.second", "10000"), func(t *testing.T, c *cluster) {
		m := c.members[1]
		c.create("t", [][]int32{{1}}, "cleanup.policy", "compact", "internal.segment.bytes", "100000")
		c.create("u", [][]int32{{1}}, "cleanup.policy", "compact", "internal.segment.bytes", "100000")
		began := time.Now()
		m.put("t", 0, 1000, 5)
		c.await("begun", func() bool {
			time.Sleep(time.Second)
			return time.Since(began) > 100*time.Second || m.count("t") < 900
		})
		require.Greater(t, time.Since(began), 20*time.Second, "180 KB are read twice")
		m.put("u", 0, 1000, 5)
		time.Sleep(3 * time.Second)
		began = time.Now()
		m.stop()
		require.Less(t, time.Since(began), 2*time.Second)
		m.start()
		require.Equal(t, 1000, m.count("u"))
	})
}

// Nothing is compacted where the cleaner is off, and retention is done all the same.
func TestCleanerIsOff(t *testing.T) {
	simulate(t, cleaned(1, "log.cleaner.enable", "false"), func(t *testing.T, c *cluster) {
		c.create("t", [][]int32{{1}}, "cleanup.policy", "compact,delete", "internal.segment.bytes", "2000",
			"retention.ms", "3600000")
		m := c.members[1]
		m.put("t", 0, 100, 5)
		time.Sleep(time.Minute)
		require.Equal(t, 100, m.count("t"))
		time.Sleep(2 * time.Hour)
		require.Zero(t, m.count("t"))
	})
}
