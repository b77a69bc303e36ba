package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/servertest"
)

// shaky is a client whose network repeats requests and loses answers at random. Its caller repeats what got no answer.
type shaky struct {
	t    testing.TB
	http *http.Client
	urls []string

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

// chance is true once in n times.
func (s *shaky) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n) == 0
}

func (s *shaky) url() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[s.rand.IntN(len(s.urls))]
}

// reply is an answer that came.
type reply struct {
	status  int
	body    string
	retry   bool   // it says to send the same again
	outcome string // of a refusal
}

// once sends a request to some node.
func (s *shaky) once(ctx context.Context, path, body string, header http.Header) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url()+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header = header.Clone()
	resp, err := s.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var p struct {
		Retryable bool   `json:"retryable"`
		Outcome   string `json:"outcome"`
	}
	_ = json.Unmarshal(text, &p)
	return reply{resp.StatusCode, string(text), p.Retryable || p.Outcome == "unknown", p.Outcome}, err
}

// errLost is what a client sees of an answer that its network has lost.
var errLost = errors.New("the answer was lost")

// send sends a request as the network has it: sometimes twice at a time, sometimes so that its answer is lost,
// sometimes cut off in the middle.
func (s *shaky) send(ctx context.Context, path, body string, header http.Header) (reply, error) {
	var twin sync.WaitGroup
	defer twin.Wait()
	if whole := ctx; s.chance(4) {
		twin.Go(func() { _, _ = s.once(whole, path, body, header) })
	}
	if s.chance(6) {
		s.mu.Lock()
		cut, cancel := context.WithTimeout(ctx, time.Duration(s.rand.IntN(5_000))*time.Microsecond)
		s.mu.Unlock()
		defer cancel()
		ctx = cut
	}
	r, err := s.once(ctx, path, body, header)
	if err == nil && s.chance(5) {
		return reply{}, errLost
	}
	return r, err
}

// sure repeats a request until an answer comes that says what became of it.
func (s *shaky) sure(path, body string, header http.Header) reply {
	s.t.Helper()
	tick := time.NewTicker(between)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < longest; <-tick.C {
		r, err := s.send(s.t.Context(), path, body, header)
		if err == nil && !r.retry {
			return r
		}
	}
	s.t.Errorf("a request gets no answer: %s", path)
	return reply{}
}

// shakyCluster is three nodes with topics whose partitions all have three replicas.
func shakyCluster(t *testing.T, seed uint64) (*servertest.Cluster, *shaky) {
	t.Helper()
	c := servertest.StartCluster(t, servertest.ClusterOptions{Seed: seed, Change: func(cfg *server.Config) {
		if cfg.Broker == nil {
			cfg.Broker = map[string]string{}
		}
		cfg.Broker["transaction.state.log.num.partitions"] = "4"
		cfg.Broker["offsets.topic.num.partitions"] = "4"
	}})
	s := &shaky{t: t, http: c.Client, rand: rand.New(rand.NewPCG(seed, 1))}
	for id := 1; id <= 3; id++ {
		s.urls = append(s.urls, c.URL(id))
	}
	for _, name := range []string{"a", "b", "c"} {
		createTopic(t, c.Client, s.url(), `{"name":"`+name+`","partitions":2,"replication_factor":3}`)
	}
	everywhere(t, c, "a", "b", "c")
	return c, s
}

