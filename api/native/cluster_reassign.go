package native

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// UnmarshalJSON reads the body strictly.
func (r *ReassignmentRequest) UnmarshalJSON(b []byte) error {
	type plain ReassignmentRequest
	return api.Decode(b, (*plain)(r))
}

// UnmarshalJSON reads a part of the body whose fields must all be there, since 0 is a partition too.
func (r *ReplicaAssignment) UnmarshalJSON(b []byte) error {
	var named struct {
		Topic     *string `json:"topic"`
		Partition *int32  `json:"partition"`
		Replicas  []int32 `json:"replicas"`
	}
	if err := api.Decode(b, &named); err != nil {
		return err
	}
	switch {
	case named.Topic == nil:
		return api.Required("reassignments.topic")
	case named.Partition == nil:
		return api.Required("reassignments.partition")
	case len(named.Replicas) == 0:
		return api.Required("reassignments.replicas")
	}
	*r = ReplicaAssignment{Topic: *named.Topic, Partition: *named.Partition, Replicas: named.Replicas}
	return nil
}

// UnmarshalJSON reads a part of a body that names a partition.
func (p *PartitionRef) UnmarshalJSON(b []byte) error {
	var named struct {
		Topic     *string `json:"topic"`
		Partition *int32  `json:"partition"`
	}
	if err := api.Decode(b, &named); err != nil {
		return err
	}
	switch {
	case named.Topic == nil:
		return api.Required("partitions.topic")
	case named.Partition == nil:
		return api.Required("partitions.partition")
	}
	*p = PartitionRef{Topic: *named.Topic, Partition: *named.Partition}
	return nil
}

// throttleRate reads a throttle; 0 is none.
func throttleRate(rate *ThrottleRate) (int64, error) {
	switch {
	case rate == nil:
		return 0, nil
	case *rate < 1:
		return 0, api.Refuse(api.MalformedBody, "throttle_bytes_per_second is at least 1, not %d", *rate)
	}
	return *rate, nil
}

// StartReassignments gives partitions new replicas.
func (s *Server) StartReassignments(ctx context.Context, req StartReassignmentsRequestObject) (
	StartReassignmentsResponseObject, error,
) {
	rate, err := throttleRate(req.Body.ThrottleBytesPerSecond)
	if err != nil {
		return nil, err
	}
	moves, err := s.movesOf(ctx, req.Body.Reassignments)
	if err != nil {
		return nil, err
	}
	if err := s.move(ctx, moves, rate); err != nil {
		return nil, err
	}
	return StartReassignments202JSONResponse{Items: req.Body.Reassignments}, nil
}

// movesOf checks a request against the cluster as it is.
func (s *Server) movesOf(ctx context.Context, wanted []ReplicaAssignment) ([]plannedMove, error) {
	if len(wanted) == 0 {
		return nil, api.Required("reassignments")
	}
	if len(wanted) > maxListed {
		return nil, api.Refuse(api.MalformedBody, "reassignments has %d items; at most %d go at once", len(wanted), maxListed)
	}
	state, err := s.client.ClusterState(ctx)
	if err != nil {
		return nil, err
	}
	var moves []plannedMove
	for _, w := range wanted {
		t, err := s.client.Topic(ctx, w.Topic, client.Refuse)
		if err != nil {
			return nil, err
		}
		if err := t.Has(w.Partition); err != nil {
			return nil, err
		}
		at := client.TopicPartition{Topic: w.Topic, Partition: w.Partition}
		if slices.ContainsFunc(moves, func(m plannedMove) bool { return m.TopicPartition == at }) {
			return nil, api.Refuse(api.MalformedBody, "%s is there twice", at)
		}
		for i, id := range w.Replicas {
			if state.Broker(id) == nil {
				return nil, invalidAssignment(at, registered(state, id))
			}
			if slices.Contains(w.Replicas[:i], id) {
				return nil, invalidAssignment(at, api.Refuse(api.MalformedBody, "broker %d is there twice", id))
			}
		}
		moves = append(moves, plannedMove{at, t.Partitions[w.Partition].Replicas, w.Replicas})
	}
	return moves, nil
}

func invalidAssignment(at client.TopicPartition, why error) error {
	return client.Fault(kerr.InvalidReplicaAssignment, "the replicas of %s: %s", at, api.FromError(why).Detail)
}

