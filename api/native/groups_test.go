package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/server/servertest"
	"millrace/server/servertest/wire"
)

// managed is a node with groups: a topic t of one partition and t3 of three.
type managed struct {
	*writes
	node *servertest.Node
}

func newManaged(t *testing.T) *managed {
	t.Helper()
	node := servertest.Start(t, servertest.Options{Broker: map[string]string{
		"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "5",
		"group.initial.rebalance.delay.ms": "0",
	}})
	e := &managed{node: node, writes: &writes{
		t: t, client: client.New(node.Requestor(), client.Options{}), server: &httptest.Server{URL: node.URL()},
		http: node.Client,
	}}
	e.call(http.MethodPost, "/v1/topics", `{"name":"t"}`, http.StatusCreated, nil)
	e.call(http.MethodPost, "/v1/topics", `{"name":"t3","partitions":3}`, http.StatusCreated, nil)
	return e
}

// fill writes records of increasing age to a partition, the first at so many hours ago.
func (e *managed) fill(topic string, partition, records int, first time.Time) {
	e.t.Helper()
	for i := range records {
		at := first.Add(time.Duration(i) * time.Minute).UnixMilli()
		path := fmt.Sprintf("/v1/topics/%s/records?partition=%d&timestamp=%d", topic, partition, at)
		require.Equal(e.t, 200, e.post(path, "application/json", fmt.Sprint(i)).status)
	}
}

func (e *managed) commit(group, topic string, partition int32, offset int64) {
	e.t.Helper()
	errs, err := e.client.CommitOffsets(e.t.Context(), client.GroupCommit{
		Group: group, Epoch: -1, Offsets: []client.CommittedOffset{{
			TopicPartition: client.TopicPartition{Topic: topic, Partition: partition}, Offset: offset, LeaderEpoch: -1,
		}},
	})
	require.NoError(e.t, err)
	require.NoError(e.t, errs[0])
}

// offsets are where a group is in the partitions of a topic.
func (e *managed) offsets(group, topic string, partitions int) []int64 {
	e.t.Helper()
	var of []client.TopicPartition
	for p := range partitions {
		of = append(of, client.TopicPartition{Topic: topic, Partition: int32(p)})
	}
	committed, err := e.client.Committed(e.t.Context(), group, true, of...)
	require.NoError(e.t, err)
	out := make([]int64, len(of))
	for i := range committed {
		require.NoError(e.t, committed[i].Err)
		out[i] = committed[i].Offset
	}
	return out
}

// join makes a member of a group of the consumer protocol and waits for its partitions. What it returns makes it leave.
func join(t *testing.T, to kmsg.Requestor, group, id string, topics ...string) (leave func()) {
	t.Helper()
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.SubscribedTopicNames = group, id, topics
	beat.RebalanceTimeoutMillis = 60_000
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	ktag.SetClient(&beat.UnknownTags, "worker", "/10.0.0.7")
	until(t, func() bool {
		resp, err := beat.RequestWith(t.Context(), to)
		require.NoError(t, err)
		if passes(t, resp.ErrorCode) {
			return false
		}
		beat = kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Group, beat.MemberID, beat.MemberEpoch = group, id, resp.MemberEpoch
		beat.RebalanceTimeoutMillis = -1
		return resp.Assignment != nil && len(resp.Assignment.Topics) == len(topics)
	})
	return func() {
		bye := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		bye.Group, bye.MemberID, bye.MemberEpoch = group, id, -1
		resp, err := bye.RequestWith(context.WithoutCancel(t.Context()), to)
		require.NoError(t, err)
		require.Zero(t, resp.ErrorCode)
	}
}

type groupItem struct {
	Group        string `json:"group"`
	Type         string `json:"type"`
	State        string `json:"state"`
	ProtocolType string `json:"protocol_type"`
	Lag          *struct {
		Partitions int   `json:"partitions"`
		Records    int64 `json:"records"`
		MaxRecords int64 `json:"max_records"`
		Unknown    int   `json:"unknown"`
	} `json:"lag"`
}

