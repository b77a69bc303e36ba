package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Node 1 leads 1, 2 and 3. Times are seconds ago.
func TestCommittedOffset(t *testing.T) {
	const never = -1
	now := time.Unix(1000, 0)
	other := func(id int32, end int64, caughtUp int) remote {
		s := newRemote(id)
		s.logEnd = end
		if caughtUp != never {
			s.caughtUp = now.Add(-time.Duration(caughtUp) * time.Second)
		}
		return s
	}
	pair := func(two, three remote) []remote { return []remote{two, three} }
	one := func(two remote) []remote { return []remote{two} }
	ids := func(all ...int32) []int32 { return all }
	for _, c := range []struct {
		name     string
		own      int64
		remotes  []remote
		isr      []int32
		added    []int32
		inactive []int32
		needed   int
		want     int64 // none: not known
	}{
		{"alone", 7, nil, ids(1), nil, nil, 1, 7},
		{"alone of three", 7, pair(other(2, 3, never), other(3, 4, 31)), ids(1), nil, nil, 1, 7},
		{"the least of all", 7, pair(other(2, 5, 0), other(3, 6, 0)), ids(1, 2, 3), nil, nil, 2, 5},
		{"the leader's is the least", 4, pair(other(2, 5, 0), other(3, 6, 0)), ids(1, 2, 3), nil, nil, 2, 4},
		{"one has not fetched", 7, pair(other(2, 5, 0), other(3, none, 0)), ids(1, 2, 3), nil, nil, 2, none},
		{"out of sync does not count", 7, pair(other(2, 5, 0), other(3, 1, 31)), ids(1, 2), nil, nil, 2, 5},
		{"about to be in sync does", 7, pair(other(2, 5, 0), other(3, 1, 30)), ids(1, 2), nil, nil, 2, 1},
		{"unless fenced", 7, pair(other(2, 5, 0), other(3, 1, 30)), ids(1, 2), nil, ids(3), 2, 5},
		{"in sync though fenced", 7, one(other(2, 5, 99)), ids(1, 2), nil, ids(2), 1, 5},
		{"proposed counts", 7, pair(other(2, 5, 0), other(3, 4, 99)), ids(1, 2), ids(3), nil, 2, 4},
		{"proposed is not in sync", 7, one(other(2, 5, 0)), ids(1), ids(2), nil, 2, none},
		{"too few", 7, one(other(2, 7, 0)), ids(1), nil, nil, 2, none},
		{"in sync but not assigned", 7, one(other(2, 5, 0)), ids(1, 2, 4), nil, nil, 2, none},
		{"nothing is in any log", 0, one(other(2, 0, 0)), ids(1, 2), nil, nil, 2, 0},
		{"nobody follows", 7, pair(other(2, none, never), other(3, none, never)), ids(1), nil, nil, 1, 7},
		{"the least is about to be back", 7, pair(other(2, 6, 3), other(3, 2, 5)), ids(1), nil, nil, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := tally{
				self: 1, own: c.own, remotes: c.remotes, isr: c.isr, added: c.added, needed: c.needed, now: now,
				lag:    30 * time.Second,
				active: func(id int32, _ int64) bool { return !slices.Contains(c.inactive, id) },
			}
			got, ok := in.committed()
			require.Equal(t, c.want != none, ok)
			require.Equal(t, c.want, got)
		})
	}
}

// The time at which a replica had caught up, as its fetches tell.
func TestCaughtUp(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	s := newRemote(2)
	fetch := func(second int, offset, leaderEnd, epoch int64) time.Time {
		s.fetch(&FollowerFetch{Replica: 2, BrokerEpoch: epoch, Offset: offset}, leaderEnd, at(second))
		return s.caughtUp
	}
	require.Zero(t, fetch(0, 0, 10, 5), "far behind")
	require.Zero(t, fetch(1, 5, 20, 5), "nearer")
	require.Equal(t, at(1), fetch(2, 20, 30, 5), "what there was at the last fetch")
	require.Equal(t, at(2), fetch(3, 30, 40, 5))
	require.Equal(t, at(2), fetch(4, 35, 50, 5), "falls behind")
	require.True(t, s.lags(50, at(33), 30*time.Second))
	require.False(t, s.lags(50, at(32), 30*time.Second))
	require.False(t, s.lags(35, at(99), 30*time.Second), "all there is")
	require.Equal(t, at(6), fetch(6, 50, 50, 5))
	require.Zero(t, fetch(7, 50, 60, 6), "another run of the broker begins anew")
}

// An extent's bytes are told as the high watermark passes them, and in part where several are remembered
// together.
func TestReveal(t *testing.T) {
	l := &Leader{local: &local{}}
	l.hide(10, 100)
	l.hide(20, 200)
	require.EqualValues(t, 100, l.revealLocked(0, 10))
	l.hide(30, 300)
	require.EqualValues(t, 500, l.revealLocked(10, 30))
	require.Empty(t, l.hidden)
	for i := range int64(2 * maxExtents) {
		l.hide(31+i, 10)
	}
	require.Len(t, l.hidden, maxExtents)
	end := int64(30 + 2*maxExtents)
	l.hide(end+5, 7)
	l.unhide(end, 7)
	var told int64
	for hw := int64(30); hw < end; hw++ {
		bytes := l.revealLocked(hw, hw+1)
		require.Positive(t, bytes, "a fetch that waits for any byte is woken at %d", hw)
		told += bytes
	}
	require.InDelta(t, 20*maxExtents, told, 300)
	require.Empty(t, l.hidden)
}
