package broker_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// scrubbed are brokers that scrub every interval.
func scrubbed(interval string) clusterOptions {
	return clusterOptions{
		members: 3, policy: storage.SyncAck, static: map[string]string{"log.scrub.interval.ms": interval},
	}
}

// corrupt is how many damaged batches the member's scrubs have found.
func (m *member) corrupt() float64 {
	families, err := m.metrics.Gather()
	require.NoError(m.c.t, err)
	for _, f := range families {
		if f.GetName() == "millrace_scrub_corrupt_batches_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	m.c.t.Fatal("there is no such metric")
	return 0
}

// fill writes so many batches, in several segments, and lets the followers know that they are committed.
func (c *cluster) fill(batches int) {
	for i := range batches {
		c.members[c.partition("t", 0).Leader].produce("t", fmt.Sprint(i)+strings.Repeat("v", 100))
	}
	synctest.Wait()
	time.Sleep(time.Second)
}

// allThere asserts that the leader has what fill wrote.
func (c *cluster) allThere(batches int) {
	c.t.Helper()
	for offset := 0; offset < batches; {
		vs, p := c.members[c.partition("t", 0).Leader].read("t", int64(offset), "")
		require.Zero(c.t, p.ErrorCode)
		require.NotEmpty(c.t, vs)
		for _, v := range vs {
			require.True(c.t, strings.HasPrefix(v, fmt.Sprint(offset)))
			offset++
		}
	}
}

// A damaged follower is fetched anew though nobody reads, from the leader or from itself; so is a damaged leader.
func TestScrub(t *testing.T) {
	simulate(t, scrubbed("100000"), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2", "internal.segment.bytes", "2000")
		c.fill(50)
		for _, id := range []int32{3, 2, 1} {
			m := c.members[id]
			require.NoError(t, m.disk.FlipBit(firstSegment, 300, 1))
			require.Zero(t, m.stray())
			time.Sleep(100 * time.Second)
			require.Positive(t, m.stray(), "member %d", id)
			require.Equal(t, 1.0, m.corrupt(), "member %d", id)
			require.Len(t, c.partition("t", 0).ISR, 3)
			c.identical("t")
			c.allThere(50)
		}
		require.NotEqual(t, int32(1), c.partition("t", 0).Leader)
		require.Equal(t, 1.0, c.members[3].corrupt(), "and never again")
	})
}

// What only one replica has is not thrown away, and the others of its batches are served.
func TestScrubOfTheLastReplica(t *testing.T) {
	simulate(t, scrubbed("1000"), func(t *testing.T, c *cluster) {
		c.create("t", [][]int32{{1}}, "internal.segment.bytes", "2000")
		c.fill(50)
		m := c.members[1]
		require.NoError(t, m.disk.FlipBit(firstSegment, 300, 1))
		c.await("found again and again", func() bool { return m.corrupt() > 2 })
		require.Zero(t, m.stray())
		require.Equal(t, int32(1), c.partition("t", 0).Leader)
		m.produce("t", "more")
		vs, _ := m.read("t", 10, "")
		require.NotEmpty(t, vs)
	})
}

// Nothing is read without need, at most so many bytes a second, and a scrub on its way ends with the broker.
func TestScrubRate(t *testing.T) {
	simulate(t, scrubbed("0"), func(t *testing.T, c *cluster) {
		c.create("t", three(), "internal.segment.bytes", "10000000")
		value := strings.Repeat("v", 1_000_000)
		for range 100 {
			c.members[1].produce("t", value)
		}
		m := c.members[2]
		var reads atomic.Int64
		count := func(op storagetest.Op, file string) (time.Duration, error) {
			if op == storagetest.OpRead && strings.HasPrefix(file, "t-0/") && strings.HasSuffix(file, ".log") {
				reads.Add(1)
			}
			return 0, nil
		}
		m.disk.SetFault(count)
		time.Sleep(10 * time.Minute)
		require.Zero(t, reads.Load())
		m.disk.SetFault(nil)
		m.stop()
		c.static = map[string]string{"log.scrub.interval.ms": "60000"}
		m.start()
		m.disk.SetFault(count)
		for reads.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		began, before := time.Now(), reads.Load()
		time.Sleep(2 * time.Second)
		require.InDelta(t, 2*2*20, reads.Load()-before, 10, "a MiB and a header twenty times a second")
		m.stop()
		require.Less(t, time.Since(began), 3*time.Second)
	})
}
