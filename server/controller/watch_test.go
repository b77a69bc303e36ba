package controller_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/internal/ktag"
	"millrace/server/controller"
	"millrace/server/metadata"
)

// fencing is one broker leaving service.
type fencing struct {
	id int32
	at time.Duration
}

// fencings is what left service so far.
type fencings struct {
	mu   sync.Mutex
	list []fencing // guarded by mu
}

// soFar is the list once everybody has done what is due.
func (f *fencings) soFar() []fencing {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// watchFencing notes every fencing from now on; each change fences at most one.
func (c *cluster) watchFencing(t testing.TB) *fencings {
	t.Helper()
	f, from := new(fencings), time.Now()
	c.machine.Watch(func(old, now *metadata.Image) {
		if old == nil {
			return
		}
		n := 0
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, b := range now.Brokers() {
			if was := old.Broker(b.ID); was != nil && was.Epoch == b.Epoch && !was.Fenced && b.Fenced {
				f.list = append(f.list, fencing{b.ID, time.Since(from)})
				n++
			}
		}
		if n > 1 {
			t.Errorf("one change fenced %d brokers", n)
		}
	})
	return f
}

// beatFor lets time pass while these brokers send heartbeats.
func (c *cluster) beatFor(t testing.TB, d time.Duration, ids ...int32) {
	t.Helper()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		c.beat(t, ids...)
		time.Sleep(min(heartbeatInterval, time.Until(end)))
	}
}

func TestFencedAtTheSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 3, 2, 1}))
		fenced := c.watchFencing(t)
		c.beat(t, 3)
		c.beatFor(t, sessionTimeout-time.Nanosecond, 1, 2)
		require.Empty(t, fenced.soFar())
		time.Sleep(time.Nanosecond)
		require.Equal(t, []fencing{{3, sessionTimeout}}, fenced.soFar())
		p := c.partition("t", 0)
		require.Equal(t, int32(2), p.Leader, "the next in order leads")
		require.Equal(t, int32(1), p.LeaderEpoch)
		require.Equal(t, []int32{1, 2}, inSync(p))

		c.beat(t, 3)
		require.True(t, c.machine.Image().Active(3), "a heartbeat brings it back")
	})
}

func TestFencedOneByOneTheLongestSilentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 6, controller.Config{})
		for _, id := range []int32{4, 2, 5, 3} {
			c.beat(t, 1, 6, id)
			time.Sleep(time.Millisecond)
		}
		fenced := c.watchFencing(t)
		c.beatFor(t, sessionTimeout-time.Second, 1, 6)
		c.beat(t, 5) // in time
		c.beatFor(t, 2*time.Second, 1, 6)
		var ids []int32
		for _, f := range fenced.soFar() {
			ids = append(ids, f.id)
		}
		require.Equal(t, []int32{4, 2, 3}, ids)
	})
}

// A controller that is slow to agree must not fence whoever could not be heard meanwhile: each fencing looks anew.
func TestSlowAgreementSparesTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 4, controller.Config{})
		fenced := c.watchFencing(t)
		c.quorum.beforeNext(func() {
			c.beat(t, 3, 4) // two heartbeats arrive while the fencing of broker 2 is agreed on
		})
		c.beatFor(t, sessionTimeout+time.Second, 1)
		require.Len(t, fenced.soFar(), 1)
	})
}

func TestNewTermRestartsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		fenced := c.watchFencing(t)
		c.beatFor(t, 5*time.Second, 1)
		c.quorum.elect()
		c.beatFor(t, sessionTimeout-time.Nanosecond, 1)
		require.Empty(t, fenced.soFar())
		time.Sleep(time.Nanosecond)
		require.Equal(t, []fencing{{2, 5*time.Second + sessionTimeout}}, fenced.soFar())
	})
}

func TestFollowerFencesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		_, ok := c.Contact(2)
		require.True(t, ok)
		fenced := c.watchFencing(t)
		c.quorum.follower.Store(true)
		time.Sleep(time.Hour)
		require.Empty(t, fenced.soFar())
		_, ok = c.Contact(2)
		require.False(t, ok, "only the controller can tell")
		require.Equal(t, int16(41), c.send(t, c.heartbeat(2)).ErrorCode)
	})
}

// After a pause of this process heartbeats lie unread, so silence says nothing.
func TestPauseRestartsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		fenced := c.watchFencing(t)
		c.quorum.beforeNext(func() { // the agreement on fencing broker 2 takes most of a session
			time.Sleep(5 * time.Second)
		})
		c.beat(t, 3)
		time.Sleep(4 * time.Second)
		c.beat(t, 1, 3)
		time.Sleep(5 * time.Second) // broker 2 is due
		time.Sleep(5 * time.Second) // held up; broker 1 and 3 are overdue at the end of it
		require.Equal(t, []fencing{{2, 14 * time.Second}}, fenced.soFar())
		time.Sleep(sessionTimeout - time.Nanosecond)
		require.Len(t, fenced.soFar(), 1, "sessions began anew")
	})
}

