package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/servertest"
)

// fakeBroker is a broker of a fakeCluster.
type fakeBroker struct {
	rack             string
	fenced, shutting bool
}

// fakePartition is a partition of a fakeCluster.
type fakePartition struct {
	leader                          int32
	replicas, isr, adding, removing []int32
}

// fakeCluster is a Requestor that answers what operating a cluster asks, from maps that a test fills.
type fakeCluster struct {
	t          *testing.T
	mu         sync.Mutex
	controller int32
	brokers    map[int32]*fakeBroker
	topics     map[string][]*fakePartition
	configs    map[client.Resource]map[string]string
	ends       map[int32]int64 // log end offset by broker, of every partition
	refuse     map[client.TopicPartition]*kerr.Error
	forgotten  []int32
}

func newFakeCluster(t *testing.T, racks ...string) *fakeCluster {
	f := &fakeCluster{
		t: t, controller: 1, brokers: map[int32]*fakeBroker{}, topics: map[string][]*fakePartition{},
		configs: map[client.Resource]map[string]string{}, ends: map[int32]int64{},
		refuse: map[client.TopicPartition]*kerr.Error{},
	}
	for i, rack := range racks {
		f.brokers[int32(i+1)] = &fakeBroker{rack: rack}
	}
	return f
}

// topic adds a topic whose partitions have these replicas, all in sync and led by the first.
func (f *fakeCluster) topic(name string, partitions ...[]int32) {
	for _, replicas := range partitions {
		f.topics[name] = append(f.topics[name], &fakePartition{
			leader: replicas[0], replicas: replicas, isr: slices.Clone(replicas),
		})
	}
}

// Request makes every message travel as between nodes.
func (f *fakeCluster) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return servertest.Coded(f.t, answerer{f}).Request(ctx, req)
}

type answerer struct{ f *fakeCluster }

func (a answerer) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	f := a.f
	f.mu.Lock()
	defer f.mu.Unlock()
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		return f.metadata(req), nil
	case *kmsg.DescribeClusterRequest:
		return f.describe(req), nil
	case *kmsg.DescribeConfigsRequest:
		return f.describeConfigs(req), nil
	case *kmsg.IncrementalAlterConfigsRequest:
		return f.alterConfigs(req), nil
	case *kmsg.ListPartitionReassignmentsRequest:
		return f.reassignments(), nil
	case *kmsg.AlterPartitionAssignmentsRequest:
		return f.reassign(req), nil
	case *kmsg.ElectLeadersRequest:
		return f.elect(req), nil
	case *kmsg.DescribeQuorumRequest:
		return f.quorum(req), nil
	case *kmsg.DescribeLogDirsRequest:
		return f.logDirs(req), nil
	case *kmsg.UnregisterBrokerRequest:
		f.forgotten = append(f.forgotten, req.BrokerID)
		return kmsg.NewPtrUnregisterBrokerResponse(), nil
	}
	return nil, fmt.Errorf("nobody serves %s", kmsg.NameForKey(req.Key()))
}