// move starts reassignments, throttled if rate is not 0.
func (s *Server) move(ctx context.Context, moves []plannedMove, rate int64) error {
	if len(moves) == 0 {
		return nil
	}
	if rate > 0 {
		if err := s.setThrottle(ctx, moves, rate); err != nil {
			return err
		}
	}
	requests := make([]client.Move, len(moves))
	for i, m := range moves {
		requests[i] = client.Move{TopicPartition: m.TopicPartition, Replicas: m.to}
	}
	results := make([]change, len(moves))
	for i, err := range s.client.Reassign(ctx, requests) {
		results[i] = change{moves[i].TopicPartition, err}
	}
	return failureOf(results)
}

// change is one partition's part of a request that changes several.
type change struct {
	at  client.TopicPartition
	err error
}

// failureOf is the answer when a part of the changes failed, nil when none did. An outcome that is not known comes
// before one that is.
func failureOf(changes []change) error {
	var first error
	done := 0
	results := make([]ChangeResult, 0, min(len(changes), maxListed))
	for _, c := range changes {
		r := ChangeResult{Topic: c.at.Topic, Partition: c.at.Partition}
		if c.err != nil {
			e := api.FromError(c.err)
			code, detail := int32(e.Fault.Code), e.Text()
			r.ErrorCode, r.Detail = &code, &detail
			if first == nil || e.Fault.Outcome == api.Unknown && api.FromError(first).Fault.Outcome != api.Unknown {
				first = c.err
			}
		} else {
			done++
		}
		if len(results) < maxListed {
			results = append(results, r)
		}
	}
	if first == nil {
		return nil
	}
	e := api.FromError(first)
	if len(changes) == 1 {
		return e
	}
	if done > 0 && e.Fault.Outcome != api.Unknown {
		e.Overrule(api.Partial)
	}
	return e.With("results", results)
}

// ListReassignments lists what is under way, with the lag of new replicas.
func (s *Server) ListReassignments(ctx context.Context, req ListReassignmentsRequestObject) (
	ListReassignmentsResponseObject, error,
) {
	limit, err := pageLimit(req.Params.Limit)
	if err != nil {
		return nil, err
	}
	all, err := s.client.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	out := ListReassignments200JSONResponse{Count: int32(len(all)), Items: []ReassignmentProgress{}}
	out.Throttle = s.throttle(ctx)
	if len(all) == 0 {
		return out, nil
	}
	shown := all[:min(len(all), limit)]
	topics, err := s.topicsByName(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make([]client.TopicPartition, len(shown))
	for i := range shown {
		partitions[i] = shown[i].TopicPartition
	}
	states, err := s.client.ReplicaStates(ctx, partitions)
	for i := range shown {
		var state *client.PartitionReplicas
		if err == nil {
			state = &states[i]
		}
		out.Items = append(out.Items, progressOf(&shown[i], topics[shown[i].Topic], state))
	}
	return out, nil
}

// topicsByName lists all topics.
func (s *Server) topicsByName(ctx context.Context) (map[string]*client.Topic, error) {
	topics, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*client.Topic, len(topics))
	for _, t := range topics {
		out[t.Name] = t
	}
	return out, nil
}

// progressOf tells how far a reassignment is. What the topic or the leader does not tell is left open.
func progressOf(r *client.Reassignment, t *client.Topic, state *client.PartitionReplicas) ReassignmentProgress {
	out := ReassignmentProgress{
		Topic: r.Topic, Partition: r.Partition, Replicas: listOf(r.Replicas), Adding: listOf(r.Adding),
		Removing: listOf(r.Removing), Leader: -1, Isr: []int32{}, Lags: []ReplicaLag{},
	}
	if t != nil && t.Has(r.Partition) == nil {
		p := &t.Partitions[r.Partition]
		out.Leader, out.Isr = p.Leader, listOf(p.ISR)
	}
	for _, id := range r.Adding {
		l := ReplicaLag{Broker: id}
		if state != nil {
			if lag, ok := state.Lag(id); ok {
				l.Lag = &lag
			}
		}
		out.Lags = append(out.Lags, l)
	}
	return out
}

