package polling

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// The settings.
const (
	keyURL           = "connection.url"
	keyUser          = "connection.user"
	keyPassword      = "connection.password"
	keyAttempts      = "connection.attempts"
	keyBackoff       = "connection.backoff.ms"
	keyMode          = "mode"
	keyIncrementing  = "incrementing.column.name"
	keyIncMapping    = "incrementing.column.mapping"
	keyTimestamp     = "timestamp.column.name"
	keyTSMapping     = "timestamp.columns.mapping"
	keyInitial       = "timestamp.initial"
	keyDelay         = "timestamp.delay.interval.ms"
	keyGranularity   = "timestamp.granularity"
	keyNonNull       = "validate.non.null"
	keyWhitelist     = "table.whitelist"
	keyBlacklist     = "table.blacklist"
	keyInclude       = "table.include.list"
	keyExclude       = "table.exclude.list"
	keySchema        = "schema.pattern"
	keyCatalog       = "catalog.pattern"
	keyTypes         = "table.types"
	keyQuery         = "query"
	keyQueryMasked   = "query.masked"
	keySuffix        = "query.suffix"
	keyRetries       = "query.retry.attempts"
	keyInterval      = "poll.interval.ms"
	keyRows          = "batch.max.rows"
	keyTableInterval = "table.poll.interval.ms"
	keyPrefix        = "topic.prefix"
	keyFormat        = "topic.format"
	keyNumeric       = "numeric.mapping"
	keyPrecision     = "numeric.precision.mapping"
	keyZone          = "db.timezone"
	keyRecordKey     = "record.key.mode"
	keyGuard         = "horizon.guard"
	keyXID           = "xid.column.name"
)

// The modes.
const (
	modeBulk   = "bulk"
	modeInc    = "incrementing"
	modeTS     = "timestamp"
	modeTSInc  = "timestamp+incrementing"
	modeXID    = "xid"
	keyPrimary = "primary_key"
	keyNone    = "none"
)

func defs() plugin.Defs {
	var out plugin.Defs
	for _, group := range []struct {
		name string
		defs plugin.Defs
	}{{"Database", databaseDefs()}, {"Tables", tableDefs()}, {"Mode", modeDefs()}, {"Records", recordDefs()},
		{"Not needed here", unusedDefs()}} {
		for i, d := range group.defs {
			d.Group, d.Order = group.name, i+1
			if d.Width == "" {
				d.Width = "MEDIUM"
			}
			out = append(out, d)
		}
	}
	return out
}

func databaseDefs() plugin.Defs {
	return plugin.Defs{
		{Name: keyURL, Type: plugin.String, Required: true, Importance: plugin.High, Width: "LONG",
			Doc: "Where the database is: jdbc:postgresql://HOST:PORT/DATABASE or postgres://HOST:PORT/DATABASE. Parameters of " +
				"the URL, such as sslmode, may also be given as settings that begin with connection.",
			Check: func(v string) error { _, err := postgres.ParseURL(v, "checked", "", nil); return err }},
		{Name: keyUser, Type: plugin.String, Null: true, Importance: plugin.High, Doc: "The role to connect as."},
		{Name: keyPassword, Type: plugin.Password, Null: true, Importance: plugin.High, Doc: "The role's password."},
		{Name: keyBackoff, Type: plugin.Long, Default: "10000", Importance: plugin.Low, Check: notNegative,
			Doc: "The longest pause, in milliseconds, before a connection that failed is tried again. The first pauses are " +
				"shorter."},
		{Name: keyRetries, Type: plugin.Int, Default: "-1", Importance: plugin.Low,
			Doc: "How many times in a row reading may fail for a passing reason before the task fails; -1 is no limit."},
		{Name: keyZone, Type: plugin.String, Default: "UTC", Importance: plugin.Medium, Check: checkZone,
			Doc: "The time zone of timestamps without a time zone."},
	}
}

