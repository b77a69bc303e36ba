package group

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerSteps are heartbeats for us and for kfake, each group by itself. owned=told is what the member was told last,
// owned=before what it was told before that. Topic t has 4 partitions.
func consumerSteps() []string {
	return []string{
		"join: hb a epoch=0 topics=t", "join: hb a epoch=1 owned=told", "join: hb a epoch=1",
		"join: hb a epoch=1 timeout=60000 topics=t owned=told", "join: describe",

		"keepalive: hb a epoch=0 topics=t", "keepalive: hb a epoch=1", "keepalive: hb a epoch=1",

		"rebalance: hb a epoch=0 topics=t", "rebalance: hb a epoch=1 owned=told",
		"rebalance: hb b epoch=0 topics=t", "rebalance: hb a epoch=1 owned=told", "rebalance: hb b epoch=2 owned=none",
		"rebalance: hb a epoch=1 owned=before", "rebalance: hb a epoch=1 owned=told",
		"rebalance: hb b epoch=2 owned=none", "rebalance: hb b epoch=2 owned=told", "rebalance: describe",
		"rebalance: hb b epoch=-1", "rebalance: hb a epoch=2 owned=told", "rebalance: hb a epoch=-1", "rebalance: describe",

		"unreported: hb a epoch=0 topics=t", "unreported: hb a epoch=1 owned=told", "unreported: hb b epoch=0 topics=t",
		"unreported: hb a epoch=1", "unreported: hb a epoch=1", "unreported: hb a epoch=1 owned=told",

		"range: hb a epoch=0 topics=t assignor=range", "range: hb b epoch=0 topics=t assignor=range",
		"range: hb a epoch=1 owned=told", "range: hb a epoch=1 owned=told", "range: describe",

		"subscription: hb a epoch=0 topics=none", "subscription: hb a epoch=1 timeout=60000 topics=t owned=none",
		"subscription: hb a epoch=2 owned=told topics=none",
		"subscription: hb a epoch=2 timeout=60000 owned=told topics=none",
		"subscription: hb a epoch=2 owned=none", "subscription: hb a epoch=3 owned=none",

		"lost: hb a epoch=0 topics=t", "lost: hb a epoch=0 topics=t", "lost: hb b epoch=0 topics=t",
		"lost: hb a epoch=1 owned=told", "lost: hb a epoch=1 owned=told", "lost: hb a epoch=1 owned=told",
		"lost: hb a epoch=1", "lost: hb a epoch=2 owned=told", "lost: hb a epoch=1 owned=told",
		"lost: hb a epoch=1 owned=first",

		"errors: hb nameless epoch=0 topics=t", "none: hb a epoch=1", "none2: hb a epoch=-1", "errors: hb a epoch=0 topics=t",
		"errors: hb a epoch=2", "errors: hb b epoch=1", "errors: hb b epoch=-1", "errors: hb a epoch=0 topics=t",
		"errors: hb a epoch=-3", "errors: hb a epoch=-2", "errors: hb a epoch=1", "bad: hb a epoch=0",
		"bad: hb a epoch=0 topics=t timeout=0", "bad: hb a epoch=0 topics=t timeout=-1",
		"bad: hb a epoch=0 topics=t owned=first",
		"bad: hb a epoch=0 topics=t assignor=clever", "bad: hb a epoch=0 regex=a**", "bad: hb a epoch=0 topics=t rack=",

		"rejoin: hb a epoch=0 topics=t", "rejoin: hb a epoch=1 owned=told", "rejoin: hb a epoch=0 topics=t",

		"static: hb a epoch=0 topics=t instance=i", "static: hb b epoch=0 topics=t instance=i",
		"static: hb b epoch=1 instance=i", "static: hb a epoch=1 instance=j", "static: hb b epoch=-2 instance=i",
		"static: hb b epoch=-1 instance=i", "static: hb a epoch=-2 instance=i", "static: hb a epoch=1 instance=i owned=told",
		"static: describe", "static: hb b epoch=0 topics=t instance=i", "static: describe",
		"static: hb a epoch=1 instance=i owned=told", "static: hb b epoch=-1 instance=i", "static: describe",

		"regex: hb a epoch=0 regex=t", "regex: hb a epoch=1 owned=none",
	}
}

