package txn

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// The same scripts go to kfake and to us. A step is one request:
//
//	init             a new process takes the id over
//	init now|last|older   a producer asks for the epoch after one that it names
//	add P [now|last]      adds a partition to the transaction
//	commit|abort [now|last|older]
//	describe
//
// now is the session that was given last, last and older are those before it. An answer is the error, and what became
// of the session: its epoch as it differs from that of now.
var scripts = map[string][]string{
	"a life": {
		"init", "describe", "add t/0", "add t/1", "describe", "commit", "describe", "add t/0", "abort", "describe",
	},
	"nothing to end": {"init", "commit", "abort", "commit", "abort"},
	"the answer lost": {
		"init", "add t/0", "commit", "commit last", "abort last", "add t/0", "abort", "abort last", "commit last",
	},
	"late requests": {"init", "add t/0", "commit", "add t/0", "commit last", "abort last", "add t/1 last", "commit"},
	"a zombie": {
		"init", "add t/0", "init", "add t/0 last", "commit last", "abort last", "init last", "add t/0", "commit",
	},
	"going on":   {"init", "init now", "init last", "init last", "init older", "add t/0", "init now"},
	"partitions": {"init", "add none/0", "add t/9", "describe", "add t/0", "add t/0", "describe", "abort"},
	"ids":        {"commit", "add t/0", "describe", "init empty", "init short", "init long"},
}

// The differences between our answers and kfake's, by script and step, and why they are.
var differences = map[string]struct{ ours, kfake, reason string }{
	"a life, 7: describe":  {"NONE, CompleteCommit, 0 partitions", "NONE, Empty, 0 partitions", stateKept},
	"a life, 10: describe": {"NONE, CompleteAbort, 0 partitions", "NONE, Empty, 0 partitions", stateKept},
	"a zombie, 3: init": {"NONE, epoch +2", "NONE, epoch +1",
		"the abort of what is open has an epoch of its own, which nobody gets"},
	"a zombie, 5: commit last": {"PRODUCER_FENCED", "INVALID_TXN_STATE", fencedForGood},
	"a zombie, 6: abort last":  {"PRODUCER_FENCED", "NONE, epoch +0", fencedForGood},
	"a zombie, 7: init last": {"PRODUCER_FENCED", "NONE, epoch +1",
		"a producer that was replaced must not take the id back"},
	"going on, 3: init last": {"NONE, epoch +0", "NONE, epoch +1", answeredAgain},
	"going on, 4: init last": {"NONE, epoch +0", "NONE, epoch +1", answeredAgain},
	"going on, 5: init older": {"PRODUCER_FENCED", "NONE, epoch +1",
		"no answer of its epoch can have been lost: another has asked since"},
}

const (
	stateKept     = "Kafka says how the last transaction ended; kfake forgets it"
	fencedForGood = "the epoch before is of another process, and no retry"
	answeredAgain = "the answer may have been lost: the same again, or its retry would fence the producer"
)

// side is one of the two clusters.
type side struct {
	t        *testing.T
	id       string
	r        kmsg.Requestor
	sessions []session // as they were given, the newest last
}

func kfakeSide(t *testing.T) *side {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "t"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3) // kfake has no other form
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.MaxVersions(versions))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	return &side{t: t, id: "id", r: client.Broker(int(meta.Brokers[0].NodeID))}
}

func ourSide(t *testing.T) *side {
	l := openLab(t, labOptions{})
	t.Cleanup(l.close)
	return &side{t: t, id: "id", r: l.nodes[0].coordinator}
}

// at is the session that a word names.
func (s *side) at(word string) session {
	back := map[string]int{"": 1, "now": 1, "last": 2, "older": 3}[word]
	if back > len(s.sessions) {
		return session{s.id, 4711, 0}
	}
	return s.sessions[len(s.sessions)-back]
}

