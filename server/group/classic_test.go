package group

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// joinOf is a request to join, as a consumer sends it.
func joinOf(group, id string, change ...func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, group, id, typeConsumer
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte(id)}}
	for _, f := range change {
		f(req)
	}
	return req
}

func syncOf(group, id string, generation int32) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, group, id, generation
	return req
}

// phases bring a stable group into another state.
var phases = map[string]func(s *shard, c *classic){
	stateEmpty:      func(*shard, *classic) {},
	stateStable:     func(*shard, *classic) {},
	statePreparing:  func(_ *shard, c *classic) { c.prepare() },
	stateCompleting: func(_ *shard, c *classic) { c.begin() },
}

// plantPhase makes a group of generation 5 in a state, with the static members m1, which leads, and m2.
func plantPhase(l *lab, id, phase string) {
	l.inspect(id, func(s *shard) {
		v := &groupMetadata{ProtocolType: typeConsumer, Generation: 5, CurrentStateTimestamp: s.millis()}
		if phase != stateEmpty {
			v.Protocol, v.Leader = ptr("range"), ptr("m1")
			for _, m := range []string{"m1", "m2"} {
				v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
					MemberID: m, InstanceID: ptr("i-" + m), SessionTimeoutMillis: 600_000, RebalanceTimeoutMillis: 600_000,
					Subscription: []byte(m), Assignment: []byte("of " + m),
				})
			}
		}
		kv := coordinator.KV{Key: groupKey(kindGroupMetadata, id), Value: encodeGroupMetadata(v)}
		require.NoError(l.t, s.run.Append(kv))
		c := s.classicOf(id)
		c.live = true
		phases[phase](s, c)
		c.generation = 5 // whatever the state did to it
		require.Equal(l.t, phase, c.phase)
	})
}

// The log has several records of a group: each is all of it, whatever came before.
func TestLaterRecordsCount(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		record := func(generation int32, protocol string, members ...kmsg.GroupMetadataValueMember) {
			l.inspect("g", func(s *shard) {
				v := &groupMetadata{ProtocolType: typeConsumer, Generation: generation, Protocol: &protocol, Members: members}
				kv := coordinator.KV{Key: groupKey(kindGroupMetadata, "g"), Value: encodeGroupMetadata(v)}
				require.NoError(t, s.run.Append(kv))
			})
		}
		of := func(id, says string, session int32) kmsg.GroupMetadataValueMember {
			return kmsg.GroupMetadataValueMember{MemberID: id, Subscription: []byte(says), SessionTimeoutMillis: session,
				RebalanceTimeoutMillis: 1, Assignment: []byte(says + says)}
		}
		record(1, "range", of("a", "old", 1000), of("b", "b", 1000), of("c", "c", 1000))
		record(2, "sticky", of("c", "c", 1000), of("a", "new", 2000))
		for range 2 {
			l.inspect("g", func(s *shard) {
				c := s.classicOf("g")
				require.Len(t, c.members, 2)
				require.Equal(t, map[string]int{"sticky": 2}, c.votes)
				require.Equal(t, "c", c.leader, "the first, where the record names none")
				a := c.members["a"]
				require.Equal(t, "new", string(a.metadata("sticky")))
				require.Equal(t, 2*time.Second, a.session)
				require.Equal(t, "newnew", string(a.assignment))
			})
			l.again()
		}
		time.Sleep(time.Second)
		l.inspect("g", func(s *shard) { require.Len(t, s.classicOf("g").members, 1) })
	})
}

// A group that the log has with more members than are allowed now shrinks to those who join first.
func TestTooLargeGroupsShrink(t *testing.T) {
	inLab(t, labOptions{static: map[string]string{"group.max.size": "1"}}, func(t *testing.T, l *lab) {
		plantPhase(l, "g", stateStable)
		l.again()
		l.inspect("g", func(s *shard) { require.Equal(t, statePreparing, s.classicOf("g").phase) })
		done := make(chan *kmsg.JoinGroupResponse, 1)
		first, second := joinOf("g", "m2"), joinOf("g", "m1")
		l.wg.Go(func() { done <- ask[*kmsg.JoinGroupResponse](l, "g", first) })
		synctest.Wait()
		require.Equal(t, kerr.GroupMaxSizeReached.Code, ask[*kmsg.JoinGroupResponse](l, "g", second).ErrorCode)
		resp := <-done
		require.Zero(t, resp.ErrorCode)
		require.Equal(t, "m2", resp.LeaderID)
		require.Len(t, resp.Members, 1)
	})
}

