package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ResourceType is what a config belongs to.
type ResourceType int8

const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4
)

// Resource is one owner of configs: a topic by name, a broker by number in decimal, or "" for the
// defaults of all brokers.
type Resource struct {
	Type ResourceType
	Name string
}

// ConfigSource is where a value comes from.
type ConfigSource int8

// The sources, numbered as Kafka's messages number them.
const (
	SourceUnknown              ConfigSource = 0
	SourceDynamicTopic         ConfigSource = 1
	SourceDynamicBroker        ConfigSource = 2
	SourceDynamicDefaultBroker ConfigSource = 3
	SourceStaticBroker         ConfigSource = 4
	SourceDefault              ConfigSource = 5
	SourceDynamicBrokerLogger  ConfigSource = 6
)

// String is Kafka's name of the source.
func (s ConfigSource) String() string {
	switch s {
	case SourceDynamicTopic:
		return "DYNAMIC_TOPIC_CONFIG"
	case SourceDynamicBroker:
		return "DYNAMIC_BROKER_CONFIG"
	case SourceDynamicDefaultBroker:
		return "DYNAMIC_DEFAULT_BROKER_CONFIG"
	case SourceStaticBroker:
		return "STATIC_BROKER_CONFIG"
	case SourceDefault:
		return "DEFAULT_CONFIG"
	case SourceDynamicBrokerLogger:
		return "DYNAMIC_BROKER_LOGGER_CONFIG"
	default:
		return "UNKNOWN"
	}
}

// Config is one effective setting.
type Config struct {
	Name          string
	Value         *string // nil when unset or sensitive
	Source        ConfigSource
	ReadOnly      bool
	Sensitive     bool
	Type          string // BOOLEAN, STRING, INT, ...; empty if the cluster did not say
	Documentation string
	Synonyms      []ConfigSynonym // what supplies the value, strongest first
}

// ConfigSynonym is one of the settings that can supply a value.
type ConfigSynonym struct {
	Name   string
	Value  *string
	Source ConfigSource
}

// ResourceConfigs are the settings of one resource, in the cluster's order.
type ResourceConfigs struct {
	Resource Resource
	Configs  []Config
	Err      error // nil, a *KafkaError, or ErrNoAnswer
}

// DescribeConfigs reads settings with source, synonyms and documentation. Without names it reads all.
// The results are in the order of the resources.
func (c *Client) DescribeConfigs(ctx context.Context, resources []Resource, names ...string) (
	[]ResourceConfigs, error,
) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	req.IncludeDocumentation = true
	for _, r := range resources {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType = kmsg.ConfigResourceType(r.Type)
		rr.ResourceName = r.Name
		rr.ConfigNames = names
		req.Resources = append(req.Resources, rr)
	}
	resp, err := call(ctx, "describe configs", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[Resource]*kmsg.DescribeConfigsResponseResource, len(resp.Resources))
	for i := range resp.Resources {
		rr := &resp.Resources[i]
		answers[Resource{ResourceType(rr.ResourceType), rr.ResourceName}] = rr
	}
	out := make([]ResourceConfigs, len(resources))
	for i, r := range resources {
		if rr := answers[r]; rr != nil {
			out[i] = resourceConfigs(r, rr)
		} else {
			out[i] = ResourceConfigs{Resource: r, Err: noAnswer("configs of "+r.Name, errMissing)}
		}
	}
	return out, nil
}

func resourceConfigs(r Resource, rr *kmsg.DescribeConfigsResponseResource) ResourceConfigs {
	out := ResourceConfigs{Resource: r, Err: explainMissing(fault(rr.ErrorCode, rr.ErrorMessage, r.topic(), -1))}
	for i := range rr.Configs {
		k := &rr.Configs[i]
		cfg := Config{
			Name: k.Name, Value: k.Value, Source: ConfigSource(k.Source), ReadOnly: k.ReadOnly, Sensitive: k.IsSensitive,
		}
		if k.ConfigType != 0 {
			cfg.Type = k.ConfigType.String()
		}
		if k.Documentation != nil {
			cfg.Documentation = *k.Documentation
		}
		for _, s := range k.ConfigSynonyms {
			cfg.Synonyms = append(cfg.Synonyms, ConfigSynonym{s.Name, s.Value, ConfigSource(s.Source)})
		}
		out.Configs = append(out.Configs, cfg)
	}
	return out
}

// topic is the resource's name if it is a topic.
func (r Resource) topic() string {
	if r.Type == TopicResource {
		return r.Name
	}
	return ""
}

// ConfigOp is what an alteration does.
type ConfigOp int8

const (
	SetConfig      ConfigOp = 0
	DeleteConfig   ConfigOp = 1
	AppendConfig   ConfigOp = 2
	SubtractConfig ConfigOp = 3
)

// ConfigChange alters one setting.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// ResourceChanges alters settings of one resource, all or none of them.
type ResourceChanges struct {
	Resource Resource
	Changes  []ConfigChange
}

// AlterConfigs changes settings. The errors (a *KafkaError or ErrNoAnswer) are in the order of the resources,
// which are independent of each other.
func (c *Client) AlterConfigs(ctx context.Context, resources []ResourceChanges, mode Mode) ([]error, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = bool(mode)
	for _, r := range resources {
		rr := kmsg.NewIncrementalAlterConfigsRequestResource()
		rr.ResourceType = kmsg.ConfigResourceType(r.Resource.Type)
		rr.ResourceName = r.Resource.Name
		for _, ch := range r.Changes {
			k := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			k.Name, k.Op, k.Value = ch.Name, kmsg.IncrementalAlterConfigOp(ch.Op), ch.Value
			rr.Configs = append(rr.Configs, k)
		}
		req.Resources = append(req.Resources, rr)
	}
	resp, err := call(ctx, "alter configs", req.RequestWith, c.requestor)
	for _, r := range resources {
		if r.Resource.Type == TopicResource {
			c.Forget(r.Resource.Name) // its limits are cached with it
		}
	}
	if err != nil {
		return nil, err
	}
	answers := make(map[Resource]error, len(resp.Resources))
	for i := range resp.Resources {
		rr := &resp.Resources[i]
		r := Resource{ResourceType(rr.ResourceType), rr.ResourceName}
		answers[r] = explainMissing(fault(rr.ErrorCode, rr.ErrorMessage, r.topic(), -1))
	}
	out := make([]error, len(resources))
	for i, r := range resources {
		err, answered := answers[r.Resource]
		if !answered {
			err = noAnswer("configs of "+r.Resource.Name, errMissing)
		}
		out[i] = err
	}
	return out, nil
}
