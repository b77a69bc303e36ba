//go:build !race

// The Raft library reads a member's address without the lock under which it changes it (updateLastAppended against
// startStopReplication in v1.8.0), which the race detector reports.

package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cluster of which all nodes have got other addresses while none ran finds itself by --voters, also where an address
// has become another node's or is one that takes connections and says nothing.
func TestClusterMoves(t *testing.T) {
	elsewhere, inTurn := map[int32]string{1: "m1", 2: "m2", 3: "m3"}, map[int32]string{1: "n2", 2: "n3", 3: "n1"}
	for what, names := range map[string]map[int32]string{"elsewhere": elsewhere, "silence": elsewhere, "in turn": inTurn} {
		t.Run(what, func(t *testing.T) {
			running(t, func(l *lab) {
				l.fill(1, "t", 0, 10)
				l.stop(1, 2, 3)
				if what == "silence" {
					for _, b := range l.boxes {
						_, err := l.net.Boot(b.name).Listen(8082)
						require.NoError(t, err)
					}
				}
				l.move(names)
				l.start(1, 2, 3)
				l.ready(1, 2, 3)
				l.until("the members are where they say", func() bool {
					_, text := l.do(1, http.MethodGet, "/v1/cluster/members", "")
					for id := range names {
						if !containsAll(text, []string{fmt.Sprintf(`"url":%q`, l.boxes[id].url())}) {
							return false
						}
					}
					return true
				})
				l.keep(2, "t", 10, 19)
				l.holds("t", 20, 1, 2, 3)
			})
		})
	}
}
