package restv3

import (
	"context"

	"millrace/api"
	"millrace/client"
)

func (a *API) UpdateKafkaClusterConfig(ctx context.Context, r UpdateKafkaClusterConfigRequestObject) (
	UpdateKafkaClusterConfigResponseObject, error) {
	err := a.setConfig(ctx, clusterOwner(), r.Name)
	return UpdateKafkaClusterConfig204Response{}, err
}

func (a *API) DeleteKafkaClusterConfig(ctx context.Context, r DeleteKafkaClusterConfigRequestObject) (
	DeleteKafkaClusterConfigResponseObject, error) {
	err := a.resetConfig(ctx, clusterOwner(), r.Name)
	return DeleteKafkaClusterConfig204Response{}, err
}

func (a *API) AlterKafkaClusterConfigs(ctx context.Context, r AlterKafkaClusterConfigsRequestObject) (
	AlterKafkaClusterConfigsResponseObject, error) {
	err := a.alterConfigs(ctx, clusterOwner())
	return AlterKafkaClusterConfigs204Response{}, err
}

func (a *API) UpdateKafkaBrokerConfig(ctx context.Context, r UpdateKafkaBrokerConfigRequestObject) (
	UpdateKafkaBrokerConfigResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	err := a.setConfig(ctx, brokerOwner(r.BrokerId), r.Name)
	return UpdateKafkaBrokerConfig204Response{}, err
}

func (a *API) DeleteKafkaBrokerConfig(ctx context.Context, r DeleteKafkaBrokerConfigRequestObject) (
	DeleteKafkaBrokerConfigResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	err := a.resetConfig(ctx, brokerOwner(r.BrokerId), r.Name)
	return DeleteKafkaBrokerConfig204Response{}, err
}

func (a *API) AlterKafkaBrokerConfigs(ctx context.Context, r AlterKafkaBrokerConfigsRequestObject) (
	AlterKafkaBrokerConfigsResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	err := a.alterConfigs(ctx, brokerOwner(r.BrokerId))
	return AlterKafkaBrokerConfigs204Response{}, err
}

func (a *API) UpdateKafkaTopicConfig(ctx context.Context, r UpdateKafkaTopicConfigRequestObject) (
	UpdateKafkaTopicConfigResponseObject, error) {
	err := a.setConfig(ctx, topicOwner(r.TopicName), r.Name)
	return UpdateKafkaTopicConfig204Response{}, err
}

func (a *API) DeleteKafkaTopicConfig(ctx context.Context, r DeleteKafkaTopicConfigRequestObject) (
	DeleteKafkaTopicConfigResponseObject, error) {
	err := a.resetConfig(ctx, topicOwner(r.TopicName), r.Name)
	return DeleteKafkaTopicConfig204Response{}, err
}

func (a *API) AlterKafkaTopicConfigs(ctx context.Context, r AlterKafkaTopicConfigsRequestObject) (
	AlterKafkaTopicConfigsResponseObject, error) {
	err := a.alterConfigs(ctx, topicOwner(r.TopicName))
	return AlterKafkaTopicConfigs204Response{}, err
}

func (a *API) AlterKafkaTopicsConfigs(ctx context.Context, r AlterKafkaTopicsConfigsRequestObject) (
	AlterKafkaTopicsConfigsResponseObject, error) {
	var body alterTopicsBody
	if err := a.readBody(ctx, &body); err != nil {
		return nil, err
	}
	owners, changes, err := alterTopicsRequest(body)
	if err != nil {
		return nil, err
	}
	if len(owners) == 0 {
		return AlterKafkaTopicsConfigs204Response{}, nil
	}
	if err := a.checkNames(ctx, owners, changes); err != nil {
		return nil, err
	}
	errs, err := a.client.AlterConfigs(ctx, changes, client.Mode(body.ValidateOnly))
	if err != nil {
		return nil, err
	}
	if out := alterTopicsResponse(owners, errs); len(out.Failures) > 0 {
		return AlterKafkaTopicsConfigs207JSONResponse(out), nil
	}
	return AlterKafkaTopicsConfigs204Response{}, nil
}

// updateConfigBody is the body that sets one config.
type updateConfigBody struct {
	Value *string `json:"value"`
}

// changeBody is one change of an alteration.
type changeBody struct {
	Name      *string `json:"name"`
	Value     *string `json:"value"`
	Operation *string `json:"operation"`
}

type alterConfigsBody struct {
	Data         []changeBody `json:"data"`
	ValidateOnly bool         `json:"validate_only"`
}

type alterTopicsBody struct {
	Data []struct {
		TopicName *string      `json:"topic_name"`
		Configs   []changeBody `json:"configs"`
	} `json:"data"`
	ValidateOnly bool `json:"validate_only"`
}