func TestListGroups(t *testing.T) {
	e := newManaged(t)
	var page struct {
		Items []groupItem `json:"items"`
		Next  string      `json:"next_cursor"`
	}
	e.call(http.MethodGet, "/v1/groups", "", 200, &page)
	require.Empty(t, page.Items, "and an empty array, not null")
	e.fill("t", 0, 3, time.Now())
	for i := range 5 {
		e.commit(fmt.Sprintf("g%d/ü", i), "t", 0, int64(i))
	}
	e.commit("g1/ü", "t3", 2, 0)
	join(t, e.node.Requestor(), "live", "m", "t")

	var names []string
	path := "/v1/groups?limit=4&lag=true"
	for pages := 1; ; pages++ {
		page.Items, page.Next = nil, ""
		e.call(http.MethodGet, path, "", 200, &page)
		for _, g := range page.Items {
			names = append(names, g.Group)
			require.NotNil(t, g.Lag)
			switch g.Group {
			case "g1/ü":
				require.Equal(t, 2, g.Lag.Partitions)
				require.EqualValues(t, 2, g.Lag.Records)
			case "g4/ü":
				require.EqualValues(t, 0, g.Lag.Records, "an offset past the end is no lag")
			case "live":
				require.Zero(t, g.Lag.Partitions)
				require.Equal(t, groupItem{"live", "consumer", "stable", "consumer", g.Lag}, g)
				continue
			}
			require.Equal(t, groupItem{g.Group, "classic", "empty", "", g.Lag}, g)
		}
		if page.Next == "" {
			require.Equal(t, 2, pages)
			break
		}
		path = "/v1/groups?limit=4&lag=true&cursor=" + page.Next
	}
	require.Equal(t, []string{"g0/ü", "g1/ü", "g2/ü", "g3/ü", "g4/ü", "live"}, names)

	for query, want := range map[string]int{
		"state=empty": 5, "state=stable": 1, "state=reconciling": 0, "type=classic": 5, "type=consumer": 1,
		"type=consumer&state=empty": 0, "lag=false": 6,
	} {
		page.Items = nil
		e.call(http.MethodGet, "/v1/groups?"+query, "", 200, &page)
		require.Len(t, page.Items, want, query)
		if want > 0 {
			require.Nil(t, page.Items[0].Lag)
		}
	}
	for _, bad := range []string{"limit=0", "limit=1001", "cursor=*", "cursor=", "lag=maybe", "state=Empty", "state=",
		"type=share", "isolation=x", "stat=empty", "cursor=_w"} {
		e.problem(e.send(http.MethodGet, "/v1/groups?"+bad, ""), 400, "INVALID_PARAMETER")
	}
}

func TestGetGroup(t *testing.T) {
	e := newManaged(t)
	defer join(t, e.node.Requestor(), "live", "m", "t", "t3")()
	r := e.call(http.MethodGet, "/v1/groups/live", "", 200, nil)
	require.JSONEq(t, `{"group":"live","type":"consumer","state":"stable","protocol_type":"consumer","assignor":"uniform",
		"epoch":1,"coordinator":1,"members":[{"member":"m","instance":null,"client_id":"worker","host":"10.0.0.7","epoch":1,
		"subscription":["t","t3"],"pattern":null,
		"assignment":[{"topic":"t","partitions":[0]},{"topic":"t3","partitions":[0,1,2]}],
		"target":[{"topic":"t","partitions":[0]},{"topic":"t3","partitions":[0,1,2]}]}]}`, r.body)

	// Members of the classic protocol are a client's of Kafka.
	old := oldMember(t, e, "old", "t3")
	r = e.call(http.MethodGet, "/v1/groups/old", "", 200, nil)
	var g struct {
		Type, State, Assignor string
		Epoch                 *int
		Members               []struct {
			Instance, Epoch *string
			Subscription    []string
			Assignment      []struct {
				Topic      string
				Partitions []int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &g))
	require.Equal(t, "classic", g.Type)
	require.Equal(t, "stable", g.State)
	require.Equal(t, "range", g.Assignor)
	require.Nil(t, g.Epoch)
	require.Equal(t, "one", *g.Members[0].Instance)
	require.Equal(t, []string{"t3"}, g.Members[0].Subscription)
	require.Equal(t, []int{0, 1, 2}, g.Members[0].Assignment[0].Partitions)
	p := e.problem(e.send(http.MethodPost, "/v1/groups/old/offsets:reset", `{"to":"earliest","topics":["t3"]}`,
		"Content-Type", "application/json"), 409, "NON_EMPTY_GROUP")
	require.Contains(t, p["detail"], "of client worker at 127.0.0.1")
	old.Close()
}

// oldMember joins a group with a client of Kafka and waits for its partitions.
func oldMember(t *testing.T, e *managed, group, topic string) *kgo.Client {
	t.Helper()
	front, err := wire.Open(e.node.Requestor())
	require.NoError(t, err)
	t.Cleanup(front.Close)
	got := make(chan struct{}, 16)
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(front.Addr()), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ClientID("worker"), kgo.InstanceID("one"), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { got <- struct{}{} }))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	select {
	case <-got:
	case <-time.After(time.Minute):
		t.Fatal("the member got nothing")
	}
	return cl
}

