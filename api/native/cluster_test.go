package native_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api/native"
	"millrace/client"
)

var topicOrders = client.Resource{Type: client.TopicResource, Name: "orders"}

func TestHealthOfAWholeCluster(t *testing.T) {
	f := newFakeCluster(t, "", "", "")
	f.topic("orders", []int32{1, 2, 3}, []int32{2, 3, 1})
	f.configs[topicOrders] = map[string]string{"min.insync.replicas": "2"}
	o := operate(t, f, native.Membership{})
	o.shows(`{"status":"ok","reasons":[],"controller":1,"quorum":{"leader":1,"voters":[],"away":[],"missing":[]},
		"brokers":{"registered":3,"active":3,"fenced":[],"shutting_down":[]},
		"partitions":{"total":2,"offline":{"count":0,"items":[]},"under_min_isr":{"count":0,"items":[]},
		"at_min_isr":{"count":0,"items":[]},"under_replicated":{"count":0,"items":[]}}}`, o.get("/v1/cluster/health"))
	o.shows(`{"cluster_id":"fake","controller":1,"quorum_leader":1,"topics":1,"partitions":2,"status":"ok","reasons":[],
		"brokers":{"registered":3,"active":3,"fenced":[],"shutting_down":[]}}`, o.get("/v1/cluster"))
}

func TestHealthTellsWhatIsWrong(t *testing.T) {
	f := newFakeCluster(t, "", "", "")
	f.topic("orders", []int32{1, 2, 3}, []int32{1, 2, 3}, []int32{1, 2, 3}, []int32{1, 2, 3}, []int32{3})
	f.configs[topicOrders] = map[string]string{"min.insync.replicas": "2"}
	f.brokers[3].fenced = true
	f.brokers[2].shutting = true
	f.topics["orders"][0].isr = []int32{1, 2}
	f.topics["orders"][1].isr = []int32{1}
	f.topics["orders"][2].leader = -1
	f.topics["orders"][3].adding = []int32{3} // is not missed yet
	f.topics["orders"][3].isr = []int32{1, 2}
	f.topics["orders"][4].leader = -1
	members := func(context.Context) ([]native.Member, error) {
		return []native.Member{{ID: 3, Voter: true}, {ID: 1, Voter: true, Leader: true}, {ID: 2, Voter: true}}, nil
	}
	o := operate(t, f, native.Membership{Members: members})
	h := o.get("/v1/cluster/health?limit=1")
	require.Equal(t, "unavailable", h["status"])
	require.Equal(t, []any{
		"2 partitions have no leader and can be neither read nor written until one of the replicas is back " +
			"(orders-2, orders-4)",
		"1 partition has fewer replicas in sync than min.insync.replicas wants, so acks=all is refused (orders-1)",
		"1 of 3 voters is away (3); the loss of one more stops all changes to topics and leaders",
		"broker 3 does not answer", "broker 2 is shutting down",
		"1 partition would refuse acks=all with one replica less (orders-0)",
		"2 partitions have a replica that is not in sync (orders-0, orders-1)",
	}, h["reasons"])
	o.shows(`{"leader":1,"voters":[1,2,3],"away":[3],"missing":[]}`, h["quorum"])
	p := h["partitions"].(map[string]any)
	o.shows(`{"count":2,"items":[{"topic":"orders","partition":2,"leader":-1,"replicas":[1,2,3],"isr":[1,2,3],
		"min_isr":2}]}`, p["offline"])
	f.controller = -1
	require.Contains(t, o.get("/v1/cluster")["reasons"].([]any)[0], "no controller")
	o.problem(o.send(http.MethodGet, "/v1/cluster/health?limit=0", ""), 400, "INVALID_PARAMETER")
}

