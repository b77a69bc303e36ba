package native

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/api"
	"millrace/client"
)

// The verdicts of a health report.
const (
	healthOK          HealthStatus = "ok"
	healthDegraded    HealthStatus = "degraded"
	healthUnavailable HealthStatus = "unavailable"
)

// minInsyncReplicas is the topic config that says how many replicas acks=all needs.
const minInsyncReplicas = "min.insync.replicas"

// reassignmentsWait is how long a report waits for the reassignments, which only the controller knows.
const reassignmentsWait = 2 * time.Second

// clusterView is what is known of a cluster at one moment.
type clusterView struct {
	state  *client.ClusterState
	topics []*client.Topic
	// moving are the partitions whose replicas are being changed.
	moving map[client.TopicPartition]client.Reassignment
	// minISR is min.insync.replicas by topic; 1 for a topic that is not in it.
	minISR map[string]int
	// members is nil if they cannot be told.
	members []Member
	// listed are the nodes that were to vote from the first.
	listed []int32
}

// view asks for all that a health report is made from. What a cluster cannot tell beyond brokers and topics, such as
// its reassignments, is left out.
func (s *Server) view(ctx context.Context) (*clusterView, error) {
	state, err := s.client.ClusterState(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	v := &clusterView{state: state, topics: topics, minISR: map[string]int{}}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	settings, err := s.client.TopicSetting(ctx, names, minInsyncReplicas)
	if err != nil {
		return nil, err
	}
	for topic, k := range settings {
		if k.Value == nil {
			continue
		}
		if n, err := strconv.Atoi(*k.Value); err == nil {
			v.minISR[topic] = n
		}
	}
	v.moving = s.moving(ctx, state)
	v.members, _ = s.members(ctx)
	v.listed = s.membership.Listed
	return v, nil
}

// moving are the reassignments under way, none if the controller does not tell them soon: whoever asks how a cluster
// is that has no controller should not wait for one.
func (s *Server) moving(ctx context.Context, state *client.ClusterState) map[client.TopicPartition]client.Reassignment {
	if state.Controller < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reassignmentsWait)
	defer cancel()
	moving, err := s.client.Reassignments(ctx)
	if err != nil {
		return nil
	}
	out := make(map[client.TopicPartition]client.Reassignment, len(moving))
	for _, r := range moving {
		out[r.TopicPartition] = r
	}
	return out
}

// GetCluster describes the cluster in short.
func (s *Server) GetCluster(ctx context.Context, _ GetClusterRequestObject) (GetClusterResponseObject, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	h := v.assess(0)
	return GetCluster200JSONResponse{
		ClusterId: v.state.ID, Controller: h.Controller, QuorumLeader: h.Quorum.Leader, Brokers: h.Brokers,
		Topics: int32(len(v.topics)), Partitions: h.Partitions.Total, Status: h.Status, Reasons: h.Reasons,
	}, nil
}

// GetClusterHealth tells whether all is well.
func (s *Server) GetClusterHealth(ctx context.Context, req GetClusterHealthRequestObject) (
	GetClusterHealthResponseObject, error,
) {
	limit, err := pageLimit(req.Params.Limit)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return GetClusterHealth200JSONResponse(v.assess(limit)), nil
}

// pageLimit reads the parameter limit.
func pageLimit(limit *int32) (int, error) {
	if limit == nil {
		return defaultLimit, nil
	}
	if *limit < 1 || *limit > maxLimit {
		return 0, api.Refuse(api.InvalidParameter, "limit is 1 to %d, not %d", maxLimit, *limit)
	}
	return int(*limit), nil
}

// findings are the partitions that something is wrong with, by what it is.
type findings struct {
	offline, underMin, atMin, underReplicated []PartitionHealth
}

// assess makes the report; its lists hold so many partitions at most.
func (v *clusterView) assess(limit int) ClusterHealth {
	out := ClusterHealth{
		Status: healthOK, Reasons: []string{}, Controller: v.state.Controller, Quorum: v.quorum(), Brokers: v.brokers(),
	}
	f := v.findings()
	for _, t := range v.topics {
		out.Partitions.Total += int32(len(t.Partitions))
	}
	out.Partitions.Offline = bounded(f.offline, limit)
	out.Partitions.UnderMinIsr = bounded(f.underMin, limit)
	out.Partitions.AtMinIsr = bounded(f.atMin, limit)
	out.Partitions.UnderReplicated = bounded(f.underReplicated, limit)
	for _, r := range reasons(&out, &f) {
		out.Reasons = append(out.Reasons, r.text)
		if r.status == healthUnavailable || out.Status == healthOK {
			out.Status = r.status
		}
	}
	return out
}

// reason is one thing that is not as it should be.
type reason struct {
	status HealthStatus
	text   string
}

