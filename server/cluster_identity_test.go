package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/peer"
	"millrace/server/quorum"
	"millrace/storage/storagetest"
)

// members are the ids in the quorum as a node tells them, voters and others.
func (l *lab) members(id int32) (voters, rest []int32) {
	l.t.Helper()
	status, text := l.do(id, http.MethodGet, "/v1/cluster/members", "")
	require.Equal(l.t, http.StatusOK, status, text)
	var p struct {
		Items []struct {
			ID    int32
			Voter bool
		}
	}
	require.NoError(l.t, json.Unmarshal([]byte(text), &p), text)
	for _, m := range p.Items {
		if m.Voter {
			voters = append(voters, m.ID)
		} else {
			rest = append(rest, m.ID)
		}
	}
	slices.Sort(voters)
	slices.Sort(rest)
	return voters, rest
}

// has waits until a node knows that these are the voters and the others. Who does not lead hears of a change a little
// after it was answered.
func (l *lab) has(id int32, voters, rest []int32) {
	l.t.Helper()
	l.until(fmt.Sprintf("node %d knows %d as voters and %d beside them", id, voters, rest), func() bool {
		v, r := l.members(id)
		return slices.Equal(v, voters) && slices.Equal(r, rest)
	})
}

// Voters that never answer are named while a majority is missing, and not missed once there is one.
func TestClusterVotersThatNeverAnswer(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.start(1)
		l.waiting(1, "waits for a majority of the voters to found the cluster with: 1 of 3", "node 2 at http://n2:8082",
			"no such host", "node 3 at http://n3:8082", "; start who does not answer, or correct the address in --voters")
		status, text := l.do(1, http.MethodGet, "/v1/topics", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, text, "node 2 at http://n2:8082")
		l.start(2)
		l.ready(1, 2)
		status, text = l.do(1, http.MethodPost, "/v1/topics", `{"name":"t","partitions":1,"replication_factor":2}`)
		require.Equal(t, http.StatusCreated, status, text)
		l.fill(2, "t", 0, 5)
		l.start(3) // late, and welcome
		l.ready(3)
		l.kill(1)
		l.keep(3, "t", 5, 9)
		l.holds("t", 10, 2, 3)
	})
}

// Voters that take connections and say nothing, and such as are no nodes, are told apart.
func TestClusterVotersAnswerNonsense(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		_, err := l.net.Boot("n2").Listen(8082)
		require.NoError(t, err)
		listener, err := l.net.Boot("n3").Listen(8082)
		require.NoError(t, err)
		other := http.Server{Handler: http.NotFoundHandler()}
		var serving sync.WaitGroup
		serving.Go(func() { _ = other.Serve(listener) })
		l.start(1)
		l.waiting(1, `node 2 at http://n2:8082: no answer within 2s; `,
			"node 3 at http://n3:8082: it answers 404 to /internal/node: is it a node of Millrace")
		l.boxes[1].change = func(c *server.Config) { c.NodeID = 4 }
		l.stop(1)
		l.start(1)
		l.waiting(1, "http://n3:8082 answered 404 Not Found: 404 page not found")
		require.NoError(t, other.Close())
		serving.Wait()
	})
}

// No cluster is founded by nodes that disagree about who founds it.
func TestClusterVotersDiffer(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		own := []quorum.Voter{{ID: 3, Address: "http://n3:8082"}, {ID: 4, Address: "http://n4:8082"}, l.voters[0]}
		l.boxes[3].change = func(c *server.Config) { c.Voters = own }
		l.start(1, 3)
		const text = "was started with other --voters"
		l.waiting(1, "node 3 at http://n3:8082", text, "3=http://n3:8082,4=http://n4:8082", "give all nodes the same list")
		l.waiting(3, "node 1 at http://n1:8082", text, "1=http://n1:8082,2=http://n2:8082,3=http://n3:8082")
		l.start(2)
		l.ready(1, 2)
		l.waiting(3, "node 1 at http://n1:8082", text, "1=http://n1:8082,2=http://n2:8082,3=http://n3:8082")
		l.stop(3)
		l.boxes[3].change = nil
		l.start(3)
		l.dies(3, "was first used with other --voters", "empty it")
		l.boxes[3].disk = storagetest.New()
		l.start(3)
		l.ready(3)
	})
}