// Ids of groups may be any text that can be told apart and written down.
func TestGroupIDs(t *testing.T) {
	e := newManaged(t)
	for _, id := range []string{"a b", "groß/п?", "../x", "%", strings.Repeat("ü", 127), "g:reset", "💥"} {
		e.commit(id, "t", 0, 0)
		path := "/v1/groups/" + url.PathEscape(id)
		var g groupItem
		e.call(http.MethodGet, path, "", 200, &g)
		require.Equal(t, id, g.Group)
		e.call(http.MethodGet, path+"/lag", "", 200, nil)
		e.call(http.MethodDelete, path, "", 204, nil)
		e.problem(e.send(http.MethodGet, path, ""), 404, "GROUP_ID_NOT_FOUND")
	}
	for _, bad := range []string{"%00", "a%0Ab", "%FF", strings.Repeat("a", 256)} {
		for _, at := range []string{"", "/lag", "/offsets"} {
			e.problem(e.send(http.MethodGet, "/v1/groups/"+bad+at, ""), 400, "INVALID_GROUP_ID")
		}
		e.problem(e.send(http.MethodDelete, "/v1/groups/"+bad, ""), 400, "INVALID_GROUP_ID")
		e.problem(e.send(http.MethodDelete, "/v1/groups/"+bad+"/offsets/t", ""), 400, "INVALID_GROUP_ID")
		e.problem(e.send(http.MethodPost, "/v1/groups/"+bad+"/offsets:reset", `{"to":"earliest","topics":["t"]}`,
			"Content-Type", "application/json"), 400, "INVALID_GROUP_ID")
	}
}

type groupLag struct {
	State string
	Count int
	Total struct {
		Records    int64
		MaxRecords int64  `json:"max_records"`
		MaxLagMs   *int64 `json:"max_lag_ms"`
		Unknown    int
	}
	Partitions []struct {
		Topic                  string
		Partition              int
		Committed, End, Lag    *int64
		LagMs                  *int64     `json:"lag_ms"`
		Next                   *time.Time `json:"next_timestamp"`
		Member, Instance, Host *string
		ClientID               *string `json:"client_id"`
	}
}

func TestGroupLag(t *testing.T) {
	e := newManaged(t)
	hourAgo := time.Now().Add(-time.Hour)
	e.fill("t", 0, 5, hourAgo)
	e.fill("t3", 0, 2, hourAgo)
	e.fill("t3", 1, 4, hourAgo)
	e.commit("g", "t", 0, 3)
	e.commit("g", "t3", 0, 9)
	e.commit("g", "t3", 1, 1)
	// What the group would have read is gone: what is left first is next.
	e.call(http.MethodPost, "/v1/topics/t3/records/delete", `{"partitions":[{"partition":1,"before_offset":3}]}`, 200, nil)
	defer join(t, e.node.Requestor(), "g", "m", "t", "t3")()

	var l groupLag
	e.call(http.MethodGet, "/v1/groups/g/lag", "", 200, &l)
	require.Equal(t, "stable", l.State)
	require.Equal(t, 4, l.Count)
	require.EqualValues(t, 5, l.Total.Records)
	require.EqualValues(t, 3, l.Total.MaxRecords)
	require.Equal(t, 1, l.Total.Unknown)
	for i, want := range []struct {
		committed, end, lag int64
		next                time.Duration // after hourAgo
	}{{3, 5, 2, 3 * time.Minute}, {9, 2, 0, -1}, {1, 4, 3, 3 * time.Minute}} {
		p := &l.Partitions[i]
		require.Equal(t, []int64{want.committed, want.end, want.lag}, []int64{*p.Committed, *p.End, *p.Lag}, "%d", i)
		require.Equal(t, "m", *p.Member)
		require.Equal(t, "worker", *p.ClientID)
		require.Equal(t, "10.0.0.7", *p.Host)
		require.Nil(t, p.Instance)
		if want.next < 0 {
			require.Zero(t, *p.LagMs)
			require.Nil(t, p.Next)
			continue
		}
		require.Equal(t, hourAgo.Add(want.next).UnixMilli(), p.Next.UnixMilli(), "%d", i)
		age := time.Since(*p.Next)
		require.InDelta(t, age.Milliseconds(), *p.LagMs, 30_000)
	}
	require.Equal(t, *l.Partitions[0].LagMs, *l.Total.MaxLagMs)
	last := &l.Partitions[3]
	require.Nil(t, last.Committed, "a member reads it, and has not committed")
	require.Nil(t, last.Lag)
	require.Nil(t, last.LagMs)
	require.Zero(t, *last.End)
	require.Equal(t, "m", *last.Member)

	e.problem(e.send(http.MethodGet, "/v1/groups/none/lag", ""), 404, "GROUP_ID_NOT_FOUND")
	e.problem(e.send(http.MethodGet, "/v1/groups/g/lag?isolation=x", ""), 400, "INVALID_PARAMETER")
	e.call(http.MethodGet, "/v1/groups/g/lag?isolation=read_uncommitted", "", 200, nil)
}

