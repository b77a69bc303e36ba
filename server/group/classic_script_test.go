package group

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The scripts in testdata/classic are conversations with the coordinator of one classic group, in fake time. Somebody
// who talks to it has a name, and remembers the member id and the generation that he was told last; he forgets them
// when he joins with an id that is not known any more. Answers are printed when they come: after the command that
// brought them about, in the order of names.
//
//	join NAME ... [id=none|OTHER] [instance=I] [protocols=P:TEXT,P:TEXT] [type=consumer] [session=10s] [rebalance=60s]
//	    [v=9]
//	sync NAME ... [id=OTHER] [instance=I] [gen=N] [assign=NAME:TEXT,NAME:TEXT] [type=] [protocol=] [big]
//	heartbeat NAME ... [id=OTHER] [instance=I] [gen=N]
//	leave NAME ... [v=5] | leave instance=I
//	commit NAME [id=OTHER] [instance=I] [gen=N] [txn]
//	forgets NAME                      he starts again and knows nothing
//	clock DURATION [beat=NAME,NAME]   time passes, in which some send heartbeats every second; only news is printed
//	again                             another coordinator takes over, which has but the log
//	set KEY=VALUE                     a setting of the broker, wherever that stands
//	group                             what the coordinator has of it
//	describe | delete | exists
func TestClassicScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/classic", func(t *testing.T, path string) {
		inLab(t, labOptions{static: settingsOf(t, path)}, func(t *testing.T, l *lab) {
			s := &classicScript{t: t, lab: l, who: make(map[string]*talker), names: make(map[string]string)}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				out := s.run(d)
				synctest.Wait()
				return out + s.answers()
			})
		})
	})
}

// settingsOf reads the settings of the broker that a script wants.
func settingsOf(t *testing.T, path string) map[string]string {
	script, err := os.ReadFile(path)
	require.NoError(t, err)
	settings := make(map[string]string)
	for line := range strings.Lines(string(script)) {
		if set, ok := strings.CutPrefix(strings.TrimSpace(line), "set "); ok {
			key, value, _ := strings.Cut(set, "=")
			settings[key] = value
		}
	}
	return settings
}

type classicScript struct {
	t   *testing.T
	lab *lab
	who map[string]*talker

	mu    sync.Mutex
	names map[string]string // guarded by mu: what member ids are called
	heard []string          // guarded by mu: answers that have not been printed
}

// talker is somebody who talks to the coordinator.
type talker struct {
	name       string
	id         string
	generation int32
	lives      int
}

func (s *classicScript) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "join", "sync", "heartbeat":
		for _, name := range words(d) {
			if name == "big" {
				continue
			}
			s.send(d, s.talker(name))
			synctest.Wait()
		}
	case "leave":
		s.leave(d)
	case "commit":
		return s.commit(d)
	case "forgets":
		for _, name := range words(d) {
			w := s.talker(name)
			w.id, w.generation = "", -1
			w.lives++
		}
	case "clock":
		s.clock(d)
	case "again":
		s.lab.again()
	case "set": // as settingsOf has done
	case "group":
		return s.draw()
	default:
		return s.admin(d)
	}
	return ""
}

func (s *classicScript) talker(name string) *talker {
	if s.who[name] == nil {
		s.who[name] = &talker{name: name, generation: -1, lives: 1}
	}
	return s.who[name]
}

// duration is the value of an argument.
func (s *classicScript) duration(d *datadriven.TestData, key, otherwise string) time.Duration {
	v, err := time.ParseDuration(text(d, key, otherwise))
	require.NoError(s.t, err)
	return v
}

// call is what a member id is called: the name of who was given it.
func (s *classicScript) call(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := s.names[id]; ok || id == "" {
		return name
	}
	return "?"
}

// idOf is the id that a request has: the talker's own, or another's.
func (s *classicScript) idOf(d *datadriven.TestData, w *talker) string {
	switch other := text(d, "id", w.name); other {
	case "none":
		return ""
	case w.name:
		return w.id
	default:
		if o := s.who[other]; o != nil {
			return o.id
		}
		return other
	}
}

// learn takes up a member id.
func (s *classicScript) learn(w *talker, id string, generation int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.id = id; id != "" && s.names[id] == "" {
		s.names[id] = w.name + strings.Repeat("'", w.lives-1)
	}
	w.generation = generation
}

func (s *classicScript) hear(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, fmt.Sprintf(format, args...))
}

// answers prints what has been heard.
func (s *classicScript) answers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.heard)
	out := strings.Join(s.heard, "")
	s.heard = nil
	return out
}

