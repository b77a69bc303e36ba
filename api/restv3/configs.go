package restv3

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"millrace/api"
	"millrace/client"
)

// owner is what a config belongs to, and how its resources are named and addressed.
type owner struct {
	resource client.Resource
	kind     string // of one config
	called   string // in messages: TOPIC orders
	path     string // of its configs, below the cluster
	crn      string // of one config, before its name
	broker   *int32
	topic    *string
	typ      *string
}

func clusterOwner() owner {
	typ := "BROKER"
	return owner{
		resource: client.Resource{Type: client.BrokerResource}, kind: "KafkaClusterConfig", called: typ,
		path: "/broker-configs", crn: "/broker-config=", typ: &typ,
	}
}

func brokerOwner(id int32) owner {
	name := strconv.Itoa(int(id))
	return owner{
		resource: client.Resource{Type: client.BrokerResource, Name: name}, kind: "KafkaBrokerConfig",
		called: "BROKER " + name, path: brokerPath(id) + "/configs", crn: brokerCRN(id) + "/config=", broker: &id,
	}
}

func topicOwner(name string) owner {
	return owner{
		resource: client.Resource{Type: client.TopicResource, Name: name}, kind: "KafkaTopicConfig",
		called: "TOPIC " + name, path: topicPath(name) + "/configs", crn: topicCRN(name) + "/config=", topic: &name,
	}
}

func (a *API) ListKafkaClusterConfigs(ctx context.Context, _ ListKafkaClusterConfigsRequestObject) (
	ListKafkaClusterConfigsResponseObject, error) {
	out, err := a.listConfigs(ctx, clusterOwner())
	return ListKafkaClusterConfigs200JSONResponse(out), err
}

func (a *API) GetKafkaClusterConfig(ctx context.Context, r GetKafkaClusterConfigRequestObject) (
	GetKafkaClusterConfigResponseObject, error) {
	out, err := a.getConfig(ctx, clusterOwner(), r.Name)
	return GetKafkaClusterConfig200JSONResponse(out), err
}

func (a *API) ListKafkaBrokerConfigs(ctx context.Context, r ListKafkaBrokerConfigsRequestObject) (
	ListKafkaBrokerConfigsResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	out, err := a.listConfigs(ctx, brokerOwner(r.BrokerId))
	return ListKafkaBrokerConfigs200JSONResponse(out), err
}

func (a *API) GetKafkaBrokerConfig(ctx context.Context, r GetKafkaBrokerConfigRequestObject) (
	GetKafkaBrokerConfigResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	out, err := a.getConfig(ctx, brokerOwner(r.BrokerId), r.Name)
	return GetKafkaBrokerConfig200JSONResponse(out), err
}

func (a *API) ListKafkaAllBrokerConfigs(ctx context.Context, _ ListKafkaAllBrokerConfigsRequestObject) (
	ListKafkaAllBrokerConfigsResponseObject, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	owners := make([]owner, len(cluster.Brokers))
	for i, b := range cluster.Brokers {
		owners[i] = brokerOwner(b.ID)
	}
	out, err := a.listAllConfigs(ctx, "KafkaBrokerConfigList", "/brokers/-/configs", owners)
	return ListKafkaAllBrokerConfigs200JSONResponse(out), err
}

func (a *API) ListKafkaTopicConfigs(ctx context.Context, r ListKafkaTopicConfigsRequestObject) (
	ListKafkaTopicConfigsResponseObject, error) {
	out, err := a.listConfigs(ctx, topicOwner(r.TopicName))
	return ListKafkaTopicConfigs200JSONResponse(out), err
}

func (a *API) GetKafkaTopicConfig(ctx context.Context, r GetKafkaTopicConfigRequestObject) (
	GetKafkaTopicConfigResponseObject, error) {
	out, err := a.getConfig(ctx, topicOwner(r.TopicName), r.Name)
	return GetKafkaTopicConfig200JSONResponse(out), err
}