// A node that was to vote and has no vote is told, unless another one votes in its place.
func TestHealthTellsOfMissingVoters(t *testing.T) {
	f := newFakeCluster(t, "", "", "", "")
	list := []native.Member{{ID: 3}, {ID: 1, Voter: true, Leader: true}, {ID: 2, Voter: true}, {ID: 4}}
	o := operate(t, f, native.Membership{
		Members: func(context.Context) ([]native.Member, error) { return list, nil }, Listed: []int32{1, 2, 3},
	})
	h := o.get("/v1/cluster/health")
	require.Equal(t, "degraded", h["status"])
	require.Equal(t, []any{"node 3 of --voters has no vote, and there are only 2 voters: wait until it has caught up if " +
		"its disk is new, else promote it or another node"}, h["reasons"])
	o.shows(`{"leader":1,"voters":[1,2],"away":[],"missing":[3]}`, h["quorum"])
	list[3].Voter = true
	h = o.get("/v1/cluster/health")
	require.Equal(t, "ok", h["status"])
	o.shows(`{"leader":1,"voters":[1,2,4],"away":[],"missing":[]}`, h["quorum"])
}

func TestListBrokers(t *testing.T) {
	f := newFakeCluster(t, "a", "b")
	f.topic("orders", []int32{1, 2}, []int32{2})
	f.brokers[2].fenced = true
	f.topics["orders"][0].isr = []int32{1}
	o := operate(t, f, native.Membership{})
	o.shows(`{"items":[
		{"id":1,"host":"h1","port":8082,"rack":"a","state":"active","controller":true,"leaders":1,"replicas":1,"in_sync":1,
		 "bytes":100,"disk_bytes":1000,"disk_free_bytes":400},
		{"id":2,"host":"h2","port":8082,"rack":"b","state":"fenced","controller":false,"leaders":1,"replicas":2,"in_sync":1,
		 "bytes":null,"disk_bytes":null,"disk_free_bytes":null}]}`, o.get("/v1/cluster/brokers"))
}

func TestDecommission(t *testing.T) {
	f := newFakeCluster(t, "", "")
	f.topic("orders", []int32{1, 2})
	o := operate(t, f, native.Membership{})
	p := o.problem(o.send(http.MethodDelete, "/v1/cluster/brokers/2", ""), 409, "CLUSTER_CONFLICT")
	require.Contains(t, p["detail"], "still holds 1 replica (orders-0)")
	require.Contains(t, p["detail"], "millrace cluster drain 2 --wait")
	f.topics["orders"][0].replicas = []int32{1}
	p = o.problem(o.send(http.MethodDelete, "/v1/cluster/brokers/2", ""), 409, "CLUSTER_CONFLICT")
	require.Contains(t, p["detail"], "stop its node first")
	f.brokers[2].fenced = true
	o.call(http.MethodDelete, "/v1/cluster/brokers/2", "", http.StatusNoContent, nil)
	require.Equal(t, []int32{2}, f.forgotten)
	o.problem(o.send(http.MethodDelete, "/v1/cluster/brokers/7", ""), 404, "BROKER_ID_NOT_REGISTERED")
	o.problem(o.send(http.MethodDelete, "/v1/cluster/brokers/x", ""), 400, "INVALID_PARAMETER")
}

