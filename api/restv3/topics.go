package restv3

import (
	"context"
	"strconv"

	"millrace/client"
)

// topicOperations is what a caller may do with a topic while the cluster has no access control.
var topicOperations = [...]string{
	"ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE",
}

func (a *API) ListKafkaTopics(ctx context.Context, r ListKafkaTopicsRequestObject) (
	ListKafkaTopicsResponseObject, error) {
	topics, err := a.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	out := KafkaTopicList{
		Kind: "KafkaTopicList", Metadata: l.collection("/topics"), Data: make([]KafkaTopic, len(topics)),
	}
	ops := operations(r.Params.IncludeAuthorizedOperations, r.Params.IncludeAuthorizedOperationsCamel)
	for i, t := range topics {
		out.Data[i] = topicResponse(l, t, ops)
	}
	return ListKafkaTopics200JSONResponse(out), nil
}

func (a *API) GetKafkaTopic(ctx context.Context, r GetKafkaTopicRequestObject) (
	GetKafkaTopicResponseObject, error) {
	topic, err := a.client.Topic(ctx, r.TopicName, client.Refuse)
	if err != nil {
		return nil, err
	}
	ops := operations(r.Params.IncludeAuthorizedOperations)
	return GetKafkaTopic200JSONResponse(topicResponse(linksFrom(ctx), topic, ops)), nil
}

func (a *API) CreateKafkaTopic(ctx context.Context, r CreateKafkaTopicRequestObject) (
	CreateKafkaTopicResponseObject, error) {
	var body createTopicBody
	if err := a.readBody(ctx, &body); err != nil {
		return nil, err
	}
	topic, err := createTopicRequest(body)
	if err != nil {
		return nil, err
	}
	created, err := a.client.CreateTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := createTopicResponse(linksFrom(ctx), topic, created)
	if topic.Mode == client.ValidateOnly {
		return CreateKafkaTopic200JSONResponse(out), nil
	}
	return CreateKafkaTopic201JSONResponse{
		Body: out, Headers: CreateKafkaTopic201ResponseHeaders{Location: out.Metadata.Self},
	}, nil
}

func (a *API) UpdateKafkaTopicPartitions(ctx context.Context, r UpdateKafkaTopicPartitionsRequestObject) (
	UpdateKafkaTopicPartitionsResponseObject, error) {
	var body partitionsCountBody
	if err := a.readBody(ctx, &body); err != nil {
		return nil, err
	}
	if body.PartitionsCount == nil {
		return nil, missing("partitions_count")
	}
	if err := a.client.CreatePartitions(ctx, r.TopicName, *body.PartitionsCount, client.Apply); err != nil {
		return nil, err
	}
	topic, err := a.client.Topic(ctx, r.TopicName, client.Refuse)
	if err != nil {
		return nil, err
	}
	return UpdateKafkaTopicPartitions200JSONResponse(topicResponse(linksFrom(ctx), topic, operations())), nil
}

func (a *API) DeleteKafkaTopic(ctx context.Context, r DeleteKafkaTopicRequestObject) (
	DeleteKafkaTopicResponseObject, error) {
	if err := a.edge.CheckDelete(r.TopicName); err != nil {
		return nil, err
	}
	if err := a.client.DeleteTopic(ctx, r.TopicName); err != nil {
		return nil, err
	}
	return DeleteKafkaTopic204Response{}, nil
}

// createTopicBody is the body of a topic creation.
type createTopicBody struct {
	TopicName           *string            `json:"topic_name"`
	PartitionsCount     *int32             `json:"partitions_count"`
	ReplicationFactor   *int16             `json:"replication_factor"`
	ReplicasAssignments map[string][]int32 `json:"replicas_assignments"`
	Configs             []configValueBody  `json:"configs"`
	ValidateOnly        bool               `json:"validate_only"`
}

type configValueBody struct {
	Name  *string `json:"name"`
	Value *string `json:"value"`
}

type partitionsCountBody struct {
	PartitionsCount *int32 `json:"partitions_count"`
}

// createTopicRequest checks what the cluster would not, and fills in what was left out.
func createTopicRequest(b createTopicBody) (client.NewTopic, error) {
	out := client.NewTopic{Partitions: -1, ReplicationFactor: -1, Mode: client.Mode(b.ValidateOnly)}
	if b.TopicName == nil {
		return out, missing("topic_name")
	}
	if err := client.CheckTopicName(*b.TopicName); err != nil {
		return out, errTopicName
	}
	out.Name = *b.TopicName
	if b.PartitionsCount != nil {
		out.Partitions = *b.PartitionsCount
	}
	if b.ReplicationFactor != nil {
		out.ReplicationFactor = *b.ReplicationFactor
	}
	if len(b.ReplicasAssignments) > 0 {
		out.Assignments = make(map[int32][]int32, len(b.ReplicasAssignments))
		for text, replicas := range b.ReplicasAssignments {
			p, err := strconv.ParseInt(text, 10, 32)
			if err != nil || strconv.Itoa(int(p)) != text {
				return out, badRequest("replicas_assignments: %q is not a partition number.", text)
			}
			out.Assignments[int32(p)] = replicas
		}
	}
	seen := make(map[string]bool, len(b.Configs))
	for _, c := range b.Configs {
		if c.Name == nil {
			return out, missing("configs.name")
		}
		if seen[*c.Name] {
			return out, badRequest("Config %s is given twice.", *c.Name)
		}
		seen[*c.Name] = true
		out.Configs = append(out.Configs, client.NewConfig{Name: *c.Name, Value: c.Value})
	}
	return out, nil
}

// createTopicResponse describes a topic that was just created or would be.
func createTopicResponse(l links, t client.NewTopic, created client.CreatedTopic) KafkaTopic {
	out := KafkaTopic{
		TopicName: t.Name, PartitionsCount: created.Partitions, ReplicationFactor: int32(created.ReplicationFactor),
	}
	if out.PartitionsCount < 0 {
		out.PartitionsCount = max(t.Partitions, int32(len(t.Assignments)))
	}
	if out.ReplicationFactor < 0 {
		out.ReplicationFactor = max(int32(t.ReplicationFactor), int32(len(t.Assignments[0])))
	}
	return linkTopic(l, out, operations())
}

func topicResponse(l links, t *client.Topic, ops []string) KafkaTopic {
	out := KafkaTopic{TopicName: t.Name, IsInternal: t.Internal, PartitionsCount: int32(len(t.Partitions))}
	if len(t.Partitions) > 0 {
		out.ReplicationFactor = int32(len(t.Partitions[0].Replicas))
	}
	return linkTopic(l, out, ops)
}

func linkTopic(l links, t KafkaTopic, ops []string) KafkaTopic {
	path := topicPath(t.TopicName)
	t.Kind, t.Metadata, t.ClusterId = "KafkaTopic", l.resource(path, topicCRN(t.TopicName)), l.cluster
	t.Partitions = l.to(path + "/partitions")
	t.Configs = l.to(path + "/configs")
	t.PartitionReassignments = l.to(path + "/partitions/-/reassignment")
	t.AuthorizedOperations = ops
	return t
}

// operations is what to tell as authorized operations: nothing, unless one of the parameters asks for it.
func operations(asked ...*bool) []string {
	for _, a := range asked {
		if a != nil && *a {
			return topicOperations[:]
		}
	}
	return []string{}
}
