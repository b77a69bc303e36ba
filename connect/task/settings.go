package task

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/record"
)

// Bounds and defaults of what the settings of a task say.
const (
	defaultRetryDelay = time.Minute
	defaultSinkPoll   = 5000 // records of a batch for a sink
	maxSinkPoll       = 100_000
	defaultTxnTimeout = 5 * time.Minute
	deadLetterName    = "errors.deadletterqueue.topic.name"
)

// settings are the settings of the framework in the settings of a connector, read.
type settings struct {
	tolerant    bool // errors.tolerance=all
	retryFor    time.Duration
	retryDelay  time.Duration // the longest
	log         bool
	logCoords   bool   // errors.log.include.messages: where the record is from; never what is in it
	deadLetters string // topic, "": none
	deadFactor  int16  // replicas of that topic, -1: as the cluster has it
	deadContext bool   // headers that say why

	// Of sinks.
	topics      []string
	pattern     string // of whole names
	group       string
	reset       reset
	uncommitted bool // records of open and aborted transactions are read too
	maxRecords  int

	// Of sources.
	codec      record.Codec
	creation   []topicGroup // the first that matches counts, the last matches all; none: no rules
	txnTimeout time.Duration
}

// reset says where a partition without a place is read from.
type reset uint8

const (
	fromEarliest reset = iota
	fromLatest
	fromNowhere
)

// reader reads settings and gathers what is wrong with them.
type reader struct {
	props    map[string]string
	problems []plugin.Problem
}