// given notes what an answer gives.
func (s *side) given(code int16, producerID int64, epoch int16) string {
	text := nameOf(code)
	if code != 0 {
		return text
	}
	now := s.at("now")
	switch {
	case now.producerID == 4711:
		text += ", first"
	case now.producerID != producerID:
		text += ", another id"
	default:
		text += fmt.Sprintf(", epoch %+d", epoch-now.epoch)
	}
	if next := (session{s.id, producerID, epoch}); next != now {
		s.sessions = append(s.sessions, next)
	}
	return text
}

func nameOf(code int16) string {
	if code == 0 {
		return "NONE"
	}
	return codeError(code).Message
}

// do does one step, again for as long as it is to wait: for the transaction before, or for a log that is being read.
func (s *side) do(ctx context.Context, step string) string {
	words := append(strings.Fields(step), "", "")
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-pause.C {
		text := s.try(ctx, words)
		if !strings.HasPrefix(text, kerr.ConcurrentTransactions.Message) &&
			!strings.HasPrefix(text, kerr.CoordinatorLoadInProgress.Message) {
			return text
		}
	}
	return "it takes for ever"
}

func (s *side) try(ctx context.Context, words []string) string {
	switch words[0] {
	case "init":
		return s.init(ctx, words[1])
	case "add":
		return s.add(ctx, words[1], s.at(words[2]))
	case "commit", "abort":
		at := s.at(words[1])
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = at.id, at.producerID, at.epoch
		req.Commit = words[0] == "commit"
		resp, err := req.RequestWith(ctx, s.r)
		require.NoError(s.t, err)
		return s.given(resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch)
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{s.id}
	resp, err := req.RequestWith(ctx, s.r)
	require.NoError(s.t, err)
	d := resp.TransactionStates[0]
	if strings.HasPrefix(d.State, "Prepare") {
		return kerr.ConcurrentTransactions.Message // the markers are on their way
	}
	partitions := 0
	for _, topic := range d.Topics {
		partitions += len(topic.Partitions)
	}
	return fmt.Sprintf("%s, %s, %d partitions", nameOf(d.ErrorCode), d.State, partitions)
}

func (s *side) init(ctx context.Context, what string) string {
	req := initRequest(s.id)
	switch what {
	case "":
	case "empty":
		req.TransactionalID = kmsg.StringPtr("")
	case "short":
		req.TransactionTimeoutMillis = 0
	case "long":
		req.TransactionTimeoutMillis = 900_001
	default:
		req.ProducerID, req.ProducerEpoch = s.at(what).producerID, s.at(what).epoch
	}
	resp, err := req.RequestWith(ctx, s.r)
	require.NoError(s.t, err)
	return s.given(resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch)
}

// add is written in both forms of the request, of which each side has one.
func (s *side) add(ctx context.Context, name string, at session) string {
	topic, number, _ := strings.Cut(name, "/")
	req := addRequest(at, topicPartition{topic, int32(number[0] - '0')})
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = at.id, at.producerID, at.epoch
	of := kmsg.NewAddPartitionsToTxnRequestTopic()
	of.Topic, of.Partitions = topic, req.Transactions[0].Topics[0].Partitions
	req.Topics = append(req.Topics, of)
	resp, err := req.RequestWith(ctx, s.r)
	require.NoError(s.t, err)
	if len(resp.Topics) > 0 {
		return nameOf(resp.Topics[0].Partitions[0].ErrorCode)
	}
	return nameOf(resp.Transactions[0].Topics[0].Partitions[0].ErrorCode)
}

func TestDifferential(t *testing.T) {
	used := make(map[string]bool)
	for name, steps := range scripts {
		t.Run(name, func(t *testing.T) {
			ours, fake := ourSide(t), kfakeSide(t)
			for i, step := range steps {
				at := fmt.Sprintf("%s, %d: %s", name, i+1, step)
				got, theirs := ours.do(t.Context(), step), fake.do(t.Context(), step)
				if d, ok := differences[at]; ok {
					require.Equal(t, d.ours, got, at)
					require.Equal(t, d.kfake, theirs, at)
					used[at] = true
					continue
				}
				if got != theirs {
					t.Errorf("%q: {%q, %q, },", at, got, theirs)
				}
			}
		})
	}
	for at := range differences {
		require.True(t, used[at], "no such step: %s", at)
	}
}