// reasons lists what is wrong, the worst first.
func reasons(h *ClusterHealth, f *findings) (out []reason) {
	say := func(status HealthStatus, format string, args ...any) {
		out = append(out, reason{status, fmt.Sprintf(format, args...)})
	}
	if h.Controller < 0 {
		say(healthUnavailable, "there is no controller: topics and leaders cannot be changed until a majority of the voters "+
			"is up")
	}
	if n := len(f.offline); n > 0 {
		say(healthUnavailable, "%s no leader and can be neither read nor written until one of the replicas is back (%s)",
			count(n, "partition has", "partitions have"), examples(f.offline))
	}
	if n := len(f.underMin); n > 0 {
		say(healthUnavailable, "%s fewer replicas in sync than %s wants, so acks=all is refused (%s)",
			count(n, "partition has", "partitions have"), minInsyncReplicas, examples(f.underMin))
	}
	if away := h.Quorum.Away; len(away) > 0 && h.Controller >= 0 {
		left := len(h.Quorum.Voters)/2 - len(away)
		say(healthDegraded, "%s of %d voters %s away (%s); %s", strconv.Itoa(len(away)), len(h.Quorum.Voters),
			isAre(len(away)), idList(away), losses(left))
	}
	if ids := h.Quorum.Missing; len(ids) > 0 {
		say(healthDegraded, "node %s of --voters %s no vote, and there %s only %s: wait until it has caught up if its disk "+
			"is new, else promote it or another node", idList(ids), hasHave(len(ids)), isAre(len(h.Quorum.Voters)),
			count(len(h.Quorum.Voters), "voter", "voters"))
	}
	if ids := h.Brokers.Fenced; len(ids) > 0 {
		say(healthDegraded, "%s %s not answer", brokersNamed(ids), doDoes(len(ids)))
	}
	if ids := h.Brokers.ShuttingDown; len(ids) > 0 {
		say(healthDegraded, "%s %s shutting down", brokersNamed(ids), isAre(len(ids)))
	}
	if n := len(f.atMin); n > 0 {
		say(healthDegraded, "%s refuse acks=all with one replica less (%s)",
			count(n, "partition would", "partitions would"), examples(f.atMin))
	}
	if n := len(f.underReplicated); n > 0 {
		say(healthDegraded, "%s a replica that is not in sync (%s)",
			count(n, "partition has", "partitions have"), examples(f.underReplicated))
	}
	return out
}

// losses says what a quorum can bear.
func losses(left int) string {
	if left <= 0 {
		return "the loss of one more stops all changes to topics and leaders"
	}
	return "the loss of " + strconv.Itoa(left) + " more can be borne"
}

// quorum tells of the voters. A cluster whose members cannot be told has the controller for its leader.
func (v *clusterView) quorum() QuorumHealth {
	out := QuorumHealth{Leader: v.state.Controller, Voters: []int32{}, Away: []int32{}, Missing: []int32{}}
	if v.members != nil {
		out.Leader = -1
	}
	for _, m := range v.members {
		if m.Leader {
			out.Leader = m.ID
		}
		if !m.Voter {
			continue
		}
		out.Voters = append(out.Voters, m.ID)
		if b := v.state.Broker(m.ID); b == nil || b.Fenced {
			out.Away = append(out.Away, m.ID)
		}
	}
	if v.members != nil && len(out.Voters) < len(v.listed) {
		for _, id := range v.listed {
			if !slices.Contains(out.Voters, id) {
				out.Missing = append(out.Missing, id)
			}
		}
	}
	return out
}

func (v *clusterView) brokers() BrokerCounts {
	out := BrokerCounts{Registered: int32(len(v.state.Brokers)), Fenced: []int32{}, ShuttingDown: []int32{}}
	for i := range v.state.Brokers {
		switch b := &v.state.Brokers[i]; {
		case b.Fenced:
			out.Fenced = append(out.Fenced, b.ID)
		case b.ShuttingDown:
			out.ShuttingDown = append(out.ShuttingDown, b.ID)
		default:
			out.Active++
		}
	}
	return out
}

// findings sorts the partitions that something is wrong with. A replica that a reassignment adds is not missed yet.
func (v *clusterView) findings() findings {
	var out findings
	for _, t := range v.topics {
		least, known := v.minISR[t.Name]
		if !known {
			least = 1
		}
		for i := range t.Partitions {
			p := &t.Partitions[i]
			h := PartitionHealth{
				Topic: t.Name, Partition: int32(i), Leader: p.Leader, Replicas: listOf(p.Replicas), Isr: listOf(p.ISR),
				MinIsr: int32(least),
			}
			adding := v.moving[client.TopicPartition{Topic: t.Name, Partition: int32(i)}].Adding
			missing := slices.ContainsFunc(p.Replicas, func(id int32) bool {
				return !slices.Contains(p.ISR, id) && !slices.Contains(adding, id)
			})
			if missing {
				out.underReplicated = append(out.underReplicated, h)
			}
			switch {
			case p.Leader < 0:
				out.offline = append(out.offline, h)
			case len(p.ISR) < least:
				out.underMin = append(out.underMin, h)
			case len(p.ISR) == least && missing:
				out.atMin = append(out.atMin, h)
			}
		}
	}
	return out
}

// listOf is the list itself, never null in JSON.
func listOf(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

func bounded(all []PartitionHealth, limit int) PartitionHealthList {
	out := PartitionHealthList{Count: int32(len(all)), Items: []PartitionHealth{}}
	out.Items = append(out.Items, all[:min(len(all), limit)]...)
	return out
}

// examples names the first few partitions of a list.
func examples(all []PartitionHealth) string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = client.TopicPartition{Topic: p.Topic, Partition: p.Partition}.String()
	}
	return firstFew(names)
}

// firstFew joins the first three of a list and tells how many more there are.
func firstFew(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " and " + strconv.Itoa(len(names)-few) + " more"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func hasHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func doDoes(n int) string {
	if n == 1 {
		return "does"
	}
	return "do"
}

func brokersNamed(ids []int32) string {
	if len(ids) == 1 {
		return "broker " + strconv.Itoa(int(ids[0]))
	}
	return "brokers " + idList(ids)
}

// idList is "1, 2, 3".
func idList(ids []int32) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	return strings.Join(text, ", ")
}