func TestDrainSpreadsByLoadAndRack(t *testing.T) {
	f := newFakeCluster(t, "a", "b", "c", "c", "a")
	f.topic("orders", []int32{3, 1, 2}, []int32{1, 3, 2}, []int32{2, 1})
	f.topic("payments", []int32{4, 1}, []int32{3})
	o := operate(t, f, native.Membership{})
	plan := o.ask(http.MethodPost, "/v1/cluster/brokers/3/drain", `{"dry_run":true}`, http.StatusOK)
	// Rack c has but broker 4 to take its replicas; without racks in the way the emptiest broker does.
	o.shows(`{"broker":3,"dry_run":true,"count":3,"unmovable":{"count":0,"items":[]},"moves":[
		{"topic":"orders","partition":0,"replicas":[3,1,2],"to":[4,1,2]},
		{"topic":"orders","partition":1,"replicas":[1,3,2],"to":[1,4,2]},
		{"topic":"payments","partition":1,"replicas":[3],"to":[5]}]}`, plan)
	require.Empty(t, f.topics["orders"][0].adding, "a dry run moves nothing")

	o.ask(http.MethodPost, "/v1/cluster/brokers/3/drain", `{"throttle_bytes_per_second":1000}`, http.StatusAccepted)
	require.Equal(t, []int32{4, 1, 2, 3}, f.topics["orders"][0].replicas)
	require.Equal(t, []int32{3}, f.topics["payments"][1].removing)
	require.Equal(t, map[string]string{
		"leader.replication.throttled.replicas":   "0:3,0:1,0:2,1:1,1:3,1:2",
		"follower.replication.throttled.replicas": "0:4,1:4",
	}, f.configs[topicOrders])
	again := o.ask(http.MethodPost, "/v1/cluster/brokers/3/drain", `{}`, http.StatusAccepted)
	require.EqualValues(t, 0, again["count"], "what is under way is not planned anew")

	f.ends = map[int32]int64{3: 90, 4: 20, 5: 90}
	page := o.get("/v1/cluster/reassignments?limit=1")
	o.shows(`{"count":3,"throttle":{"bytes_per_second":1000},"items":[{"topic":"orders","partition":0,
		"replicas":[4,1,2,3],"adding":[4],"removing":[3],"leader":3,"isr":[3,1,2],"lags":[{"broker":4,"lag":70}]}]}`, page)

	o.call(http.MethodDelete, "/v1/cluster/throttle", "", http.StatusNoContent, nil)
	require.Empty(t, f.configs[topicOrders])
	require.Empty(t, f.configs[client.Resource{Type: client.BrokerResource}])
	o.shows(`{"count":1,"cancelled":[{"topic":"payments","partition":1}]}`,
		o.ask(http.MethodDelete, "/v1/cluster/reassignments/payments/1", "", http.StatusOK))
	o.shows(`{"count":0,"cancelled":[]}`,
		o.ask(http.MethodDelete, "/v1/cluster/reassignments/payments/1", "", http.StatusOK))
	o.shows(`{"count":2,"cancelled":[{"topic":"orders","partition":0},{"topic":"orders","partition":1}]}`,
		o.ask(http.MethodDelete, "/v1/cluster/reassignments", "", http.StatusOK))
	require.ElementsMatch(t, []int32{1, 2, 3}, f.topics["orders"][0].replicas)
	o.problem(o.send(http.MethodDelete, "/v1/cluster/reassignments/payments/7", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
}

func TestDrainRefusesWhatCannotMove(t *testing.T) {
	f := newFakeCluster(t, "", "", "")
	f.topic("orders", []int32{1, 2, 3}, []int32{3})
	o := operate(t, f, native.Membership{})
	p := o.problem(o.send(http.MethodPost, "/v1/cluster/brokers/3/drain", `{}`), 409, "CLUSTER_CONFLICT")
	require.Contains(t, p["detail"],
		"1 partition (orders-0) has nowhere to go, since there are 2 active brokers besides this one for 3 replicas")
	require.Empty(t, f.topics["orders"][1].adding, "all or nothing")
	plan := o.ask(http.MethodPost, "/v1/cluster/brokers/3/drain", `{"dry_run":true}`, http.StatusOK)
	require.EqualValues(t, 1, plan["count"])
	require.EqualValues(t, 1, plan["unmovable"].(map[string]any)["count"])
	o.problem(o.send(http.MethodPost, "/v1/cluster/brokers/9/drain", `{}`), 404, "BROKER_ID_NOT_REGISTERED")
	o.problem(o.send(http.MethodPost, "/v1/cluster/brokers/3/drain", `{"throttle_bytes_per_second":0}`), 400,
		"MALFORMED_BODY")
	o.problem(o.send(http.MethodPost, "/v1/cluster/brokers/3/drain", `{"dryrun":true}`), 422, "UNPROCESSABLE_BODY")
}

func TestStartReassignments(t *testing.T) {
	const path = "/v1/cluster/reassignments"
	f := newFakeCluster(t, "", "", "")
	f.topic("orders", []int32{1, 2}, []int32{2, 1})
	o := operate(t, f, native.Membership{})
	const one = `{"reassignments":[{"topic":"orders","partition":0,"replicas":[3,1]}]}`
	o.ask(http.MethodPost, path, one, http.StatusAccepted)
	require.Equal(t, []int32{3, 1, 2}, f.topics["orders"][0].replicas)
	f.refuse[client.TopicPartition{Topic: "orders", Partition: 1}] = kerr.InvalidReplicaAssignment
	p := o.problem(o.send(http.MethodPost, path, `{"reassignments":[{"topic":"orders","partition":0,"replicas":[1]},
		{"topic":"orders","partition":1,"replicas":[1]}]}`), 400, "INVALID_REPLICA_ASSIGNMENT")
	require.Equal(t, "partial", p["outcome"])
	results := p["results"].([]any)
	require.Len(t, results, 2)
	o.shows(`{"topic":"orders","partition":0}`, results[0])
	require.EqualValues(t, 40002, results[1].(map[string]any)["error_code"])
	for body, want := range map[string]string{
		`{"reassignments":[]}`: "400 MALFORMED_BODY",
		`{}`:                   "400 MALFORMED_BODY",
		`{"reassignments":[{"topic":"orders","replicas":[1]}]}`:                 "400 MALFORMED_BODY",
		`{"reassignments":[{"topic":"orders","partition":0}]}`:                  "400 MALFORMED_BODY",
		`{"reassignments":[{"topic":"orders","partition":0,"replicas":[9]}]}`:   "400 INVALID_REPLICA_ASSIGNMENT",
		`{"reassignments":[{"topic":"orders","partition":0,"replicas":[1,1]}]}`: "400 INVALID_REPLICA_ASSIGNMENT",
		`{"reassignments":[{"topic":"orders","partition":7,"replicas":[1]}]}`:   "404 UNKNOWN_TOPIC_OR_PARTITION",
		`{"reassignments":[{"topic":"nobody","partition":0,"replicas":[1]}]}`:   "404 UNKNOWN_TOPIC_OR_PARTITION",
	} {
		var status int
		var name string
		_, err := fmt.Sscan(want, &status, &name)
		require.NoError(t, err)
		o.problem(o.send(http.MethodPost, path, body), status, name)
	}
}

func TestElectLeaders(t *testing.T) {
	const path = "/v1/cluster/leader-elections"
	f := newFakeCluster(t, "", "")
	f.topic("orders", []int32{1, 2}, []int32{1, 2}, []int32{1, 2}, []int32{1, 2})
	f.topics["orders"][1].leader = 2
	f.topics["orders"][2].leader, f.topics["orders"][2].isr = 2, []int32{2}
	f.topics["orders"][3].leader, f.topics["orders"][3].isr = -1, []int32{2}
	o := operate(t, f, native.Membership{})
	o.shows(`{"count":1,"elected":[{"topic":"orders","partition":1}],"unchanged":3}`,
		o.ask(http.MethodPost, path, `{}`, http.StatusOK))
	o.problem(o.send(http.MethodPost, path, `{"partitions":[{"topic":"orders","partition":2}]}`), 503,
		"PREFERRED_LEADER_NOT_AVAILABLE")
	p := o.problem(o.send(http.MethodPost, path, `{"unclean":true}`), 400, "MALFORMED_BODY")
	require.Contains(t, p["detail"], "name the partitions")
	o.shows(`{"count":1,"elected":[{"topic":"orders","partition":3}],"unchanged":1}`, o.ask(http.MethodPost, path,
		`{"unclean":true,"partitions":[{"topic":"orders","partition":3},{"topic":"orders","partition":2}]}`, http.StatusOK))
	o.problem(o.send(http.MethodPost, path, `{"partitions":[{"topic":"nobody","partition":0}]}`), 404,
		"UNKNOWN_TOPIC_OR_PARTITION")
	o.problem(o.send(http.MethodPost, path, `{"partitions":[]}`), 400, "MALFORMED_BODY")
}

func TestMembers(t *testing.T) {
	var did []string
	list := []native.Member{
		{ID: 2, URL: "http://h2:8082", LastContact: time.UnixMilli(1767323045678)},
		{ID: 1, URL: "http://h1:8082", Voter: true, Leader: true},
	}
	note := func(what string) func(context.Context, int32) error {
		return func(_ context.Context, id int32) error {
			if id == 9 {
				return &native.MembershipError{Status: 404, Detail: "node 9 is no member"}
			}
			did = append(did, fmt.Sprint(what, " ", id))
			return nil
		}
	}
	m := native.Membership{
		Members: func(context.Context) ([]native.Member, error) { return list, nil },
		Add: func(_ context.Context, id int32, url string) error {
			list = append(list, native.Member{ID: id, URL: url})
			return nil
		},
		Promote: note("promote"), Remove: note("remove"), Transfer: note("transfer"),
		Demote: func(context.Context, int32) error {
			return &native.MembershipError{Status: 409, Detail: "1 is the last voter: promote another first"}
		},
	}
	o := operate(t, newFakeCluster(t, ""), m)
	o.shows(`{"items":[{"id":1,"url":"http://h1:8082","voter":true,"leader":true,"last_contact":null},
		{"id":2,"url":"http://h2:8082","voter":false,"leader":false,"last_contact":"2026-01-02T03:04:05.678Z"}]}`,
		o.get("/v1/cluster/members"))
	o.shows(`{"id":4,"url":"http://h4:8082","voter":false,"leader":false,"last_contact":null}`,
		o.ask(http.MethodPost, "/v1/cluster/members", `{"id":4,"url":"http://h4:8082"}`, http.StatusCreated))
	for _, bad := range []string{
		`{"id":4}`, `{"url":"http://h4:8082"}`, `{"id":0,"url":"http://h4:8082"}`, `{"id":4,"url":"h4:8082"}`,
		`{"id":4,"url":"http://h4:8082/v1"}`, `{"id":4,"url":"ftp://h4:8082"}`, `{"id":4,"url":"http://u:p@h4:8082"}`,
	} {
		o.problem(o.send(http.MethodPost, "/v1/cluster/members", bad), 400, "MALFORMED_BODY")
	}
	o.call(http.MethodPost, "/v1/cluster/members/2/promote", "", http.StatusNoContent, nil)
	o.call(http.MethodDelete, "/v1/cluster/members/2", "", http.StatusNoContent, nil)
	o.call(http.MethodPost, "/v1/cluster/leadership:transfer", `{}`, http.StatusNoContent, nil)
	o.call(http.MethodPost, "/v1/cluster/leadership:transfer", `{"to":2}`, http.StatusNoContent, nil)
	require.Equal(t, []string{"promote 2", "remove 2", "transfer -1", "transfer 2"}, did)
	p := o.problem(o.send(http.MethodPost, "/v1/cluster/members/1/demote", ""), 409, "CLUSTER_CONFLICT")
	require.Contains(t, p["detail"], "promote another first")
	o.problem(o.send(http.MethodPost, "/v1/cluster/members/9/promote", ""), 404, "NO_SUCH_MEMBER")
	o.problem(o.send(http.MethodDelete, "/v1/cluster/members/x", ""), 400, "INVALID_PARAMETER")
}

func TestMembersWithoutAQuorum(t *testing.T) {
	o := operate(t, newFakeCluster(t, ""), native.Membership{})
	for _, c := range [][3]string{
		{"GET", "/v1/cluster/members", ""}, {"POST", "/v1/cluster/members", `{"id":4,"url":"http://h4:8082"}`},
		{"DELETE", "/v1/cluster/members/1", ""}, {"POST", "/v1/cluster/members/1/promote", ""},
		{"POST", "/v1/cluster/members/1/demote", ""}, {"POST", "/v1/cluster/leadership:transfer", `{}`},
	} {
		o.problem(o.send(c[0], c[1], c[2]), 503, "MEMBERSHIP_UNAVAILABLE")
	}
}