func tableDefs() plugin.Defs {
	return plugin.Defs{
		{Name: keyInclude, Type: plugin.List, Importance: plugin.Medium, Check: checkPatterns, Width: "LONG",
			Doc: "Regular expressions, separated by commas, of the tables to read, each to match the whole of schema.table."},
		{Name: keyExclude, Type: plugin.List, Importance: plugin.Medium, Check: checkPatterns, Width: "LONG",
			Doc: "Regular expressions of tables to leave out of those that " + keyInclude + " names."},
		{Name: keyWhitelist, Type: plugin.List, Importance: plugin.Medium, Check: checkNames, Width: "LONG",
			Doc: "Names of the tables to read, with or without schema. Not together with " + keyInclude + "."},
		{Name: keyBlacklist, Type: plugin.List, Importance: plugin.Medium, Check: checkNames, Width: "LONG",
			Doc: "Names of tables to leave out. Not together with " + keyWhitelist + " or " + keyInclude + "."},
		{Name: keySchema, Type: plugin.String, Null: true, Importance: plugin.High,
			Doc: "Only tables in schemas whose name matches this, with % for any characters and _ for one."},
		{Name: keyTypes, Type: plugin.List, Default: "TABLE", Importance: plugin.Low, Check: checkTypes,
			Doc: "What to read: TABLE, PARTITIONED TABLE, VIEW, MATERIALIZED VIEW, FOREIGN TABLE. Partitions are left out " +
				"where " +
				"partitioned tables are read."},
		{Name: keyQuery, Type: plugin.String, Importance: plugin.Medium, Width: "LONG",
			Doc: "A SELECT to read in place of tables. Its rows go to the topic that " + keyPrefix + " names."},
		{Name: keyQueryMasked, Type: plugin.Password, Importance: plugin.Medium, Width: "LONG",
			Doc: "The same as " + keyQuery + ", shown to nobody."},
		{Name: keySuffix, Type: plugin.String, Importance: plugin.Low,
			Doc: "Text to add at the end of each SELECT."},
		{Name: keyTableInterval, Type: plugin.Long, Default: "60000", Importance: plugin.Low, Check: positive,
			Doc: "How often, in milliseconds, to look for tables that were created or dropped."},
	}
}

func modeDefs() plugin.Defs {
	return plugin.Defs{
		{Name: keyMode, Type: plugin.String, Required: true, Importance: plugin.High, Width: "SHORT",
			Values: []string{modeBulk, modeTS, modeInc, modeTSInc, modeXID},
			Doc: "How new rows are told. bulk: everything, each time. incrementing: by a column that only grows. " +
				"timestamp: by " +
				"when they were changed. timestamp+incrementing: by both. xid: by the transaction that wrote them, which finds " +
				"each insert and update whatever the table's columns are."},
		{Name: keyIncrementing, Type: plugin.String, Importance: plugin.Medium,
			Doc: "The column that only grows. Empty: the one that draws from a sequence."},
		{Name: keyIncMapping, Type: plugin.List, Importance: plugin.Medium, Check: checkIncMapping, Width: "LONG",
			Doc: "That column for each table, as REGEX:COLUMN, separated by commas."},
		{Name: keyTimestamp, Type: plugin.List, Importance: plugin.Medium,
			Doc: "The columns that say when a row was changed; the first that is not null counts."},
		{Name: keyTSMapping, Type: plugin.List, Importance: plugin.Medium, Check: checkTSMapping, Width: "LONG",
			Doc: "Those columns for each table, as REGEX:[COLUMN|COLUMN], separated by commas."},
		{Name: keyInitial, Type: plugin.Long, Null: true, Importance: plugin.Low,
			Doc: "Where to begin: rows changed after this time, in milliseconds since 1970; -1 is the time of the start. " +
				"Absent: all."},
		{Name: keyDelay, Type: plugin.Long, Default: "0", Importance: plugin.High, Check: notNegative,
			Doc: "How far behind the database's time to stay, in milliseconds, for rows whose timestamps come from elsewhere."},
		{Name: keyNonNull, Type: plugin.Boolean, Default: "true", Importance: plugin.Low,
			Doc: "Refuse columns that may be null: rows with a null there would not be found."},
		{Name: keyGuard, Type: plugin.Boolean, Default: "true", Importance: plugin.Medium,
			Doc: "In the modes that tell rows by columns, stay behind the transactions that are open, since they may yet " +
				"add rows " +
				"before those that are there. Without it such rows are lost."},
		{Name: keyXID, Type: plugin.String, Importance: plugin.Medium,
			Doc: "For mode xid: a column of type xid8 that holds the transaction which wrote the row (DEFAULT " +
				"pg_current_xact_id(), " +
				"and a trigger for updates), with an index on it and the primary key. Empty: the system's own, which needs no " +
				"column and reads the whole table."},
		{Name: keyInterval, Type: plugin.Int, Default: "5000", Importance: plugin.High, Check: notNegative,
			Doc: "How long, in milliseconds, to wait before a table is asked again."},
		{Name: keyRows, Type: plugin.Int, Default: "1000", Importance: plugin.Low, Check: positive,
			Doc: "How many rows at most are given at once."},
	}
}