type resetAnswer struct {
	Group      string
	DryRun     bool `json:"dry_run"`
	Members    int
	Count      int
	Partitions []struct {
		Topic     string
		Partition int
		From      *int64
		To        int64
		Clamped   bool
	}
}

func (e *managed) reset(group, body string) (out resetAnswer) {
	e.t.Helper()
	e.call(http.MethodPost, "/v1/groups/"+group+"/offsets:reset", body, 200, &out)
	return out
}

func TestResetGroupOffsets(t *testing.T) {
	e := newManaged(t)
	hourAgo := time.Now().Add(-time.Hour)
	for p := range 3 {
		e.fill("t3", p, 4, hourAgo)
	}
	e.call(http.MethodPost, "/v1/topics/t3/records/delete", `{"partitions":[{"partition":1,"before_offset":2}]}`, 200, nil)

	// A dry run changes nothing, not even a group that is not there.
	r := e.reset("g", `{"to":"earliest","topics":["t3"],"dry_run":true}`)
	require.True(t, r.DryRun)
	require.Equal(t, 3, r.Count)
	require.Nil(t, r.Partitions[1].From)
	require.EqualValues(t, 2, r.Partitions[1].To)
	e.problem(e.send(http.MethodGet, "/v1/groups/g", ""), 404, "GROUP_ID_NOT_FOUND")

	for _, step := range []struct {
		body    string
		want    []int64
		clamped bool // in the first partition
	}{
		{`{"to":"earliest","topics":["t3"]}`, []int64{0, 2, 0}, false},
		{`{"to":"latest"}`, []int64{4, 4, 4}, false},
		{`{"shift":-1}`, []int64{3, 3, 3}, false},
		{`{"shift":-3,"partitions":[{"topic":"t3","partition":0}]}`, []int64{0, 3, 3}, false},
		{`{"shift":-1}`, []int64{0, 2, 2}, true},
		{`{"shift":9223372036854775807}`, []int64{4, 4, 4}, true},
		{`{"shift":-9223372036854775808}`, []int64{0, 2, 0}, true},
		{`{"offset":3,"partitions":[{"topic":"t3","partition":2}]}`, []int64{0, 2, 3}, false},
		{`{"offset":99}`, []int64{4, 4, 4}, true},
		{`{"offset":0}`, []int64{0, 2, 0}, false},
		{fmt.Sprintf(`{"timestamp":"%d"}`, hourAgo.Add(2*time.Minute).UnixMilli()), []int64{2, 2, 2}, false},
		{`{"timestamp":"2999-01-01T00:00:00Z"}`, []int64{4, 4, 4}, false},
		{`{"timestamp":"0"}`, []int64{0, 2, 0}, false},
	} {
		before := e.offsets("g", "t3", 3)
		r := e.reset("g", step.body)
		require.Equal(t, step.want, e.offsets("g", "t3", 3), step.body)
		require.False(t, r.DryRun)
		require.Equal(t, step.clamped, r.Partitions[0].Clamped, step.body)
		for _, p := range r.Partitions {
			require.Equal(t, step.want[p.Partition], p.To, step.body)
			if before[p.Partition] >= 0 {
				require.Equal(t, before[p.Partition], *p.From, step.body)
			}
		}
	}
}

