package metadata

// rules are the settings that decide elections. They come from what is agreed on alone, so they are the
// same on every node: the topic's own, the dynamic default of all brokers, then Defaults.
type rules struct {
	minISR  int
	unclean bool
}

const (
	minISRKey  = "min.insync.replicas"
	uncleanKey = "unclean.leader.election.enable"
)

// agreedKey reports whether a key is of the whole cluster: no broker may have a value of its own.
func agreedKey(name string) bool { return name == minISRKey || name == uncleanKey }

// rules returns those of a topic with these overrides.
func (m *Image) rules(overrides map[string]string) rules {
	r := rules{minISR: max(1, m.defaults.MinISR), unclean: m.defaults.UncleanElection}
	if v, ok := m.agreedValue(minISRKey, overrides); ok {
		r.minISR = int(v.num)
	}
	if v, ok := m.agreedValue(uncleanKey, overrides); ok {
		r.unclean = v.yes
	}
	return r
}

// agreedValue is the dynamic value of such a key, if it has one.
func (m *Image) agreedValue(name string, overrides map[string]string) (value, bool) {
	text, ok := overrides[name]
	if !ok {
		text, ok = m.configs[""][name]
	}
	if !ok {
		return value{}, false
	}
	key := m.node.schema.Topic.Key(name)
	v, err := key.parse(text)
	if err != nil {
		v, _ = key.parse(key.Default)
	}
	return v, true
}

// adopt makes the proposer's defaults those of the cluster.
func (e *editor) adopt(d Defaults) {
	if d.MinISR <= 0 || d == e.next.defaults {
		return
	}
	before := e.next.rules(nil)
	e.next.defaults = d
	e.changed = true
	e.renewSettings()
	e.followRules(before)
}

// setConfigs puts the dynamic configuration of a broker resource and makes follow what follows from it.
func (e *editor) setConfigs(resource string, values map[string]string) {
	if !e.ownConfigs {
		e.next.configs, e.ownConfigs = cloneMap(e.next.configs), true
	}
	before := e.next.rules(nil)
	if len(values) == 0 {
		delete(e.next.configs, resource)
	} else {
		e.next.configs[resource] = values
	}
	e.changed = true
	if resource == "" || resource == e.next.node.id {
		e.renewSettings()
	}
	e.followRules(before)
}

// renewSettings computes anew what this node makes of the configuration.
func (e *editor) renewSettings() {
	old := e.next.node
	e.next.node = old.with(e.next.configs, e.next.defaults)
	if *e.next.node.topicDefaults == *old.topicDefaults {
		e.next.node.topicDefaults = old.topicDefaults
		return
	}
	for t := range e.allTopics() {
		e.replaceTopic(t, func(t *Topic) { t.Settings = e.next.node.topicSettings(t.Configs) })
	}
}

// followRules makes partitions follow a change of the rules for topics that set nothing themselves.
func (e *editor) followRules(before rules) {
	now := e.next.rules(nil)
	if now == before {
		return
	}
	for t := range e.allTopics() {
		own := e.next.rules(t.Configs)
		was := own
		if _, set := t.Configs[minISRKey]; !set {
			was.minISR = before.minISR
		}
		if _, set := t.Configs[uncleanKey]; !set {
			was.unclean = before.unclean
		}
		e.followTopicRules(t, was)
	}
}

// followTopicRules makes the partitions of a topic follow a change of its rules. Who was eligible under
// another min.insync.replicas is so no more, unless the partition has no leader: nothing was written
// since, and nobody else could lead it.
func (e *editor) followTopicRules(t *Topic, before rules) {
	now := e.next.rules(t.Configs)
	for i := range t.Partitions {
		p := t.Partitions[i]
		switch {
		case p.Leader != NoLeader && now.minISR != before.minISR && len(p.ELR)+len(p.LastKnownELR) > 0:
			p.ELR, p.LastKnownELR = nil, nil
			p.PartitionEpoch++
			e.putPartition(t, i, p)
		case p.Leader == NoLeader && now.unclean && !before.unclean:
			e.settle(t, i, p, election{})
		}
	}
}
