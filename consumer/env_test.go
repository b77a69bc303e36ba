package consumer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/consumer"
	"millrace/server/servertest"
)

// limit is how long is waited for anything. It is shorter than the lease of members by default, so that nothing comes
// about by the end of one.
const limit = 30 * time.Second

// env is a node, and members that another process could run: they reach it by its requestor alone.
type env struct {
	t      *testing.T
	node   *servertest.Node
	client *client.Client
}

func newEnv(t *testing.T) *env {
	n := servertest.Start(t, servertest.Options{Broker: map[string]string{
		"offsets.topic.num.partitions": "3", "group.consumer.assignment.interval.ms": "0",
	}})
	return &env{t: t, node: n, client: client.New(n.Requestor(), client.Options{MetadataTTL: time.Millisecond})}
}

// members makes members of their own.
func (e *env) members(change ...func(*consumer.Options)) *consumer.Members {
	o := consumer.Options{Client: e.client, Requests: e.node.Requestor()}
	for _, c := range change {
		c(&o)
	}
	m := consumer.New(o)
	e.t.Cleanup(m.Close)
	return m
}

func (e *env) topic(name string, partitions int) {
	e.t.Helper()
	_, err := e.client.CreateTopic(e.t.Context(), client.NewTopic{
		Name: name, Partitions: int32(partitions), ReplicationFactor: -1,
	})
	require.NoError(e.t, err)
}

// put produces one record each of values to a partition.
func (e *env) put(topic string, partition int, values ...string) {
	e.t.Helper()
	url := fmt.Sprintf("%s/v1/topics/%s/records?partition=%d", e.node.URL(), topic, partition)
	resp, err := e.node.Client.Post(url, "application/x-ndjson", strings.NewReader(strings.Join(values, "\n")))
	require.NoError(e.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(e.t, err)
	require.Equal(e.t, http.StatusOK, resp.StatusCode, "%s", text)
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func (e *env) join(m *consumer.Members, c consumer.Config) *consumer.Member {
	e.t.Helper()
	if c.Group == "" {
		c.Group = "g"
	}
	k, err := m.Join(e.t.Context(), c)
	require.NoError(e.t, err)
	return k
}

// poll returns the values of the next records, as many as there are within a time.
func (e *env) poll(k *consumer.Member, q consumer.PollRequest) []string {
	e.t.Helper()
	p, err := k.Poll(e.t.Context(), q)
	require.NoError(e.t, err)
	defer p.Free()
	return valuesOf(p)
}

func valuesOf(p *consumer.Polled) (out []string) {
	for i := range p.Records {
		out = append(out, string(p.Records[i].Value))
	}
	return out
}

// read polls until it has so many records.
func (e *env) read(k *consumer.Member, count int) []string {
	e.t.Helper()
	var out []string
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	for len(out) < count {
		p, err := k.Poll(ctx, consumer.PollRequest{Wait: 5 * time.Second})
		require.NoError(e.t, err)
		out = append(out, valuesOf(p)...)
		p.Free()
	}
	return out
}

// assignment waits until a member has so many partitions.
func (e *env) assignment(k *consumer.Member, count int) []client.TopicPartition {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		at, err := k.Assignment(ctx)
		require.NoError(e.t, err, "%s wants %d partitions", k.ID(), count)
		if len(at) == count {
			return at
		}
		<-tick.C
	}
}

// committed is what the group has committed for a partition.
func (e *env) committed(group, topic string, partition int32) int64 {
	e.t.Helper()
	found, err := e.client.Committed(e.t.Context(), group, true, tp(topic, partition))
	require.NoError(e.t, err)
	return found[0].Offset
}

func tp(topic string, partition int32) client.TopicPartition {
	return client.TopicPartition{Topic: topic, Partition: partition}
}

// spoiled is a requestor that may answer by itself.
type spoiled struct {
	kmsg.Requestor
	answer func(kmsg.Request) (kmsg.Response, error)
}

func (s *spoiled) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if answer := s.answer; answer != nil {
		if resp, err := answer(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return s.Requestor.Request(ctx, r)
}
