package broker

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// DescribeConfigs (key 32).
//
// Resources are topics, this broker by its id, and "" for the dynamic defaults of all brokers. Each
// key comes with the value in effect and where it is set; synonyms and documentation as the request
// asks. Another broker's configuration is answered by that broker: the router sends it there.

func (b *Broker) handleDescribeConfigs(v *view, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	for i := range req.Resources {
		in := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		values, refusal, message := b.configsOf(v, in)
		if refusal != nil {
			out.ErrorCode, out.ErrorMessage = refusal.Code, &message
		}
		for j := range values {
			if in.ConfigNames == nil || slices.Contains(in.ConfigNames, values[j].Key.Name) {
				out.Configs = append(out.Configs, describeConfig(req, &values[j]))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// configsOf gives the configuration of a resource, or why there is none.
func (b *Broker) configsOf(v *view,
	r *kmsg.DescribeConfigsRequestResource) ([]metadata.ConfigValue, *kerr.Error, string) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.ValidateTopicName(r.ResourceName); err != nil {
			return nil, kerr.InvalidTopicException, err.Error()
		}
		t := v.image.Topic(r.ResourceName)
		if t == nil {
			return nil, kerr.UnknownTopicOrPartition, "topic " + r.ResourceName + " does not exist"
		}
		return v.image.TopicConfigs(t), nil, ""
	case kmsg.ConfigResourceTypeBroker:
		switch r.ResourceName {
		case "":
			return v.image.ClusterConfigs(), nil, ""
		case strconv.Itoa(int(b.cfg.NodeID)):
			return v.image.BrokerConfigs(), nil, ""
		}
		return nil, kerr.InvalidRequest, fmt.Sprintf("broker %q is unknown: want the id of a broker", r.ResourceName)
	}
	return nil, kerr.InvalidRequest, fmt.Sprintf("resources of type %s have no configuration here", r.ResourceType)
}

func describeConfig(req *kmsg.DescribeConfigsRequest,
	v *metadata.ConfigValue) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly = v.Key.Name, v.Value, v.ReadOnly
	c.Source, c.IsDefault = v.Source, v.Source == kmsg.ConfigSourceDefaultConfig
	c.ConfigType = v.Key.Type
	if req.IncludeDocumentation {
		doc := v.Key.Description()
		c.Documentation = &doc
	}
	if !req.IncludeSynonyms {
		return c
	}
	for _, s := range v.Synonyms {
		n := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		n.Name, n.Value, n.Source = s.Name, s.Value, s.Source
		c.ConfigSynonyms = append(c.ConfigSynonyms, n)
	}
	return c
}
