package polling

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// config is what the settings say.
type config struct {
	plugin.Settings
	props map[string]string

	mode     string
	query    string // "": tables
	zone     *time.Location
	kinds    string
	include  []*regexp.Regexp
	exclude  []*regexp.Regexp
	allowed  []tableName
	denied   []tableName
	schemas  *regexp.Regexp // nil: all
	incOf    []mapping
	tsOf     []mapping
	inc      string
	ts       []string
	xid      string
	guard    bool
	keyed    bool
	initial  *int64 // milliseconds
	mapping  postgres.Mapping
	suffix   string
	limit    int // that the suffix has, 0 if it has none
	interval time.Duration
	rows     int
}

// tableName is a table; without a schema it is any.
type tableName struct{ Schema, Table string }

// mapping says which columns count in the tables that match.
type mapping struct {
	tables  *regexp.Regexp
	columns []string
}

// parse reads settings that have passed Check.
func parse(props map[string]string) (*config, error) {
	s := defs().Settings(props)
	c := &config{Settings: s, props: props, mode: s.Lower(keyMode), inc: s.String(keyIncrementing),
		ts:  s.List(keyTimestamp),
		xid: s.String(keyXID), guard: s.Bool(keyGuard), keyed: s.Lower(keyRecordKey) == keyPrimary,
		suffix: s.String(keySuffix), interval: s.Millis(keyInterval), rows: s.Int(keyRows)}
	c.query = s.String(keyQuery)
	if masked := s.String(keyQueryMasked); masked != "" {
		c.query = masked
	}
	c.query = strings.TrimRight(c.query, "; \t\n")
	var err error
	if c.zone, err = time.LoadLocation(s.String(keyZone)); err != nil {
		return nil, err
	}
	if _, given := s.Given(keyInitial); given && s.String(keyInitial) != "" {
		ms := s.Int64(keyInitial)
		c.initial = &ms
	}
	if err := c.parseTables(); err != nil {
		return nil, err
	}
	c.limit = limitOf(c.suffix)
	numeric := s.Lower(keyNumeric)
	if numeric == "" && s.Bool(keyPrecision) {
		numeric = "precision_only"
	}
	c.mapping = postgres.Mapping{Convention: postgres.JDBC, Numeric: numeric, Granularity: s.Lower(keyGranularity),
		Zone: c.zone}
	return c, nil
}

func (c *config) parseTables() (err error) {
	if c.kinds, err = kindsOf(c.List(keyTypes)); err != nil {
		return err
	}
	if c.include, err = patterns(c.List(keyInclude)); err != nil {
		return err
	}
	if c.exclude, err = patterns(c.List(keyExclude)); err != nil {
		return err
	}
	if c.allowed, err = parseNames(c.String(keyWhitelist)); err != nil {
		return err
	}
	if c.denied, err = parseNames(c.String(keyBlacklist)); err != nil {
		return err
	}
	if c.incOf, err = parseMapping(c.String(keyIncMapping), false); err != nil {
		return err
	}
	if c.tsOf, err = parseMapping(c.String(keyTSMapping), true); err != nil {
		return err
	}
	if like := c.String(keySchema); like != "" {
		escaped := strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(like))
		c.schemas, err = regexp.Compile("^(?s:" + escaped + ")$")
	}
	return err
}

func patterns(list []string) (out []*regexp.Regexp, err error) {
	for _, p := range list {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, err
		}
		out = append(out, re)
	}
	return out, nil
}

var tableKinds = map[string]string{"TABLE": "r", "PARTITIONED TABLE": "p", "VIEW": "v", "MATERIALIZED VIEW": "m",
	"FOREIGN TABLE": "f"}

func kindsOf(types []string) (kinds string, err error) {
	for _, t := range types {
		t = strings.ToUpper(strings.Join(strings.Fields(t), " "))
		if t == "" {
			continue
		}
		k, ok := tableKinds[t]
		if !ok {
			return "", fmt.Errorf("%q is none of TABLE, PARTITIONED TABLE, VIEW, MATERIALIZED VIEW, FOREIGN TABLE", t)
		}
		kinds += k
	}
	return kinds, nil
}

// parseNames reads names separated by commas; commas and dots in double quotes are theirs. A database in front of the
// schema is passed over.
func parseNames(s string) (out []tableName, err error) {
	for _, name := range splitQuoted(s, ',') {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if parts := splitQuoted(name, '.'); len(parts) == 3 {
			name = parts[1] + "." + parts[2]
		}
		schema, table, err := postgres.ParseName(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, tableName{schema, table})
	}
	return out, nil
}

func splitQuoted(s string, at byte) (out []string) {
	quoted, begin := false, 0
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == at && !quoted:
			out, begin = append(out, s[begin:i]), i+1
		}
	}
	return append(out, s[begin:])
}