// CancelReassignments cancels all that is under way.
func (s *Server) CancelReassignments(ctx context.Context, _ CancelReassignmentsRequestObject) (
	CancelReassignmentsResponseObject, error,
) {
	all, err := s.client.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make([]client.TopicPartition, len(all))
	for i := range all {
		partitions[i] = all[i].TopicPartition
	}
	out, err := s.cancel(ctx, partitions)
	return CancelReassignments200JSONResponse(out), err
}

// CancelReassignment cancels a partition's.
func (s *Server) CancelReassignment(ctx context.Context, req CancelReassignmentRequestObject) (
	CancelReassignmentResponseObject, error,
) {
	t, err := s.client.Topic(ctx, req.Topic, client.Refuse)
	if err != nil {
		return nil, err
	}
	if err := t.Has(req.Partition); err != nil {
		return nil, err
	}
	out, err := s.cancel(ctx, []client.TopicPartition{{Topic: req.Topic, Partition: req.Partition}})
	return CancelReassignment200JSONResponse(out), err
}

// cancel cancels the reassignments of partitions; one that is over already counts as nothing.
func (s *Server) cancel(ctx context.Context, partitions []client.TopicPartition) (CancelledReassignments, error) {
	out := CancelledReassignments{Cancelled: []PartitionRef{}}
	moves := make([]client.Move, len(partitions))
	for i, at := range partitions {
		moves[i].TopicPartition = at
	}
	var results []change
	for i, err := range s.client.Reassign(ctx, moves) {
		if errors.Is(err, kerr.NoReassignmentInProgress) {
			continue
		}
		results = append(results, change{partitions[i], err})
		if err == nil {
			out.Count++
			if len(out.Cancelled) < maxListed {
				out.Cancelled = append(out.Cancelled, PartitionRef{partitions[i].Partition, partitions[i].Topic})
			}
		}
	}
	return out, failureOf(results)
}

// UnmarshalJSON reads the body strictly.
func (e *LeaderElection) UnmarshalJSON(b []byte) error {
	type plain LeaderElection
	if err := api.Decode(b, (*plain)(e)); err != nil {
		return err
	}
	if e.Partitions != nil && len(e.Partitions) == 0 {
		return api.Refuse(api.MalformedBody, "partitions is empty; leave it out to elect in all")
	}
	if len(e.Partitions) > maxListed {
		return api.Refuse(api.MalformedBody, "partitions has %d items; at most %d go at once", len(e.Partitions), maxListed)
	}
	return nil
}

// ElectLeaders elects leaders of the partitions named, or of all.
func (s *Server) ElectLeaders(ctx context.Context, req ElectLeadersRequestObject) (ElectLeadersResponseObject, error) {
	kind, named := client.ElectPreferred, len(req.Body.Partitions) > 0
	if req.Body.Unclean != nil && *req.Body.Unclean {
		kind = client.ElectUnclean
		if !named {
			return nil, api.Refuse(api.MalformedBody,
				"an unclean election loses records: name the partitions that it is for in partitions")
		}
	}
	topics, err := s.topicsByName(ctx)
	if err != nil {
		return nil, err
	}
	in, total, err := electorate(req.Body.Partitions, topics)
	if err != nil {
		return nil, err
	}
	elections, err := s.client.ElectLeaders(ctx, kind, in)
	if err != nil {
		return nil, err
	}
	out := ElectLeaders200JSONResponse{Elected: []PartitionRef{}}
	var results []change
	for _, e := range elections {
		switch {
		case errors.Is(e.Err, kerr.ElectionNotNeeded), !named && errors.Is(e.Err, kerr.PreferredLeaderNotAvailable):
			continue
		case e.Err == nil:
			out.Count++
			if len(out.Elected) < maxListed {
				out.Elected = append(out.Elected, PartitionRef{e.Partition, e.Topic})
			}
		}
		results = append(results, change{e.TopicPartition, e.Err})
	}
	out.Unchanged = int32(max(total-len(results), 0))
	if err := failureOf(results); err != nil {
		return nil, err
	}
	return out, nil
}

