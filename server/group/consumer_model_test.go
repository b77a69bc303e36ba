package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// churn is a group under random members, in fake time: they join, leave, die, come back under their instance, lose
// answers, are slow to give up partitions and wait for news, while topics come, grow and go, and the coordinator moves,
// sometimes without what it had not committed.
//
// It checks after every step:
//
//   - a partition has at most one owner at the coordinator, which has every partition at some member that a member
//     believes to have, so no two members that the coordinator knows have the same one;
//   - a partition is told to one member only in one member epoch (G1);
//   - epochs only grow, and a commit is taken from members in their present epoch alone (G2).
//
// At the end, when all is quiet, every partition is at one member, and each has what it was told.
type churn struct {
	t       *testing.T
	lab     *lab
	rng     *rand.Rand
	clients []*churner
	count   int
	topics  int
	told    map[toldIn]string // who was told to have a partition in an epoch, by member or instance
	highest int32             // epoch that somebody was told
	quiet   bool              // nothing is lost or changed any more
	still   bool              // ... and no heartbeat waits
}

type toldIn struct {
	partitionID
	epoch int32
}

// churner is a member as it sees itself.
type churner struct {
	id       string
	instance string
	topics   []string
	pattern  string
	epoch    int32
	told     assignment // the last assignment that it heard of
	has      assignment
	out      chan *kmsg.ConsumerGroupHeartbeatResponse // an answer that it waits for; nil: none
}

func TestConsumerGroupChurn(t *testing.T) {
	for seed := range uint64(60) {
		nodes := 1
		if seed%6 == 5 {
			nodes = 2
		}
		t.Run(fmt.Sprintf("seed %d on %d", seed, nodes), func(t *testing.T) {
			static := map[string]string{"group.consumer.assignors": "uniform,range"}
			inLab(t, labOptions{nodes: nodes, static: static}, func(t *testing.T, l *lab) {
				c := &churn{t: t, lab: l, rng: rand.New(rand.NewPCG(seed, 8)), told: make(map[toldIn]string)}
				for range 250 {
					c.step()
					synctest.Wait()
					c.check()
				}
				c.settle()
			})
		})
	}
}

// step lets one thing happen.
func (c *churn) step() {
	switch p := c.rng.IntN(100); {
	case p < 12 && len(c.clients) < 8:
		c.join()
	case p < 15:
		c.leave()
	case p < 17:
		c.die()
	case p < 20:
		c.move()
	case p < 24:
		c.changeTopics()
	case p < 34:
		time.Sleep(time.Duration(c.rng.IntN(4000)) * time.Millisecond)
	case p < 35:
		time.Sleep(time.Duration(c.rng.IntN(40)) * time.Second)
	default:
		c.heartbeat()
	}
}

// some is one of the members, or nil.
func (c *churn) some() *churner {
	if len(c.clients) == 0 {
		return nil
	}
	return c.clients[c.rng.IntN(len(c.clients))]
}

func (c *churn) join() {
	c.count++
	m := &churner{id: fmt.Sprintf("m%d", c.count)}
	if c.rng.IntN(3) == 0 {
		m.instance = fmt.Sprintf("i%d", c.rng.IntN(4))
		if slices.ContainsFunc(c.clients, func(o *churner) bool { return o.instance == m.instance }) {
			m.instance = ""
		}
	}
	switch c.rng.IntN(4) {
	case 0:
		m.pattern = "x.*"
	case 1:
		m.topics = []string{"t"}
	default:
		m.topics = []string{"t", "x1", "x2"}
	}
	c.clients = append(c.clients, m)
	c.beat(m)
}

// request is a heartbeat of a member, as much of it as must be or more.
func (c *churn) request(m *churner) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = "g", m.id, m.epoch
	if m.instance != "" {
		req.InstanceID = &m.instance
	}
	if m.epoch == 0 || c.rng.IntN(3) == 0 {
		req.RebalanceTimeoutMillis = 20_000
		req.SubscribedTopicNames, req.SubscribedTopicRegex = m.topics, nil
		if m.pattern != "" {
			req.SubscribedTopicRegex = &m.pattern
		}
		req.Topics = reported(m.has)
	}
	if c.quiet || c.rng.IntN(3) > 0 {
		req.Topics = reported(m.has)
	}
	if m.epoch != 0 && !c.still && c.rng.IntN(3) == 0 {
		ktag.SetHeartbeatWait(&req.UnknownTags, int32(c.rng.IntN(20_000)))
	}
	return req
}