// The requests of a table: each gives the code that it is answered by.
type asks func(l *lab, group string) int16

func beats(id string, instance *string, generation int32) asks {
	return func(l *lab, g string) int16 {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = g, id, instance, generation
		return ask[*kmsg.HeartbeatResponse](l, g, req).ErrorCode
	}
}

func syncs(id string, instance *string, generation int32, protocol string) asks {
	return func(l *lab, g string) int16 {
		req := syncOf(g, id, generation)
		req.InstanceID, req.Protocol = instance, &protocol
		return ask[*kmsg.SyncGroupResponse](l, g, req).ErrorCode
	}
}

func commits(id string, instance *string, generation int32) asks {
	return func(l *lab, g string) int16 {
		req := commitTo(g, "t", 1)
		req.MemberID, req.InstanceID, req.Generation = id, instance, generation
		return ask[*kmsg.OffsetCommitResponse](l, g, req).Topics[0].Partitions[0].ErrorCode
	}
}

func joins(id string, change ...func(*kmsg.JoinGroupRequest)) asks {
	return func(l *lab, g string) int16 {
		return ask[*kmsg.JoinGroupResponse](l, g, joinOf(g, id, change...)).ErrorCode
	}
}

func leaves(id string, instance *string) asks {
	return func(l *lab, g string) int16 {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group = 5, g
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id, InstanceID: instance}}
		return ask[*kmsg.LeaveGroupResponse](l, g, req).Members[0].ErrorCode
	}
}

// refusedIn is what a request is refused by in each state.
type refusedIn struct{ empty, preparing, completing, stable *kerr.Error }

func always(e *kerr.Error) refusedIn { return refusedIn{e, e, e, e} }

// lively is for what is refused by the group's members, where it has some.
func lively(e *kerr.Error) refusedIn { return refusedIn{kerr.UnknownMemberID, e, e, e} }

type refusalTest struct {
	ask  asks
	want refusedIn
}

// classicErrors is the table of states and requests: what each refuses by in each state.
func classicErrors() map[string]refusalTest {
	unknown, generation, fenced := kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID
	again, inconsistent := kerr.RebalanceInProgress, kerr.InconsistentGroupProtocol
	as := func(name string) func(*kmsg.JoinGroupRequest) {
		return func(r *kmsg.JoinGroupRequest) { r.InstanceID = &name }
	}
	only := func(protocol string) func(*kmsg.JoinGroupRequest) {
		return func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = protocol }
	}
	connect := func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }
	return map[string]refusalTest{
		"heartbeat":                    {beats("m1", nil, 5), refusedIn{unknown, again, nil, nil}},
		"heartbeat of nobody":          {beats("m3", nil, 5), always(unknown)},
		"heartbeat without an id":      {beats("", nil, 5), always(unknown)},
		"heartbeat, older":             {beats("m1", nil, 4), lively(generation)},
		"heartbeat, newer":             {beats("m1", nil, 6), lively(generation)},
		"heartbeat of another":         {beats("m1", ptr("i-m2"), 5), lively(fenced)},
		"heartbeat of no instance":     {beats("m1", ptr("i-m3"), 5), always(unknown)},
		"sync of nobody":               {syncs("m3", nil, 5, "range"), always(unknown)},
		"sync, older":                  {syncs("m1", nil, 4, "range"), lively(generation)},
		"sync of another":              {syncs("m1", ptr("i-m2"), 5, "range"), lively(fenced)},
		"sync of another protocol":     {syncs("m1", nil, 5, "sticky"), lively(inconsistent)},
		"sync of the leader":           {syncs("m1", ptr("i-m1"), 5, "range"), refusedIn{unknown, again, nil, nil}},
		"commit":                       {commits("m1", nil, 5), refusedIn{unknown, nil, again, nil}},
		"commit of a named one":        {commits("m1", ptr("i-m1"), 5), refusedIn{unknown, nil, again, nil}},
		"commit of another":            {commits("m1", ptr("i-m2"), 5), lively(fenced)},
		"commit of nobody":             {commits("m3", nil, 5), always(unknown)},
		"commit, older":                {commits("m1", nil, 4), lively(generation)},
		"commit without membership":    {commits("", nil, -1), refusedIn{nil, unknown, unknown, unknown}},
		"commit with an id alone":      {commits("m1", nil, -1), refusedIn{nil, generation, generation, generation}},
		"commit of a generation alone": {commits("", nil, 5), always(unknown)},
		"join of nobody":               {joins("m3"), always(unknown)},
		"join of another":              {joins("m1", as("i-m2")), lively(fenced)},
		"join of no instance":          {joins("m1", as("i-m3")), always(unknown)},
		"join of another protocol":     {joins("m1", only("sticky")), lively(inconsistent)},
		"join of another type":         {joins("m1", connect), lively(inconsistent)},
		"join anew, another protocol": {joins("", only("sticky")), refusedIn{kerr.MemberIDRequired,
			inconsistent, inconsistent, inconsistent}},
		"join anew":                {joins(""), always(kerr.MemberIDRequired)},
		"leave":                    {leaves("m2", nil), lively(nil)},
		"leave of a named one":     {leaves("m2", ptr("i-m2")), lively(nil)},
		"leave of an instance":     {leaves("", ptr("i-m2")), lively(nil)},
		"leave of another":         {leaves("m2", ptr("i-m1")), lively(fenced)},
		"leave of nobody":          {leaves("m3", nil), always(unknown)},
		"leave without a name":     {leaves("", nil), always(unknown)},
		"leave of no instance":     {leaves("", ptr("i-m3")), always(unknown)},
		"leave of a lost instance": {leaves("m2", ptr("i-m3")), always(unknown)},
	}
}