func recordDefs() plugin.Defs {
	return plugin.Defs{
		{Name: keyPrefix, Type: plugin.String, Required: true, Importance: plugin.High,
			Doc: "What the names of topics begin with; with a query, the topic."},
		{Name: keyFormat, Type: plugin.String, Default: "${prefix}${table}", Importance: plugin.Low,
			Doc: "The name of a table's topic, with ${prefix}, ${schema} and ${table}."},
		{Name: keyRecordKey, Type: plugin.String, Default: keyPrimary, Importance: plugin.Medium,
			Values: []string{keyPrimary, keyNone},
			Doc: "What records have as their key: the columns of the primary key, or nothing, as Confluent's connector " +
				"has it."},
		{Name: keyNumeric, Type: plugin.String, Null: true, Importance: plugin.Low,
			Values: []string{"none", "precision_only", "best_fit", "best_fit_eager_double"},
			Doc: "What numeric columns become. none: Decimal. precision_only: whole numbers where they fit. best_fit: also " +
				"floats " +
				"where they fit. best_fit_eager_double: floats for all with a fraction."},
		{Name: keyPrecision, Type: plugin.Boolean, Default: "false", Importance: plugin.Low,
			Doc: "The older form of " + keyNumeric + "=precision_only."},
		{Name: keyGranularity, Type: plugin.String, Default: "connect_logical", Importance: plugin.Low,
			Values: []string{"connect_logical", "micros_long", "micros_string", "micros_iso_datetime_string", "nanos_long",
				"nanos_string", "nanos_iso_datetime_string"},
			Doc: "What timestamps become: Kafka Connect's Timestamp, which has milliseconds, or numbers or texts with more " +
				"digits."},
	}
}

// unusedDefs are understood, so that configurations for Confluent's connector can be used as they are.
func unusedDefs() plugin.Defs {
	def := func(name string, t plugin.Type, value, why string) plugin.Def {
		return plugin.Def{Name: name, Type: t, Default: value, Null: value == "", Importance: plugin.Low, Unused: why,
			Doc: "Understood, and without effect: " + why + "."}
	}
	return plugin.Defs{
		def(keyAttempts, plugin.Int, "3", "a connection is tried until there is one"),
		def(keyCatalog, plugin.String, "", "a connection sees one database only"),
		def("dialect.name", plugin.String, "", "the database is PostgreSQL"),
		def("poll.linger.ms", plugin.Int, "5000", "rows are given as soon as they are there"),
		def("max.buffer.size", plugin.Int, "0", "what is held is bounded by its size"),
		def("table.monitoring.startup.polling.limit.ms", plugin.Long, "10000", "the tables are known before the tasks start"),
		def("quote.sql.identifiers", plugin.String, "always", "names are always quoted, and mean what they say"),
		def("date.calendar.system", plugin.String, "LEGACY", "dates are in the Gregorian calendar, as the server has them"),
		def("transaction.isolation.mode", plugin.String, "DEFAULT", "each round reads from one snapshot, REPEATABLE READ"),
	}
}

func notNegative(v string) error {
	if strings.HasPrefix(strings.TrimSpace(v), "-") {
		return fmt.Errorf("it may not be negative")
	}
	return nil
}

func positive(v string) error {
	if s := strings.TrimSpace(v); strings.HasPrefix(s, "-") || strings.Trim(s, "0") == "" {
		return fmt.Errorf("it must be at least 1")
	}
	return nil
}

func checkZone(v string) error {
	if _, err := time.LoadLocation(v); err != nil {
		return fmt.Errorf("there is no time zone of that name")
	}
	return nil
}

func checkPatterns(v string) error {
	for p := range strings.SplitSeq(v, ",") {
		if _, err := regexp.Compile(strings.TrimSpace(p)); err != nil {
			return fmt.Errorf("%q is no regular expression: %w", p, err)
		}
	}
	return nil
}

func checkNames(v string) error {
	_, err := parseNames(v)
	return err
}

func checkTypes(v string) error {
	_, err := kindsOf(strings.Split(v, ","))
	return err
}

func checkIncMapping(v string) error {
	_, err := parseMapping(v, false)
	return err
}

func checkTSMapping(v string) error {
	_, err := parseMapping(v, true)
	return err
}
