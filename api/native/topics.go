package native

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// Bounds on a page of topics.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// UnmarshalJSON reads the body strictly.
func (t *NewTopic) UnmarshalJSON(b []byte) error {
	type plain NewTopic
	return api.Decode(b, (*plain)(t))
}

// UnmarshalJSON reads the body strictly.
func (t *TopicChange) UnmarshalJSON(b []byte) error {
	type plain TopicChange
	return api.Decode(b, (*plain)(t))
}

// UnmarshalJSON reads the body strictly.
func (t *RecordDeletion) UnmarshalJSON(b []byte) error {
	type plain RecordDeletion
	return api.Decode(b, (*plain)(t))
}

// UnmarshalJSON reads a part of the body whose partition must be named, since 0 is one too.
func (d *PartitionDeletion) UnmarshalJSON(b []byte) error {
	var named struct {
		Partition    *int32 `json:"partition"`
		BeforeOffset *int64 `json:"before_offset"`
	}
	if err := api.Decode(b, &named); err != nil {
		return err
	}
	if named.Partition == nil {
		return api.Required("partitions.partition")
	}
	*d = PartitionDeletion{Partition: *named.Partition, BeforeOffset: named.BeforeOffset}
	return nil
}

// ListTopics answers with a page of topics by name. The cursor is the name of the last one before.
func (s *Server) ListTopics(ctx context.Context, req ListTopicsRequestObject) (ListTopicsResponseObject, error) {
	limit := defaultLimit
	if req.Params.Limit != nil {
		if limit = int(*req.Params.Limit); limit < 1 || limit > maxLimit {
			return nil, api.Refuse(api.InvalidParameter, "limit is 1 to %d, not %d", maxLimit, limit)
		}
	}
	after := ""
	if req.Params.Cursor != nil {
		b, err := base64.RawURLEncoding.DecodeString(*req.Params.Cursor)
		if err != nil || client.CheckTopicName(string(b)) != nil {
			return nil, api.Refuse(api.InvalidParameter, "cursor is not one that a page gave")
		}
		after = string(b)
	}
	topics, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out := ListTopics200JSONResponse{Items: []TopicSummary{}}
	for _, t := range topics {
		if t.Name <= after || t.Internal && (req.Params.Internal == nil || !*req.Params.Internal) {
			continue
		}
		if len(out.Items) == limit {
			next := base64.RawURLEncoding.EncodeToString([]byte(out.Items[limit-1].Name))
			out.NextCursor = &next
			break
		}
		out.Items = append(out.Items, summary(t))
	}
	return out, nil
}

func summary(t *client.Topic) TopicSummary {
	out := TopicSummary{Name: t.Name, Partitions: int32(len(t.Partitions)), Internal: t.Internal}
	if len(t.Partitions) > 0 {
		out.ReplicationFactor = int32(len(t.Partitions[0].Replicas))
	}
	return out
}

// CreateTopic creates a topic, or only checks the request.
func (s *Server) CreateTopic(ctx context.Context, req CreateTopicRequestObject) (CreateTopicResponseObject, error) {
	t, err := newTopic(req)
	if err != nil {
		return nil, err
	}
	made, err := s.client.CreateTopic(ctx, t)
	if a := attemptOf(ctx); a != nil && a.again && errors.Is(err, kerr.TopicAlreadyExists) {
		made, err = s.madeBefore(ctx, t, err)
	}
	if err != nil {
		return nil, err
	}
	out := TopicSummary{
		Name: t.Name, Partitions: made.Partitions, ReplicationFactor: int32(made.ReplicationFactor),
	}
	if t.Mode == client.ValidateOnly {
		return CreateTopic200JSONResponse(out), nil
	}
	if made.Partitions < 0 { // an old cluster does not say what it made
		if topic, err := s.client.Topic(ctx, t.Name, client.Refuse); err == nil {
			out = summary(topic)
		}
	}
	return CreateTopic201JSONResponse{
		Body: out, Headers: CreateTopic201ResponseHeaders{Location: "/v1/topics/" + t.Name},
	}, nil
}

// madeBefore is what an attempt before may have made of a topic that there is: one that is as was asked for. Else it is
// the error.
func (s *Server) madeBefore(ctx context.Context, t client.NewTopic, exists error) (client.CreatedTopic, error) {
	topic, err := s.client.Renew(ctx, t.Name)
	if err != nil {
		return client.CreatedTopic{}, err
	}
	has := summary(topic)
	made := client.CreatedTopic{
		ID: topic.ID, Partitions: has.Partitions, ReplicationFactor: int16(has.ReplicationFactor),
	}
	if t.Partitions > 0 && t.Partitions != made.Partitions ||
		t.ReplicationFactor > 0 && t.ReplicationFactor != made.ReplicationFactor {
		return made, exists
	}
	found, err := s.client.DescribeConfigs(ctx, []client.Resource{{Type: client.TopicResource, Name: t.Name}})
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return made, err
	}
	for _, want := range t.Configs {
		same := slices.ContainsFunc(found[0].Configs, func(c client.Config) bool {
			return c.Name == want.Name && c.Value != nil && *c.Value == *want.Value
		})
		if !same {
			return made, exists
		}
	}
	return made, nil
}