// consumerDifferences are where our answers are not kfake's, by step, and why.
func consumerDifferences() map[string]struct{ ours, kfake, reason string } {
	const toldAgain = "an assignment is told again until the member shows that it knows it, and with every new epoch"
	return map[string]struct{ ours, kfake, reason string }{
		"6 keepalive: hb a epoch=1":               {"epoch=1 assigned=4", "epoch=1", toldAgain},
		"13 rebalance: hb a epoch=1 owned=before": {"epoch=1 assigned=2", "epoch=1", toldAgain},
		"14 rebalance: hb a epoch=1 owned=told":   {"epoch=2 assigned=2", "epoch=2", toldAgain},
		"21 rebalance: describe": {"ok Empty epoch=4/4", "ok Empty epoch=4/3",
			"an assignment is made for nobody too, so that the group is not Assigning for ever"},
		"26 unreported: hb a epoch=1":            {"epoch=1 assigned=2", "epoch=1", toldAgain},
		"27 unreported: hb a epoch=1 owned=told": {"epoch=2 assigned=2", "epoch=2", toldAgain},
		"31 range: hb a epoch=1 owned=told":      {"epoch=2 assigned=2", "epoch=2", toldAgain},
		"35 subscription: hb a epoch=2 owned=told topics=none": {"epoch=2 assigned=0", "epoch=2",
			"null is unchanged, field by field: a subscription counts in any heartbeat"},
		"36 subscription: hb a epoch=2 timeout=60000 owned=told topics=none": {"epoch=3 assigned=0", "epoch=2 assigned=0",
			"follows from the step before"},
		"37 subscription: hb a epoch=2 owned=none": {"epoch=3 assigned=0", "epoch=3", "follows from the step before"},
		"43 lost: hb a epoch=1 owned=told":         {"epoch=2 assigned=2", "epoch=2", toldAgain},
		"44 lost: hb a epoch=1 owned=told":         {"epoch=2 assigned=2", "epoch=2", toldAgain},
		"45 lost: hb a epoch=1": {"epoch=2 assigned=2", "FENCED_MEMBER_EPOCH",
			"the epoch before is enough: what the member has then is part of what it is assigned"},
		"47 lost: hb a epoch=1 owned=told": {"FENCED_MEMBER_EPOCH", "epoch=2",
			"who has come with the present epoch has not lost the answer with it: this is somebody else"},
		"49 errors: hb nameless epoch=0 topics=t": {"INVALID_REQUEST", "epoch=1 assigned=4",
			"ids of members are chosen by the client since version 1"},
		"50 none: hb a epoch=1": {"GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID",
			"Kafka: an epoch needs a group; kfake makes one"},
		"51 none2: hb a epoch=-1": {"GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID",
			"Kafka: an epoch needs a group; kfake makes one"},
		"52 errors: hb a epoch=0 topics=t": {"epoch=1 assigned=4", "epoch=2 assigned=0",
			"kfake gave the nameless member a name, and all partitions"},
		"53 errors: hb a epoch=2": {"FENCED_MEMBER_EPOCH", "epoch=2",
			"kfake gave the nameless member a name, and all partitions"},
		"56 errors: hb a epoch=0 topics=t": {"epoch=1 assigned=4", "epoch=2 assigned=0",
			"kfake gave the nameless member a name, and all partitions"},
		"57 errors: hb a epoch=-3": {"INVALID_REQUEST", "FENCED_MEMBER_EPOCH",
			"Kafka refuses epochs below -2 as malformed"},
		"58 errors: hb a epoch=-2": {"INVALID_REQUEST", "epoch=0", "Kafka: only a static member leaves to come back"},
		"59 errors: hb a epoch=1": {"epoch=1 assigned=4", "UNKNOWN_MEMBER_ID",
			"kfake removed the member that left by -2"},
		"60 bad: hb a epoch=0": {"INVALID_REQUEST", "epoch=1 assigned=0", "Kafka: who joins must subscribe"},
		"61 bad: hb a epoch=0 topics=t timeout=0": {"INVALID_REQUEST", "epoch=2 assigned=4",
			"Kafka: who joins must give a rebalance timeout"},
		"62 bad: hb a epoch=0 topics=t timeout=-1": {"INVALID_REQUEST", "epoch=2 assigned=4",
			"Kafka: who joins must give a rebalance timeout"},
		"65 bad: hb a epoch=0 regex=a**": {"INVALID_REGULAR_EXPRESSION", "INVALID_REQUEST",
			"KIP-848 has a code for it"},
		"66 bad: hb a epoch=0 topics=t rack=": {"INVALID_REQUEST", "epoch=2 assigned=4",
			"Kafka refuses an empty rack"},
		"69 rejoin: hb a epoch=0 topics=t": {"FENCED_MEMBER_EPOCH", "epoch=1 assigned=4",
			"a second member of the name must not share the partitions of the first"},
		"73 static: hb a epoch=1 instance=j": {"UNKNOWN_MEMBER_ID", "epoch=1",
			"Kafka looks a static member up by its instance"},
		"74 static: hb b epoch=-2 instance=i": {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID",
			"Kafka: the instance is another member"},
		"75 static: hb b epoch=-1 instance=i": {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID",
			"Kafka: the instance is another member"},
		"78 static: describe": {"ok Reconciling epoch=1/1; a at -2 with 4", "ok Empty epoch=1/1; a at -2 with 4",
			"a member that is away has not reached the assignment, and keeps the group from being empty"},
		"83 static: describe": {"ok Empty epoch=2/2", "ok Empty epoch=2/1",
			"an assignment is made for nobody too, so that the group is not Assigning for ever"},
		"84 regex: hb a epoch=0 regex=t": {"epoch=1 assigned=0", "epoch=1 assigned=4",
			"patterns are matched beside the loop, as in Kafka"},
		"85 regex: hb a epoch=1 owned=none": {"epoch=2 assigned=4", "epoch=1",
			"patterns are matched beside the loop, as in Kafka"},
	}
}