// send sends one request and lets it wait.
func (s *classicScript) send(d *datadriven.TestData, w *talker) {
	var req kmsg.Request
	switch d.Cmd {
	case "join":
		req = s.join(d, w)
	case "sync":
		req = s.sync(d, w)
	default:
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Version, hb.Group, hb.MemberID, hb.InstanceID = 4, "g", s.idOf(d, w), optional(d, "instance")
		hb.Generation = int32(number(s.t, d, "gen", int64(w.generation)))
		req = hb
	}
	c := s.lab.of("g")
	s.lab.wg.Go(func() {
		resp, err := c.Request(context.Background(), req)
		if err != nil {
			s.hear("%s: %s: no answer: %v\n", w.name, d.Cmd, err)
			return
		}
		switch resp := resp.(type) {
		case *kmsg.JoinGroupResponse:
			s.joined(w, resp)
		case *kmsg.SyncGroupResponse:
			if resp.ErrorCode != 0 {
				s.hear("%s: sync: %s\n", w.name, nameOf(resp.ErrorCode))
				return
			}
			s.hear("%s: sync: %s %s %q\n", w.name, *resp.ProtocolType, *resp.Protocol, resp.MemberAssignment)
		case *kmsg.HeartbeatResponse:
			s.hear("%s: heartbeat: %s\n", w.name, nameOf(resp.ErrorCode))
		}
	})
}

func optional(d *datadriven.TestData, key string) *string {
	if v := text(d, key, ""); v != "" {
		return &v
	}
	return nil
}

func (s *classicScript) join(d *datadriven.TestData, w *talker) kmsg.Request {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group = int16(number(s.t, d, "v", 9)), "g"
	req.MemberID, req.InstanceID = s.idOf(d, w), optional(d, "instance")
	req.ProtocolType = text(d, "type", "consumer")
	req.SessionTimeoutMillis = int32(s.duration(d, "session", "10s").Milliseconds())
	req.RebalanceTimeoutMillis = int32(s.duration(d, "rebalance", "60s").Milliseconds())
	for p := range strings.SplitSeq(text(d, "protocols", "range:"+w.name), ",") {
		if name, meta, ok := strings.Cut(p, ":"); ok {
			req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(meta)})
		}
	}
	return req
}

func (s *classicScript) joined(w *talker, resp *kmsg.JoinGroupResponse) {
	switch nameOf(resp.ErrorCode) {
	case "ok":
	case "MEMBER_ID_REQUIRED":
		s.learn(w, resp.MemberID, -1)
		fallthrough
	default:
		if resp.ErrorCode == kerr.UnknownMemberID.Code && resp.MemberID == w.id {
			s.learn(w, "", -1)
		}
		s.hear("%s: join: %s\n", w.name, nameOf(resp.ErrorCode))
		return
	}
	s.learn(w, resp.MemberID, resp.Generation)
	var out strings.Builder
	fmt.Fprintf(&out, "%s: join: gen %d %s", s.call(resp.MemberID), resp.Generation, *resp.Protocol)
	if resp.SkipAssignment {
		out.WriteString(" skip")
	}
	if resp.LeaderID != resp.MemberID {
		s.hear("%s, follower\n", out.String())
		return
	}
	out.WriteString(", leader of")
	for _, m := range resp.Members {
		fmt.Fprintf(&out, " %s", m.ProtocolMetadata)
		if m.InstanceID != nil {
			fmt.Fprintf(&out, "(%s)", *m.InstanceID)
		}
	}
	s.hear("%s\n", out.String())
}

func (s *classicScript) sync(d *datadriven.TestData, w *talker) kmsg.Request {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = 5, "g", s.idOf(d, w), optional(d, "instance")
	req.Generation = int32(number(s.t, d, "gen", int64(w.generation)))
	req.ProtocolType, req.Protocol = optional(d, "type"), optional(d, "protocol")
	for a := range strings.SplitSeq(text(d, "assign", ""), ",") {
		name, given, ok := strings.Cut(a, ":")
		if !ok {
			continue
		}
		id := name
		if o := s.who[name]; o != nil {
			id = o.id
		}
		req.GroupAssignment = append(req.GroupAssignment,
			kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(given)})
	}
	if slices.Contains(words(d), "big") {
		req.GroupAssignment[0].MemberAssignment = make([]byte, 2<<20)
	}
	return req
}

func (s *classicScript) leave(d *datadriven.TestData) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = int16(number(s.t, d, "v", 5)), "g"
	for _, name := range words(d) {
		req.MemberID = name
		if w := s.who[name]; w != nil {
			req.MemberID = w.id
		}
		req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: req.MemberID})
	}
	if instance := optional(d, "instance"); instance != nil {
		m := kmsg.LeaveGroupRequestMember{InstanceID: instance}
		if len(req.Members) > 0 {
			m.MemberID, req.Members = req.Members[0].MemberID, nil
		}
		req.Members = append(req.Members, m)
	}
	resp := ask[*kmsg.LeaveGroupResponse](s.lab, "g", req)
	if req.Version < 3 || resp.ErrorCode != 0 {
		s.hear("leave: %s\n", nameOf(resp.ErrorCode))
	}
	for i, m := range resp.Members {
		require.Equal(s.t, req.Members[i].MemberID, m.MemberID)
		who := s.call(m.MemberID)
		if m.InstanceID != nil {
			who += "(" + *m.InstanceID + ")"
		}
		s.hear("leave %s: %s\n", who, nameOf(m.ErrorCode))
	}
}