func reported(a assignment) []kmsg.ConsumerGroupHeartbeatRequestTopic {
	list := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for i := range a {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = a[i].topicID, a[i].partitions
		list = append(list, t)
	}
	return list
}

// beat sends a heartbeat and takes the answer up, if it comes at once and is not lost.
func (c *churn) beat(m *churner) {
	req := c.request(m)
	out := make(chan *kmsg.ConsumerGroupHeartbeatResponse, 1)
	to, ctx := c.lab.of("g"), c.lab.ctx
	var cancel context.CancelFunc
	if c.rng.IntN(8) == 0 { // it hangs up before the answer comes
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
	}
	c.lab.wg.Go(func() {
		if cancel != nil {
			defer cancel()
		}
		resp, err := to.Request(ctx, req)
		if err != nil {
			out <- nil
			return
		}
		out <- resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	})
	synctest.Wait()
	if m.out = out; c.rng.IntN(10) == 0 && !c.quiet {
		m.out = nil // lost
	}
	c.hear(m)
}

// hear takes up an answer that has come.
func (c *churn) hear(m *churner) {
	if m.out == nil {
		return
	}
	var resp *kmsg.ConsumerGroupHeartbeatResponse
	select {
	case resp = <-m.out:
	default:
		return
	}
	if m.out = nil; resp == nil {
		return
	}
	switch resp.ErrorCode {
	case 0:
	case kerr.UnknownMemberID.Code, kerr.FencedMemberEpoch.Code, kerr.FencedInstanceID.Code, kerr.GroupIDNotFound.Code:
		c.count++
		m.id, m.epoch, m.told, m.has = fmt.Sprintf("m%d", c.count), 0, nil, nil
		return
	case kerr.UnreleasedInstanceID.Code, kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code,
		kerr.CoordinatorLoadInProgress.Code:
		return
	default:
		require.Failf(c.t, "unexpected error", "%s: %s", nameOf(resp.ErrorCode), *resp.ErrorMessage)
	}
	require.GreaterOrEqual(c.t, resp.MemberEpoch, m.epoch, "epochs of a member grow")
	m.epoch = resp.MemberEpoch
	c.highest = max(c.highest, m.epoch)
	if resp.Assignment == nil {
		return
	}
	var lists []topicPartitions
	for _, of := range resp.Assignment.Topics {
		lists = append(lists, topicPartitions{of.TopicID, of.Partitions})
	}
	m.told = newAssignment(lists)
	m.has = m.has.plus(m.told)
	who := m.id
	if m.instance != "" {
		who = m.instance
	}
	m.told.each(func(p partitionID) {
		at := toldIn{p, m.epoch}
		require.Contains(c.t, []string{"", who}, c.told[at], "partition %d in epoch %d", p.partition, m.epoch)
		c.told[at] = who
	})
	c.giveUp(m)
}

// giveUp drops what the member was told to give up, now or later.
func (c *churn) giveUp(m *churner) {
	if c.quiet || c.rng.IntN(3) > 0 {
		m.has = m.has.and(m.told)
	}
}

func (c *churn) heartbeat() {
	m := c.some()
	if m == nil {
		return
	}
	c.hear(m)
	if m.out != nil && c.rng.IntN(4) > 0 {
		return
	}
	c.giveUp(m)
	c.beat(m)
}

