package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleDeleteTopics deletes topics by name or by id, each on its own. Old versions of the request have
// one list and new ones another; a local caller, whose version is open, fills in both, so the old one
// counts only where the new one is empty. A topic that is named twice, by name or by id, is refused
// each time.
func (c *Controller) handleDeleteTopics(
	ctx context.Context, r *kmsg.DeleteTopicsRequest,
) (*kmsg.DeleteTopicsResponse, error) {
	asked := append([]kmsg.DeleteTopicsRequestTopic(nil), r.Topics...)
	names := r.TopicNames
	if len(asked) > 0 {
		names = nil
	}
	for i := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &names[i]
		asked = append(asked, t)
	}
	image := c.machine.Image()
	means := make([]metadata.TopicRef, len(asked))
	for i, t := range asked {
		means[i] = meant(image, t)
	}
	twice := duplicates(means)
	p := plan{done: "topic deleted", timeout: timeout(r.TimeoutMillis)}
	var refs []metadata.TopicRef
	for i, t := range asked {
		ref, refusal := topicRef(image, t)
		if refusal.Code == 0 {
			refusal = internalRefusal(image, ref)
		}
		if refusal.Code == 0 && twice[means[i]] {
			refusal = refuse(kerr.InvalidRequest, "topic %s is in the request more than once", nameOf(image, ref))
		}
		p.add(refusal)
		if refusal.Code == 0 {
			refs = append(refs, ref)
		}
	}
	p.command = func(items []int) metadata.Command {
		return &metadata.DeleteTopics{Topics: pick(refs, items)}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.DeleteTopicsResponse)
	setIndex(&resp.UnknownTags, p.index)
	for i, t := range asked {
		resp.Topics = append(resp.Topics, deletedTopic(t, p.answers[i]))
	}
	return resp, nil
}

// topicRef names the topic that an entry means, which need not exist.
func topicRef(image *metadata.Image, t kmsg.DeleteTopicsRequestTopic) (metadata.TopicRef, metadata.Item) {
	ref := metadata.TopicRef{ID: t.TopicID}
	byID := ref.ID != metadata.UUID{}
	switch {
	case !image.Settings().DeleteTopics:
		return ref, refuse(kerr.TopicDeletionDisabled, "topics cannot be deleted: delete.topic.enable is false")
	case byID && t.Topic != nil:
		return ref, refuse(kerr.InvalidRequest, "topic %q is given with an id too: give one of the two", *t.Topic)
	case !byID && t.Topic == nil:
		return ref, refuse(kerr.InvalidRequest, "a topic to delete has neither a name nor an id")
	case t.Topic != nil:
		ref.Name = *t.Topic
	}
	return ref, metadata.Item{}
}

// internalRefusal refuses the topics in which the brokers keep what they know.
func internalRefusal(image *metadata.Image, ref metadata.TopicRef) metadata.Item {
	if name := nameOf(image, ref); metadata.IsInternal(name) {
		return refuse(kerr.InvalidTopicException, "topic %s belongs to the brokers and cannot be deleted", name)
	}
	return metadata.Item{}
}

// meant names the topic that an entry means in one way only: by its id if it exists.
func meant(image *metadata.Image, t kmsg.DeleteTopicsRequestTopic) metadata.TopicRef {
	if t.Topic == nil {
		return metadata.TopicRef{ID: t.TopicID}
	}
	if existing := image.Topic(*t.Topic); existing != nil {
		return metadata.TopicRef{ID: existing.ID}
	}
	return metadata.TopicRef{Name: *t.Topic}
}

func nameOf(image *metadata.Image, ref metadata.TopicRef) string {
	if t := image.TopicByID(ref.ID); t != nil {
		return t.Name
	}
	if ref.Name != "" {
		return ref.Name
	}
	return ref.ID.String()
}

func deletedTopic(asked kmsg.DeleteTopicsRequestTopic, answer metadata.Item) kmsg.DeleteTopicsResponseTopic {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID = asked.Topic, asked.TopicID
	t.ErrorCode, t.ErrorMessage = answer.Code, message(answer)
	if answer.Topic != nil {
		t.Topic, t.TopicID = kmsg.StringPtr(answer.Topic.Name), answer.Topic.ID
	}
	return t
}
