package sink

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// The modes of writing.
const (
	modeInsert = "insert"
	modeUpsert = "upsert"
	modeUpdate = "update"
)

var modes = []string{modeInsert, modeUpsert, modeUpdate}

// Where primary keys come from.
const (
	pkNone   = "none"
	pkKafka  = "kafka"
	pkKey    = "record_key"
	pkValue  = "record_value"
	pkHeader = "record_header"
)

// config is what the settings of any class come to.
type config struct {
	class     string
	connector string
	url       string
	conn      *pgx.ConnConfig
	pooler    bool
	asyncWAL  bool // synchronous_commit=off

	mode             string
	pkMode           string
	pkFields         []string
	deletes          bool
	ignoreNull       bool // a null value is passed over where deletes are off; otherwise it is a bad record
	truncates        bool
	create, evolve   bool
	format           string
	underscores      bool // dots in what is put into format become underscores
	include, exclude map[string]bool
	fold             bool // names become lower case
	replaceNull      bool
	stringColumn     string
	batchRows        int
	retries          int // -1: without end
	placeholder      string
	stamps           map[string]bool // fields of type INT64 that are timestamps
	stampType        string          // the logical type that those have
	codec            codec

	ledger       bool
	ledgerSchema string
	ledgerName   string
	skipMissing  bool
	latest       bool // a partition without a place begins at its end
	topics       []string
}

// readConfig reads settings that have passed their definitions, the full name of the class among them. A problem names
// the setting at fault.
func readConfig(props map[string]string) (*config, []plugin.Problem) {
	class := props["connector.class"]
	n := namesOf(class)
	s := defsOf(class).Settings(props)
	optional := func(name string) string {
		if name == "" {
			return ""
		}
		return s.String(name)
	}
	flagged := func(name string) bool { return strings.EqualFold(optional(name), "true") }
	c := &config{
		class: class, connector: props["name"], url: s.String(keyURL), pooler: s.Bool(keyPooler),
		asyncWAL: s.Lower(keySync) == "off", mode: s.Lower(keyInsertMode), pkMode: s.Lower(n.pkMode),
		pkFields: s.List(n.pkFields), deletes: s.Bool(keyDelete), ignoreNull: class != confluentClass,
		truncates: flagged(n.truncate), create: flagged(n.create), evolve: flagged(n.evolve), format: s.String(n.format),
		underscores: class == debeziumClass, include: fieldSet(s.List(n.include)), replaceNull: flagged(n.replaceNull),
		stringColumn: optional(n.stringColumn), batchRows: max(s.Int(keyBatch), 1), retries: s.Int(n.retries),
		placeholder: s.String(keyPlaceholder), ledger: s.Lower(keyLedger) == "on", ledgerSchema: s.String(keyLedgerSchema),
		ledgerName: s.String(keyLedgerName), skipMissing: s.Lower(keyLedgerMissing) == "skip",
		latest: props["consumer.override.auto.offset.reset"] == "latest", topics: plugin.Defs{{Name: "topics"}}.
			Settings(props).List("topics"),
	}
	if class == confluentClass {
		c.stamps, c.stampType = fieldSet(s.List(keyStampFields)), tMicroTimestamp
		if s.Lower(keyStampUnit) == "nanoseconds" {
			c.stampType = tNanoTimestamp
		}
	}
	if n.exclude != "" {
		c.exclude = fieldSet(s.List(n.exclude))
	}
	if n.evolution != "" {
		c.create = s.Lower(n.evolution) == "basic"
		c.evolve = c.create
	}
	if c.ledgerName == "" {
		c.ledgerName = c.connector
	}
	switch s.Lower(n.quote) {
	case "false", "never":
		c.fold = true
	}
	if c.stringColumn == "" {
		c.stringColumn = "record_value"
	}
	return c, c.complete(props, s, n)
}