// refusing is a probe that some brokers' ports refuse; others answer.
type refusing struct {
	mu    sync.Mutex
	left  map[int32]int // how many probes to refuse from now on; guarded by mu
	count map[int32]int // guarded by mu
}

func (r *refusing) probe(_ context.Context, b *metadata.Broker) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[b.ID]++
	if r.left[b.ID] > 0 {
		r.left[b.ID]--
		return &refusal{}
	}
	return nil
}

func (r *refusing) refuse(id int32, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[id] = times
}

func (r *refusing) probes(id int32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[id]
}

type refusal struct{}

func (*refusal) Error() string { return "dial tcp: connection refused" }
func (*refusal) Unwrap() error { return syscall.ECONNREFUSED }

func newRefusing() *refusing { return &refusing{left: map[int32]int{}, count: map[int32]int{}} }

func TestSuspectIsProbedAndFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing()
		c := started(t, 3, controller.Config{Probe: r.probe})
		c.beat(t, 1, 2, 3)
		fenced := c.watchFencing(t)
		c.Suspect(2)
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, fenced.soFar(), "its port answers")
		require.Equal(t, 1, r.probes(2))

		r.refuse(2, 1)
		c.Suspect(2)
		time.Sleep(200 * time.Millisecond)
		require.Empty(t, fenced.soFar(), "refused once: something may have been started anew")
		require.Equal(t, 3, r.probes(2))

		r.refuse(2, 2)
		beat := c.heartbeat(3)
		ktag.SetRefusedBrokers(&beat.UnknownTags, []int32{2, 1, 77})
		c.send(t, beat)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, []fencing{{2, 350 * time.Millisecond}}, fenced.soFar())
		require.Zero(t, r.probes(1), "the controller's own port is not probed")
	})
}

func TestSilentIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing()
		c := started(t, 3, controller.Config{Probe: r.probe})
		r.refuse(2, 1000)
		fenced := c.watchFencing(t)
		c.beatFor(t, 4*time.Second, 1, 3)
		require.Equal(t, []fencing{{2, heartbeatInterval*3/2 + 50*time.Millisecond}}, fenced.soFar())
		require.Zero(t, r.probes(3))
	})
}

func TestNewControllerProbesEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing()
		c := started(t, 3, controller.Config{Probe: r.probe})
		c.quorum.follower.Store(true)
		time.Sleep(time.Minute)
		r.refuse(3, 2)
		fenced := c.watchFencing(t)
		c.quorum.elect()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, []fencing{{3, 50 * time.Millisecond}}, fenced.soFar())
		require.Equal(t, 1, r.probes(2))
		require.Zero(t, r.probes(1), "that is this node")
	})
}

// What cannot be reached may live: only its session ends it. Probes that hang are bounded.
func TestHangingProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var now, most int // guarded by mu
		count := func(more int) {
			mu.Lock()
			defer mu.Unlock()
			now += more
			most = max(most, now)
		}
		probe := func(ctx context.Context, _ *metadata.Broker) error {
			count(1)
			defer count(-1)
			<-ctx.Done()
			return ctx.Err()
		}
		c := started(t, 30, controller.Config{Probe: probe})
		fenced := c.watchFencing(t)
		c.beatFor(t, sessionTimeout-time.Nanosecond, 1)
		require.Empty(t, fenced.soFar())
		mu.Lock()
		require.Equal(t, 8, most)
		mu.Unlock()
		c.beatFor(t, time.Second, 1)
		require.Len(t, fenced.soFar(), 29)
	})
}

// A cluster of one broker costs next to nothing and is never out of service.
func TestOneBrokerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing()
		c := started(t, 1, controller.Config{Probe: r.probe})
		c.mustCreate(t, newTopic("t", 3, 1))
		synctest.Wait()
		before, proposals := c.quorum.looks.Load(), c.quorum.proposals.Load()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, c.quorum.looks.Load()-before, int64(3601))
		require.Equal(t, proposals, c.quorum.proposals.Load())
		require.True(t, c.machine.Image().Active(1))
	})
}

func TestFencingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		fenced := c.watchFencing(t)
		c.beatFor(t, sessionTimeout-time.Second, 1)
		before := c.quorum.proposals.Load()
		c.quorum.failWith(errors.New("no disk"))
		time.Sleep(2 * time.Second)
		require.Empty(t, fenced.soFar())
		require.Equal(t, int64(6), c.quorum.proposals.Load()-before, "at once and then every 200 ms")
		c.quorum.failWith(nil)
		time.Sleep(200 * time.Millisecond)
		require.Len(t, fenced.soFar(), 1)
	})
}

func TestCloseEndsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := func(ctx context.Context, _ *metadata.Broker) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c := started(t, 3, controller.Config{Probe: probe})
		c.Suspect(2)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(began))
	})
}
