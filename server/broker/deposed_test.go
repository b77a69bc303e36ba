package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/storage/storagetest"
)

// load is some producers that write to a topic with acks=all, each one value after the other, without ids: what has
// been answered with an unknown outcome is never sent again, what is not written is.
type load struct {
	c       *cluster
	stop    atomic.Bool
	wg      sync.WaitGroup
	resent  atomic.Int64
	slowest atomic.Int64

	mu      sync.Mutex
	acked   []string // guarded by mu
	unknown []string // guarded by mu
}

// startLoad starts producers, each of which writes when it likes: in fake time they would else go in step with all that
// the test does, which would always find them at the same point, such as where nothing is on its way.
func startLoad(c *cluster, producers int) *load {
	l := &load{c: c}
	for p := range producers {
		rng := rand.New(rand.NewPCG(1, uint64(p)))
		l.wg.Go(func() {
			for i := 0; !l.stop.Load(); i++ {
				l.write(fmt.Sprintf("%d/%d", p, i))
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
			}
		})
	}
	return l
}

// write sends one value until it is decided.
func (l *load) write(value string) {
	for {
		began := time.Now()
		answer := l.try(value)
		l.slowest.Store(max(l.slowest.Load(), int64(time.Since(began))))
		if answer != nil && answer.ErrorCode != 0 && ktag.NotWritten(&answer.UnknownTags) {
			l.resent.Add(1)
			time.Sleep(time.Millisecond)
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if answer != nil && answer.ErrorCode == 0 {
			l.acked = append(l.acked, value)
		} else {
			l.unknown = append(l.unknown, value)
		}
		return
	}
}

// try sends a value to the leader, as far as the controller knows; nil is no answer.
func (l *load) try(value string) *kmsg.ProduceResponseTopicPartition {
	leader := l.c.members[max(l.c.partition("t", 0).Leader, 1)]
	if !leader.up.Load() {
		p := kmsg.NewProduceResponseTopicPartition()
		p.ErrorCode = 6
		ktag.SetNotWritten(&p.UnknownTags)
		return &p
	}
	resp, err := leader.produceRequest("t", -1, plain(value)).RequestWith(context.Background(), leader.broker)
	if err != nil {
		return nil
	}
	return &resp.Topics[0].Partitions[0]
}

// end stops the producers and compares what was answered with what is there.
func (l *load) end(t *testing.T) {
	l.stop.Store(true)
	l.wg.Wait()
	synctest.Wait()
	l.c.await("all in sync", func() bool { return len(l.c.partition("t", 0).ISR) == 3 })
	var got []string
	for {
		vs, p := l.c.members[l.c.partition("t", 0).Leader].read("t", int64(len(got)), "")
		require.Zero(t, p.ErrorCode)
		if len(vs) == 0 {
			break
		}
		got = append(got, vs...)
	}
	slices.Sort(got)
	slices.Sort(l.acked)
	t.Logf("%d records, %d tries were not written, the slowest answer took %v", len(got), l.resent.Load(),
		time.Duration(l.slowest.Load()))
	require.Empty(t, l.unknown)
	require.Equal(t, l.acked, got)
	require.Positive(t, l.resent.Load())
	l.c.identical("t")
}

// slowDisks makes syncs take a while, so that there is always something that is not committed.
func (c *cluster) slowDisks() {
	for id, m := range c.members {
		m.disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
			if op == storagetest.OpSync || op == storagetest.OpSyncAll {
				return time.Duration(1+id) * time.Millisecond, nil
			}
			return 0, nil
		})
	}
}

// When leadership moves to another replica, every produce on its way is told what has become of its batch, and soon.
func TestOutcomesWhenLeadershipMoves(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		c.slowDisks()
		l := startLoad(c, 8)
		for i := 0; i < 20 || l.resent.Load() == 0 && i < 500; i++ { // until something was on its way at a move
			time.Sleep(300 * time.Millisecond)
			c.fence(c.partition("t", 0).Leader)
			c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		}
		l.end(t)
		require.Less(t, time.Duration(l.slowest.Load()), time.Second)
	})
}

// A rolling restart leaves no outcome unknown.
func TestOutcomesInARollingRestart(t *testing.T) {
	simulate(t, ofThree(), func(t *testing.T, c *cluster) {
		c.create("t", three(), "min.insync.replicas", "2")
		c.slowDisks()
		l := startLoad(c, 8)
		for round := 0; round < 6 || l.resent.Load() == 0 && round < 300; round++ { // as above
			time.Sleep(300 * time.Millisecond)
			m := c.members[int32(round%3)+1]
			require.NoError(t, m.broker.Shutdown(t.Context()))
			m.stop()
			m.start()
			c.await("all in sync", func() bool { return len(c.partition("t", 0).ISR) == 3 })
		}
		l.end(t)
		require.Less(t, time.Duration(l.slowest.Load()), time.Second)
	})
}
