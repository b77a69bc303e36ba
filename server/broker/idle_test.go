package broker_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage/storagetest"
)

// An idle partition is a little memory and nothing else, so that ten thousand cost little, at rest
// and at start.
func TestIdlePartitionsAreSmall(t *testing.T) {
	const partitions = 2000
	n := newNode(t, options{fs: storagetest.New()})
	n.create("t", partitions)
	n.stop()
	goroutines, before := runtime.NumGoroutine(), heap()
	began := time.Now()
	n.start()
	t.Logf("started in %v", time.Since(began))
	each := (heap() - before) / partitions
	t.Logf("%d bytes a partition", each)
	require.Less(t, each, int64(3072))
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+10)
	led, offline := n.broker.Partitions()
	require.Equal(t, partitions, led)
	require.Zero(t, offline)
	n.stop()
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