// A node that is in its own list of voters, but was not among those that founded the cluster, is told how to join.
func TestClusterNotAFounder(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		l.boxes[4].change = func(c *server.Config) {
			c.Voters = append(slices.Clone(l.voters[:2]), quorum.Voter{ID: 4, Address: "http://n4:8082"})
		}
		l.start(4)
		l.dies(4, "node 4 is in its own --voters", "was not founded with these", "empty --data-dir",
			"1=http://n1:8082,2=http://n2:8082,3=http://n3:8082", "joins without a vote")
		l.boxes[4].disk, l.boxes[4].change = storagetest.New(), nil
		l.start(4)
		l.ready(4)
		l.has(1, []int32{1, 2, 3}, []int32{4})
	})
}

// An address under which a node does not find itself is told, and one where another node is ends it.
func TestClusterOwnAddressWrong(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.net.Boot("nowhere")
		right := l.voters
		l.voters = []quorum.Voter{right[0], {ID: 2, Address: "http://nowhere:8082"}, right[2]}
		l.start(1, 2, 3)
		l.until("it is told", func() bool {
			return containsAll(l.boxes[2].logs.String(), []string{"does not find itself where the others look for it",
				"address=http://nowhere:8082", "listening=n2:8082", "connection refused"})
		})
		l.waiting(2, "nobody finds this node at http://nowhere:8082", "correct its address", "it listens on n2:8082")
		l.ready(1, 3)
	})
	inLab(t, 3, func(l *lab) {
		l.boxes[2].change = func(c *server.Config) { // two lines were swapped
			c.Voters[1].Address, c.Voters[2].Address = c.Voters[2].Address, c.Voters[1].Address
		}
		l.start(1, 3, 2)
		l.dies(2, "http://n3:8082 is said to be node 2, but node 3 answers there", "correct the address of node 2")
	})
}

// Of two processes with one node id the second does not get into the cluster, and the first is not troubled.
func TestClusterDuplicateID(t *testing.T) {
	cases := map[string]func(l *lab, second *box){
		"another directory": func(*lab, *box) {},
		"a copied directory": func(l *lab, second *box) {
			second.disk = l.boxes[second.id].disk.Copy()
		},
	}
	for name, prepare := range cases {
		for _, id := range []int32{2, 4} { // a voter, and a node without a vote
			t.Run(fmt.Sprint(name, " of ", id), func(t *testing.T) {
				inLab(t, 4, func(l *lab) {
					l.start(1, 2, 3, 4)
					l.ready(1, 2, 3, 4)
					l.create("t", `{}`)
					l.fill(1, "t", 0, 10)
					second := l.another(5, id)
					prepare(l, second)
					l.start(5)
					l.dies(5, fmt.Sprintf("node %d runs", id), fmt.Sprintf("http://n%d:8082", id), "--node-id", "--data-dir")
					l.pass(30 * time.Second)
					require.NotContains(t, l.boxes[id].logs.String(), "broker is fenced")
					l.has(id, []int32{1, 2, 3}, []int32{4})
					l.fill(id, "t", 10, 10)
					l.holds("t", 20, 1, 2, 3, 4)
				})
			})
		}
	}
}

// Nodes with another secret, or none, do not get in, and say what to do.
func TestClusterWrongSecret(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.boxes[3].change = func(c *server.Config) { c.ClusterSecret = []byte("another secret than the others have") }
		l.start(1, 2, 3)
		l.ready(1, 2)
		l.waiting(3, "node 1 at http://n1:8082", "does not take this node's credential", "--cluster-secret-file")
		l.stop(3)
		l.boxes[3].change = func(c *server.Config) { c.ClusterSecret = nil }
		err := l.boxes[3].open()
		require.ErrorContains(t, err, "without a secret anybody could pose as a node")
		require.ErrorContains(t, err, "--cluster-secret-file")
		l.boxes[3].change = nil
		l.start(3)
		l.ready(3)
	})
}