// consumerSide is one of the two that are asked.
type consumerSide struct {
	send func(kmsg.Request) kmsg.Response
	ids  map[string][16]byte
	told map[string][]assignment // by group and member
}

// do takes a step and tells the answer.
func (s *consumerSide) do(t *testing.T, step string) string {
	group, line, _ := strings.Cut(step, ": ")
	cmd, args, err := datadriven.ParseLine(line)
	require.NoError(t, err)
	if cmd == "describe" {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{group}
		g := s.send(req).(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
		out := fmt.Sprintf("%s %s epoch=%d/%d", nameOf(g.ErrorCode), g.State, g.Epoch, g.AssignmentEpoch)
		slices.SortFunc(g.Members, func(a, b kmsg.ConsumerGroupDescribeResponseGroupMember) int {
			return strings.Compare(a.MemberID, b.MemberID)
		})
		for _, m := range g.Members {
			n := 0
			for _, of := range m.Assignment.TopicPartitions {
				n += len(of.Partitions)
			}
			out += fmt.Sprintf("; %s at %d with %d", m.MemberID, m.MemberEpoch, n)
		}
		return out
	}
	d := &datadriven.TestData{Cmd: cmd, CmdArgs: args}
	who := group + "/" + words(d)[0]
	req := heartbeatOf(t, d, func(_ testing.TB, what string) []kmsg.ConsumerGroupHeartbeatRequestTopic {
		told := s.told[who]
		switch what {
		case "told":
			return reported(told[len(told)-1])
		case "before":
			return reported(told[len(told)-2])
		case "first":
			return reported(assignment{{s.ids["t"], []int32{0, 1, 2, 3}}})
		case "none":
			return reported(nil)
		}
		return nil
	})
	req.Group = group
	resp := s.send(req).(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.ErrorCode != 0 {
		return nameOf(resp.ErrorCode)
	}
	out := fmt.Sprintf("epoch=%d", resp.MemberEpoch)
	if resp.Assignment != nil {
		var lists []topicPartitions
		for _, of := range resp.Assignment.Topics {
			lists = append(lists, topicPartitions{of.TopicID, of.Partitions})
		}
		a := newAssignment(lists)
		s.told[who] = append(s.told[who], a)
		out += fmt.Sprintf(" assigned=%d", a.count())
	}
	return out
}

// TestConsumerGroupsAsKfake sends the same heartbeats to kfake and to us. Kfake is an opinion and no oracle: what
// differs is listed with the reason.
func TestConsumerGroupsAsKfake(t *testing.T) {
	theirs := askKfake(t)
	differences := consumerDifferences()
	static := map[string]string{"group.consumer.assignment.interval.ms": "0"} // kfake has none
	inLab(t, labOptions{static: static}, func(t *testing.T, l *lab) {
		ours := &consumerSide{
			ids: map[string][16]byte{"t": l.machine.Image().Topic("t").ID}, told: make(map[string][]assignment),
			send: func(r kmsg.Request) kmsg.Response {
				defer synctest.Wait() // patterns are matched off the loop
				return ask[kmsg.Response](l, "any", r)
			},
		}
		for i, step := range consumerSteps() {
			name := fmt.Sprintf("%d %s", i, step)
			got, kfakes := ours.do(t, step), theirs[i]
			d, differs := differences[name]
			switch {
			case differs:
				require.NotEmpty(t, d.reason)
				require.Equal(t, d.ours, got, name)
				require.Equal(t, d.kfake, kfakes, name)
				delete(differences, name)
			case got != kfakes:
				t.Errorf("%q: ours %q, kfake %q", name, got, kfakes)
			}
		}
	})
	require.Empty(t, differences, "no such steps")
}

// askKfake is what kfake answers.
func askKfake(t *testing.T) (answers []string) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	broker := client.Broker(int(meta.Brokers[0].NodeID))
	send := func(r kmsg.Request) kmsg.Response {
		resp, err := broker.Request(context.Background(), r)
		require.NoError(t, err)
		return resp
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 4, 1
	create.Topics = append(create.Topics, topic)
	created := send(create).(*kmsg.CreateTopicsResponse)
	require.Zero(t, created.Topics[0].ErrorCode)
	side := &consumerSide{
		send: send, ids: map[string][16]byte{"t": created.Topics[0].TopicID}, told: make(map[string][]assignment),
	}
	for _, step := range consumerSteps() {
		answers = append(answers, side.do(t, step))
	}
	return answers
}
