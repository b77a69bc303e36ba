package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage/storagetest"
)

// others are the other nodes of three.
func others(id int32) []int32 {
	return slices.DeleteFunc([]int32{1, 2, 3}, func(other int32) bool { return other == id })
}

// eachRole runs a test on the node that leads the topic t, and on one that follows.
func eachRole(t *testing.T, do func(t *testing.T, l *lab, bad int32)) {
	t.Helper()
	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			running(t, func(l *lab) {
				l.fill(1, "t", 0, 10)
				l.inSync("t", 3)
				bad := l.leader("t")
				if role == "follower" {
					bad = others(bad)[0]
				}
				do(t, l, bad)
			})
		})
	}
}

// A disk that fails to sync takes its replicas out: another node leads, and nothing that was acknowledged is lost.
func TestClusterSyncFails(t *testing.T) {
	eachRole(t, func(t *testing.T, l *lab, bad int32) {
		rest := others(bad)
		b := l.boxes[bad]
		b.failSyncs("t-0/")
		l.keep(rest[0], "t", 10, 19)
		l.inSync("t", 2)
		require.NotEqual(t, bad, l.leader("t"))
		l.until("it is told", func() bool {
			return containsAll(b.logs.String(), []string{"input/output error", "topic=t partition=0"})
		})
		l.holds("t", 20, 1, 2, 3)
		b.kill(storagetest.LoseAll)
		b.fault.Store(nil)
		l.start(bad)
		l.ready(bad)
		l.inSync("t", 3)
		l.kill(rest[0])
		l.keep(bad, "t", 20, 20)
		l.holds("t", 21, bad, rest[1])
	})
}

// A full disk refuses, keeps what it has, and takes records again when there is room.
func TestClusterDiskFull(t *testing.T) {
	eachRole(t, func(t *testing.T, l *lab, bad int32) {
		rest := others(bad)
		l.boxes[bad].fail("t-0/", syscall.ENOSPC, storagetest.OpWrite, storagetest.OpCreate)
		l.keep(rest[0], "t", 10, 19)
		l.holds("t", 20, 1, 2, 3)
		l.boxes[bad].fault.Store(nil)
		l.stop(bad)
		l.start(bad)
		l.ready(bad)
		l.inSync("t", 3)
		l.kill(rest[0])
		l.keep(bad, "t", 20, 20)
		l.holds("t", 21, bad, rest[1])
	})
}

// A voter whose metadata cannot be written takes no part in the agreement any more, hands over what it leads, and ends.
// The others go on.
func TestClusterMetadataDiskFails(t *testing.T) {
	for _, failure := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, controls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/controls=%t", failure, controls), func(t *testing.T) {
				running(t, func(l *lab) {
					l.fill(1, "t", 0, 10)
					l.inSync("t", 3)
					bad := l.controller()
					if !controls {
						bad = others(bad)[0]
					}
					rest := others(bad)
					l.lead("t", bad)
					b := l.boxes[bad]
					b.fail("metadata/", failure, storagetest.OpWrite, storagetest.OpSync, storagetest.OpCreate)
					began := time.Now()
					l.until("a topic is there", func() bool { // whether it was made is not known if the controller was cut off
						status, _ := l.do(rest[0], http.MethodPost, "/v1/topics", `{"name":"u","partitions":3,"replication_factor":2}`)
						return status == http.StatusCreated || status == http.StatusConflict
					})
					l.until("another node leads", func() bool {
						return l.boxes[rest[0]].node.Probe().Image.Topic("t").Partitions[0].Leader != bad
					})
					require.Less(t, time.Since(began), 8*time.Second, "sooner than its silence tells")
					l.dies(bad, "the disk fails the metadata log in ", failure.Error(), "start the node again")
					require.Empty(t, b.fatal, "it is said once")
					l.keep(rest[0], "t", 10, 19)
					b.fault.Store(nil)
					l.start(bad)
					l.ready(bad)
					l.inSync("t", 3)
					l.holds("t", 20, 1, 2, 3)
				})
			})
		}
	}
}