// A node of another cluster does not get in, whatever it is told.
func TestClusterForeign(t *testing.T) {
	inLab(t, 5, func(l *lab) {
		ours := l.voters
		for _, id := range []int32{4, 5} { // clusters of one
			l.voters = []quorum.Voter{{ID: id, Address: l.boxes[id].url()}}
			l.start(id)
			l.ready(id)
			l.stop(id)
		}
		l.voters = ours
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		for _, id := range []int32{4, 5} {
			l.start(id)
			l.dies(id, "is of cluster", "correct --voters", "empty --data-dir")
		}
		l.boxes[4].disk = storagetest.New()
		l.start(4)
		l.ready(4)
	})
	inLab(t, 3, func(l *lab) { // a cluster that has a voter's name and address
		ours := l.voters
		l.voters = []quorum.Voter{ours[2]}
		l.start(3)
		l.ready(3)
		l.stop(3)
		l.voters = ours
		l.start(1, 2, 3)
		l.ready(1, 2)
		l.dies(3, "is of cluster", "correct --voters")
		l.boxes[3].disk = storagetest.New()
		l.start(3)
		l.ready(3)
	})
}

// A data directory of another node is refused before anything is done with it.
func TestClusterCopiedDirectory(t *testing.T) {
	running(t, func(l *lab) {
		l.stop(3)
		l.boxes[3].disk = l.boxes[2].disk.Copy()
		err := l.boxes[3].open()
		require.ErrorContains(t, err, "belongs to node 2, this is node 3")
		require.ErrorContains(t, err, "give --node-id 2 or another --data-dir")
	})
}

// A node of several that is started without the others does not become a cluster of its own.
func TestClusterStartedAlone(t *testing.T) {
	running(t, func(l *lab) {
		l.stop(3)
		l.boxes[3].change = func(c *server.Config) { c.Voters, c.ClusterSecret = nil, nil; c.Insecure = true }
		err := l.boxes[3].open()
		require.ErrorContains(t, err, "is of a cluster of 3 nodes, 1=http://n1:8082,2=http://n2:8082,3=http://n3:8082")
		require.ErrorContains(t, err, "give --voters and --cluster-secret-file")
		l.boxes[3].change = nil
		l.start(3)
		l.ready(3)
	})
}

// A voter that comes back with an empty disk has forgotten how it voted and what it agreed to. It gets its vote back
// when it has caught up, and until then the quorum does without it.
func TestClusterWiped(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.inSync("t", 3)
		l.kill(2)
		l.boxes[2].disk = storagetest.New()
		l.start(2)
		l.ready(2)
		require.Contains(t, l.boxes[2].logs.String(), "has been in the cluster before")
		l.until("it votes again", func() bool {
			voters, _ := l.members(1)
			return len(voters) == 3
		})
		l.inSync("t", 3)
		l.holds("t", 10, 1, 2, 3)
		l.kill(1)
		l.keep(2, "t", 10, 10)
		l.holds("t", 11, 2, 3)
	})
}

// An operator who gives a readmitted node its vote back before it knows that it had lost it does not make it wait for
// ever.
func TestClusterWipedAndPromoted(t *testing.T) {
	running(t, func(l *lab) {
		l.kill(2)
		l.boxes[2].disk = storagetest.New()
		l.start(2)
		var slow storagetest.Fault = func(op storagetest.Op, name string) (time.Duration, error) {
			if op == storagetest.OpWrite && strings.Contains(name, "metadata") {
				return 2 * time.Second, nil
			}
			return 0, nil
		}
		l.boxes[2].fault.Store(&slow)
		l.until("it has lost its vote", func() bool {
			voters, _ := l.members(1)
			return len(voters) == 2
		})
		l.until("it is promoted", func() bool {
			status, _ := l.do(1, http.MethodPost, "/v1/cluster/members/2/promote", "")
			return status < 300
		})
		l.boxes[2].fault.Store(nil)
		l.ready(2)
		l.voting(1, 2, 3)
	})
}