func TestClassicErrors(t *testing.T) {
	for name, c := range classicErrors() {
		t.Run(name, func(t *testing.T) {
			inLab(t, labOptions{}, func(t *testing.T, l *lab) {
				for phase, want := range map[string]*kerr.Error{
					stateEmpty: c.want.empty, statePreparing: c.want.preparing, stateCompleting: c.want.completing,
					stateStable: c.want.stable,
				} {
					plantPhase(l, phase, phase)
					if got := c.ask(l, phase); got != codeOf(want) {
						t.Errorf("%s: got %s, want %s", phase, nameOf(got), nameOf(codeOf(want)))
					}
				}
			})
		})
	}
}

// Requests about a group that there is not, or that is of another protocol.
func TestClassicRequestsOfOtherGroups(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		plantGroups(l)
		for id, inconsistent := range map[string]bool{"none": false, "heartbeat": true} {
			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Group, beat.MemberID = id, "m"
			require.Equal(t, kerr.UnknownMemberID.Code, ask[*kmsg.HeartbeatResponse](l, id, beat).ErrorCode)
			require.Equal(t, kerr.UnknownMemberID.Code, ask[*kmsg.SyncGroupResponse](l, id, syncOf(id, "m", 1)).ErrorCode)
			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Group, leave.MemberID = id, "m"
			require.Equal(t, kerr.UnknownMemberID.Code, ask[*kmsg.LeaveGroupResponse](l, id, leave).ErrorCode)
			want := kerr.UnknownMemberID
			if inconsistent {
				want = kerr.InconsistentGroupProtocol
			}
			require.Equal(t, want.Code, ask[*kmsg.JoinGroupResponse](l, id, joinOf(id, "m")).ErrorCode)
		}
		l.inspect("none", func(s *shard) { require.Nil(t, s.groups["none"]) })
	})
}

