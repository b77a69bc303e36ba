package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/store"
	"millrace/server/servertest"
)

// Changes of configs through one node of three, one after the other, with 1000 connectors there.
func BenchmarkUpdate(b *testing.B) {
	r := benchStore(b)
	for i := 0; b.Loop(); i++ {
		_, err := r.Update(b.Context(), func(*store.Configs) ([]store.Change, error) {
			return []store.Change{store.PutConnector(fmt.Sprint("c", i%1000), props(fmt.Sprint(i)))}, nil
		})
		require.NoError(b, err)
	}
}

// Reads through one node of three that must show all that was acknowledged through any.
func BenchmarkFresh(b *testing.B) {
	r := benchStore(b)
	for b.Loop() {
		require.NoError(b, r.Fresh(b.Context()))
	}
}

func benchStore(b *testing.B) *store.Store {
	c := servertest.StartCluster(b, servertest.ClusterOptions{Broker: alone(), Uncoded: true})
	require.NoError(b, c.Node(1).AwaitBrokers(b.Context(), 3))
	s := start(b, c.Node(2).Requestor())
	_, err := s.Update(b.Context(), func(*store.Configs) (out []store.Change, err error) {
		for i := range 1000 {
			out = append(out, store.PutConnector(fmt.Sprint("c", i), props("0")))
		}
		return out, nil
	})
	require.NoError(b, err)
	require.NoError(b, s.PutConnectorStatus(b.Context(), "c0", store.Status{State: "RUNNING"}, false))
	return s.Store
}