func (s *classicScript) commit(d *datadriven.TestData) string {
	w := &talker{generation: -1}
	for _, name := range words(d) {
		if name != "txn" {
			w = s.talker(name)
		}
	}
	if slices.Contains(words(d), "txn") {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Group, req.TransactionalID, req.ProducerID = "g", "tx", 5
		req.MemberID, req.InstanceID = s.idOf(d, w), optional(d, "instance")
		req.Generation = int32(number(s.t, d, "gen", int64(w.generation)))
		topic := kmsg.NewTxnOffsetCommitRequestTopic()
		topic.Topic, topic.Partitions = "t", []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 1}}
		req.Topics = append(req.Topics, topic)
		resp := ask[*kmsg.TxnOffsetCommitResponse](s.lab, "g", req)
		return nameOf(resp.Topics[0].Partitions[0].ErrorCode) + "\n"
	}
	req := commitTo("g", "t", 1)
	req.MemberID, req.InstanceID = s.idOf(d, w), optional(d, "instance")
	req.Generation = int32(number(s.t, d, "gen", int64(w.generation)))
	return nameOf(ask[*kmsg.OffsetCommitResponse](s.lab, "g", req).Topics[0].Partitions[0].ErrorCode) + "\n"
}

// clock lets time pass. Heartbeats that are answered well, or by the word that there is a rebalance, are not printed.
func (s *classicScript) clock(d *datadriven.TestData) {
	pass, err := time.ParseDuration(words(d)[0])
	require.NoError(s.t, err)
	beat, told := text(d, "beat", ""), make(map[string]string)
	for ; beat != "" && pass > 0; pass -= time.Second {
		for name := range strings.SplitSeq(beat, ",") {
			w := s.talker(name)
			req := kmsg.NewPtrHeartbeatRequest()
			req.Version, req.Group, req.MemberID, req.Generation = 4, "g", w.id, w.generation
			code := ask[*kmsg.HeartbeatResponse](s.lab, "g", req).ErrorCode
			if got := nameOf(code); got != "ok" && got != "REBALANCE_IN_PROGRESS" && got != told[name] {
				told[name] = got
				s.hear("%s: heartbeat: %s\n", name, got)
			}
		}
		time.Sleep(time.Second)
	}
	time.Sleep(max(pass, 0))
}

// draw draws what the coordinator has of the group.
func (s *classicScript) draw() string {
	var out strings.Builder
	s.lab.inspect("g", func(sh *shard) {
		c := sh.classicOf("g")
		if c == nil {
			out.WriteString("none\n")
			return
		}
		fmt.Fprintf(&out, "%s gen=%d", c.phase, c.generation)
		if c.chosen {
			fmt.Fprintf(&out, " protocol=%s", c.protocol)
		}
		if c.leader != "" {
			fmt.Fprintf(&out, " leader=%s", s.call(c.leader))
		}
		if n := len(c.pending); n > 0 {
			fmt.Fprintf(&out, " pending=%d", n)
		}
		out.WriteString("\n")
		for _, m := range c.sorted() {
			fmt.Fprintf(&out, "  %s", s.call(m.id))
			if m.instance != nil {
				fmt.Fprintf(&out, "(%s)", *m.instance)
			}
			if m.joining != nil {
				out.WriteString(" joining")
			}
			if m.syncing != nil {
				out.WriteString(" syncing")
			}
			if m.unsynced && c.phase != statePreparing {
				out.WriteString(" unsynced")
			}
			fmt.Fprintf(&out, " session=%v rebalance=%v %q\n", m.session, m.rebalance, m.assignment)
		}
	})
	return out.String()
}

func (s *classicScript) admin(d *datadriven.TestData) string {
	switch d.Cmd {
	case "describe":
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g"}
		g := ask[*kmsg.DescribeGroupsResponse](s.lab, "g", req).Groups[0]
		out := fmt.Sprintf("%s: %s type=%q protocol=%q\n", nameOf(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
		for _, m := range g.Members {
			out += fmt.Sprintf("  %s client=%q host=%q %q %q\n",
				s.call(m.MemberID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
		}
		return out
	case "delete":
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		return nameOf(ask[*kmsg.DeleteGroupsResponse](s.lab, "g", req).Groups[0].ErrorCode) + "\n"
	default:
		d.Fatalf(s.t, "unknown command")
		return ""
	}
}
