package registry_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
)

// cluster is the registry of three nodes, by their ids from 1.
type cluster struct {
	*servertest.Cluster
	nodes [4]*fixture
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: servertest.StartCluster(t, servertest.ClusterOptions{})}
	for id := 1; id <= 3; id++ {
		require.NoError(t, c.Node(id).AwaitBrokers(t.Context(), 3)) // the log is to be on all of them
		c.nodes[id] = &fixture{t, c.URL(id), c.Client}
	}
	return c
}

// leader is the node that leads the registry's log, and another one.
func (c *cluster) leader(t *testing.T) (leader, other int) {
	t.Helper()
	topic, err := client.New(c.Node(1).Requestor(), client.Options{}).Topic(t.Context(), "_schemas", client.Refuse)
	require.NoError(t, err)
	leader = int(topic.Partitions[0].Leader)
	return leader, leader%3 + 1
}

// A write is served by the node that leads the log, whichever node it comes to, and is read from all at once.
func TestForwarding(t *testing.T) {
	c := startCluster(t)
	c.nodes[1].run(step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`})
	leader, other := c.leader(t)
	f := c.nodes[other]
	f.run(
		step{"POST /subjects/s/versions", body(record(fieldA, fieldB), `"unknown":1`), `{"id":2,"version":2}`},
		step{"POST /contexts/.c/subjects/a%2Fb/versions/", body(record(fieldA)), `{"id":1,"version":1}`},
		step{"PUT /config/s?x=1", `{"compatibility":"FULL"}`, `{"compatibility":"FULL"}`},
		step{"POST /subjects/s/versions", body(record(needful)), "40901"},
		step{"PUT /mode/a%2Fb", `{"mode":"READONLY"}`, `{"mode":"READONLY"}`},
		step{"POST /v1/schemas:batch", `{"schemas":[` + entry("t", `"int"`) + `]}`, `{"schemas":[{"id":3}]}`},
		step{"DELETE /subjects/t", "", `[1]`},
		step{"POST /subjects/t/versions/1:undelete", "", `{"version":1}`},
		step{"DELETE /subjects/t/versions/1", "", `1`},
		step{"DELETE /config/s", "", `{"compatibilityLevel":"FULL"}`},
	)
	for id := 1; id <= 3; id++ {
		c.nodes[id].run(
			step{"GET /subjects?deleted=true", "", `[":.c:a/b","s","t"]`},
			step{"GET /subjects/s/versions", "", `[1,2]`},
			step{"GET /schemas/ids/2", "", `{"schemaType":"AVRO"}`},
			step{"GET /mode/a%2Fb", "", `{"mode":"READONLY"}`},
		)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	large := record(fieldA, fieldB, `{"name":"c","type":"string","default":"`+strings.Repeat("x", 200_000)+`"}`)
	_, err := w.Write([]byte(body(large)))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	a := f.send("POST", "/subjects/s/versions", packed.String(), "Content-Encoding", "gzip", "X-Request-ID", "mine",
		"Accept", "application/json")
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, []string{"mine"}, a.header.Values("X-Request-ID"))
	require.NotEmpty(t, a.header.Get("Millrace-Registry-Offset"))
	a = f.send("POST", "/subjects/x/versions", body(`"int"`), "X-Forward", "true") // as if another registry had sent it
	require.Equal(t, 200, a.status, a.text)

	// What is known is answered by every node, and reads go on, where nobody leads.
	c.Stop(leader)
	c.nodes[other].run(step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1,"version":1}`})
	var last *answer
	for began := time.Now(); last == nil || last.status >= 500 && time.Since(began) < 2*time.Minute; {
		last = c.nodes[other].send("POST", "/subjects/y/versions", body(`"long"`)) // a new leader is elected meanwhile
	}
	require.Equal(t, 200, last.status, last.text)
}

// Many who register at once, through all nodes, get one id for one schema, and each version once.
func TestRegisterAtOnce(t *testing.T) {
	c := startCluster(t)
	const writers, schemas = 6, 8
	var wg sync.WaitGroup
	answers := make([][schemas]string, writers)
	for i := range writers {
		wg.Go(func() {
			f := c.nodes[i%3+1]
			for k := range schemas {
				name := fmt.Sprint("f", k)
				var a *answer // the same request may be sent again
				for began := time.Now(); a == nil || a.status >= 500 && time.Since(began) < time.Minute; {
					a = f.send("POST", "/subjects/s"+name+"/versions", body(record(`{"name":"`+name+`","type":"int"}`)))
				}
				text, _, _ := strings.Cut(a.text, `,"ts":`)
				answers[i][k] = fmt.Sprint(a.status, " ", text)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for k := range schemas {
		require.True(t, strings.HasPrefix(answers[0][k], "200 "), answers[0][k])
		require.False(t, seen[answers[0][k]])
		seen[answers[0][k]] = true
		for i := range writers {
			require.Equal(t, answers[0][k], answers[i][k])
		}
	}
}