func (r *reader) bad(key, format string, args ...any) {
	r.problems = append(r.problems, plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) text(key, otherwise string) string {
	if v, ok := r.props[key]; ok {
		return strings.TrimSpace(v)
	}
	return otherwise
}

func (r *reader) bool(key string, otherwise bool) bool {
	v, ok := r.props[key]
	switch v = strings.TrimSpace(v); {
	case !ok:
		return otherwise
	case strings.EqualFold(v, "true"):
		return true
	case !strings.EqualFold(v, "false"):
		r.bad(key, "it must be true or false")
	}
	return false
}

func (r *reader) number(key string, otherwise, least, most int64) int64 {
	v, ok := r.props[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil || n < least || n > most {
		r.bad(key, "it must be a number from %d to %d", least, most)
		return otherwise
	}
	return n
}

// mostMillis are as many milliseconds as a duration may have, doubled.
const mostMillis = math.MaxInt64 / int64(time.Millisecond) / 2

func (r *reader) millis(key string, otherwise time.Duration, least, most int64) time.Duration {
	return time.Duration(r.number(key, otherwise.Milliseconds(), least, most)) * time.Millisecond
}

func (r *reader) list(key string) (out []string) {
	for e := range strings.SplitSeq(r.props[key], ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

func (r *reader) oneOf(key, otherwise string, values ...string) string {
	v := strings.ToLower(r.text(key, otherwise))
	if !slices.Contains(values, v) {
		r.bad(key, "it must be one of %s", strings.Join(values, ", "))
		return otherwise
	}
	return v
}

// CheckSettings says what is wrong with the settings of the framework that a task of this kind reads, beside its
// converters, transforms and predicates.
func CheckSettings(kind plugin.Kind, connector string, props map[string]string) []plugin.Problem {
	_, problems := readSettings(kind, connector, props)
	return problems
}

// ErrSettings marks a task that cannot run with its settings.
var ErrSettings = errors.New("the settings of the connector are at fault")

// settingsError is the error of a task with such settings; nil if nothing is wrong.
func settingsError(problems []plugin.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	var text strings.Builder
	for i, p := range problems {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(p.Key + ": " + p.Message)
	}
	return fmt.Errorf("%w: %s", ErrSettings, text.String())
}

func readSettings(kind plugin.Kind, connector string, props map[string]string) (*settings, []plugin.Problem) {
	r := &reader{props: props}
	s := &settings{
		tolerant:    r.oneOf("errors.tolerance", "none", "none", "all") == "all",
		retryFor:    r.millis("errors.retry.timeout", 0, -1, mostMillis),
		retryDelay:  r.millis("errors.retry.delay.max.ms", defaultRetryDelay, 1, mostMillis),
		log:         r.bool("errors.log.enable", false),
		logCoords:   r.bool("errors.log.include.messages", false),
		deadLetters: r.text(deadLetterName, ""),
		deadFactor:  int16(r.number("errors.deadletterqueue.topic.replication.factor", -1, -1, math.MaxInt16)),
		deadContext: r.bool("errors.deadletterqueue.context.headers.enable", true),
	}
	if s.retryFor < 0 {
		s.retryFor = math.MaxInt64
	}
	if s.deadFactor == 0 {
		r.bad("errors.deadletterqueue.topic.replication.factor", "it must be -1, for what the cluster has, or at least 1")
	}
	if s.deadLetters != "" {
		if err := client.CheckTopicName(s.deadLetters); err != nil {
			r.bad(deadLetterName, "%v", detail(err))
		}
	}
	if kind == plugin.SinkKind {
		s.readSink(r, connector)
	} else {
		s.readSource(r)
	}
	return s, r.problems
}

func (s *settings) readSink(r *reader, connector string) {
	s.topics = r.list("topics")
	slices.Sort(s.topics)
	s.topics = slices.Compact(s.topics)
	s.pattern = r.text("topics.regex", "")
	switch {
	case len(s.topics) == 0 && s.pattern == "":
		r.bad("topics", "either topics or topics.regex must be given")
	case len(s.topics) > 0 && s.pattern != "":
		r.bad("topics", "only one of topics and topics.regex may be given")
	}
	for _, t := range s.topics {
		if err := client.CheckTopicName(t); err != nil {
			r.bad("topics", "%v", detail(err))
		}
	}
	if slices.Contains(s.topics, s.deadLetters) {
		r.bad(deadLetterName, "the topic %s is among those that the connector reads", s.deadLetters)
	}
	if s.pattern != "" {
		switch whole, err := regexp.Compile("^(?:" + s.pattern + ")$"); {
		case err != nil:
			r.bad("topics.regex", "%v", err)
		case s.deadLetters != "" && whole.MatchString(s.deadLetters):
			r.bad(deadLetterName, "topics.regex matches the topic %s, so that the connector would read it", s.deadLetters)
		}
	}
	s.group = r.text("consumer.override.group.id", "")
	if s.group == "" {
		s.group = "connect-" + connector
	}
	switch r.oneOf("consumer.override.auto.offset.reset", "earliest", "earliest", "latest", "none") {
	case "latest":
		s.reset = fromLatest
	case "none":
		s.reset = fromNowhere
	}
	s.uncommitted = r.oneOf("consumer.override.isolation.level", "read_committed", "read_committed",
		"read_uncommitted") == "read_uncommitted"
	s.maxRecords = int(r.number("consumer.override.max.poll.records", defaultSinkPoll, 1, maxSinkPoll))
}

func (s *settings) readSource(r *reader) {
	s.txnTimeout = r.millis("producer.override.transaction.timeout.ms", defaultTxnTimeout, 1000, math.MaxInt32)
	s.creation = readCreation(r)
	codecs := map[string]record.Codec{
		"none": record.None, "gzip": record.Gzip, "snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd,
	}
	s.codec = codecs[r.oneOf("producer.override.compression.type", "none", "none", "gzip", "snappy", "lz4", "zstd")]
}

// topicGroup says how topics are made whose names it includes.
type topicGroup struct {
	name             string
	include, exclude []*regexp.Regexp
	partitions       int32
	replication      int16
	configs          []client.NewConfig
}

const (
	creationPrefix = "topic.creation."
	defaultGroup   = "default"
)

// readCreation reads the rules by which topics are made. There are some once topic.creation.default is given.
func readCreation(r *reader) (out []topicGroup) {
	used := slices.ContainsFunc(slices.Collect(maps.Keys(r.props)), func(k string) bool {
		return strings.HasPrefix(k, creationPrefix) && k != "topic.creation.enable"
	})
	if !used {
		return nil
	}
	base := readGroup(r, defaultGroup, topicGroup{partitions: 0, replication: 0})
	for _, key := range []string{"partitions", "replication.factor"} {
		if _, ok := r.props[creationPrefix+defaultGroup+"."+key]; !ok {
			r.bad(creationPrefix+defaultGroup+"."+key, "it must be given where there are rules of topic creation")
		}
	}
	for _, name := range r.list(creationPrefix + "groups") {
		if name == defaultGroup {
			continue
		}
		g := readGroup(r, name, base)
		if len(g.include) == 0 {
			r.bad(creationPrefix+name+".include", "the group %s includes no topics", name)
		}
		out = append(out, g)
	}
	return append(out, base)
}

// readGroup reads one group. What it does not say is as in base.
func readGroup(r *reader, name string, base topicGroup) topicGroup {
	prefix := creationPrefix + name + "."
	g := topicGroup{name: name}
	g.partitions = int32(r.number(prefix+"partitions", int64(base.partitions), -1, 100_000))
	g.replication = int16(r.number(prefix+"replication.factor", int64(base.replication), -1, math.MaxInt16))
	if g.partitions == 0 && r.props[prefix+"partitions"] != "" {
		r.bad(prefix+"partitions", "it must be -1, for what the cluster has, or at least 1")
	}
	if g.replication == 0 && r.props[prefix+"replication.factor"] != "" {
		r.bad(prefix+"replication.factor", "it must be -1, for what the cluster has, or at least 1")
	}
	for _, key := range slices.Sorted(maps.Keys(r.props)) {
		of, ok := strings.CutPrefix(key, prefix)
		switch value := strings.TrimSpace(r.props[key]); {
		case !ok, of == "partitions", of == "replication.factor":
		case of == "include" && name != defaultGroup:
			g.include = patterns(r, key)
		case of == "exclude" && name != defaultGroup:
			g.exclude = patterns(r, key)
		default:
			g.configs = append(g.configs, client.NewConfig{Name: of, Value: &value})
		}
	}
	return g
}

// patterns reads a list of regular expressions of whole names.
func patterns(r *reader, key string) (out []*regexp.Regexp) {
	for _, p := range r.list(key) {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			r.bad(key, "%v", err)
			continue
		}
		out = append(out, re)
	}
	return out
}

func (g *topicGroup) matches(topic string) bool {
	in := func(list []*regexp.Regexp) bool {
		return slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return re.MatchString(topic) })
	}
	return g.name == defaultGroup || in(g.include) && !in(g.exclude)
}

// detail is what a fault of the cluster says, without its code.
func detail(err error) string {
	var k *client.KafkaError
	if errors.As(err, &k) {
		return k.Detail()
	}
	return err.Error()
}
