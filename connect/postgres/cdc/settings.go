package cdc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// settings are the connector's settings, read.
type settings struct {
	plugin.Settings
	prefix, delimiter string
	database          string
	slot, publication string
	filter            filter
	keys              []keyRule
	masks             []*mask
	skip              map[string]bool // operations
	overrides         map[string]string
	mapping           postgres.Mapping

	batchRows  int
	queueRows  int
	queueBytes int
	pollWait   time.Duration

	routed                            bool // transforms may give records other topics
	tombstones, headers, transactions bool
	readOnly, manual                  bool // manual: the user advances the slot
	nameMode, fieldMode               string
	signals                           tableName // zero: there is no signal table
	chunkRows                         int
	onFailure                         string
	snapshot                          snapshotMode
}

// tableName is a table by its schema and name.
type tableName struct{ Schema, Name string }

func (t tableName) String() string { return t.Schema + "." + t.Name }

// SQL is the table's name in a statement.
func (t tableName) SQL() string { return postgres.QuoteTable(t.Schema, t.Name) }

// snapshotMode says when rows are read and whether changes are streamed.
type snapshotMode struct {
	initial   bool // where there is no offset
	always    bool // at each start
	onLoss    bool // where the slot has lost what is after the offset
	streaming bool
}

func parseMode(s plugin.Settings) snapshotMode {
	switch s.Lower("snapshot.mode") {
	case "always":
		return snapshotMode{initial: true, always: true, streaming: true}
	case "initial_only":
		return snapshotMode{initial: true}
	case "no_data", "never":
		return snapshotMode{streaming: true}
	case "when_needed":
		return snapshotMode{initial: true, onLoss: true, streaming: true}
	case "configuration_based":
		const p = "snapshot.mode.configuration.based."
		return snapshotMode{initial: s.Bool(p + "snapshot.data"), onLoss: s.Bool(p + "snapshot.on.data.error"),
			streaming: s.Bool(p + "start.stream")}
	}
	return snapshotMode{initial: true, streaming: true}
}

// parseSettings reads props. What Defs.Check passes can still be at fault in what several settings say together.
func parseSettings(props map[string]string) (*settings, []plugin.Problem) {
	s := &settings{Settings: Defs().Settings(props)}
	var problems []plugin.Problem
	fault := func(key string, err error) {
		if err != nil {
			problems = append(problems, plugin.Problem{Key: key, Message: err.Error()})
		}
	}
	s.prefix, s.delimiter = s.String("topic.prefix"), s.String("topic.delimiter")
	s.database = s.String("database.dbname")
	s.slot, s.publication = s.String("slot.name"), s.String("publication.name")
	key, err := s.filter.parse(s.Settings)
	fault(key, err)
	s.keys, err = parseKeys(s.String("message.key.columns"))
	fault("message.key.columns", err)
	s.skip = map[string]bool{}
	for _, o := range s.List("skipped.operations") {
		s.skip[o] = true
	}
	for _, k := range sortedKeys(props) {
		s.dynamic(k, props[k], fault)
	}
	s.limits()
	s.routed = strings.TrimSpace(props["transforms"]) != ""
	s.tombstones, s.headers = s.Bool("tombstones.on.delete"), s.Bool("extended.headers.enabled")
	s.transactions, s.readOnly = s.Bool("provide.transaction.metadata"), s.Bool("read.only")
	s.nameMode, s.fieldMode = s.Lower("schema.name.adjustment.mode"), s.Lower("field.name.adjustment.mode")
	s.manual = s.Lower("lsn.flush.mode") == "manual"
	s.onFailure = s.Lower("event.processing.failure.handling.mode")
	s.snapshot = parseMode(s.Settings)
	if name := s.String("signal.data.collection"); name != "" {
		s.signals, err = parseTable(name)
		fault("signal.data.collection", err)
	}
	digits := s.Int("money.fraction.digits")
	s.mapping = postgres.Mapping{
		Convention: postgres.Debezium, Time: s.Lower("time.precision.mode"), Decimal: s.Lower("decimal.handling.mode"),
		Interval: s.Lower("interval.handling.mode"), Hstore: s.Lower("hstore.handling.mode"),
		Binary: s.Lower("binary.handling.mode"), MoneyDigits: &digits, Unknown: s.Bool("include.unknown.datatypes"),
		Placeholder: s.String("unavailable.value.placeholder"),
	}
	return s, problems
}

func (s *settings) limits() {
	s.batchRows, s.queueRows = s.Int("max.batch.size"), s.Int("max.queue.size")
	s.queueBytes = s.Int("max.queue.size.in.bytes")
	if s.queueBytes == 0 {
		s.queueBytes = 16 << 20
	}
	s.pollWait = s.Millis("poll.interval.ms")
	s.chunkRows = s.Int("incremental.snapshot.chunk.size")
}