// leave has a member leave, for good or to come back.
func (c *churn) leave() {
	m := c.some()
	if m == nil || m.epoch == 0 {
		return
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = "g", m.id, -1
	if m.instance != "" {
		req.InstanceID = &m.instance
		if c.rng.IntN(2) == 0 {
			req.MemberEpoch = -2
		}
	}
	c.drop(m)
	c.lab.wg.Go(func() { _, _ = c.lab.of("g").Request(c.lab.ctx, req) })
}

// die has a member say nothing any more.
func (c *churn) die() {
	if m := c.some(); m != nil {
		c.drop(m)
	}
}

func (c *churn) drop(m *churner) {
	c.clients = slices.DeleteFunc(c.clients, func(o *churner) bool { return o == m })
}

// move has another node lead, or the same one anew; where there are two the log may lack what was not committed.
func (c *churn) move() {
	if len(c.lab.nodes) == 1 {
		c.lab.again()
		return
	}
	leader := c.lab.role(0).Leader
	follower := c.lab.node(3 - leader)
	if c.rng.IntN(2) == 0 {
		follower.setCut(true)
		for range c.rng.IntN(4) {
			c.heartbeat()
		}
	}
	c.lab.lead(0, follower.id)
	follower.setCut(false)
	time.Sleep(50 * time.Millisecond)
}

func (c *churn) changeTopics() {
	name := fmt.Sprintf("x%d", 1+c.rng.IntN(3))
	topic := c.lab.machine.Image().Topic(name)
	switch {
	case topic == nil && c.topics < 200:
		c.topics++
		c.lab.createTopic(name, 1+c.rng.IntN(5))
	case topic != nil && c.rng.IntN(3) == 0:
		c.lab.deleteTopic(name)
	case topic != nil && len(topic.Partitions) < 12:
		c.lab.growTopic(name, len(topic.Partitions)+1+c.rng.IntN(2))
	}
}

// check looks at the coordinator and at what members believe.
func (c *churn) check() {
	for _, m := range c.clients {
		c.hear(m)
	}
	c.inspect(func(t require.TestingT, g *consumer) {
		if g == nil {
			return
		}
		require.GreaterOrEqual(t, g.epoch, g.targetEpoch)
		require.GreaterOrEqual(t, g.epoch, c.highest, "the group is behind what members were told")
		owners := make(map[partitionID]string)
		for _, id := range g.ids() {
			now := g.current(id)
			now.assigned.plus(now.pending).each(func(p partitionID) {
				require.Empty(t, owners[p], "two owners of partition %d: %s", p.partition, id)
				owners[p] = id
			})
			require.Empty(t, now.assigned.and(now.pending))
		}
		require.Equal(t, owners, g.owners)
		for _, m := range c.clients {
			if g.members[m.id] == nil || m.epoch == 0 {
				continue
			}
			now := g.current(m.id)
			require.Empty(t, m.has.minus(now.assigned.plus(now.pending)), "%s has what may be another's", m.id)
			require.LessOrEqual(t, m.epoch, now.epoch)
			require.Equal(t, m.epoch == now.epoch, g.checkCommit(m.id, m.epoch, false) == nil)
			require.NotNil(t, g.checkCommit(m.id, m.epoch-1, false))
		}
	})
}

// faults collects what does not hold, on a loop that must not end by it.
type faults []string

// Errorf implements require.TestingT.
func (f *faults) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// FailNow implements require.TestingT.
func (f *faults) FailNow() {}

// inspect looks at the group on its loop.
func (c *churn) inspect(look func(require.TestingT, *consumer)) {
	var found faults
	c.lab.inspect("g", func(s *shard) { look(&found, s.consumerIf("g")) })
	require.Empty(c.t, found)
	synctest.Wait()
}

// settle lets the members be, and looks whether the group comes to rest.
func (c *churn) settle() {
	c.quiet = true
	if len(c.clients) == 0 {
		c.join()
	}
	for round := range 100 {
		time.Sleep(time.Second)
		c.still = round > 60
		for _, m := range c.clients {
			c.hear(m)
			c.giveUp(m)
			c.beat(m)
		}
		c.check()
	}
	want := 0
	for topic := range c.lab.machine.Image().Topics() {
		if slices.ContainsFunc(c.clients, func(m *churner) bool {
			return slices.Contains(m.topics, topic.Name) || m.pattern != "" && strings.HasPrefix(topic.Name, "x")
		}) {
			want += len(topic.Partitions)
		}
	}
	c.inspect(func(t require.TestingT, g *consumer) {
		require.Equal(t, stateStable, g.state())
		require.Len(t, g.members, len(c.clients))
		have := make(map[partitionID]bool)
		for _, m := range c.clients {
			require.Equal(t, g.targets[m.id].count(), m.has.count(), "%s", m.id)
			require.True(t, m.has.equal(g.current(m.id).assigned), "%s", m.id)
			m.has.each(func(p partitionID) { have[p] = true })
		}
		require.Len(t, have, want, "every partition has an owner")
	})
}