// readmitted has the vote of a node taken that does not run, as if it had asked for that and died.
func (l *lab) readmitted(over, id int32) {
	l.t.Helper()
	body := fmt.Sprintf(`{"op":"readmit","id":%d,"address":%q,"run":"a run that died"}`, id, l.boxes[id].url())
	l.until("it is readmitted", func() bool {
		url := l.boxes[over].url() + "/internal/membership"
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		require.NoError(l.t, err)
		peer.NewCredential([]byte(labSecret)).Set(req.Header)
		status, _ := l.answer(req)
		return status < 300
	})
	l.voting(others(id)...)
}

// voting waits until all running nodes say that these vote.
func (l *lab) voting(want ...int32) {
	l.t.Helper()
	l.until(fmt.Sprint(want, " vote"), func() bool {
		for id, b := range l.boxes {
			if b.node == nil {
				continue
			}
			if voters, _ := l.members(id); !slices.Equal(voters, want) {
				return false
			}
		}
		return true
	})
}

// A voter that asks to be taken in again, and dies before it knows that it had a vote, gets it back all the same.
func TestClusterReadmissionBrokenOff(t *testing.T) {
	for name, c := range map[string]struct {
		wiped   bool
		demoted string // by an operator, before or after
		voters  []int32
	}{
		"with its disk":            {voters: []int32{1, 2, 3}},
		"with a new disk":          {wiped: true, voters: []int32{1, 2, 3}},
		"demoted afterwards":       {demoted: "after", voters: []int32{1, 3}},
		"demoted before":           {wiped: true, demoted: "before", voters: []int32{1, 3}},
		"demoted, with a new disk": {wiped: true, demoted: "after", voters: []int32{1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(l *lab) {
				demote := func(when string) {
					if c.demoted == when {
						l.until("it is demoted", func() bool { // a leader may have to be elected before
							status, _ := l.do(1, http.MethodPost, "/v1/cluster/members/2/demote", "")
							return status < 300
						})
					}
				}
				l.kill(2)
				demote("before")
				l.readmitted(1, 2)
				demote("after")
				if c.wiped {
					l.boxes[2].disk = storagetest.New()
				}
				l.start(2)
				l.ready(2)
				l.voting(c.voters...)
				l.kill(2)
				l.start(2)
				l.ready(2)
				l.voting(c.voters...)
				_, text := l.do(3, http.MethodGet, "/v1/cluster/health", "")
				require.Equal(t, len(c.voters) < 3, strings.Contains(text, `"missing":[2]`), text)
			})
		})
	}
}

// An empty voter and one that was away do not make up a cluster: they might both lack what was agreed on.
func TestClusterWipedWithoutMajority(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.inSync("t", 3)
		l.stop(3)
		status, text := l.do(1, http.MethodPost, "/v1/topics", `{"name":"u","partitions":1,"replication_factor":2}`)
		require.Equal(t, http.StatusCreated, status, text)
		l.kill(1, 2) // only they know of u
		l.boxes[2].disk = storagetest.New()
		l.start(2, 3)
		l.waiting(2, "the node is new and the cluster is not", "node 1 at http://n1:8082")
		l.pass(time.Minute)
		l.waiting(3, "")
		l.start(1)
		l.ready(1, 2, 3)
		l.inSync("t", 3)
		l.holds("t", 10, 1, 2, 3)
		status, text = l.do(3, http.MethodGet, "/v1/topics/u", "")
		require.Equal(t, http.StatusOK, status, text)
	})
}

// A data directory that was put back from a copy is found out, loses its place, and catches up.
func TestClusterOlderCopy(t *testing.T) {
	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			running(t, func(l *lab) {
				l.fill(1, "t", 0, 10)
				l.inSync("t", 3)
				old := l.leader("t")
				if role == "follower" {
					old = others(old)[0]
				}
				b := l.boxes[old]
				l.stop(old)
				copied := b.disk.Copy()
				l.start(old)
				l.ready(old)
				l.inSync("t", 3)
				l.fill(old, "t", 10, 10)
				l.kill(old)
				b.disk = copied
				l.start(old)
				l.ready(old)
				require.Contains(t, b.logs.String(), "it is an older copy")
				l.inSync("t", 3)
				l.holds("t", 20, 1, 2, 3)
				l.kill(others(old)[0])
				l.keep(old, "t", 20, 20)
				l.holds("t", 21, old, others(old)[1])
			})
		})
	}
}