// What no group takes is refused before there is one.
func TestBadJoins(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	session := func(millis int32) func(*kmsg.JoinGroupRequest) {
		return func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = millis }
	}
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		for name, c := range map[string]struct {
			change func(*kmsg.JoinGroupRequest)
			want   *kerr.Error
		}{
			"short session":       {session(5_999), kerr.InvalidSessionTimeout},
			"long session":        {session(1_800_001), kerr.InvalidSessionTimeout},
			"negative session":    {session(-1), kerr.InvalidSessionTimeout},
			"no type":             {func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }, kerr.InconsistentGroupProtocol},
			"no protocols":        {func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }, kerr.InconsistentGroupProtocol},
			"protocol not named":  {func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "" }, kerr.InvalidRequest},
			"long protocol":       {func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = long }, kerr.InvalidRequest},
			"long type":           {func(r *kmsg.JoinGroupRequest) { r.ProtocolType = long }, kerr.InvalidRequest},
			"long instance":       {func(r *kmsg.JoinGroupRequest) { r.InstanceID = &long }, kerr.InvalidRequest},
			"empty instance":      {func(r *kmsg.JoinGroupRequest) { r.InstanceID = ptr("") }, kerr.InvalidRequest},
			"instance not UTF-8":  {func(r *kmsg.JoinGroupRequest) { r.InstanceID = ptr("\xff") }, kerr.InvalidRequest},
			"unknown id":          {func(r *kmsg.JoinGroupRequest) { r.MemberID = "x" }, kerr.UnknownMemberID},
			"empty group":         {func(r *kmsg.JoinGroupRequest) { r.Group = "" }, kerr.InvalidGroupID},
			"group with controls": {func(r *kmsg.JoinGroupRequest) { r.Group = "a\nb" }, kerr.InvalidGroupID},
		} {
			resp := ask[*kmsg.JoinGroupResponse](l, "g", joinOf("g", "", c.change))
			require.Equal(t, nameOf(c.want.Code), nameOf(resp.ErrorCode), name)
			require.EqualValues(t, -1, resp.Generation, name)
		}
		l.inspect("g", func(s *shard) {
			require.Empty(t, s.groups)
			require.Zero(t, s.arrivals)
		})
	})
}

// Who asks and never comes is bounded, and forgotten.
func TestArrivalsAreBounded(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.inspect("g", func(s *shard) { s.arrivals = maxArrivals - 3 })
		for i := range 5 {
			id := fmt.Sprint("g", i)
			want := kerr.MemberIDRequired
			if i >= 3 {
				want = kerr.CoordinatorLoadInProgress
			}
			require.Equal(t, want.Code, ask[*kmsg.JoinGroupResponse](l, id, joinOf(id, "")).ErrorCode)
		}
		time.Sleep(10 * time.Second)
		l.inspect("g", func(s *shard) {
			require.Equal(t, maxArrivals-3, s.arrivals)
			require.Empty(t, s.groups)
		})
	})
}

// Member ids begin with who it is, as far as that is known, and tell nothing else.
func TestMemberIDs(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		seen := make(map[string]bool)
		for range 10 {
			resp := ask[*kmsg.JoinGroupResponse](l, "g", joinOf("g", "", func(r *kmsg.JoinGroupRequest) {
				ktag.SetClient(&r.UnknownTags, "client", "host")
			}))
			require.Regexp(t, `^client-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, resp.MemberID)
			require.False(t, seen[resp.MemberID])
			seen[resp.MemberID] = true
		}
	})
}

// Subscriptions are read as far as it takes, and what is no subscription tells nothing.
func TestSubscriptions(t *testing.T) {
	of := kmsg.NewConsumerMemberMetadata()
	of.Version, of.Topics, of.UserData = 3, []string{"a", "b"}, []byte("mine")
	whole := of.AppendTo(nil)
	for name, c := range map[string]struct {
		in   []byte
		want []string // nil: not known
	}{
		"whole":          {whole, []string{"a", "b"}},
		"newer":          {append(append([]byte{0x7f, 0xff}, whole[2:]...), 1, 2, 3), []string{"a", "b"}},
		"topics alone":   {whole[:12], []string{"a", "b"}},
		"cut in a topic": {whole[:11], nil},
		"no topics":      {[]byte{0, 0, 0, 0, 0, 0}, []string{}},
		"null topics":    {[]byte{0, 0, 0xff, 0xff, 0xff, 0xff}, []string{}},
		"negative":       {append([]byte{0xff, 0xff}, whole[2:]...), nil},
		"empty":          {nil, nil},
		"too many":       {[]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0}, nil},
	} {
		got := make(map[string]bool)
		known := addTopics(got, c.in)
		require.Equal(t, c.want != nil, known, name)
		if known {
			require.Len(t, got, len(c.want), name)
			for _, topic := range c.want {
				require.True(t, got[topic], name)
			}
		}
	}
}
