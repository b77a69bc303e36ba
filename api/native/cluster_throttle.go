package native

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"millrace/client"
)

// throttled is a topic's replicas that a throttle holds back, each as partition:broker.
type throttled struct {
	leader, follower []string
}

// add throttles the replicas of a move: those there are as senders, the new ones as takers.
func (t *throttled) add(m *plannedMove) {
	for _, id := range m.replicas {
		t.leader = append(t.leader, replicaEntry(m.Partition, id))
	}
	for _, id := range m.to {
		if !slices.Contains(m.replicas, id) {
			t.follower = append(t.follower, replicaEntry(m.Partition, id))
		}
	}
}

func replicaEntry(partition, broker int32) string {
	return strconv.Itoa(int(partition)) + ":" + strconv.Itoa(int(broker))
}

// merged is a list config with more entries; one that stands for all replicas stays so.
func merged(there, more []string) *string {
	all := slices.Clone(there)
	for _, e := range more {
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	if slices.Contains(all, "*") {
		all = []string{"*"}
	}
	text := strings.Join(all, ",")
	return &text
}

// throttledReplicas reads the lists that are set for topics.
func (s *Server) throttledReplicas(ctx context.Context, topics []string) (map[string]throttled, error) {
	leaders, err := s.client.TopicSetting(ctx, topics, leaderReplicas)
	if err != nil {
		return nil, err
	}
	followers, err := s.client.TopicSetting(ctx, topics, followerReplicas)
	if err != nil {
		return nil, err
	}
	out := make(map[string]throttled)
	for _, name := range topics {
		t := throttled{setEntries(leaders[name]), setEntries(followers[name])}
		if t.leader != nil || t.follower != nil {
			out[name] = t
		}
	}
	return out, nil
}

// setEntries splits a list config that was set; nil if it was not.
func setEntries(k client.Config) []string {
	if k.Source != client.SourceDynamicTopic || k.Value == nil {
		return nil
	}
	out := []string{}
	for e := range strings.SplitSeq(*k.Value, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
