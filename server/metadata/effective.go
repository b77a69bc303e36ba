package metadata

import (
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// nodeView is what one node makes of the agreed configuration: its static configuration lies below
// the dynamic one. It never changes; a change of broker configuration makes a new one.
type nodeView struct {
	schema *Schema
	id     string // the resource name of this broker
	static map[string]string
	// settings and topicDefaults are computed from the above and the dynamic broker configuration.
	settings      *BrokerSettings
	topicDefaults *TopicSettings // of topics that set nothing themselves
	layers        []layer        // above the built-in defaults, the strongest first
	// agreed holds the layers of keys that the whole cluster agrees on; nil before it does.
	agreed []layer
}

// layer is one level at which a broker key may be set.
type layer struct {
	source kmsg.ConfigSource
	values map[string]string
}

// with returns the view under changed dynamic broker configuration and agreed defaults.
func (n *nodeView) with(configs map[string]map[string]string, d Defaults) *nodeView {
	v := &nodeView{schema: n.schema, id: n.id, static: n.static}
	v.layers = []layer{
		{kmsg.ConfigSourceDynamicBrokerConfig, configs[n.id]},
		{kmsg.ConfigSourceDynamicDefaultBrokerConfig, configs[""]},
		{kmsg.ConfigSourceStaticBrokerConfig, n.static},
	}
	if d.MinISR > 0 {
		v.agreed = []layer{
			{kmsg.ConfigSourceDynamicDefaultBrokerConfig, configs[""]},
			{kmsg.ConfigSourceStaticBrokerConfig, d.static(n.schema.Broker)},
		}
	}
	v.settings = v.brokerSettings()
	v.topicDefaults = v.newTopicSettings(nil)
	return v
}

// static returns the defaults as a static configuration that differs from the built-in one.
func (d Defaults) static(table *ConfigTable) map[string]string {
	static := make(map[string]string)
	for name, text := range map[string]string{
		minISRKey: strconv.Itoa(d.MinISR), uncleanKey: strconv.FormatBool(d.UncleanElection),
	} {
		if text != table.Key(name).Default {
			static[name] = text
		}
	}
	return static
}

// layersOf returns the layers that a topic key takes its default from.
func (n *nodeView) layersOf(key *ConfigKey) []layer {
	if n.agreed != nil && agreedKey(key.Name) {
		return n.agreed
	}
	return n.layers
}

// staticDefaults is what the static configuration says about elections.
func (n *nodeView) staticDefaults() Defaults {
	static := nodeView{schema: n.schema, layers: []layer{{kmsg.ConfigSourceStaticBrokerConfig, n.static}}}
	r := settingsReader{table: n.schema.Broker, get: static.brokerValue}
	return Defaults{
		MinISR: r.int(minISRKey), UncleanElection: r.value(uncleanKey).yes,
	}
}

// ConfigValue is the value of a key in effect, and where it comes from.
type ConfigValue struct {
	Key   *ConfigKey
	Value *string // nil where the key has no value
	// Source is the level that supplied the value.
	Source kmsg.ConfigSource
	// ReadOnly keys cannot be altered while the broker runs.
	ReadOnly bool
	// Synonyms lists all values in order of precedence; the first one is in effect.
	Synonyms []ConfigSynonym
}

// ConfigSynonym is one value that a key would take if those before it were not set.
type ConfigSynonym struct {
	Name   string
	Value  *string
	Source kmsg.ConfigSource
}

// TopicConfigs describes every topic key for a topic as this node sees it, by name.
func (m *Image) TopicConfigs(t *Topic) []ConfigValue {
	values := make([]ConfigValue, 0, len(m.node.schema.Topic.keys))
	for _, key := range m.node.schema.Topic.keys {
		if _, set := t.Configs[key.Name]; key.Hidden && !set {
			continue
		}
		values = append(values, m.node.describeTopicKey(key, t.Configs))
	}
	return values
}

// BrokerConfigs describes every broker key as it is for this node, by name.
func (m *Image) BrokerConfigs() []ConfigValue {
	values := make([]ConfigValue, 0, len(m.node.schema.Broker.keys))
	for _, key := range m.node.schema.Broker.keys {
		values = append(values, m.node.describeBrokerKey(key))
	}
	return values
}

// ClusterConfigs describes the broker keys that have a dynamic default for all brokers, by name.
func (m *Image) ClusterConfigs() []ConfigValue {
	overrides := m.configs[""]
	values := make([]ConfigValue, 0, len(overrides))
	for _, name := range sortedKeys(overrides) {
		key := m.node.schema.Broker.Key(name)
		if key == nil {
			continue // set by a version that knew it
		}
		text, source := overrides[name], kmsg.ConfigSourceDynamicDefaultBrokerConfig
		values = append(values, ConfigValue{
			Key: key, Value: &text, Source: source,
			Synonyms: []ConfigSynonym{{Name: name, Value: &text, Source: source}},
		})
	}
	return values
}

func (n *nodeView) describeTopicKey(key *ConfigKey, overrides map[string]string) ConfigValue {
	v := ConfigValue{Key: key, Source: kmsg.ConfigSourceDefaultConfig}
	if text, ok := overrides[key.Name]; ok {
		v.Synonyms = append(v.Synonyms, ConfigSynonym{key.Name, &text, kmsg.ConfigSourceDynamicTopicConfig})
	}
	for _, l := range n.layersOf(key) {
		for _, s := range key.Synonyms {
			if text, ok := l.values[s.Name]; ok {
				v.Synonyms = append(v.Synonyms, ConfigSynonym{s.Name, &text, l.source})
			}
		}
	}
	if d, ok := n.defaultSynonym(key); ok {
		v.Synonyms = append(v.Synonyms, d)
	}
	if text, source, ok := n.topicValue(key, overrides); ok {
		v.Value, v.Source = &text, source
	}
	return v
}

// defaultSynonym is the built-in default, under the name of the broker key that has it.
func (n *nodeView) defaultSynonym(key *ConfigKey) (ConfigSynonym, bool) {
	for _, s := range key.Synonyms {
		if broker := n.schema.Broker.Key(s.Name); !broker.NoDefault {
			return ConfigSynonym{s.Name, &broker.Default, kmsg.ConfigSourceDefaultConfig}, true
		}
	}
	if key.NoDefault {
		return ConfigSynonym{}, false
	}
	return ConfigSynonym{key.Name, &key.Default, kmsg.ConfigSourceDefaultConfig}, true
}

// topicValue is the value in effect of a topic key. At each level the first synonym that is set
// wins; a level wins over those below it, however good their synonyms. False: there is no value.
func (n *nodeView) topicValue(key *ConfigKey, overrides map[string]string) (string, kmsg.ConfigSource, bool) {
	if text, ok := overrides[key.Name]; ok {
		return text, kmsg.ConfigSourceDynamicTopicConfig, true
	}
	for _, l := range n.layersOf(key) {
		for _, s := range key.Synonyms {
			if text, ok := l.values[s.Name]; ok {
				return s.convert(text), l.source, true
			}
		}
	}
	return key.Default, kmsg.ConfigSourceDefaultConfig, !key.NoDefault
}

// convert turns a value of the synonym into one of the topic key. Negative numbers mean the same in
// every unit.
func (s Synonym) convert(text string) string {
	n, ok := parseInteger(text, 64)
	if s.Factor == 1 || !ok || n < 0 {
		return text
	}
	return strconv.FormatInt(n*s.Factor, 10)
}

func (n *nodeView) describeBrokerKey(key *ConfigKey) ConfigValue {
	v := ConfigValue{Key: key, Source: kmsg.ConfigSourceDefaultConfig, ReadOnly: key.Update == StaticOnly}
	for _, l := range n.layers {
		if text, ok := l.values[key.Name]; ok {
			v.Synonyms = append(v.Synonyms, ConfigSynonym{key.Name, &text, l.source})
		}
	}
	if !key.NoDefault {
		v.Synonyms = append(v.Synonyms, ConfigSynonym{key.Name, &key.Default, kmsg.ConfigSourceDefaultConfig})
	}
	if len(v.Synonyms) > 0 {
		v.Value, v.Source = v.Synonyms[0].Value, v.Synonyms[0].Source
	}
	return v
}

// brokerValue is the value in effect of a broker key on this node.
func (n *nodeView) brokerValue(key *ConfigKey) (string, bool) {
	for _, l := range n.layers {
		if text, ok := l.values[key.Name]; ok {
			return text, true
		}
	}
	return key.Default, !key.NoDefault
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
