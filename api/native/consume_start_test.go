package native_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records that are deleted between the look-up of where a log begins and the read are no error to who asked for the
// beginning, but they are to who asked for an offset.
func TestStartThatMovesMeanwhile(t *testing.T) {
	e := newReads(t, 1, "t")
	e.putValues("t", 0, 0, 40)
	var start, left atomic.Int64
	e.cl.before = func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.FetchRequest); !ok || left.Add(-1) < 0 {
			return nil
		}
		del := kmsg.NewPtrDeleteRecordsRequest()
		del.Topics = []kmsg.DeleteRecordsRequestTopic{{
			Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: min(start.Add(1), 40)}},
		}}
		// Two that overtake each other are refused, and the stream goes on when the test has ended: a goroutine of its own
		// must not end here.
		_, _ = del.RequestWith(context.Background(), e.producer)
		return nil
	}
	for _, query := range []string{"?offset=earliest", "", "?timestamp=0"} {
		for _, form := range []string{"application/json", "application/vnd.apache.kafka.recordbatch"} {
			left.Store(2)
			r := e.get("/v1/topics/t/partitions/0/records"+query, form)
			require.Equal(t, http.StatusOK, r.status, "%s as %s: %s", query, form, r.body)
		}
	}
	left.Store(1) // of this stream's fetches, or of its hub's
	l := e.live("/v1/topics/t/records?offset=earliest")
	require.GreaterOrEqual(t, l.take(1)[0].Offset, start.Load()-1)
	left.Store(1)
	r := e.get("/v1/topics/t/partitions/0/records?offset=0", "application/json")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, r.status)
	left.Store(100)
	r = e.get("/v1/topics/t/records", "application/json")
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, r.status, "it is not tried for ever")
	left.Store(0)
}