func (a *API) setConfig(ctx context.Context, o owner, name string) error {
	var body updateConfigBody
	if err := a.readBody(ctx, &body); err != nil {
		return err
	}
	change := client.ConfigChange{Name: name, Op: client.SetConfig, Value: body.Value}
	return a.alter(ctx, o, []client.ConfigChange{change}, client.Apply)
}

func (a *API) resetConfig(ctx context.Context, o owner, name string) error {
	return a.alter(ctx, o, []client.ConfigChange{{Name: name, Op: client.DeleteConfig}}, client.Apply)
}

func (a *API) alterConfigs(ctx context.Context, o owner) error {
	var body alterConfigsBody
	if err := a.readBody(ctx, &body); err != nil {
		return err
	}
	if body.Data == nil {
		return missing("data")
	}
	changes, err := changesRequest(body.Data)
	if err != nil || len(changes) == 0 {
		return err
	}
	return a.alter(ctx, o, changes, client.Mode(body.ValidateOnly))
}

// alter makes all changes to one owner or none.
func (a *API) alter(ctx context.Context, o owner, changes []client.ConfigChange, mode client.Mode) error {
	all := []client.ResourceChanges{{Resource: o.resource, Changes: changes}}
	if err := a.checkNames(ctx, []owner{o}, all); err != nil {
		return err
	}
	errs, err := a.client.AlterConfigs(ctx, all, mode)
	if err != nil {
		return err
	}
	return errs[0]
}

// checkNames refuses a change of a config that its owner does not have. A cluster-wide config need
// not be there to be set, only to be reset.
func (a *API) checkNames(ctx context.Context, owners []owner, changes []client.ResourceChanges) error {
	found, err := a.describe(ctx, owners)
	if err != nil {
		return err
	}
	l := linksFrom(ctx)
	for i, o := range owners {
		if found[i].Err != nil {
			return found[i].Err
		}
		have := map[string]bool{}
		for _, c := range configsResponse(l, o, found[i].Configs) {
			have[c.Name] = true
		}
		for _, ch := range changes[i].Changes {
			if !have[ch.Name] && (o.typ == nil || ch.Op == client.DeleteConfig) {
				return noConfig(l, o, ch.Name)
			}
		}
	}
	return nil
}

// changesRequest translates the changes of one owner.
func changesRequest(body []changeBody) ([]client.ConfigChange, error) {
	out := make([]client.ConfigChange, 0, len(body))
	for _, b := range body {
		if b.Name == nil {
			return nil, missing("data.name")
		}
		ch := client.ConfigChange{Name: *b.Name, Op: client.SetConfig, Value: b.Value}
		if b.Operation != nil {
			switch *b.Operation {
			case "SET":
			case "DELETE":
				ch.Op, ch.Value = client.DeleteConfig, nil
			default:
				return nil, badRequest("operation %q of config %s is neither SET nor DELETE.", *b.Operation, ch.Name)
			}
		}
		out = append(out, ch)
	}
	return out, nil
}

// alterTopicsRequest translates the changes of several topics.
func alterTopicsRequest(body alterTopicsBody) ([]owner, []client.ResourceChanges, error) {
	if body.Data == nil {
		return nil, nil, missing("data")
	}
	var owners []owner
	var out []client.ResourceChanges
	seen := map[string]bool{}
	for _, t := range body.Data {
		if t.TopicName == nil {
			return nil, nil, missing("data.topic_name")
		}
		if t.Configs == nil {
			return nil, nil, missing("data.configs")
		}
		if seen[*t.TopicName] {
			return nil, nil, badRequest("Topic %s is given twice.", *t.TopicName)
		}
		seen[*t.TopicName] = true
		changes, err := changesRequest(t.Configs)
		if err != nil {
			return nil, nil, err
		}
		o := topicOwner(*t.TopicName)
		owners = append(owners, o)
		out = append(out, client.ResourceChanges{Resource: o.resource, Changes: changes})
	}
	return owners, out, nil
}

// alterTopicsResponse lists the topics that were refused.
func alterTopicsResponse(owners []owner, errs []error) AlterTopicsConfigsResponse {
	out := AlterTopicsConfigsResponse{Failures: []AlterTopicsConfigsFailure{}}
	for i, err := range errs {
		if err == nil {
			continue
		}
		f := api.FromError(err)
		message := f.Text()
		out.Failures = append(out.Failures, AlterTopicsConfigsFailure{
			TopicName: *owners[i].topic, ErrorCode: int32(f.Fault.Code), Message: &message,
		})
	}
	return out
}