func newTopic(req CreateTopicRequestObject) (client.NewTopic, error) {
	b := req.Body
	t := client.NewTopic{Name: b.Name, Partitions: -1, ReplicationFactor: -1, Mode: mode(req.Params.ValidateOnly)}
	if b.Name == "" {
		return t, api.Required("name")
	}
	if b.Partitions != nil {
		if t.Partitions = *b.Partitions; t.Partitions < 1 {
			return t, api.Refuse(api.MalformedBody, "partitions is at least 1, not %d", t.Partitions)
		}
	}
	if b.ReplicationFactor != nil {
		rf := *b.ReplicationFactor
		if rf < 1 || rf > 32767 {
			return t, api.Refuse(api.MalformedBody, "replication_factor is 1 to 32767, not %d", rf)
		}
		t.ReplicationFactor = int16(rf)
	}
	configs := b.Configs.values()
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if v := configs[name]; v != nil { // null is the default, which needs no setting
			t.Configs = append(t.Configs, client.NewConfig{Name: name, Value: v})
		}
	}
	return t, nil
}

// values is the map itself; none when the body has none.
func (c *ConfigValues) values() ConfigValues {
	if c == nil {
		return nil
	}
	return *c
}

func mode(validateOnly *bool) client.Mode {
	return client.Mode(validateOnly != nil && *validateOnly)
}

// GetTopic describes a topic.
func (s *Server) GetTopic(ctx context.Context, req GetTopicRequestObject) (GetTopicResponseObject, error) {
	d, err := s.describe(ctx, req.Topic)
	return GetTopic200JSONResponse(d), err
}

// describe gathers metadata, offsets and configs of a topic.
func (s *Server) describe(ctx context.Context, name string) (TopicDescription, error) {
	t, err := s.client.Renew(ctx, name)
	if err != nil {
		return TopicDescription{}, err
	}
	earliest, err := s.offsets(ctx, t, client.Earliest)
	if err != nil {
		return TopicDescription{}, err
	}
	latest, err := s.offsets(ctx, t, client.Latest)
	if err != nil {
		return TopicDescription{}, err
	}
	configs, err := s.topicConfigs(ctx, name)
	if err != nil {
		return TopicDescription{}, err
	}
	out := TopicDescription{
		Name: t.Name, Id: uuid.UUID(t.ID), Internal: t.Internal, Configs: configs,
		Partitions: make([]TopicPartition, len(t.Partitions)),
	}
	for i, p := range t.Partitions {
		out.Partitions[i] = TopicPartition{
			Partition: int32(i), Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, Isr: p.ISR,
			EarliestOffset: earliest[i], LatestOffset: latest[i],
		}
	}
	return out, nil
}