// parseMapping reads REGEX:COLUMN or, where there may be several, REGEX:[COLUMN|COLUMN].
func parseMapping(s string, several bool) (out []mapping, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		i := strings.LastIndexByte(part, ':')
		if i < 0 {
			return nil, fmt.Errorf("%q has no colon between tables and column", part)
		}
		columns := part[i+1:]
		inner, bracket := strings.CutPrefix(columns, "[")
		if bracket != several || bracket && !strings.HasSuffix(inner, "]") {
			return nil, fmt.Errorf("%q must be REGEX:COLUMN, or REGEX:[COLUMN|COLUMN] for timestamps", part)
		}
		m := mapping{columns: strings.Split(strings.TrimSuffix(inner, "]"), "|")}
		if m.tables, err = regexp.Compile("^(?:" + part[:i] + ")$"); err != nil {
			return nil, fmt.Errorf("%q is no regular expression: %w", part[:i], err)
		}
		out = append(out, m)
	}
	return out, nil
}

var limitPattern = regexp.MustCompile(`(?i)\b(?:limit|fetch\s+(?:first|next))\s+(\d{1,9})\b`)

func limitOf(suffix string) (n int) {
	if m := limitPattern.FindStringSubmatch(suffix); m != nil {
		_, _ = fmt.Sscan(m[1], &n)
	}
	return n
}

// problems are those of settings that do not go together, which needs no database to see.
func (c *config) problems() (out []plugin.Problem) {
	say := func(key, format string, args ...any) {
		out = append(out, plugin.Problem{Key: key, Message: fmt.Sprintf(format, args...)})
	}
	given := func(key string) bool { return c.String(key) != "" }
	if given(keyQuery) && given(keyQueryMasked) {
		say(keyQueryMasked, "%s and %s exclude each other", keyQuery, keyQueryMasked)
	}
	for _, k := range []string{keyWhitelist, keyBlacklist, keyInclude, keyExclude} {
		if c.query != "" && given(k) {
			say(k, "a query and a list of tables exclude each other")
		}
	}
	for _, k := range []string{keyWhitelist, keyBlacklist} {
		if given(k) && (given(keyInclude) || given(keyExclude)) {
			say(k, "it does not go together with %s and %s", keyInclude, keyExclude)
		}
	}
	if given(keyWhitelist) && given(keyBlacklist) {
		say(keyBlacklist, "%s and %s exclude each other", keyWhitelist, keyBlacklist)
	}
	if given(keyExclude) && !given(keyInclude) {
		say(keyExclude, "it takes tables out of those of %s, which is not given", keyInclude)
	}
	for _, pair := range [][2]string{{keyIncrementing, keyIncMapping}, {keyTimestamp, keyTSMapping}} {
		if given(pair[0]) && given(pair[1]) {
			say(pair[1], "%s and %s exclude each other", pair[0], pair[1])
		}
	}
	if (c.mode == modeTS || c.mode == modeTSInc) && !given(keyTimestamp) && !given(keyTSMapping) {
		say(keyTimestamp, "mode %s needs the column that says when a row was changed", c.mode)
	}
	if c.mode == modeXID && c.query != "" {
		say(keyMode, "mode xid reads tables; a query has no transaction that wrote its rows")
	}
	if c.mode == modeXID && c.suffix != "" {
		say(keySuffix, "mode xid reads each window of transactions whole; %s limits what is given at once", keyRows)
	}
	if c.mode == modeInc && c.query != "" && !given(keyIncrementing) {
		say(keyIncrementing, "with a query the column must be named")
	}
	return out
}

// connection is the configuration of connections. Settings that begin with connection. and are none of ours are
// parameters of the URL.
func (c *config) connection() (*pgx.ConnConfig, error) {
	more := map[string]string{}
	for k, v := range c.props {
		name, ok := strings.CutPrefix(k, "connection.")
		if ok && defs().Find(k) == nil {
			more[name] = v
		}
	}
	return postgres.ParseURL(c.String(keyURL), c.String(keyUser), c.String(keyPassword), more)
}

// topic is where a table's rows go.
func (c *config) topic(t tableName) string {
	return strings.NewReplacer("${prefix}", c.String(keyPrefix), "${schema}", t.Schema, "${table}", t.Table).
		Replace(c.String(keyFormat))
}

// columnsOf are the columns that tell new rows of a table, as far as settings name them.
func (c *config) columnsOf(t tableName) (inc string, ts []string) {
	inc, ts = c.inc, c.ts
	for _, m := range c.incOf {
		if m.matches(t) {
			inc = m.columns[0]
			break
		}
	}
	for _, m := range c.tsOf {
		if m.matches(t) {
			ts = m.columns
			break
		}
	}
	return inc, ts
}

func (m mapping) matches(t tableName) bool {
	return m.tables.MatchString(t.Schema+"."+t.Table) || m.tables.MatchString(t.Table)
}
