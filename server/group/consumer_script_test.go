package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// The scripts in testdata/consumer drive groups of the consumer protocol in fake time. There is a topic t of 4
// partitions. The group is g unless another is named. Commands:
//
//	hb MEMBER epoch=N [topics=a,b] [regex=EXPR] [owned=t:0,1;u:2 or owned=none] [timeout=MS] [instance=I] [rack=R]
//	   [assignor=A] [state=TEXT] [session=MS] [wait=MS] [client=ID] [group=G]
//	   epoch 0 fills in owned=none and timeout=60000; a wait that is not over prints "parked" and is answered later
//	answers                        what parked heartbeats have been told since, by member
//	group [G]                      the state of the group and its members, as it lies in the log
//	describe [G]                   ConsumerGroupDescribe
//	state [G]                      the state alone
//	topic create|grow|delete NAME [N]
//	clock DURATION | again         time passes | the partition is led anew and read from its log
//
// and those of TestScripts.
func TestConsumerScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/consumer", func(t *testing.T, path string) {
		inLab(t, labOptions{}, func(t *testing.T, l *lab) {
			s := &consumerScript{lab: l, script: script{lab: l}, told: make(map[string][]string)}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				out := s.run(t, d)
				synctest.Wait()
				return out
			})
		})
	})
}

type consumerScript struct {
	script script
	lab    *lab

	mu   sync.Mutex
	told map[string][]string // guarded by mu: answers to parked heartbeats, by member
}

func (s *consumerScript) run(t *testing.T, d *datadriven.TestData) string {
	group := "g"
	if w := words(d); len(w) > 0 {
		group = w[0]
	}
	switch d.Cmd {
	case "hb":
		return s.heartbeat(t, d)
	case "answers":
		return s.answers()
	case "group":
		return s.draw(group)
	case "describe":
		return s.describe(group)
	case "state":
		return s.lab.consumerState(group) + "\n"
	case "topic":
		return s.topic(t, words(d))
	default:
		return s.script.run(t, d)
	}
}

func (s *consumerScript) topic(t *testing.T, args []string) string {
	n := 0
	if len(args) > 2 {
		var err error
		n, err = strconv.Atoi(args[2])
		require.NoError(t, err)
	}
	switch args[0] {
	case "create":
		s.lab.createTopic(args[1], n)
	case "grow":
		s.lab.growTopic(args[1], n)
	default:
		s.lab.deleteTopic(args[1])
	}
	return ""
}

// growTopic gives a topic more partitions.
func (l *lab) growTopic(name string, partitions int) {
	more := metadata.MorePartitions{Name: name, Count: int32(partitions)}
	for range partitions - len(l.machine.Image().Topic(name).Partitions) {
		more.Added = append(more.Added, []int32{1})
	}
	l.apply(&metadata.CreatePartitions{Topics: []metadata.MorePartitions{more}, Limits: metadata.DefaultLimits()})
}

func (s *consumerScript) heartbeat(t *testing.T, d *datadriven.TestData) string {
	member := words(d)[0]
	req := heartbeatOf(t, d, s.lab.parseOwned)
	var (
		done = make(chan string, 1)
		c    = s.lab.of("any")
	)
	s.lab.wg.Go(func() { done <- s.lab.drawAnswer(c.Request(s.lab.ctx, req)) })
	synctest.Wait()
	select {
	case out := <-done:
		return out
	default:
	}
	s.lab.wg.Go(func() {
		out := <-done
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told[member] = append(s.told[member], out)
	})
	return "parked\n"
}