// A node that is a cluster by itself keeps serving what it has.
func TestLoneMetadataDiskFails(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		b := l.boxes[1]
		l.start(1)
		l.ready(1)
		status, text := l.do(1, http.MethodPost, "/v1/topics", `{"name":"t","partitions":1,"replication_factor":1}`)
		require.Equal(t, http.StatusCreated, status, text)
		l.fill(1, "t", 0, 10)
		b.fail("metadata/", syscall.EIO, storagetest.OpWrite, storagetest.OpSync)
		status, text = l.do(1, http.MethodPost, "/v1/topics", `{"name":"u","partitions":1,"replication_factor":1}`)
		require.NotEqual(t, http.StatusCreated, status, text)
		l.waiting(1, "metadata log is offline after a failed write")
		l.pass(time.Minute)
		require.Empty(t, b.fatal)
		l.fill(1, "t", 10, 10)
		l.holds("t", 20, 1)
	})
}

// damageLog flips a bit in the first segment of the topic t, and makes the node believe in it.
func damageLog(t *testing.T, b *box) {
	t.Helper()
	i := slices.IndexFunc(b.disk.Files(), func(name string) bool {
		return strings.HasPrefix(name, "t-0/") && strings.HasSuffix(name, ".log")
	})
	require.NoError(t, b.disk.FlipBit(b.disk.Files()[i], 66, 3))
}

// A damaged segment is never served: the replica gives its place up and is fetched anew from one that is whole.
func TestClusterDamagedSegment(t *testing.T) {
	eachRole(t, func(t *testing.T, l *lab, bad int32) {
		rest := others(bad)
		l.stop(bad)
		damageLog(t, l.boxes[bad])
		l.start(bad)
		l.ready(bad)
		l.inSync("t", 3)
		l.do(1, http.MethodPost, "/v1/cluster/leader-elections", `{}`)
		l.fill(1, "t", 10, 10)
		l.holds("t", 20, 1, 2, 3)
		l.kill(rest[0])
		l.keep(bad, "t", 20, 20)
		l.holds("t", 21, bad, rest[1])
	})
}

// A segment that rots while it is in use: whoever leads hands over when it meets the damage, and no reader gets it.
func TestClusterSegmentRots(t *testing.T) {
	eachRole(t, func(t *testing.T, l *lab, bad int32) {
		rest := others(bad)
		damageLog(t, l.boxes[bad])
		l.until("the topic can be read", func() bool {
			status, text := l.do(bad, http.MethodGet, "/v1/topics/t/records?offset=earliest", "")
			return status == http.StatusOK && strings.Contains(text, `"value":9`)
		})
		l.holds("t", 10, 1, 2, 3)
		l.inSync("t", 3)
		l.kill(rest...)
		l.start(rest...)
		l.ready(rest...)
		l.inSync("t", 3)
		l.holds("t", 10, 1, 2, 3)
	})
}

// A clock that is off changes timestamps and nothing else.
func TestClusterClocks(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			inLab(t, 3, func(l *lab) {
				l.boxes[2].skew = off
				l.start(1, 2, 3)
				l.ready(1, 2, 3)
				l.create("t", `{}`)
				l.fill(1, "t", 0, 10)
				l.pass(time.Minute)
				l.inSync("t", 3)
				for _, id := range []int32{1, 2, 3} {
					require.NotContains(t, l.boxes[id].logs.String(), "broker is fenced")
				}
				l.kill(l.leader("t"))
				l.pass(20 * time.Second)
				for id, b := range l.boxes {
					if b.node == nil {
						l.start(id)
						l.ready(id)
					}
				}
				l.inSync("t", 3)
				l.fill(2, "t", 10, 10)
				l.holds("t", 20, 1, 2, 3)
			})
		})
	}
}