func (s *settings) dynamic(key, value string, fault func(string, error)) {
	known, err := dynamic(key, value)
	if !known || err != nil {
		fault(key, err)
		return
	}
	if table, ok := strings.CutPrefix(key, "snapshot.select.statement.overrides."); ok {
		if s.overrides == nil {
			s.overrides = map[string]string{}
		}
		s.overrides[table] = strings.TrimRight(strings.TrimSpace(value), ";")
		return
	}
	m, _ := parseMask(key, value) // it was checked
	s.masks = append(s.masks, m)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parseTable reads the name of a table, schema.table.
func parseTable(name string) (tableName, error) {
	schema, table, err := postgres.ParseName(name)
	if err != nil {
		return tableName{}, err
	}
	if schema == "" {
		return tableName{}, fmt.Errorf("%q needs a schema: schema.table", name)
	}
	return tableName{schema, table}, nil
}

// partition is the source partition under which the offset is stored.
func (s *settings) partition() map[string]any { return map[string]any{"server": s.prefix} }

// topic is the name of a topic, made of the prefix and parts. What a topic's name cannot hold becomes an underscore.
func (s *settings) topic(parts ...string) string {
	var b strings.Builder
	b.WriteString(s.prefix)
	for _, p := range parts {
		b.WriteString(s.delimiter)
		for _, c := range p {
			if topicPart(string(c)) != nil {
				c = '_'
			}
			b.WriteRune(c)
		}
	}
	return b.String()
}

// maxTopic is how many characters the name of a topic has at most.
const maxTopic = 249

// topicFault refuses tables whose topic cannot be, or is that of another table.
func (s *settings) topicFault(names []tableName) error {
	tables := map[string]tableName{}
	for _, name := range names {
		if !s.filter.table(name) {
			continue
		}
		topic := s.topic(name.Schema, name.Name)
		if other, taken := tables[topic]; taken {
			return fmt.Errorf("tables %s and %s would both be topic %s, as what a topic's name cannot hold becomes an "+
				"underscore: leave one of the two out with table.exclude.list, and capture it with another connector, or "+
				"rename it", other, name, topic)
		}
		if len(topic) > maxTopic && !s.routed {
			return fmt.Errorf("the topic of table %s has a name of %d characters, and at most %d are possible: shorten "+
				"topic.prefix, or leave the table out with table.exclude.list", name, len(topic), maxTopic)
		}
		tables[topic] = name
	}
	return nil
}

// hidden says whether a column is masked.
func (s *settings) hidden(t tableName, column string) bool {
	full := t.String() + "." + column
	return slices.ContainsFunc(s.masks, func(m *mask) bool { return matches(m.columns, full) })
}

// connection is how the database is reached.
func (s *settings) connection() (*pgx.ConnConfig, error) {
	more := map[string]string{"host": s.String("database.hostname"), "port": s.String("database.port"),
		"dbname": s.database}
	for _, k := range []string{"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert"} {
		more[k] = s.String("database." + k)
	}
	config, err := postgres.ParseURL("postgresql://", s.String("database.user"), s.password(), more)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "millrace " + s.prefix
	return config, nil
}

// password is taken as it is, with the spaces that it may begin or end with.
func (s *settings) password() string {
	p, _ := s.Given("database.password")
	return p
}

// filter says what is captured.
type filter struct {
	schemas, tables, columns, prefixes, snapshot lists

	scope string // what is captured, as scopeOf writes it
}

// lists are what to take and what to leave. An empty list says nothing.
type lists struct{ include, exclude []*regexp.Regexp }

func (l *lists) take(name string) bool {
	if len(l.include) > 0 {
		return matches(l.include, name)
	}
	return !matches(l.exclude, name)
}

func matches(list []*regexp.Regexp, name string) bool {
	return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// parse reads the lists; key is the one at fault.
func (f *filter) parse(s plugin.Settings) (key string, err error) {
	for _, l := range []struct {
		name string
		to   *lists
	}{{"schema", &f.schemas}, {"table", &f.tables}, {"column", &f.columns}, {"message.prefix", &f.prefixes}} {
		in, out := l.name+".include.list", l.name+".exclude.list"
		if l.to.include, err = compile(s.List(in)); err != nil {
			return in, err
		}
		if l.to.exclude, err = compile(s.List(out)); err != nil {
			return out, err
		}
		if len(l.to.include) > 0 && len(l.to.exclude) > 0 {
			return out, fmt.Errorf("%s is given too; only one of the two can be", in)
		}
	}
	f.scope = scopeOf(s)
	const snapshot = "snapshot.include.collection.list"
	f.snapshot.include, err = compile(s.List(snapshot))
	return snapshot, err
}

// table says whether a table is captured.
func (f *filter) table(t tableName) bool {
	return f.schemas.take(t.Schema) && f.tables.take(t.String())
}

// captured says whether a table is captured, the signal table included.
func (s *settings) captured(t tableName) bool { return s.filter.table(t) || s.signals == t }