func (f *fakeCluster) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ControllerID = f.controller
	for name, partitions := range f.topics {
		asked := req.Topics == nil || slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
			return *t.Topic == name
		})
		if !asked {
			continue
		}
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = &name, [16]byte{1}
		for i, p := range partitions {
			out := kmsg.NewMetadataResponseTopicPartition()
			out.Partition, out.Leader, out.Replicas, out.ISR = int32(i), p.leader, p.replicas, p.isr
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (f *fakeCluster) describe(req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	resp.ClusterID, resp.ControllerID = "fake", f.controller
	for id, b := range f.brokers {
		out := kmsg.NewDescribeClusterResponseBroker()
		out.NodeID, out.Host, out.Port, out.IsFenced = id, "h"+strconv.Itoa(int(id)), 8082, b.fenced
		if b.rack != "" {
			out.Rack = &b.rack
		}
		if b.shutting {
			ktag.SetShuttingDown(&out.UnknownTags)
		}
		resp.Brokers = append(resp.Brokers, out)
	}
	return resp
}

func (f *fakeCluster) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, r := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		owner := client.Resource{Type: client.ResourceType(r.ResourceType), Name: r.ResourceName}
		for _, name := range r.ConfigNames {
			k := kmsg.NewDescribeConfigsResponseResourceConfig()
			k.Name, k.Source = name, kmsg.ConfigSourceDefaultConfig
			if v, ok := f.configs[owner][name]; ok {
				k.Value, k.Source = &v, kmsg.ConfigSourceDynamicTopicConfig
				if owner.Type == client.BrokerResource {
					k.Source = kmsg.ConfigSourceDynamicDefaultBrokerConfig
				}
			}
			out.Configs = append(out.Configs, k)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (f *fakeCluster) alterConfigs(req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	for _, r := range req.Resources {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		owner := client.Resource{Type: client.ResourceType(r.ResourceType), Name: r.ResourceName}
		if f.configs[owner] == nil {
			f.configs[owner] = map[string]string{}
		}
		for _, c := range r.Configs {
			if c.Op == kmsg.IncrementalAlterConfigOpDelete {
				delete(f.configs[owner], c.Name)
			} else {
				f.configs[owner][c.Name] = *c.Value
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (f *fakeCluster) reassignments() kmsg.Response {
	if f.controller < 0 {
		f.t.Error("a node would now look for a controller for as long as an election may take")
	}
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	for name, partitions := range f.topics {
		t := kmsg.NewListPartitionReassignmentsResponseTopic()
		t.Topic = name
		for i, p := range partitions {
			if len(p.adding)+len(p.removing) == 0 {
				continue
			}
			out := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			out.Partition, out.Replicas, out.AddingReplicas, out.RemovingReplicas = int32(i), p.replicas, p.adding, p.removing
			t.Partitions = append(t.Partitions, out)
		}
		if t.Partitions != nil {
			resp.Topics = append(resp.Topics, t)
		}
	}
	return resp
}

func (f *fakeCluster) reassign(req *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	for _, rt := range req.Topics {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			out := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			out.Partition = rp.Partition
			p := f.topics[rt.Topic][rp.Partition]
			switch err := f.refuse[client.TopicPartition{Topic: rt.Topic, Partition: rp.Partition}]; {
			case err != nil:
				out.ErrorCode = err.Code
			case rp.Replicas != nil:
				p.assign(rp.Replicas)
			case len(p.adding)+len(p.removing) == 0:
				out.ErrorCode = kerr.NoReassignmentInProgress.Code
			default:
				p.replicas = slices.DeleteFunc(p.replicas, func(id int32) bool { return slices.Contains(p.adding, id) })
				p.adding, p.removing = nil, nil
			}
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (p *fakePartition) assign(target []int32) {
	without := func(all, but []int32) []int32 {
		return slices.DeleteFunc(slices.Clone(all), func(id int32) bool { return slices.Contains(but, id) })
	}
	current := without(p.replicas, p.adding)
	p.adding, p.removing = without(target, current), without(current, target)
	p.replicas = slices.Concat(target, p.removing)
}

func (f *fakeCluster) elect(req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	for name, partitions := range f.topics {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = name
		for i, p := range partitions {
			asked := req.Topics == nil || slices.ContainsFunc(req.Topics, func(t kmsg.ElectLeadersRequestTopic) bool {
				return t.Topic == name && slices.Contains(t.Partitions, int32(i))
			})
			if !asked {
				continue
			}
			out := kmsg.NewElectLeadersResponseTopicPartition()
			out.Partition = int32(i)
			switch first := p.replicas[0]; {
			case p.leader == first || req.ElectionType == 1 && p.leader >= 0:
				out.ErrorCode = kerr.ElectionNotNeeded.Code
			case req.ElectionType == 0 && !slices.Contains(p.isr, first):
				out.ErrorCode = kerr.PreferredLeaderNotAvailable.Code
			default:
				p.leader = first
			}
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (f *fakeCluster) quorum(req *kmsg.DescribeQuorumRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Version = req.Version
	for _, rt := range req.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := f.topics[rt.Topic][rp.Partition]
			out := kmsg.NewDescribeQuorumResponseTopicPartition()
			out.Partition, out.LeaderID = rp.Partition, p.leader
			for _, id := range p.replicas {
				s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
				s.ReplicaID, s.LogEndOffset = id, f.ends[id]
				if slices.Contains(p.isr, id) {
					out.CurrentVoters = append(out.CurrentVoters, s)
				} else {
					out.Observers = append(out.Observers, s)
				}
			}
			t.Partitions = append(t.Partitions, out)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (f *fakeCluster) logDirs(req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = req.Version
	id, _ := ktag.Broker(&req.UnknownTags)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.TotalBytes, dir.UsableBytes = 1000, 400
	t := kmsg.NewDescribeLogDirsResponseDirTopic()
	t.Topic = "any"
	p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	p.Size = 100 * int64(id)
	t.Partitions = append(t.Partitions, p)
	dir.Topics = append(dir.Topics, t)
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// operator is a server of /v1 on a fakeCluster.
type operator struct {
	*writes
	f *fakeCluster
}

func operate(t *testing.T, f *fakeCluster, m native.Membership) *operator {
	t.Helper()
	c := client.New(f, client.Options{MetadataTTL: 1})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: c, Membership: m})
	t.Cleanup(s.Close)
	srv := httptest.NewServer(api.NewRouter(edge, s.Mount))
	t.Cleanup(srv.Close)
	return &operator{&writes{t: t, client: c, server: srv, http: srv.Client()}, f}
}

// get reads a JSON answer.
func (o *operator) get(path string) map[string]any {
	o.t.Helper()
	return o.ask(http.MethodGet, path, "", http.StatusOK)
}

// ask sends JSON and reads a JSON answer.
func (o *operator) ask(method, path, body string, status int) map[string]any {
	o.t.Helper()
	out := map[string]any{}
	o.call(method, path, body, status, &out)
	return out
}

// shows requires a part of an answer to be this JSON.
func (o *operator) shows(want string, got any) {
	o.t.Helper()
	text, err := json.Marshal(got)
	require.NoError(o.t, err)
	require.JSONEq(o.t, want, string(text))
}
