package metadata

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *AlterConfigs) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Resources))}
	for i := range c.Resources {
		r.Items[i] = e.alterResource(&c.Resources[i])
	}
	return r
}

func (e *editor) alterResource(r *AlterResource) Item {
	switch r.Type {
	case TopicResource:
		return e.alterTopic(r)
	case BrokerResource:
		return e.alterBroker(r)
	default:
		return refuse(kerr.InvalidRequest,
			"configuration of resource type %d cannot be altered: only topics (2) and brokers (4) have some", r.Type)
	}
}

func (e *editor) alterTopic(r *AlterResource) Item {
	t := e.topics.get(r.Name)
	if t == nil {
		return refuse(kerr.UnknownTopicOrPartition, "topic %s does not exist", quoteShort(r.Name))
	}
	now, item := e.alteredValues(e.next.node.schema.Topic, "topic", r, t.Configs)
	if item.Code != 0 {
		return item
	}
	if item := e.checkCompactionLag(now); item.Code != 0 {
		return item
	}
	if maps.Equal(now, t.Configs) {
		return Item{Topic: t}
	}
	if len(now) == 0 {
		now = nil
	}
	changed := e.replaceTopic(t, func(t *Topic) {
		t.Configs, t.Settings = now, e.next.node.topicSettings(now)
	})
	e.followTopicRules(changed, e.next.rules(t.Configs))
	return Item{Topic: e.topics.getID(t.ID)}
}

func (e *editor) alterBroker(r *AlterResource) Item {
	if item := e.checkBrokerResource(r); item.Code != 0 {
		return item
	}
	old := e.next.configs[r.Name]
	now, item := e.alteredValues(e.next.node.schema.Broker, "broker", r, old)
	if item.Code != 0 {
		return item
	}
	// A value set again is still a change for a broker: it may name a file that is to be read again.
	again := slices.ContainsFunc(r.Operations, func(op AlterKey) bool { return op.Op == OpSet })
	if again || !maps.Equal(now, old) {
		e.setConfigs(r.Name, now)
	}
	return Item{}
}

// checkBrokerResource refuses unknown brokers and keys that may not be changed there.
func (e *editor) checkBrokerResource(r *AlterResource) Item {
	if r.Name != "" {
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil || strconv.FormatInt(id, 10) != r.Name {
			return refuse(kerr.InvalidRequest, "broker %s is not a number: give a broker id, or nothing for all brokers",
				quoteShort(r.Name))
		}
		if e.next.brokers[int32(id)] == nil {
			return refuse(kerr.BrokerIDNotRegistered, "broker %d is not registered", id)
		}
	}
	for _, op := range r.Operations {
		key := e.next.node.schema.Broker.Key(op.Name)
		switch {
		case key == nil:
		case key.Update == StaticOnly:
			return refuse(kerr.InvalidRequest,
				"broker configuration %s is read-only: set it in the configuration that the broker starts with", op.Name)
		case key.Update == PerBroker && r.Name == "":
			return refuse(kerr.InvalidRequest, "broker configuration %s is of single brokers: name a broker", op.Name)
		case agreedKey(op.Name) && r.Name != "" && op.Op != OpDelete && e.next.defaults.MinISR > 0:
			return refuse(kerr.InvalidRequest, "broker configuration %s is of the whole cluster, which elects leaders by it: "+
				"set it for all brokers, or for a topic", op.Name)
		}
	}
	return Item{}
}

// alteredValues returns the overrides of a resource after all of its operations. Old stays as it was.
func (e *editor) alteredValues(
	table *ConfigTable, kind string, r *AlterResource, old map[string]string,
) (map[string]string, Item) {
	now := old
	for i, op := range r.Operations {
		if slices.ContainsFunc(r.Operations[:i], func(o AlterKey) bool { return o.Name == op.Name }) {
			return nil, refuse(kerr.InvalidRequest, "%s configuration %s is altered twice: give one operation for each key",
				kind, quoteShort(op.Name))
		}
		key := table.Key(op.Name)
		if key == nil {
			if _, set := old[op.Name]; !set || op.Op != OpDelete {
				return nil, refuse(kerr.InvalidConfig, "unknown %s configuration %s", kind, quoteShort(op.Name))
			}
			now = withOverride(now, op.Name, nil) // set by a version that knew the key
			continue
		}
		text, item := alteredValue(key, op, old)
		if item.Code != 0 {
			return nil, item
		}
		now = withOverride(now, op.Name, text)
	}
	return now, Item{}
}

