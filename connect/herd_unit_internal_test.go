package connect

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/store"
)

// The time before a restart grows to its bound and stays there, however often something fails.
func TestBackoff(t *testing.T) {
	first, longest := time.Minute, time.Hour
	var got []time.Duration
	for n := range 8 {
		got = append(got, backoff(n+1, first, longest))
	}
	m := time.Minute
	require.Equal(t, []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, longest, longest}, got)
	for n := range 200 {
		require.Equal(t, longest, backoff(n+7, first, longest))
	}
	require.Equal(t, longest, backoff(1, 2*longest, longest))
}

// A trace is bounded, and has no part of a secret in it where it is cut.
func TestTraces(t *testing.T) {
	secret := "open sesame"
	hidden := strings.NewReplacer(secret, "[hidden]")
	require.Equal(t, "x [hidden]", traceOf(errors.New("x "+secret), hidden))
	trace := traceOf(errors.New(strings.Repeat("x", maxTrace-4)+secret+secret), hidden)
	require.Equal(t, strings.Repeat("x", maxTrace-4)+"[hid ...", trace)
}

// What could not be written while a worker still had its work is not written once others may have it.
func TestStatusesThatFailAfterADrop(t *testing.T) {
	s := newStatuses(nil, nil)
	a, b := workID{"c", 0}, workID{"c", 1}
	drops := s.drops
	s.drop()
	s.restore(a, statusLine{store.Status{State: stateRunning}, false}, drops)
	s.restore(b, statusLine{store.Status{State: stateUnassigned}, true}, drops)
	require.Equal(t, []workID{b}, slices.Collect(maps.Keys(s.pending)))
	s.restore(a, statusLine{store.Status{State: stateRunning}, false}, s.drops)
	require.Len(t, s.pending, 2)
}

// Whoever ran a part of a connector that was deleted has what was said of it be forgotten, for that may have been
// written after all else was.
func TestNothingIsSaidOfWhatIsDeleted(t *testing.T) {
	s, err := store.New(store.Options{Client: &client.Client{}})
	require.NoError(t, err)
	for _, id := range []workID{{"gone", 0}, {"gone", connectorObject}, {"less", 3}, {"less", 1}} {
		u := &unit{id: id}
		h := &herd{
			store: s, units: map[workID]*unit{id: u}, since: make(map[workID]int32), statuses: newStatuses(nil, nil),
			configs: &store.Configs{Connectors: map[string]*store.Connector{"less": {Tasks: make([]map[string]string, 2)}}},
		}
		h.unitEnded(u)
		require.Empty(t, h.units)
		want := map[workID]map[string]int{{"less", 3}: {"less": 2}, {"less", 1}: {}}[id]
		if id.Connector == "gone" {
			want = map[string]int{"gone": all}
		}
		require.Equal(t, want, h.statuses.shorter, "%v", id)
	}
}

// A worker claims what it was assigned before it starts it, so that nobody else is given it meanwhile; and what it runs
// until that has ended.
func TestClaims(t *testing.T) {
	s, err := store.New(store.Options{Client: &client.Client{}})
	require.NoError(t, err)
	runs, both, waits := workID{"a", 0}, workID{"b", connectorObject}, workID{"b", 0}
	h := &herd{store: s, units: map[workID]*unit{runs: {}, both: {}}, since: map[workID]int32{runs: 2, both: 2}}
	require.Empty(t, h.claim(false).Owned)
	h.begin(&tenure{share: share{Run: []workID{both, waits}}, generation: 3})
	h.publish()
	require.Equal(t, []held{{runs, 2}, {both, 3}, {waits, 3}}, h.claim(false).Owned)
	require.Empty(t, h.claim(true).Owned, "of who was put out nothing is left")
	h.tenure = nil
	h.publish()
	require.Equal(t, []held{{runs, 2}, {both, 3}}, h.claim(false).Owned)
	text, err := json.Marshal(h.claim(false).Owned[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"connector":"b","task":-1,"generation":3}`, string(text))
}