// heartbeatOf is the request of a hb command.
func heartbeatOf(t *testing.T, d *datadriven.TestData,
	parseOwned func(testing.TB, string) []kmsg.ConsumerGroupHeartbeatRequestTopic,
) *kmsg.ConsumerGroupHeartbeatRequest {
	member := words(d)[0]
	if member == "nameless" {
		member = ""
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = text(d, "group", "g"), member, int32(number(t, d, "epoch", 0))
	owned, timeout := "", int64(-1)
	if req.MemberEpoch == 0 {
		owned, timeout = "none", 60_000
	}
	req.RebalanceTimeoutMillis = int32(number(t, d, "timeout", timeout))
	req.Topics = parseOwned(t, text(d, "owned", owned))
	for _, a := range d.CmdArgs {
		value := strings.Join(a.Vals, ",")
		switch a.Key {
		case "topics":
			req.SubscribedTopicNames = strings.Split(value, ",")
			if value == "none" {
				req.SubscribedTopicNames = []string{}
			}
		case "regex":
			req.SubscribedTopicRegex = &value
		case "instance":
			req.InstanceID = &value
		case "rack":
			req.RackID = &value
		case "assignor":
			req.ServerAssignor = &value
		case "state":
			ktag.SetMemberState(&req.UnknownTags, []byte(value))
		case "session":
			ktag.SetSessionTimeout(&req.UnknownTags, int32(number(t, d, "session", 0)))
		case "wait":
			ktag.SetHeartbeatWait(&req.UnknownTags, int32(number(t, d, "wait", 0)))
		case "client":
			ktag.SetClient(&req.UnknownTags, value, "host")
		}
	}
	return req
}

// parseOwned reads "t:0,1;u:2"; none is an empty list and nothing is no list.
func (l *lab) parseOwned(t testing.TB, s string) []kmsg.ConsumerGroupHeartbeatRequestTopic {
	if s == "" {
		return nil
	}
	list := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if s == "none" {
		return list
	}
	for _, of := range strings.Split(s, ";") {
		name, numbers, _ := strings.Cut(of, ":")
		topic := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		topic.TopicID = l.machine.Image().Topic(name).ID
		for _, n := range strings.Split(numbers, ",") {
			v, err := strconv.Atoi(n)
			require.NoError(t, err)
			topic.Partitions = append(topic.Partitions, int32(v))
		}
		list = append(list, topic)
	}
	return list
}

func (l *lab) drawAnswer(r kmsg.Response, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	resp := r.(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.ErrorCode != 0 {
		return nameOf(resp.ErrorCode) + ": " + *resp.ErrorMessage + "\n"
	}
	out := fmt.Sprintf("epoch=%d", resp.MemberEpoch)
	if resp.Assignment != nil {
		var a []topicPartitions
		for _, t := range resp.Assignment.Topics {
			a = append(a, topicPartitions{t.TopicID, t.Partitions})
		}
		out += " assigned=" + l.drawAssignment(newAssignment(a))
	}
	return out + "\n"
}

func (l *lab) drawAssignment(a assignment) string {
	if len(a) == 0 {
		return "none"
	}
	var list []string
	for i := range a {
		name := "deleted"
		if t := l.machine.Image().TopicByID(a[i].topicID); t != nil {
			name = t.Name
		}
		list = append(list, name+":"+strings.Trim(strings.Join(strings.Fields(fmt.Sprint(a[i].partitions)), ","), "[]"))
	}
	slices.Sort(list)
	return strings.Join(list, ";")
}

func (s *consumerScript) answers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, member := range slices.Sorted(maps.Keys(s.told)) {
		for _, answer := range s.told[member] {
			out.WriteString(member + ": " + answer)
		}
	}
	clear(s.told)
	return out.String()
}

func (l *lab) consumerState(group string) (state string) {
	l.inspect(group, func(s *shard) {
		state = "there is no such group"
		if c := s.consumerIf(group); c != nil {
			state = c.state()
		}
	})
	return state
}

// draw shows a group.
func (s *consumerScript) draw(group string) string {
	var out strings.Builder
	s.lab.inspect(group, func(sh *shard) {
		c := sh.consumerIf(group)
		if c == nil {
			out.WriteString("there is no such group\n")
			return
		}
		fmt.Fprintf(&out, "%s epoch=%d target=%d\n", c.state(), c.epoch, c.targetEpoch)
		for _, id := range c.ids() {
			now := c.current(id)
			state := map[int8]string{memberStable: "stable", memberUnrevoked: "unrevoked", memberUnreleased: "unreleased"}
			fmt.Fprintf(&out, "%s: %s epoch=%d/%d assigned=%s", id, state[now.state], now.epoch, now.previous,
				s.lab.drawAssignment(now.assigned))
			if len(now.pending) > 0 {
				fmt.Fprintf(&out, " pending=%s", s.lab.drawAssignment(now.pending))
			}
			if target := c.targets[id]; !target.equal(now.assigned) {
				fmt.Fprintf(&out, " target=%s", s.lab.drawAssignment(target))
			}
			out.WriteString("\n")
		}
		for _, pattern := range slices.Sorted(maps.Keys(c.patterns)) {
			fmt.Fprintf(&out, "pattern %s: %s\n", pattern, strings.Join(c.patterns[pattern].topics, ","))
		}
	})
	return out.String()
}

func (s *consumerScript) describe(group string) string {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	g := ask[*kmsg.ConsumerGroupDescribeResponse](s.lab, "any", req).Groups[0]
	if g.ErrorCode != 0 {
		return nameOf(g.ErrorCode) + "\n"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s epoch=%d/%d assignor=%s\n", g.Group, g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
	for _, m := range g.Members {
		fmt.Fprintf(&out, "%s: epoch=%d client=%s@%s topics=%s", m.MemberID, m.MemberEpoch, m.ClientID, m.ClientHost,
			strings.Join(m.SubscribedTopics, ","))
		names, values := [3]string{"regex", "instance", "rack"}, [3]*string{m.SubscribedTopicRegex, m.InstanceID, m.RackID}
		for i, value := range values {
			if value != nil {
				fmt.Fprintf(&out, " %s=%s", names[i], *value)
			}
		}
		if state, ok := ktag.MemberState(&m.UnknownTags); ok {
			fmt.Fprintf(&out, " state=%s", state)
		}
		if ms, ok := ktag.SessionTimeout(&m.UnknownTags); ok {
			fmt.Fprintf(&out, " session=%v", time.Duration(ms)*time.Millisecond)
		}
		fmt.Fprintf(&out, " has=%s target=%s\n", drawNamed(m.Assignment), drawNamed(m.TargetAssignment))
	}
	return out.String()
}

func drawNamed(a kmsg.Assignment) string {
	var list []string
	for _, t := range a.TopicPartitions {
		list = append(list, fmt.Sprint(t.Topic, t.Partitions))
	}
	return strings.Join(list, ";")
}
