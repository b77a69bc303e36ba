package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server"
)

// removed has a node that has stopped taken out of the quorum, as soon as its stop is known.
func (l *lab) removed(by, id int32) {
	l.t.Helper()
	var text string
	var status int
	for began := time.Now(); time.Since(began) < time.Minute; l.pass(100 * time.Millisecond) {
		if status, text = l.do(by, http.MethodDelete, fmt.Sprint("/v1/cluster/members/", id), ""); status < 300 {
			return
		}
	}
	require.Fail(l.t, "it is not removed", "%d %s", status, text)
}

// fenced reports whether a broker is out of service, as a node has it.
func (l *lab) fenced(as, id int32) bool {
	l.t.Helper()
	status, text := l.do(as, http.MethodGet, "/v1/cluster/brokers", "")
	require.Equal(l.t, http.StatusOK, status, text)
	var list struct {
		Items []struct {
			ID    int32
			State string
		}
	}
	require.NoError(l.t, json.Unmarshal([]byte(text), &list), text)
	for _, b := range list.Items {
		if b.ID == id {
			return b.State == "fenced"
		}
	}
	return false
}

// A node that runs is not taken out, whichever node is asked and whether its broker is in service; the refusal says
// what to do, and nothing has changed.
func TestRemovingANodeThatRuns(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		for by := range l.boxes {
			for id := range l.boxes {
				status, text := l.do(by, http.MethodDelete, fmt.Sprint("/v1/cluster/members/", id), "")
				require.Equal(t, http.StatusConflict, status, text)
				require.Contains(t, text, fmt.Sprintf("Node %d is in service", id))
				require.Contains(t, text, fmt.Sprintf("millrace cluster drain %d --wait", id))
				require.Contains(t, text, fmt.Sprintf("millrace cluster decommission %d", id))
			}
		}
		voters, _ := l.members(1)
		require.Len(t, voters, 3)
		l.stop(3)
		l.removed(1, 3)
		l.has(1, []int32{1, 2}, nil)
		status, text := l.do(1, http.MethodDelete, "/v1/cluster/members/3", "")
		require.Equal(t, http.StatusNotFound, status, text)
		l.fill(1, "t", 10, 10)
	})
}

// A node that waits to be taken into service runs as well.
func TestRemovingANodeThatIsFenced(t *testing.T) {
	running(t, func(l *lab) {
		leader := l.controller()
		id := 1 + leader%3
		l.boxes[id].stop()
		l.until("it is fenced", func() bool { return l.fenced(leader, id) })
		require.NoError(t, l.boxes[id].open())
		l.until("it answers", func() bool {
			status, _ := l.do(id, http.MethodGet, "/health/live", "")
			return status == http.StatusOK
		})
		status, text := l.do(leader, http.MethodDelete, fmt.Sprint("/v1/cluster/members/", id), "")
		require.Equal(t, http.StatusConflict, status, text)
		require.Contains(t, text, fmt.Sprintf("Node %d is ", id))
		l.ready(id)
	})
}

// A member that is cut off and then taken out finds that out when it can ask, says so, and stops. It disturbs nobody,
// and started again it joins without a vote.
func TestNodeThatFindsItselfRemoved(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		leader := l.controller()
		id := 1 + leader%3
		gone := l.boxes[id]
		for other := range l.boxes {
			if other != id {
				l.net.Cut(gone.name, l.boxes[other].name)
				l.net.Cut(l.boxes[other].name, gone.name)
			}
		}
		l.until("it is fenced", func() bool { return l.fenced(leader, id) })
		l.removed(leader, id)
		l.pass(time.Minute)
		require.Empty(t, gone.fatal, "it is only cut off, for what it knows")
		l.net.Heal()
		began := time.Now()
		l.until("it stops", func() bool { return len(gone.fatal) > 0 })
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, <-gone.fatal, server.ErrRemoved)
		require.Contains(t, gone.logs.String(), "this node was removed from the cluster")
		status, text := l.do(leader, http.MethodGet, "/v1/cluster/health", "")
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, fmt.Sprintf(`"controller":%d,`, leader), "the others are left alone")
		l.stop(id)
		voters, rest := l.members(leader)
		require.Len(t, voters, 2)
		require.Empty(t, rest)
		l.start(id)
		l.ready(id)
		voters, rest = l.members(leader)
		require.Len(t, voters, 2)
		require.Equal(t, []int32{id}, rest)
		l.fill(id, "t", 10, 10)
		l.holds("t", 20, 1, 2, 3)
		require.Empty(t, gone.fatal)
	})
}

// Who hears of no leader because there is none, or is cut off from a majority, has not been removed.
func TestNodeWithoutALeaderStays(t *testing.T) {
	running(t, func(l *lab) {
		last := l.leader("t")
		l.kill(others(last)...)
		l.pass(2 * time.Minute)
		require.Empty(t, l.boxes[last].fatal)
		l.start(others(last)...)
		l.ready(1, 2, 3)
		require.Empty(t, l.boxes[last].fatal)
	})
}
