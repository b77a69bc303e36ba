package peer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/peer"
)

func BenchmarkProduce(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			o := serveBench(b)
			c := peer.NewClient(o)
			req := produceRequest([16]byte{1}, make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_, err := req.RequestWith(b.Context(), c)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "8MiB": 8 << 20} {
		b.Run(name, func(b *testing.B) {
			o := serveBench(b)
			c := peer.NewClient(o)
			pool := record.NewPool(64 << 20)
			req := kmsg.NewPtrFetchRequest()
			req.MaxBytes = int32(size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				arena := pool.Arena()
				_, err := req.RequestWith(record.WithArena(b.Context(), arena), c)
				require.NoError(b, err)
				arena.Free()
			}
		})
	}
}

func serveBench(b *testing.B) peer.ClientOptions {
	return serve(b, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		resp := r.ResponseKind()
		if f, ok := resp.(*kmsg.FetchResponse); ok {
			part := kmsg.NewFetchResponseTopicPartition()
			part.RecordBatches = make([]byte, r.(*kmsg.FetchRequest).MaxBytes)
			f.Topics = []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{part}}}
		}
		return resp, nil
	}, func(o *peer.HandlerOptions) { o.Pool = record.NewPool(64 << 20) })
}