func TestResetIsRefused(t *testing.T) {
	e := newManaged(t)
	e.commit("g", "t", 0, 0)
	for body, want := range map[string]string{
		`{}`:                                                         "MALFORMED_BODY",
		`{"to":"earliest","offset":3}`:                               "MALFORMED_BODY",
		`{"to":"middle"}`:                                            "MALFORMED_BODY",
		`{"offset":-1}`:                                              "MALFORMED_BODY",
		`{"offset":9223372036854775808}`:                             "MALFORMED_BODY",
		`{"timestamp":"soon"}`:                                       "MALFORMED_BODY",
		`{"to":"latest","topics":[]}`:                                "MALFORMED_BODY",
		`{"to":"latest","partitions":[]}`:                            "MALFORMED_BODY",
		`{"to":"latest","partitions":[{"topic":"t"}]}`:               "MALFORMED_BODY",
		`{"to":"latest","topics":["t","t"]}`:                         "MALFORMED_BODY",
		`{"to":"latest","topics":["nobody"]}`:                        "UNKNOWN_TOPIC_OR_PARTITION",
		`{"to":"latest","topics":["a/b"]}`:                           "INVALID_TOPIC_EXCEPTION",
		`{"to":"latest","partitions":[{"topic":"t","partition":1}]}`: "UNKNOWN_TOPIC_OR_PARTITION",
		`{"shift":1,"topics":["t3"]}`:                                "UNPROCESSABLE_BODY",
		`{"to":"latest","dryrun":true}`:                              "UNPROCESSABLE_BODY",
	} {
		r := e.send(http.MethodPost, "/v1/groups/g/offsets:reset", body, "Content-Type", "application/json")
		require.Contains(t, r.body, "/v1/errors#"+want, body)
	}
	p := e.problem(e.send(http.MethodPost, "/v1/groups/none/offsets:reset", `{"to":"latest"}`,
		"Content-Type", "application/json"), 422, "UNPROCESSABLE_BODY")
	require.Contains(t, p["detail"], "topics or partitions must name what to reset")
	require.Equal(t, []int64{0}, e.offsets("g", "t", 1))

	leave := join(t, e.node.Requestor(), "g", "m", "t3")
	p = e.problem(e.send(http.MethodPost, "/v1/groups/g/offsets:reset", `{"to":"latest"}`,
		"Content-Type", "application/json"), 409, "NON_EMPTY_GROUP")
	require.Contains(t, p["detail"], "Group g has 1 member, m of client worker at 10.0.0.7")
	require.Contains(t, p["detail"], "Stop its members first.")
	require.Equal(t, 1, e.reset("g", `{"to":"latest","dry_run":true}`).Members)
	e.problem(e.send(http.MethodDelete, "/v1/groups/g", ""), 409, "NON_EMPTY_GROUP")
	e.call(http.MethodDelete, "/v1/groups/g/offsets/t", "", 200, nil)
	leave()
	require.Equal(t, 1, e.reset("g", `{"to":"latest","topics":["t"]}`).Count)
}

func TestDeleteGroupOffsets(t *testing.T) {
	e := newManaged(t)
	e.commit("g", "t", 0, 0)
	e.commit("g", "t3", 0, 0)
	e.commit("g", "t3", 2, 0)
	r := e.call(http.MethodGet, "/v1/groups/g/offsets", "", 200, nil)
	require.JSONEq(t, `{"group":"g","partitions":[
		{"topic":"t","partition":0,"offset":0,"leader_epoch":null,"metadata":""},
		{"topic":"t3","partition":0,"offset":0,"leader_epoch":null,"metadata":""},
		{"topic":"t3","partition":2,"offset":0,"leader_epoch":null,"metadata":""}]}`, r.body)
	r = e.call(http.MethodDelete, "/v1/groups/g/offsets/t3", "", 200, nil)
	require.JSONEq(t, `{"count":2,"deleted":[{"topic":"t3","partition":0},{"topic":"t3","partition":2}]}`, r.body)
	r = e.call(http.MethodDelete, "/v1/groups/g/offsets/t3", "", 200, nil)
	require.JSONEq(t, `{"count":0,"deleted":[]}`, r.body)
	require.Equal(t, []int64{-1, -1, -1}, e.offsets("g", "t3", 3))
	require.Equal(t, []int64{0}, e.offsets("g", "t", 1))
	e.problem(e.send(http.MethodDelete, "/v1/groups/g/offsets/nobody", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	e.problem(e.send(http.MethodDelete, "/v1/groups/g/offsets/a%2Fb", ""), 400, "INVALID_TOPIC_EXCEPTION")
	e.problem(e.send(http.MethodDelete, "/v1/groups/none/offsets/t", ""), 404, "GROUP_ID_NOT_FOUND")
	e.problem(e.send(http.MethodGet, "/v1/groups/none/offsets", ""), 404, "GROUP_ID_NOT_FOUND")

	leave := join(t, e.node.Requestor(), "g", "m", "t")
	p := e.problem(e.send(http.MethodDelete, "/v1/groups/g/offsets/t", ""), 409, "GROUP_SUBSCRIBED_TO_TOPIC")
	require.Contains(t, p["detail"], "Stop its members first.")
	leave()
	e.call(http.MethodDelete, "/v1/groups/g/offsets/t", "", 200, nil)
	e.call(http.MethodDelete, "/v1/groups/g", "", 204, nil)
	e.problem(e.send(http.MethodDelete, "/v1/groups/g", ""), 404, "GROUP_ID_NOT_FOUND")
}