// committedValues reads all that readers of committed records see of a topic, once nothing is open any more.
func (s *shaky) committedValues(topic string) []int {
	s.t.Helper()
	var out []int
	for partition := range 2 {
		base := fmt.Sprintf("/v1/topics/%s/partitions/%d/records?isolation=read_committed", topic, partition)
		for path := base + "&offset=earliest"; ; {
			var page struct {
				Records []struct {
					Value int `json:"value"`
				} `json:"records"`
				Next string `json:"next"`
			}
			s.get(path, &page)
			for _, r := range page.Records {
				if r.Value != soundings {
					out = append(out, r.Value)
				}
			}
			if path = base + "&from=" + page.Next; len(page.Records) == 0 {
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

func (s *shaky) get(path string, into any) {
	s.t.Helper()
	await(s.t, "there is an answer to "+path, func() bool {
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.urls[0]+path, nil)
		require.NoError(s.t, err)
		resp, err := s.http.Do(r)
		require.NoError(s.t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		if passing(resp.StatusCode) {
			return false
		}
		require.Equal(s.t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
		require.NoError(s.t, json.Unmarshal(body, into), "%s", body)
		return true
	})
}

// settle waits until no transaction is open or ending.
func (s *shaky) settle() {
	s.t.Helper()
	await(s.t, "no transaction is open", func() bool {
		var page struct {
			Items []struct{ State string }
		}
		s.get("/v1/transactions?limit=1000", &page)
		return !slices.ContainsFunc(page.Items, func(i struct{ State string }) bool {
			return i.State == "open" || strings.HasSuffix(i.State, "ing")
		})
	})
	s.sound()
}

// sound waits until the leaders know what is committed: they do when all replicas in sync have one record more.
func (s *shaky) sound() {
	s.t.Helper()
	for _, topic := range []string{"a", "b", "c"} {
		for partition := range 2 {
			path := fmt.Sprintf("%s/v1/topics/%s/records?acks=all&partition=%d", s.urls[0], topic, partition)
			await(s.t, "a record is taken", func() bool {
				resp, err := s.http.Post(path, "application/json", strings.NewReader(fmt.Sprint(soundings)))
				require.NoError(s.t, err)
				require.NoError(s.t, resp.Body.Close())
				require.True(s.t, resp.StatusCode == http.StatusOK || passing(resp.StatusCode), "status %d", resp.StatusCode)
				return resp.StatusCode == http.StatusOK
			})
		}
	}
}

// soundings is the value of records that are not those of a test.
const soundings = -1

// onceBody is a transaction over three topics and a group.
func onceBody(value, worker, offset int) string {
	return fmt.Sprintf(`{"records":[{"topic":"a","key":%[1]d,"value":%[1]d},{"topic":"b","key":%[1]d,"value":%[1]d},`+
		`{"topic":"c","value":%[1]d}],"offsets":[{"group":"g%[2]d","topic":"a","partition":0,"offset":%[3]d}]}`,
		value, worker, offset)
}

// Requests that are repeated by key, over a network that repeats and loses, to nodes that are stopped in turn, take
// effect once and whole: three topics and a group's offsets have the same.
func TestTransactionsByKeyTakeEffectOnce(t *testing.T) {
	c, s := shakyCluster(t, 7)
	const workers, each = 4, 15
	var wg sync.WaitGroup
	var mu sync.Mutex
	var want []int
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				value := w*each + i
				r := s.sure("/v1/transactions", onceBody(value, w, i+1), http.Header{"Idempotency-Key": {uuid.NewString()}})
				if r.status != http.StatusOK {
					t.Errorf("transaction %d: %d %s", value, r.status, r.body)
				}
				mu.Lock()
				want = append(want, value)
				mu.Unlock()
			}
		})
	}
	for id := 1; id <= 3; id++ {
		c.Stop(id)
		c.Start(id)
	}
	wg.Wait()
	s.settle()
	slices.Sort(want)
	for _, topic := range []string{"a", "b", "c"} {
		require.Equal(t, want, s.committedValues(topic), topic)
	}
	for w := range workers {
		await(t, "the offsets are those of the last transaction", func() bool {
			var page struct {
				Partitions []struct{ Offset int }
			}
			s.get(fmt.Sprintf("/v1/groups/g%d/offsets", w), &page)
			return len(page.Partitions) == 1 && page.Partitions[0].Offset == each
		})
	}
}

// Without a key, what was answered as failed is nowhere, and what was answered as committed is everywhere.
func TestTransactionsAnswerHonestly(t *testing.T) {
	c, s := shakyCluster(t, 8)
	const workers, each = 4, 15
	var wg sync.WaitGroup
	var mu sync.Mutex
	fate := map[int]string{}
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				value := w*each + i
				r, err := s.once(t.Context(), "/v1/transactions", onceBody(value, w, i+1), http.Header{})
				told := r.outcome
				switch {
				case err != nil:
					told = "unknown"
				case r.status == http.StatusOK:
					told = "committed"
				}
				mu.Lock()
				fate[value] = told
				mu.Unlock()
			}
		})
	}
	for id := 1; id <= 3; id++ {
		c.Stop(id)
		c.Start(id)
	}
	wg.Wait()
	s.settle()
	a, b, d := s.committedValues("a"), s.committedValues("b"), s.committedValues("c")
	require.Equal(t, a, b)
	require.Equal(t, a, d)
	for value, told := range fate {
		switch told {
		case "committed":
			require.Contains(t, a, value)
		case "failed":
			require.NotContains(t, a, value)
		default:
			require.Equal(t, "unknown", told)
		}
	}
	require.Equal(t, len(slices.Compact(slices.Clone(a))), len(a), "nothing is there twice")
}

// A worker that goes by steps, and repeats each of them until it is answered, has each of its records there once,
// while the nodes are stopped in turn: commits that are repeated are answered by what was decided, and where that was
// an abort, the worker writes its records again.
func TestTransactionStepsTakeEffectOnce(t *testing.T) {
	c, s := shakyCluster(t, 9)
	const workers, each = 3, 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { walk(s, w, each) })
	}
	for id := 1; id <= 3; id++ {
		c.Stop(id)
		c.Start(id)
	}
	wg.Wait()
	s.settle()
	var want []int
	for v := range workers * each {
		want = append(want, v)
	}
	for _, topic := range []string{"a", "b"} {
		require.Equal(t, want, s.committedValues(topic), topic)
	}
}

// walk writes one worker's values in transactions by steps, each value to two topics.
func walk(s *shaky, w, each int) {
	id := fmt.Sprintf("/v1/transactions/worker-%d", w)
	epoch, done := -1, 0
	for done < each && !s.t.Failed() {
		if epoch < 0 {
			var b struct{ Epoch int }
			r := s.sure(id+"?timeout=20s", "", http.Header{"Idempotency-Key": {uuid.NewString()}})
			if json.Unmarshal([]byte(r.body), &b) != nil || r.status != http.StatusOK {
				s.t.Errorf("begin: %d %s", r.status, r.body)
				return
			}
			epoch = b.Epoch
		}
		value := w*each + done
		ok := true
		for seq, topic := range []string{"a", "b"} {
			r := s.sure(fmt.Sprintf("%s/records?epoch=%d&topic=%s&key=%d", id, epoch, topic, value), fmt.Sprint(value),
				http.Header{"Producer-Seq": {fmt.Sprint(seq)}})
			ok = ok && r.status == http.StatusOK
		}
		end := "abort"
		if ok {
			end = "commit"
		}
		var b struct{ Epoch int }
		r := s.sure(fmt.Sprintf("%s/%s?epoch=%d", id, end, epoch), "", http.Header{})
		if epoch = -1; r.status == http.StatusOK && json.Unmarshal([]byte(r.body), &b) == nil {
			epoch = b.Epoch
			if ok {
				done++
			}
		}
	}
}