// alteredValue is the value of a key after one operation; nil when it is no longer set.
func alteredValue(key *ConfigKey, op AlterKey, old map[string]string) (*string, Item) {
	if op.Op == OpDelete {
		return nil, Item{}
	}
	if op.Op != OpSet && op.Op != OpAppend && op.Op != OpSubtract {
		return nil, refuse(kerr.InvalidRequest,
			"configuration %s: operation %d is none of 0 (set), 1 (delete), 2 (append) and 3 (subtract)", key.Name, op.Op)
	}
	if op.Value == nil {
		return nil, refuse(kerr.InvalidConfig, "configuration %s: the value is null: to unset the key, delete it", key.Name)
	}
	base, set := old[key.Name]
	if !set {
		base = op.Base
	}
	text := *op.Value
	if op.Op != OpSet {
		if key.Type != kmsg.ConfigTypeList {
			return nil, refuse(kerr.InvalidConfig, "configuration %s is not a list: set it instead of changing items", key.Name)
		}
		text = alteredList(base, text, op.Op)
	}
	if err := key.Validate(text); err != nil {
		return nil, refuse(kerr.InvalidConfig, "%v", err)
	}
	if from, ok := parseInteger(base, 32); key.pool && ok {
		to, _ := parseInteger(strings.TrimSpace(text), 32)
		if to < from/2 || to > from*2 {
			return nil, refuse(kerr.InvalidConfig,
				"invalid value %d for configuration %s: a pool of %d threads may change to between %d and %d at once",
				to, key.Name, from, max(1, from/2), from*2)
		}
	}
	return &text, Item{}
}

// alteredList appends the items that are not there yet, or removes items.
func alteredList(base, items string, op AlterOp) string {
	list := splitList(base)
	for _, item := range splitList(items) {
		switch {
		case op == OpSubtract:
			list = slices.DeleteFunc(list, func(have string) bool { return have == item })
		case !slices.Contains(list, item):
			list = append(list, item)
		}
	}
	return strings.Join(list, ",")
}

// checkTopicConfigs refuses overrides of a new topic that are unknown or invalid.
func (e *editor) checkTopicConfigs(configs map[string]string) Item {
	for _, name := range sortedKeys(configs) {
		key := e.next.node.schema.Topic.Key(name)
		if key == nil {
			return refuse(kerr.InvalidConfig, "unknown topic configuration %s", quoteShort(name))
		}
		if err := key.Validate(configs[name]); err != nil {
			return refuse(kerr.InvalidConfig, "%v", err)
		}
	}
	return e.checkCompactionLag(configs)
}

// checkCompactionLag refuses a lower bound above the upper one. It looks only at what is agreed on,
// not at this node's static configuration.
func (e *editor) checkCompactionLag(configs map[string]string) Item {
	const lowName, highName = "min.compaction.lag.ms", "max.compaction.lag.ms"
	low, high := e.agreedLong(lowName, configs), e.agreedLong(highName, configs)
	if low <= high {
		return Item{}
	}
	return refuse(kerr.InvalidConfig, "invalid value \"%d\" for configuration %s: it is above %s, which is %d",
		low, lowName, highName, high)
}

// agreedLong is a number that a topic has by its own overrides, the dynamic default of all brokers or
// the built-in default.
func (e *editor) agreedLong(name string, configs map[string]string) int64 {
	key := e.next.node.schema.Topic.Key(name)
	text, ok := configs[name]
	if !ok {
		text, ok = e.next.configs[""][key.Synonyms[0].Name]
	}
	if !ok {
		text = key.Default
	}
	v, _ := key.parse(text)
	return v.num
}

// FillBases fills in the bases of the operations that need one, for whoever proposes them: the value
// that applies where the resource sets none.
func (m *Image) FillBases(r *AlterResource) {
	table, layers := m.node.schema.Broker, m.node.layers[1:] // below a broker's own: the default of all, the static
	switch {
	case r.Type == TopicResource:
		table = m.node.schema.Topic
	case r.Name == "":
		layers = m.node.layers[2:]
	}
	for i := range r.Operations {
		op := &r.Operations[i]
		key := table.Key(op.Name)
		if key == nil || op.Op == OpDelete || key.Type != kmsg.ConfigTypeList && !key.pool {
			continue
		}
		op.Base = baseValue(key, layers)
	}
}

func baseValue(key *ConfigKey, layers []layer) string {
	names := []Synonym{{key.Name, 1}}
	if len(key.Synonyms) > 0 {
		names = key.Synonyms
	}
	for _, l := range layers {
		for _, s := range names {
			if text, ok := l.values[s.Name]; ok {
				return s.convert(text)
			}
		}
	}
	return key.Default
}
