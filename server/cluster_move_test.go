package server_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/quorum"
	"millrace/storage/storagetest"
)

// move gives machines other names, in --voters too. They must not run.
func (l *lab) move(names map[int32]string) {
	for id, name := range names {
		l.boxes[id].name = name
	}
	for i, v := range l.voters {
		l.voters[i] = quorum.Voter{ID: v.ID, Address: l.boxes[v.ID].url()}
	}
}

// A node that is the only voter gets another address, as it does when it is to be reached by nodes that are to join.
func TestClusterLoneVoterMoves(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		l.voters = l.voters[:1]
		l.start(1)
		l.ready(1)
		l.stop(1)
		l.move(map[int32]string{1: "m1"})
		l.start(1)
		l.ready(1)
		l.start(4)
		l.ready(4)
		status, text := l.do(4, http.MethodGet, "/v1/cluster/members", "")
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, `"url":"http://m1:8082"`)
	})
}

// A new node takes the place of a lost one at the same address. Nobody else is given an address that is a member's.
func TestClusterAddressOfALostNode(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		l.kill(3)
		status, text := l.do(1, http.MethodPost, "/v1/cluster/members", `{"id":4,"url":"http://n3:8082"}`)
		require.Equal(t, http.StatusConflict, status, text)
		require.Contains(t, text, "ember 3 is at http://n3:8082: start node 4 there")
		require.Contains(t, text, "remove member 3")
		l.boxes[4].name = "n3"
		l.start(4)
		l.ready(4)
		l.has(1, []int32{1, 2, 3}, []int32{4})
	})
}

// A vote of a node that is away would count for the majority and never be given.
func TestClusterPromoteWhoIsAway(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		l.start(1, 2, 3, 4)
		l.ready(1, 2, 3, 4)
		promote := func() (int, string) { return l.do(1, http.MethodPost, "/v1/cluster/members/4/promote", "") }
		l.kill(4)
		status, text := promote()
		require.Equal(t, http.StatusConflict, status, text)
		require.Contains(t, text, "ember 4 does not answer at http://n4:8082 (dial tcp n4:8082: connection refused): start it")
		voters, _ := l.members(1)
		require.Equal(t, []int32{1, 2, 3}, voters)
		l.start(4)
		l.ready(4)
		status, text = promote()
		require.Equal(t, http.StatusNoContent, status, text)
		l.kill(4)
		status, text = promote() // it has a vote
		require.Equal(t, http.StatusNoContent, status, text)
	})
}

// A voter whose machine is lost comes back on another one, at another address, while the others still have the old one
// in --voters.
func TestClusterVoterOnAnotherMachine(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.kill(3)
		l.boxes[3].disk = storagetest.New()
		l.voters = slices.Clone(l.voters)
		l.move(map[int32]string{3: "m3"})
		l.start(3)
		l.ready(3)
		l.voting(1, 2, 3)
		l.inSync("t", 3)
		l.kill(1)
		l.keep(3, "t", 10, 10)
		l.holds("t", 11, 2, 3)
	})
}
