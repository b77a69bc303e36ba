package group

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"time"

	"millrace/server/metadata"
)

// How the topics that groups subscribe to are watched.
const (
	watchInterval   = 200 * time.Millisecond
	maxMatched      = 10_000 // topics that a pattern may match; what comes after them in the order of names does not count
	maxMatchedBytes = 512 << 10
)

// watch notices changes of topics for the consumer groups of a shard, whether or not members send heartbeats: a parked
// one must hear of new partitions too. While there are no members it rests.
type watch struct {
	shard   *shard
	live    bool            // the partition is loaded
	running bool            // a timer is set
	seats   int             // of members, in all groups
	seen    *metadata.Image // nil: none yet
}

// start sets the timer, unless it is set.
func (w *watch) start() {
	if w.live && !w.running {
		w.running = true
		w.shard.run.After(watchInterval, w.look)
	}
}

// look hands what changed to the groups.
func (w *watch) look() {
	w.running = false
	if w.seats == 0 {
		w.seen = nil
		return
	}
	if image := w.shard.image(); image != w.seen {
		changed, others := changedTopics(w.seen, image)
		w.seen = image
		for _, c := range w.shard.consumers() {
			if others {
				c.match()
			}
			if c.concerns(changed) {
				c.refresh()
			}
		}
	}
	w.start()
}

// changedTopics names the topics whose partitions are not those of an older image, and says whether there are others
// than in that.
func changedTopics(old, now *metadata.Image) (changed map[string]bool, others bool) {
	changed = make(map[string]bool)
	for _, c := range metadata.Diff(old, now) {
		switch {
		case c.Old == nil:
			changed[c.New.Name], others = true, true
		case c.New == nil:
			changed[c.Old.Name], others = true, true
		case len(c.Old.Partitions) != len(c.New.Partitions):
			changed[c.New.Name] = true
		}
	}
	return changed, others
}

// consumers lists the groups of the consumer protocol that have members, by id.
func (s *shard) consumers() []*consumer {
	var list []*consumer
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		if c := s.groups[id].consumer; c != nil && !c.empty() {
			list = append(list, c)
		}
	}
	return list
}

func (c *consumer) ids() []string { return slices.Sorted(maps.Keys(c.members)) }

// concerns says whether the group subscribes to one of the topics.
func (c *consumer) concerns(topics map[string]bool) bool {
	for t := range topics {
		if c.subscribed(t) {
			return true
		}
	}
	return false
}

// compilePattern makes an expression that is to match the whole name of a topic.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// usedPatterns is the patterns that members subscribe to.
func (c *consumer) usedPatterns() map[string]bool {
	used := make(map[string]bool)
	for _, m := range c.members {
		if m.topicRegex != nil {
			used[*m.topicRegex] = true
		}
	}
	return used
}

// match looks up which topics the patterns of the group match, off the loop.
func (c *consumer) match() {
	patterns := c.usedPatterns()
	if c.matching || len(patterns) == 0 {
		c.rematch = c.matching
		return
	}
	c.matching, c.rematch, c.matched = true, false, time.Now()
	image := c.shard.image()
	c.shard.run.Go(func(ctx context.Context) func() {
		found := make(map[string][]string, len(patterns))
		for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
			topics, ok := matchTopics(ctx, image, pattern)
			if !ok {
				return nil
			}
			found[pattern] = topics
		}
		return func() { c.takeMatches(image, found) }
	})
}

// matchTopics lists the topics that a pattern matches; not ok when the context ends. Internal topics are not for
// groups.
func matchTopics(ctx context.Context, image *metadata.Image, pattern string) (topics []string, ok bool) {
	re, err := compilePattern(pattern)
	if err != nil {
		return nil, true // it was written by somebody else: it matches nothing
	}
	bytes := 0
	for t := range image.Topics() {
		if ctx.Err() != nil {
			return nil, false
		}
		if len(topics) == maxMatched || bytes >= maxMatchedBytes {
			break
		}
		if !t.Internal() && re.MatchString(t.Name) {
			topics, bytes = append(topics, t.Name), bytes+len(t.Name)
		}
	}
	return topics, true
}

// takeMatches takes up which topics the patterns match.
func (c *consumer) takeMatches(image *metadata.Image, found map[string][]string) {
	c.matching = false
	if c.shard.consumerIf(c.id) != c {
		return
	}
	used := c.usedPatterns()
	d := newDraft(c)
	for pattern, topics := range found {
		have := c.patterns[pattern]
		if used[pattern] && (have == nil || !slices.Equal(have.topics, topics)) {
			if len(topics) >= maxMatched {
				c.shard.log.Warn("a pattern matches more topics than a group may subscribe to", "group", c.id)
			}
			d.patterns[pattern] = &regexTopics{
				topics: topics, version: int64(image.Index), timestamp: c.shard.millis(),
			}
		}
	}
	if len(d.patterns) > 0 {
		c.seen = nil
		d.bump(false)
		d.makeTarget(false)
		if err := d.commit(); err != nil {
			c.shard.run.After(retryPause, c.match)
			return
		}
		c.settle()
	}
	if c.rematch || newDraft(c).unmatched(c.ids()) {
		c.match()
	}
}
