package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage/storagetest"
)

// A leader that was cut off goes on taking records that nobody else has; when it is back, those go, and it has what the
// others have.
func TestClusterLongerDivergingLog(t *testing.T) {
	for _, end := range []string{"healed", "restarted"} {
		t.Run(end, func(t *testing.T) {
			running(t, func(l *lab) {
				l.fill(1, "t", 0, 10)
				l.inSync("t", 3)
				old := l.leader("t")
				rest := others(old)
				for _, id := range rest {
					l.net.Cut(l.boxes[old].name, l.boxes[id].name)
					l.net.Cut(l.boxes[id].name, l.boxes[old].name)
				}
				for i := range 50 { // many more than the others get
					status, text := l.do(old, http.MethodPost, "/v1/topics/t/records?acks=1", fmt.Sprint(1000+i))
					if status != http.StatusOK { // it has noticed
						t.Log(i, text)
						break
					}
				}
				l.keep(rest[0], "t", 10, 14)
				if end == "restarted" {
					l.boxes[old].kill(storagetest.KeepAll)
				}
				l.net.Heal()
				if end == "restarted" {
					l.start(old)
					l.ready(old)
				}
				l.inSync("t", 3)
				l.holds("t", 15, 1, 2, 3)
				require.Contains(t, l.boxes[old].logs.String(), "log truncated")
				l.kill(rest[0])
				l.keep(rest[1], "t", 15, 15)
				l.holds("t", 16, old, rest[1])
			})
		})
	}
}

// A follower that starts with more than the leader has, left by a leader of an older epoch, loses it.
func TestClusterFollowerFromAnotherTime(t *testing.T) {
	running(t, func(l *lab) {
		l.fill(1, "t", 0, 10)
		l.inSync("t", 3)
		old := l.leader("t")
		rest := others(old)
		l.kill(rest...)
		for i := range 20 { // acks=1, so that they are taken; nobody else has them when this node dies too
			status, text := l.do(old, http.MethodPost, "/v1/topics/t/records?acks=1", fmt.Sprint(1000+i))
			require.Equal(t, http.StatusOK, status, text)
		}
		l.kill(old)
		l.start(rest...)
		l.ready(rest...)
		l.pass(20 * time.Second)
		l.keep(rest[0], "t", 10, 19)
		l.start(old)
		l.ready(old)
		l.inSync("t", 3)
		l.holds("t", 20, 1, 2, 3)
		require.Contains(t, l.boxes[old].logs.String(), "log truncated")
	})
}