// electorate is the partitions to elect leaders of, none for all, and how many that are.
func electorate(refs []PartitionRef, topics map[string]*client.Topic) ([]client.TopicPartition, int, error) {
	if len(refs) == 0 {
		total := 0
		for _, t := range topics {
			total += len(t.Partitions)
		}
		return nil, total, nil
	}
	in := make([]client.TopicPartition, 0, len(refs))
	for _, ref := range refs {
		if err := client.CheckTopicName(ref.Topic); err != nil {
			return nil, 0, err
		}
		at := client.TopicPartition{Topic: ref.Topic, Partition: ref.Partition}
		t := topics[ref.Topic]
		if t == nil {
			return nil, 0, client.Fault(kerr.UnknownTopicOrPartition, "topic %s does not exist", ref.Topic)
		}
		if err := t.Has(ref.Partition); err != nil {
			return nil, 0, err
		}
		if slices.Contains(in, at) {
			return nil, 0, api.Refuse(api.MalformedBody, "%s is there twice", at)
		}
		in = append(in, at)
	}
	return in, len(in), nil
}

// The configs of a throttle.
const (
	leaderRate       = "leader.replication.throttled.rate"
	followerRate     = "follower.replication.throttled.rate"
	leaderReplicas   = "leader.replication.throttled.replicas"
	followerReplicas = "follower.replication.throttled.replicas"
)

// allBrokers owns the configs that hold for every broker.
func allBrokers() client.Resource { return client.Resource{Type: client.BrokerResource} }

// throttle is what is set for all brokers; nil if nothing is, or if that cannot be told.
func (s *Server) throttle(ctx context.Context) *ReplicationThrottle {
	got, err := s.client.DescribeConfigs(ctx, []client.Resource{allBrokers()}, leaderRate, followerRate)
	if err != nil || got[0].Err != nil {
		return nil
	}
	for _, k := range got[0].Configs {
		if k.Name != followerRate || k.Source != client.SourceDynamicDefaultBroker || k.Value == nil {
			continue
		}
		if rate, err := strconv.ParseInt(*k.Value, 10, 64); err == nil {
			return &ReplicationThrottle{BytesPerSecond: rate}
		}
	}
	return nil
}

// setThrottle limits what moves copy: the replicas there are as leaders send, and new ones take, so many bytes a
// second on each broker. Replicas that are throttled already stay so.
func (s *Server) setThrottle(ctx context.Context, moves []plannedMove, rate int64) error {
	topics := map[string]*throttled{}
	for _, m := range moves {
		t := topics[m.Topic]
		if t == nil {
			t = &throttled{}
			topics[m.Topic] = t
		}
		t.add(&m)
	}
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	text := strconv.FormatInt(rate, 10)
	changes := []client.ResourceChanges{{Resource: allBrokers(), Changes: []client.ConfigChange{
		{Name: leaderRate, Value: &text}, {Name: followerRate, Value: &text},
	}}}
	there, err := s.throttledReplicas(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		t := topics[name]
		changes = append(changes, client.ResourceChanges{
			Resource: client.Resource{Type: client.TopicResource, Name: name},
			Changes: []client.ConfigChange{
				{Name: leaderReplicas, Value: merged(there[name].leader, t.leader)},
				{Name: followerReplicas, Value: merged(there[name].follower, t.follower)},
			},
		})
	}
	return s.alter(ctx, changes)
}

func (s *Server) alter(ctx context.Context, changes []client.ResourceChanges) error {
	errs, err := s.client.AlterConfigs(ctx, changes, client.Apply)
	return cmp.Or(err, errors.Join(errs...))
}

// RemoveThrottle lifts the throttle of reassignments.
func (s *Server) RemoveThrottle(ctx context.Context, _ RemoveThrottleRequestObject) (
	RemoveThrottleResponseObject, error,
) {
	topics, err := s.topicsByName(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	there, err := s.throttledReplicas(ctx, names)
	if err != nil {
		return nil, err
	}
	changes := []client.ResourceChanges{{Resource: allBrokers(), Changes: []client.ConfigChange{
		{Name: leaderRate, Op: client.DeleteConfig}, {Name: followerRate, Op: client.DeleteConfig},
	}}}
	for _, name := range names {
		if t := there[name]; t.leader != nil || t.follower != nil {
			changes = append(changes, client.ResourceChanges{
				Resource: client.Resource{Type: client.TopicResource, Name: name},
				Changes: []client.ConfigChange{
					{Name: leaderReplicas, Op: client.DeleteConfig}, {Name: followerReplicas, Op: client.DeleteConfig},
				},
			})
		}
	}
	if err := s.alter(ctx, changes); err != nil {
		return nil, err
	}
	return RemoveThrottle204Response{}, nil
}
