package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/servertest"
)

// longest bounds what tests wait for: on a machine that stands still now and then, much that takes milliseconds
// otherwise.
const longest = 2 * time.Minute

// between is the pause between two looks.
const between = 10 * time.Millisecond

// await looks, in the test's own goroutine, until what is to come has come.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(between)
	defer tick.Stop()
	for began := time.Now(); !is(); <-tick.C {
		require.Less(t, time.Since(began), longest, "waited too long until %s", what)
	}
}

// persist repeats a request that does no harm twice as a client would: while nobody answers, and while who answers says
// to ask again.
func persist(ctx context.Context, do func() error) error {
	tick := time.NewTicker(between)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := do()
		if err == nil || !passes(err) || ctx.Err() != nil || time.Since(began) > longest {
			return err
		}
	}
}

// passes says of an error that it is of the moment.
func passes(err error) bool {
	var coded *kerr.Error
	return !errors.As(err, &coded) || coded.Retriable || coded == kerr.ConcurrentTransactions
}

// passing says of a status that the same request may succeed a little later.
func passing(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// createTopic makes a topic on a node. Where it is not known whether that was done, it is asked for again.
func createTopic(t testing.TB, client *http.Client, base, body string) {
	t.Helper()
	unknown := false
	await(t, "the topic is made", func() bool {
		resp, err := client.Post(base+"/v1/topics", "application/json", strings.NewReader(body))
		if err != nil {
			unknown = true
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || passing(resp.StatusCode) {
			unknown = true
			return false
		}
		if !unknown || resp.StatusCode != http.StatusConflict {
			require.Equal(t, http.StatusCreated, resp.StatusCode, "%s", text)
		}
		return true
	})
}

// everywhere waits until all running nodes of a cluster of three know some topics, and leaders of their partitions.
func everywhere(t testing.TB, c *servertest.Cluster, topics ...string) {
	t.Helper()
	await(t, "all nodes know the topics", func() bool {
		for id := 1; id <= 3; id++ {
			if c.Node(id) == nil {
				continue
			}
			image := c.Node(id).Probe().Image
			for _, name := range topics {
				topic := image.Topic(name)
				if topic == nil {
					return false
				}
				for i := range topic.Partitions {
					if topic.Partitions[i].Leader < 0 {
						return false
					}
				}
			}
		}
		return true
	})
}