// offsets looks one kind of offset up for all partitions; nil where there is no leader to ask.
func (s *Server) offsets(ctx context.Context, t *client.Topic, which int64) ([]*int64, error) {
	queries := make([]client.OffsetQuery, len(t.Partitions))
	for i := range queries {
		queries[i] = client.OffsetQuery{Partition: int32(i), Timestamp: which}
	}
	results, err := s.client.ListOffsets(ctx, t, queries, client.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	out := make([]*int64, len(results))
	for i, r := range results {
		if r.Err == nil {
			out[i] = &r.Offset
		}
	}
	return out, nil
}

func (s *Server) topicConfigs(ctx context.Context, name string) ([]TopicConfig, error) {
	all, err := s.client.DescribeConfigs(ctx, []client.Resource{{Type: client.TopicResource, Name: name}})
	if err != nil {
		return nil, err
	}
	if all[0].Err != nil {
		return nil, all[0].Err
	}
	out := make([]TopicConfig, 0, len(all[0].Configs))
	for _, c := range all[0].Configs {
		tc := TopicConfig{
			Name: c.Name, Value: c.Value, Source: c.Source.String(), Default: c.Source == client.SourceDefault,
			Sensitive: c.Sensitive,
		}
		if c.Type != "" {
			tc.Type = &c.Type
		}
		if c.Documentation != "" {
			tc.Documentation = &c.Documentation
		}
		out = append(out, tc)
	}
	slices.SortFunc(out, func(a, b TopicConfig) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// UpdateTopic changes configs and the number of partitions. Both parts are checked before either is made.
func (s *Server) UpdateTopic(ctx context.Context, req UpdateTopicRequestObject) (UpdateTopicResponseObject, error) {
	t, err := s.client.Topic(ctx, req.Topic, client.Refuse)
	if err != nil {
		return nil, err
	}
	if len(req.Body.Configs.values()) == 0 && req.Body.Partitions == nil {
		return nil, api.Refuse(api.MalformedBody, "the body names neither configs nor partitions to change")
	}
	if n := req.Body.Partitions; n != nil && int(*n) == len(t.Partitions) {
		req.Body.Partitions = nil // it is so already
	}
	if err := s.change(ctx, t, req.Body, client.ValidateOnly); err != nil {
		return nil, err
	}
	if mode(req.Params.ValidateOnly) == client.Apply {
		if err := s.change(ctx, t, req.Body, client.Apply); err != nil {
			return nil, err
		}
	}
	d, err := s.describe(ctx, req.Topic)
	return UpdateTopic200JSONResponse(d), err
}

func (s *Server) change(ctx context.Context, t *client.Topic, b *TopicChange, m client.Mode) error {
	if b.Partitions != nil {
		if err := s.client.CreatePartitions(ctx, t.Name, *b.Partitions, m); err != nil {
			return err
		}
	}
	configs := b.Configs.values()
	if len(configs) == 0 {
		return nil
	}
	ch := client.ResourceChanges{Resource: client.Resource{Type: client.TopicResource, Name: t.Name}}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		c := client.ConfigChange{Name: name, Op: client.SetConfig, Value: configs[name]}
		if c.Value == nil {
			c.Op = client.DeleteConfig
		}
		ch.Changes = append(ch.Changes, c)
	}
	errs, err := s.client.AlterConfigs(ctx, []client.ResourceChanges{ch}, m)
	if err != nil {
		return err
	}
	return errs[0]
}

// DeleteTopic deletes a topic.
func (s *Server) DeleteTopic(ctx context.Context, req DeleteTopicRequestObject) (DeleteTopicResponseObject, error) {
	if err := s.edge.CheckDelete(req.Topic); err != nil {
		return nil, err
	}
	if err := s.client.DeleteTopic(ctx, req.Topic); err != nil {
		return nil, err
	}
	return DeleteTopic204Response{}, nil
}

// partitionOutcome is one partition's part of a problem.
type partitionOutcome struct {
	Partition      int32  `json:"partition"`
	LogStartOffset *int64 `json:"log_start_offset,omitempty"`
	ErrorCode      int    `json:"error_code,omitempty"`
	Detail         string `json:"detail,omitempty"`
}

// DeleteRecords raises the log start offsets of partitions.
func (s *Server) DeleteRecords(ctx context.Context, req DeleteRecordsRequestObject) (
	DeleteRecordsResponseObject, error,
) {
	t, err := s.client.Topic(ctx, req.Topic, client.Refuse)
	if err != nil {
		return nil, err
	}
	before, err := deletions(t, req.Body)
	if err != nil {
		return nil, err
	}
	results, err := s.client.DeleteRecords(ctx, t, before)
	if err != nil {
		return nil, err
	}
	out := DeleteRecords200JSONResponse{}
	var outcomes []partitionOutcome
	var failed error
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			if errors.Is(r.Err, kerr.OffsetOutOfRange) {
				r.Err = outOfRange(ctx, s.client, t, place{partition: r.Partition, next: before[i].Offset}, r.Err)
			}
			failed = errors.Join(failed, r.Err)
			e := api.FromError(r.Err)
			outcomes = append(outcomes, partitionOutcome{Partition: r.Partition, ErrorCode: e.Fault.Code, Detail: e.Text()})
			continue
		}
		outcomes = append(outcomes, partitionOutcome{Partition: r.Partition, LogStartOffset: &r.LogStartOffset})
		out.Partitions = append(out.Partitions, LogStart{Partition: r.Partition, LogStartOffset: r.LogStartOffset})
	}
	if failed != nil {
		return nil, api.FromError(failed).With("partitions", outcomes)
	}
	return out, nil
}

func deletions(t *client.Topic, b *RecordDeletion) ([]client.BeforeOffset, error) {
	if len(b.Partitions) == 0 {
		return nil, api.Required("partitions")
	}
	var out []client.BeforeOffset
	for _, p := range b.Partitions {
		if err := t.Has(p.Partition); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o client.BeforeOffset) bool { return o.Partition == p.Partition }) {
			return nil, api.Refuse(api.MalformedBody, "partition %d is there twice", p.Partition)
		}
		o := client.BeforeOffset{Partition: p.Partition, Offset: -1}
		if p.BeforeOffset != nil {
			if o.Offset = *p.BeforeOffset; o.Offset < 0 {
				return nil, api.Refuse(api.MalformedBody, "before_offset is at least 0, not %d", o.Offset)
			}
		}
		out = append(out, o)
	}
	return out, nil
}