// Nodes without a vote come, go, come back and are taken out, and the cluster goes on.
func TestClusterNonvoters(t *testing.T) {
	inLab(t, 5, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		l.create("t", `{}`)
		l.fill(1, "t", 0, 10)
		l.start(4, 5)
		l.ready(4, 5)
		l.fill(4, "t", 10, 10)
		l.holds("t", 20, 1, 2, 3, 4, 5)
		l.stop(4)
		l.kill(5)
		l.fill(1, "t", 20, 10)
		l.start(4, 5)
		l.ready(4, 5)
		l.stop(5)
		l.removed(2, 5)
		l.has(1, []int32{1, 2, 3}, []int32{4})
		l.start(5) // it asks to come back
		l.ready(5)
		l.has(1, []int32{1, 2, 3}, []int32{4, 5}) // it is a member again
		l.holds("t", 30, 1, 2, 3, 4, 5)
		l.kill(1)
		l.keep(5, "t", 30, 30)
		l.holds("t", 31, 2, 3, 4, 5)
	})
}

// A voter that was taken out and started again comes back without a vote, with its disk or a new one.
func TestClusterRemovedVoter(t *testing.T) {
	for _, wiped := range []bool{false, true} {
		t.Run(fmt.Sprint("wiped ", wiped), func(t *testing.T) {
			running(t, func(l *lab) {
				l.fill(1, "t", 0, 10)
				l.stop(3)
				l.removed(1, 3)
				if wiped {
					l.boxes[3].disk = storagetest.New()
				}
				l.start(3)
				l.ready(3)
				l.has(1, []int32{1, 2}, []int32{3})
				l.inSync("t", 3)
				l.holds("t", 10, 1, 2, 3)
			})
		})
	}
}

// Nodes that were taken out for good, and start with empty disks, do not found a second cluster beside the one that
// went on without them.
func TestClusterAllOthersTakenOut(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		for _, id := range []int32{2, 3} {
			l.until("it has no vote", func() bool { // a leader may have to be elected before
				status, _ := l.do(1, http.MethodPost, fmt.Sprintf("/v1/cluster/members/%d/demote", id), "")
				return status < 300
			})
			l.stop(id)
			l.removed(1, id)
			l.until("it is no broker", func() bool { // a stop may have to be noticed
				status, _ := l.do(1, http.MethodDelete, fmt.Sprint("/v1/cluster/brokers/", id), "")
				return status < 300
			})
			l.boxes[id].disk = storagetest.New()
		}
		l.start(2, 3)
		l.ready(2, 3)
		l.has(1, []int32{1}, []int32{2, 3})
		require.Contains(t, l.boxes[2].logs.String(), "was taken out of its cluster")
		require.Contains(t, l.boxes[3].logs.String(), "was taken out of its cluster")
		l.create("t", `{}`)
		l.inSync("t", 3)
	})
}

// Everything goes on when all nodes were without power at once.
func TestClusterAllAtOnce(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		for round := range 3 {
			for id := range int32(3) {
				l.boxes[id+1].kill(storagetest.LoseAll)
			}
			l.start(1, 2, 3)
			l.ready(1, 2, 3)
			l.keep(1, "t", 10*(round+1), 10*(round+1)+9)
			l.holds("t", 10*(round+2), 1, 2, 3)
		}
		l.inSync("t", 3)
	})
}

// One node of three reads what is committed and refuses the rest, with what to do about it.
func TestClusterMinority(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.inSync("t", 3)
		last := l.leader("t")
		l.kill(others(last)...)
		l.waiting(last, "the metadata quorum has no leader", "a majority of its voters must run")
		l.holds("t", 10, last)
		status, text := l.do(last, http.MethodPost, "/v1/topics", `{"name":"u"}`)
		require.Equal(t, http.StatusServiceUnavailable, status, text)
		require.Contains(t, text, "majority")
		text, ok := l.send(last, "t", 10)
		require.False(t, ok, text)
		l.start(others(last)...)
		l.ready(1, 2, 3)
		l.keep(last, "t", 10, 10)
		l.holds("t", 11, 1, 2, 3)
	})
}
