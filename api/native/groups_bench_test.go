package native_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
)

// BenchmarkListLags lists a thousand groups with their lag, each with offsets of ten or two hundred partitions of one
// topic, on a node and on a cluster of three with the coordinators spread over it.
func BenchmarkListLags(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, partitions := range []int{10, 200} {
			b.Run(fmt.Sprintf("nodes=%d/partitions=%d", nodes, partitions), func(b *testing.B) {
				var url string
				var hc *http.Client
				var c *client.Client
				if nodes == 1 {
					n := servertest.Start(b, servertest.Options{Uncoded: true})
					url, hc, c = n.URL(), n.Client, client.New(n.Requestor(), client.Options{})
				} else {
					n := servertest.StartCluster(b, servertest.ClusterOptions{Uncoded: true})
					url, hc, c = n.URL(1), n.Client, client.New(n.Node(1).Requestor(), client.Options{})
				}
				fillGroups(b, c, 1000, partitions)
				b.ResetTimer()
				for b.Loop() {
					resp, err := hc.Get(url + "/v1/groups?lag=true&limit=1000")
					require.NoError(b, err)
					text, err := io.ReadAll(resp.Body)
					require.NoError(b, err)
					require.NoError(b, resp.Body.Close())
					require.Equal(b, 1000, strings.Count(string(text), `"unknown":0`))
				}
			})
		}
	}
}

// fillGroups makes groups that have offsets of all partitions of a topic.
func fillGroups(b *testing.B, c *client.Client, groups, partitions int) {
	b.Helper()
	_, err := c.CreateTopic(b.Context(), client.NewTopic{Name: "t", Partitions: int32(partitions), ReplicationFactor: -1})
	require.NoError(b, err)
	for g := range groups {
		commit := client.GroupCommit{Group: fmt.Sprint("group-", g), Epoch: -1}
		for p := range partitions {
			commit.Offsets = append(commit.Offsets, client.CommittedOffset{
				TopicPartition: client.TopicPartition{Topic: "t", Partition: int32(p)}, LeaderEpoch: -1,
			})
		}
		errs, err := c.CommitOffsets(b.Context(), commit)
		require.NoError(b, err)
		require.NoError(b, errs[0])
	}
}