func (a *API) ListKafkaAllTopicConfigs(ctx context.Context, _ ListKafkaAllTopicConfigsRequestObject) (
	ListKafkaAllTopicConfigsResponseObject, error) {
	topics, err := a.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	owners := make([]owner, len(topics))
	for i, t := range topics {
		owners[i] = topicOwner(t.Name)
	}
	out, err := a.listAllConfigs(ctx, "KafkaTopicConfigList", "/topics/-/configs", owners)
	return ListKafkaAllTopicConfigs200JSONResponse(out), err
}

// listConfigs lists one owner's configs.
func (a *API) listConfigs(ctx context.Context, o owner) (KafkaConfigList, error) {
	return a.listAllConfigs(ctx, o.kind+"List", o.path, []owner{o})
}

// listAllConfigs lists the configs of several owners, in the owners' order. An owner that vanished
// since it was found is left out, unless it is the only one.
func (a *API) listAllConfigs(ctx context.Context, kind, path string, owners []owner) (KafkaConfigList, error) {
	l := linksFrom(ctx)
	out := KafkaConfigList{
		Kind: KafkaConfigListKind(kind), Metadata: l.collection(path), Data: []KafkaConfig{},
	}
	if len(owners) == 0 {
		return out, nil
	}
	found, err := a.describe(ctx, owners)
	if err != nil {
		return out, err
	}
	for i := range found {
		if err := found[i].Err; err != nil {
			if len(owners) == 1 {
				return out, err
			}
			continue
		}
		out.Data = append(out.Data, configsResponse(l, owners[i], found[i].Configs)...)
	}
	return out, nil
}

// getConfig describes one config of one owner.
func (a *API) getConfig(ctx context.Context, o owner, name string) (KafkaConfig, error) {
	found, err := a.describe(ctx, []owner{o}, name)
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return KafkaConfig{}, err
	}
	l := linksFrom(ctx)
	for _, c := range configsResponse(l, o, found[0].Configs) {
		if c.Name == name {
			return c, nil
		}
	}
	return KafkaConfig{}, noConfig(l, o, name)
}

func (a *API) describe(ctx context.Context, owners []owner, names ...string) ([]client.ResourceConfigs, error) {
	resources := make([]client.Resource, len(owners))
	for i, o := range owners {
		if o.topic != nil {
			if err := client.CheckTopicName(*o.topic); err != nil {
				return nil, err
			}
		}
		resources[i] = o.resource
	}
	return a.client.DescribeConfigs(ctx, resources, names...)
}

func noConfig(l links, o owner, name string) error {
	return api.RefuseCompat(http.StatusNotFound,
		"Config %s cannot be found for %s in cluster %s.", name, o.called, l.cluster)
}

// configsResponse translates an owner's configs, by name. The cluster's are only those set for all
// brokers at run time.
func configsResponse(l links, o owner, configs []client.Config) []KafkaConfig {
	out := make([]KafkaConfig, 0, len(configs))
	for i := range configs {
		c := &configs[i]
		if o.typ != nil && c.Source != client.SourceDynamicDefaultBroker && c.Source != client.SourceDynamicBroker {
			continue
		}
		out = append(out, configResponse(l, o, c))
	}
	slices.SortFunc(out, func(a, b KafkaConfig) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func configResponse(l links, o owner, c *client.Config) KafkaConfig {
	out := KafkaConfig{
		Kind: KafkaConfigKind(o.kind), Metadata: l.resource(o.path+"/"+url.PathEscape(c.Name), o.crn+c.Name),
		ClusterId: l.cluster, ConfigType: o.typ, BrokerId: o.broker, TopicName: o.topic,
		Name: c.Name, Value: c.Value, IsDefault: c.Source == client.SourceDefault, IsReadOnly: c.ReadOnly,
		IsSensitive: c.Sensitive, Source: ConfigSource(c.Source.String()),
		Synonyms: make([]ConfigSynonym, len(c.Synonyms)),
	}
	if c.Sensitive {
		out.Value = nil
	}
	for i, s := range c.Synonyms {
		out.Synonyms[i] = ConfigSynonym{Name: s.Name, Value: s.Value, Source: ConfigSource(s.Source.String())}
		if c.Sensitive {
			out.Synonyms[i].Value = nil
		}
	}
	return out
}