// complete fills in what takes more than reading a setting, and checks settings against each other.
func (c *config) complete(props map[string]string, s plugin.Settings, n names) (out []plugin.Problem) {
	fault := func(key, format string, args ...any) {
		out = append(out, plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)})
	}
	zone, err := time.LoadLocation(s.String(n.zone))
	if err != nil {
		fault(n.zone, "%q is no time zone", s.String(n.zone))
		zone = time.UTC
	}
	c.codec = codec{zone: zone, stripNUL: s.Lower(keyNUL) == "strip"}
	c.conn, err = postgres.ParseURL(c.url, s.String(n.user), props[keyPassword], nil)
	if err != nil {
		fault(keyURL, "%s", err)
	} else {
		c.conn.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.conn.StatementCacheCapacity, c.conn.DescriptionCacheCapacity = 0, 0
		if c.pooler { // which keeps no settings of a session, and may refuse some at its start
			c.conn.AfterConnect = nil
			delete(c.conn.RuntimeParams, "extra_float_digits")
		}
	}
	if c.pkMode == pkNone && c.mode != modeInsert {
		fault(n.pkMode, "%s takes a primary key: set %s", c.mode, n.pkMode)
	}
	if c.deletes && c.pkMode != pkKey {
		if _, given := s.Given(keyDelete); given {
			fault(keyDelete, "to delete rows takes %s=record_key", n.pkMode)
		}
		c.deletes = false
	}
	if c.pkMode == pkKafka && len(c.pkFields) != 0 && len(c.pkFields) != 3 {
		fault(n.pkFields, "%s=kafka takes three fields, for topic, partition and offset, or none", n.pkMode)
	}
	if c.pkMode == pkHeader && len(c.pkFields) == 0 {
		fault(n.pkFields, "%s=record_header takes the names of the headers", n.pkMode)
	}
	if err := checkFormat(c.format); err != nil {
		fault(n.format, "%s", err)
	}
	return out
}

// fieldSet is the set of the names given, nil for none. Debezium puts the topic before a name; it is taken off.
func fieldSet(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	set := make(map[string]bool, len(names))
	for _, n := range names {
		if i := strings.LastIndexByte(n, ':'); i >= 0 {
			n = n[i+1:]
		}
		set[n] = true
	}
	return set
}

// wants says whether a field that is not of the key becomes a column.
func (c *config) wants(field string) bool {
	return (c.include == nil || c.include[field]) && !c.exclude[field]
}

// column is the name of a field's column.
func (c *config) column(field string) string {
	if c.fold {
		return strings.ToLower(field)
	}
	return field
}

// checkFormat refuses a format with a part that is not known.
func checkFormat(format string) error {
	for rest := format; ; {
		_, after, found := strings.Cut(rest, "${")
		if !found {
			return nil
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed || name != "topic" && !strings.HasPrefix(name, "source.") {
			return fmt.Errorf("${%s} is not known: ${topic} and ${source.FIELD} are", name)
		}
		rest = after
	}
}

// tableName is the name of a record's table. Source gives the fields of a change event's origin; false: there is no
// such field, and so no table.
func (c *config) tableName(topic string, source func(field string) (string, bool)) (string, bool) {
	b := strings.Builder{}
	for rest := c.format; ; {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, _ := strings.Cut(after, "}")
		value := topic
		if name != "topic" {
			v, ok := source(strings.TrimPrefix(name, "source."))
			if !ok {
				return "", false
			}
			value = v
		}
		if c.underscores {
			value = strings.ReplaceAll(value, ".", "_")
		}
		b.WriteString(value)
		rest = after
	}
	return b.String(), true
}

// parseTable splits the name of a table. What is longer than the server keeps is refused: two of them could be one.
func (c *config) parseTable(name string) (schema, table string, err error) {
	if c.fold {
		name = strings.ToLower(name)
	}
	parts := splitName(name)
	if len(parts) == 3 { // database.schema.table, or the topic of a source's table
		parts = parts[1:]
	}
	switch len(parts) {
	case 1:
		table = parts[0]
	case 2:
		schema, table = parts[0], parts[1]
	default:
		return "", "", fmt.Errorf("%q names no table: set %s so that it gives table or schema.table",
			name, namesOf(c.class).format)
	}
	for _, p := range parts {
		if len(p) > postgres.MaxName || p == "" || strings.IndexByte(p, 0) >= 0 {
			return "", "", fmt.Errorf("%q is no name of a table, which has 1 to %d bytes: set %s to give a shorter one",
				p, postgres.MaxName, namesOf(c.class).format)
		}
	}
	return schema, table, nil
}

// splitName splits a name at the dots outside quotes.
func splitName(name string) (parts []string) {
	b, quoted := strings.Builder{}, false
	for i := 0; i < len(name); i++ {
		switch {
		case name[i] == '"' && quoted && i+1 < len(name) && name[i+1] == '"':
			b.WriteByte('"')
			i++
		case name[i] == '"':
			quoted = !quoted
		case name[i] == '.' && !quoted:
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(name[i])
		}
	}
	return append(parts, b.String())
}

// primary says whether a field is one of the key's.
func (c *config) primary(field string) bool {
	return len(c.pkFields) == 0 || slices.Contains(c.pkFields, field)
}
