package txn

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// passing says of an error that asking again may do.
func passing(e *kerr.Error) bool {
	return e == kerr.CoordinatorLoadInProgress || e == kerr.CoordinatorNotAvailable || e == kerr.NotCoordinator ||
		e == kerr.ConcurrentTransactions
}

// insist asks again for as long as that may do, as clients do.
func (l *lab) insist(do func() *kerr.Error) *kerr.Error {
	l.t.Helper()
	for range 10_000 {
		e := do()
		if e == nil || !passing(e) {
			return e
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Fail(l.t, "it takes for ever")
	return nil
}

// crashTimeout is how long the transactions of the script may be open, in milliseconds.
const crashTimeout = 3000

// script is what a producer does, insisting.
type script struct {
	l *lab
	s session
}

func (c *script) init() {
	c.l.t.Helper()
	require.Nil(c.l.t, c.l.insist(func() (e *kerr.Error) {
		req := initRequest("id")
		req.TransactionTimeoutMillis = crashTimeout
		c.s, e = c.l.initWith(req)
		return e
	}))
}

func (c *script) produce(to topicPartition, text string) {
	c.l.t.Helper()
	require.Nil(c.l.t, c.l.insist(func() *kerr.Error { return c.l.produce(c.s, to, 0, text) }), text)
}

func (c *script) end(commit bool) {
	c.l.t.Helper()
	var next session
	require.Nil(c.l.t, c.l.insist(func() (e *kerr.Error) {
		next, e = c.l.end(c.s, commit)
		return e
	}), "%s", c.s)
	c.s = next
}

// run goes through all states and back, over the end of a producer id.
func (c *script) run() {
	c.init()
	c.produce(t0, "c1")
	c.produce(t1, "c2")
	c.produce(u0, "c3")
	c.end(true)
	c.produce(t0, "a1")
	c.produce(u0, "a2")
	c.end(false)
	c.end(false) // of nothing
	c.produce(t0, "f1")
	c.init() // another process
	c.produce(t0, "c4")
	c.end(true)
	c.produce(t0, "o1")
	time.Sleep(crashTimeout*time.Millisecond + 2*time.Second)
	c.init()
	c.produce(t0, "c5")
	c.end(true)
}

// crashes are the ways in which the coordinator goes at one of its writes.
var crashes = map[string]struct{ lost, twice bool }{
	"the write stays":              {},
	"the write is lost":            {lost: true},
	"the next one goes too":        {twice: true},
	"the next one goes too, empty": {lost: true, twice: true},
}

// The coordinator goes at every one of its writes: with it, so that it is as if it had never been, or right after it.
// Whatever was answered holds, and nothing gets stuck.
func TestCrashAtEveryWrite(t *testing.T) {
	for name, how := range crashes {
		t.Run(name, func(t *testing.T) {
			for k := 1; ; k++ {
				if writes := crashAt(t, k, how.lost, how.twice); writes < k {
					require.Greater(t, k, 20)
					return
				}
			}
		})
	}
}

// crashAt runs the script with a crash at the k-th write, and says how many writes there were.
func crashAt(t *testing.T, k int, lost, twice bool) (writes int) {
	hook := func(l *lab, _ string) {
		l.mu.Lock()
		writes++
		now := writes == k || twice && writes == k+1
		leader := l.roles[0].Leader
		l.mu.Unlock()
		if !now {
			return
		}
		for _, n := range l.nodes {
			n.setCut(lost && n.id != leader)
		}
		l.gone <- struct{}{}
	}
	static := map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
	inLab(t, labOptions{nodes: 3, lastEpoch: 3, hook: hook, static: static}, func(t *testing.T, l *lab) {
		l.wg.Go(func() {
			for {
				select {
				case <-l.gone:
				case <-l.ctx.Done():
					return
				}
				time.Sleep(3 * time.Millisecond)
				l.lead(0, l.role(0).Leader%3+1)
				for _, n := range l.nodes {
					n.setCut(false)
				}
			}
		})
		(&script{l: l}).run()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		at := fmt.Sprintf("crash at write %d", k)
		for p, want := range map[topicPartition]contents{
			t0: {committed: []string{"c1", "c4", "c5"}, aborted: []string{"a1", "f1", "o1"}},
			t1: {committed: []string{"c2"}},
			u0: {committed: []string{"c3"}, aborted: []string{"a2"}},
		} {
			got := l.read(p)
			require.Equal(t, want.committed, got.committed, at)
			require.Equal(t, want.aborted, got.aborted, at)
			require.Empty(t, got.open, at)
			b := l.leaders[p].Bounds()
			require.Equal(t, b.LogEnd, b.LastStable, at)
		}
		d := l.describe("id")
		require.Equal(t, "CompleteCommit", d.State, at)
		require.Empty(t, d.Topics, at)
	})
	return writes
}

// The coordinator moves while an id is in each state, and with a transaction in each, and all nodes see the same.
func TestFailoverInEveryState(t *testing.T) {
	inLab(t, labOptions{nodes: 3}, func(t *testing.T, l *lab) {
		everywhere := func(want string) {
			t.Helper()
			for range 3 {
				l.lead(0, l.role(0).Leader%3+1)
				time.Sleep(20 * time.Millisecond)
				require.Equal(t, want, l.state("id"))
			}
		}
		s := l.started("id")
		everywhere("Empty 1000/0")
		l.produced(s, t0, 0, "a")
		everywhere("Ongoing 1000/0")
		l.produced(s, t1, 0, "b")
		for _, commit := range []bool{true, false} {
			l.setCode("t", 1, kerr.NotLeaderForPartition.Code)
			next, e := l.end(s, commit)
			require.Nil(t, e)
			how := map[bool]string{true: "Commit", false: "Abort"}[commit]
			everywhere(fmt.Sprintf("Prepare%s 1000/%d", how, next.epoch))
			l.setCode("t", 1, 0)
			time.Sleep(2 * time.Second)
			everywhere(fmt.Sprintf("Complete%s 1000/%d", how, next.epoch))
			again, e := l.end(s, commit)
			require.Nil(t, e, "the answer was lost, and so was who gave it")
			require.Equal(t, next, again)
			s = next
			l.produced(s, t0, 0, "c")
			l.produced(s, t1, 0, "d")
		}
		require.Equal(t, []string{"a"}, l.read(t0).committed)
		require.Equal(t, []string{"c"}, l.read(t0).aborted)
		require.Equal(t, map[string]bool{"c": true}, l.read(t0).open)
		// Markers of every leader have the epoch of its leadership, so that partitions tell the later from the
		// earlier.
		last := int32(-1)
		for _, req := range l.written {
			require.GreaterOrEqual(t, req.Markers[0].CoordinatorEpoch, last)
			last = req.Markers[0].CoordinatorEpoch
		}
	})
}
