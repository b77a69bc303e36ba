package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/servertest"
)

// compactedCluster is a cluster with a compacted topic, on every replica of which little is left but the latest value
// of each key, between many offsets that are gone and headers without records.
type compactedCluster struct {
	*servertest.Cluster
	t    *testing.T
	end  int64
	want map[string]string
}

const compactedKeys = 5

func newCompactedCluster(t *testing.T) *compactedCluster {
	c := &compactedCluster{t: t, want: map[string]string{}, Cluster: servertest.StartCluster(t, servertest.ClusterOptions{
		Broker: map[string]string{"log.cleaner.backoff.ms": "10"},
	})}
	createTopic(t, c.Client, c.URL(1), `{"name":"kept","partitions":1,"replication_factor":3,`+
		`"configs":{"cleanup.policy":"compact","min.cleanable.dirty.ratio":"0","internal.segment.bytes":"2000",`+
		`"file.delete.delay.ms":"0","index.interval.bytes":"100"}}`)
	everywhere(t, c.Cluster, "kept")
	for id := range int64(40) { // producers whose only batch will be a header
		c.produce(id, 0, fmt.Sprint("k", id%compactedKeys))
	}
	for i := range 200 {
		c.produce(-1, 0, fmt.Sprint("k", i%compactedKeys))
	}
	for id := 1; id <= 3; id++ {
		await(t, fmt.Sprintf("node %d has compacted", id), func() bool { return c.dropped(id) > 200 })
	}
	return c
}

func (c *compactedCluster) call(method string, node int, path, body string) (int, string) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.URL(node)+path, strings.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Client.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode, string(text)
}

// produce writes one record in a batch of its own.
func (c *compactedCluster) produce(producer int64, sequence int32, key string) {
	var b record.Builder
	if producer >= 0 {
		b.SetProducer(producer, 0, sequence)
	}
	value := fmt.Sprintf(`{"n":%d}`, c.end)
	b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)})
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = b.Build()
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = "kept", []kmsg.ProduceRequestTopicPartition{part}
	req.Topics = []kmsg.ProduceRequestTopic{topic}
	resp, err := req.RequestWith(c.t.Context(), c.Node(1).Requestor())
	require.NoError(c.t, err)
	require.Zero(c.t, resp.Topics[0].Partitions[0].ErrorCode)
	require.Equal(c.t, c.end, resp.Topics[0].Partitions[0].BaseOffset)
	c.want[key] = value
	c.end++
}

// dropped is how many records a node's cleaner has left out.
func (c *compactedCluster) dropped(node int) (n float64) {
	_, text := c.call(http.MethodGet, node, "/metrics", "")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "millrace_cleaner_dropped_records_total "); ok {
			_, err := fmt.Sscan(rest, &n)
			require.NoError(c.t, err)
		}
	}
	return n
}

// page is an answer to a reader.
type compactedPage struct {
	Records []struct {
		Offset  int64           `json:"offset"`
		KeyText string          `json:"key_text"`
		Value   json.RawMessage `json:"value"`
	} `json:"records"`
	Next string `json:"next"`
}

// Whoever reads a compacted topic, by whatever way, goes on over what is gone and ends with the latest values.
func TestReadersGoOverWhatIsCompactedAway(t *testing.T) {
	c := newCompactedCluster(t)
	for node := 1; node <= 3; node++ {
		for _, query := range []string{"", "&max_bytes=1", "&max_records=1", "&isolation=read_committed", "&max_bytes=70"} {
			c.readPages(node, query)
		}
	}
	t.Run("live", func(t *testing.T) { c.readLive("/v1/topics/kept/records?offset=earliest") })
	t.Run("live, from a gap", func(t *testing.T) { c.readLive("/v1/topics/kept/partitions/0/records?offset=3") })
	t.Run("raw", func(t *testing.T) { c.readRaw() })
	t.Run("after a restart", func(t *testing.T) {
		for node := 1; node <= 3; node++ {
			c.Stop(node)
			c.Start(node)
			c.AwaitReady()
		}
		await(t, "the new leader knows what is committed", func() bool {
			resp, err := fetchRaw(c, c.end-1)
			return err == nil && resp.Topics[0].Partitions[0].HighWatermark == c.end
		})
		c.readPages(2, "")
	})
}

// readPages reads page by page until nothing is left.
func (c *compactedCluster) readPages(node int, query string) {
	got, pages, at := map[string]string{}, 0, "offset=earliest"
	last := int64(-1)
	for {
		var status int
		var text string
		await(c.t, "the topic is read", func() bool {
			status, text = c.call(http.MethodGet, node, "/v1/topics/kept/records?format=json&key_format=text&"+at+query, "")
			return !passing(status)
		})
		require.Equal(c.t, http.StatusOK, status, text)
		var p compactedPage
		require.NoError(c.t, json.Unmarshal([]byte(text), &p))
		if len(p.Records) == 0 {
			break
		}
		for _, r := range p.Records {
			require.Greater(c.t, r.Offset, last)
			last = r.Offset
			got[r.KeyText] = string(r.Value)
		}
		at = "from=" + p.Next
		pages++
		require.Less(c.t, pages, 1000)
	}
	require.Equal(c.t, c.want, got, "node %d %s", node, query)
	require.Equal(c.t, c.end-1, last)
}

// readLive reads a stream until the last record has come.
func (c *compactedCluster) readLive(path string) {
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.URL(2)+path, nil)
	require.NoError(c.t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.Client.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), fmt.Sprintf(`"offset":%d,`, c.end-1)) {
			return
		}
	}
	require.Fail(c.t, "the stream ended before the last record")
}

// readRaw reads batches as they lie on disk, as Kafka's clients do.
func (c *compactedCluster) readRaw() {
	empty, next := 0, int64(0)
	for next < c.end {
		var part *kmsg.FetchResponseTopicPartition
		require.NoError(c.t, persist(c.t.Context(), func() error {
			resp, err := fetchRaw(c, next)
			if err != nil {
				return err
			}
			part = &resp.Topics[0].Partitions[0]
			return kerr.ErrorForCode(part.ErrorCode)
		}))
		require.NotEmpty(c.t, part.RecordBatches, "at offset %d", next)
		for rest := part.RecordBatches; len(rest) > 0; {
			b, after, err := record.Next(rest)
			require.NoError(c.t, err)
			require.NoError(c.t, b.Verify())
			require.Greater(c.t, b.NextOffset(), next)
			next, rest = b.NextOffset(), after
			if b.Count() == 0 {
				empty++
			}
		}
	}
	require.GreaterOrEqual(c.t, empty, 35, "headers of producers that are remembered")
}

func fetchRaw(c *compactedCluster, offset int64) (*kmsg.FetchResponse, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 300, 1, 5000
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, 300
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "kept", []kmsg.FetchRequestTopicPartition{part}
	req.Topics = []kmsg.FetchRequestTopic{topic}
	return req.RequestWith(c.t.Context(), c.Node(3).Requestor())
}
