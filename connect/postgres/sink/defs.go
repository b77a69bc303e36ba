package sink

import (
	"slices"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
	"millrace/migrations"
)

// The classes, by which the names and defaults of settings are chosen.
const (
	confluentClass = "io.confluent.connect.jdbc.JdbcSinkConnector"
	debeziumClass  = "io.debezium.connector.jdbc.JdbcSinkConnector"
	nativeClass    = "PostgresSink"
)

// Settings that all classes have.
const (
	keyLedger        = "offset.ledger"
	keyLedgerSchema  = "offset.ledger.schema"
	keyLedgerName    = "offset.ledger.name"
	keyLedgerMissing = "offset.ledger.missing"
	keyNUL           = "text.nul"
	keyPooler        = "connection.pooler"
	keySync          = "synchronous.commit"
	keyPlaceholder   = "unavailable.value.placeholder"
	keyURL           = "connection.url"
	keyPassword      = "connection.password"
	keyInsertMode    = "insert.mode"
	keyBatch         = "batch.size"
	keyDelete        = "delete.enabled"
	keyStampUnit     = "timestamp.precision.mode" // Confluent's only
	keyStampFields   = "timestamp.fields.list"    // the same
)

// names are the names of settings that differ between the classes; "" where a class has no such setting.
type names struct {
	user, pkMode, pkFields, truncate, create, evolve, evolution, format, include, exclude string
	retries, quote, zone, replaceNull, stringColumn                                       string
}

func namesOf(class string) names {
	n := names{user: "connection.user", pkMode: "pk.mode", pkFields: "pk.fields", truncate: "truncate.enabled",
		create: "auto.create", evolve: "auto.evolve", format: "table.name.format", include: "field.include.list",
		exclude: "field.exclude.list", retries: "max.retries", quote: "quote.identifiers", zone: "db.timezone",
		replaceNull: "replace.null.with.default", stringColumn: "string.output.value.column.name"}
	switch class {
	case confluentClass:
		n.include, n.exclude, n.quote, n.truncate = "fields.whitelist", "", "quote.sql.identifiers", ""
	case debeziumClass:
		n.user, n.pkMode, n.pkFields = "connection.username", "primary.key.mode", "primary.key.fields"
		n.create, n.evolve, n.evolution, n.format = "", "", "schema.evolution", "collection.name.format"
		n.retries, n.zone, n.replaceNull, n.stringColumn = "flush.max.retries", "use.time.zone", "", ""
	}
	return n
}

func str(name, value, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: plugin.String, Default: value, Doc: doc}
}

func flag(name, value, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: plugin.Boolean, Default: value, Doc: doc}
}

func number(name, value, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: plugin.Int, Default: value, Doc: doc}
}

func list(name, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: plugin.List, Doc: doc}
}

// oneOf limits a setting to values.
func oneOf(d plugin.Def, values ...string) plugin.Def {
	d.Values = values
	return d
}

// unused marks a setting that is understood and does nothing here.
func unused(d plugin.Def, why string) plugin.Def {
	d.Unused = why
	return d
}

// grouped gives settings their group and their order in it.
func grouped(group string, importance plugin.Importance, defs ...plugin.Def) plugin.Defs {
	for i := range defs {
		defs[i].Group, defs[i].Order, defs[i].Width = group, i+1, "MEDIUM"
		if defs[i].Importance == "" {
			defs[i].Importance = importance
		}
	}
	return defs
}

// defsOf are the settings of a class.
func defsOf(class string) plugin.Defs {
	switch class {
	case confluentClass:
		return slices.Concat(connectionDefs(class), confluentDefs(), ledgerDefs())
	case debeziumClass:
		return slices.Concat(connectionDefs(class), debeziumDefs(), ledgerDefs())
	}
	return slices.Concat(connectionDefs(class), nativeDefs(), ledgerDefs())
}

func connectionDefs(class string) plugin.Defs {
	user := str(namesOf(class).user, "", "User to connect as, unless the URL names one.")
	user.Null = true
	return grouped("Connection", plugin.High,
		plugin.Def{Name: keyURL, Type: plugin.String, Required: true, // not checked here: a refusal would show it
			Doc: "Where the database is: jdbc:postgresql://host:port/database or postgres://host:port/database."},
		user,
		plugin.Def{Name: keyPassword, Type: plugin.Password, Null: true, Doc: "Password to connect with."},
		flag(keyPooler, "false", "A pooler in transaction mode stands before the database: nothing is kept in sessions."),
	)
}

func ledgerDefs() plugin.Defs {
	schema := str(keyLedgerSchema, "connect", "Schema of the ledger's tables. It is created if it is missing.")
	schema.Check = migrations.CheckSchema
	return grouped("Exactly Once", plugin.Medium,
		oneOf(str(keyLedger, "on", "Keep offsets in the target database, in the transactions that write the records: "+
			"each record takes effect once. Off: each at least once."), "on", "off"),
		schema,
		str(keyLedgerName, "", "Name under which the ledger keeps the offsets. By default the connector's."),
		oneOf(str(keyLedgerMissing, "fail", "What to do when records that were not written yet are gone from a topic: "+
			"fail, or skip to the first that is there."), "fail", "skip"),
		oneOf(str(keySync, "default", "The server's synchronous_commit for these transactions. Off is safe here: what a "+
			"crash of the server takes back, it takes back with its offsets."), "default", "off"),
	)
}

func writingDefs() plugin.Defs {
	return plugin.Defs{
		oneOf(str(keyNUL, "fail", "What becomes of text with NUL characters, which PostgreSQL cannot hold: such a record "+
			"fails, or they are removed."), "fail", "strip"),
		str(keyPlaceholder, postgres.DefaultPlaceholder, "Value that stands for a large value which did not change. "+
			"Its column is left as it is."),
	}
}

func nativeDefs() plugin.Defs {
	n := namesOf(nativeClass)
	return slices.Concat(
		grouped("Writes", plugin.High, append(plugin.Defs{
			oneOf(str(keyInsertMode, "upsert", "How records become rows: insert, upsert or update."), modes...),
			number(keyBatch, "3000", "Most rows in one statement."),
			flag(keyDelete, "true", "Records with a null value delete the row with their key."),
			flag(n.truncate, "false", "Truncations of a source's table truncate the target's."),
			number(n.retries, "-1", "How often in a row a batch is tried again when the database is not there. -1: for ever."),
		}, writingDefs()...)...),
		grouped("Data Mapping", plugin.Medium,
			str(n.format, "${topic}", "Name of the table for a record, with ${topic} and ${source.FIELD} replaced."),
			oneOf(str(n.pkMode, "record_key", "Where the primary key comes from."),
				"none", "kafka", "record_key", "record_value", "record_header"),
			list(n.pkFields, "Fields of the primary key. By default all that the mode gives."),
			list(n.include, "Fields that become columns, beside those of the key. Empty: all."),
			list(n.exclude, "Fields that become no columns."),
			flag(n.quote, "true", "Names keep their case. Otherwise they become lower case, as unquoted names do."),
			str(n.zone, "UTC", "Time zone in which points in time become timestamps without one."),
			flag(n.replaceNull, "false", "Nulls become their field's default."),
			str(n.stringColumn, "record_value", "Column for values that are text and not a struct."),
		),
		grouped("DDL Support", plugin.Medium,
			flag(n.create, "false", "Create tables that are missing."),
			flag(n.evolve, "false", "Add columns that are missing."),
		))
}

func confluentDefs() plugin.Defs {
	n := namesOf(confluentClass)
	const postgresOnly = "PostgreSQL is the only dialect"
	return slices.Concat(
		grouped("Connection", plugin.Low,
			unused(str("dialect.name", "", "Dialect of the database."), postgresOnly),
			unused(number("connection.attempts", "3", "Attempts to connect."), "the runner tries again, with growing pauses"),
			unused(number("connection.backoff.ms", "10000", "Pause between them."), "the runner sets the pauses"),
		),
		grouped("Writes", plugin.High, append(plugin.Defs{
			oneOf(str(keyInsertMode, "insert", "How records become rows: insert, upsert or update."), modes...),
			number(keyBatch, "3000", "Most rows in one statement."),
			flag(keyDelete, "false", "Records with a null value delete the row with their key. It takes pk.mode=record_key."),
			unused(str("table.types", "TABLE", "Kinds of tables to write to."), "any that can be written to"),
		}, writingDefs()...)...),
		grouped("Data Mapping", plugin.Medium,
			str(n.format, "${topic}", "Name of the table for a record, with ${topic} replaced."),
			oneOf(str(n.pkMode, "none", "Where the primary key comes from."), "none", "kafka", "record_key", "record_value"),
			list(n.pkFields, "Fields of the primary key. By default all that the mode gives."),
			list(n.include, "Fields that become columns, beside those of the key. Empty: all."),
			str(n.zone, "UTC", "Time zone in which points in time become timestamps without one."),
			unused(str("date.timezone", "DB_TIMEZONE", "Time zone of dates."), "a date is the same day everywhere"),
			oneOf(str(keyStampUnit, "microseconds", "Unit of the numbers in timestamp.fields.list."),
				"microseconds", "nanoseconds"),
			list(keyStampFields, "Fields of type INT64 without a logical type that are timestamps."),
			flag(n.replaceNull, "true", "Nulls become their field's default."),
			str(n.stringColumn, "record_value", "Column for values that are text and not a struct."),
		),
		grouped("DDL Support", plugin.Medium,
			flag(n.create, "false", "Create tables that are missing."),
			flag(n.evolve, "false", "Add columns that are missing."),
			oneOf(str(n.quote, "always", "Whether names keep their case; never: they become lower case."), "always", "never"),
		),
		grouped("Retries", plugin.Medium,
			number(n.retries, "10", "How often in a row a batch is tried again when the database is not there. -1: for ever."),
			unused(number("retry.backoff.ms", "3000", "Pause between tries."), "the runner sets the pauses"),
			unused(flag("trim.sensitive.log", "false", "Keep values out of logs."), "they are never in them"),
		))
}

func debeziumDefs() plugin.Defs {
	n := namesOf(debeziumClass)
	const oneConnection = "each task has one connection"
	return slices.Concat(
		grouped("Connection", plugin.Low,
			unused(number("connection.pool.min_size", "5", "Least connections."), oneConnection),
			unused(number("connection.pool.max_size", "32", "Most connections."), oneConnection),
			unused(number("connection.pool.acquire_increment", "32", "Connections opened at a time."), oneConnection),
			unused(number("connection.pool.timeout", "1800", "Seconds until an idle connection is closed."), oneConnection),
			unused(flag("connection.restart.on.errors", "false", "Connect anew after errors."), "always"),
			unused(str("connection.provider", "", "Class that connects."), oneConnection),
		),
		grouped("Writes", plugin.High, append(plugin.Defs{
			oneOf(str(keyInsertMode, "insert", "How records become rows: insert, upsert or update."), modes...),
			number(keyBatch, "500", "Most rows in one statement."),
			flag(keyDelete, "false", "Deletions and records with a null value delete the row with their key."),
			flag(n.truncate, "false", "Truncations of a source's table truncate the target's."),
			unused(flag("use.reduction.buffer", "false", "Write only the last of records with one key."), "always"),
			unused(flag("dialect.postgres.unnest.insert.enabled", "false", "Write many rows by unnest."), "always"),
			unused(str("dialect.postgres.postgis.schema", "public", "Schema of PostGIS."), "types are found in the catalog"),
		}, writingDefs()...)...),
		grouped("Data Mapping", plugin.Medium,
			str(n.format, "${topic}", "Name of the table for a record, with ${topic} and ${source.FIELD} replaced; dots in "+
				"what is put in become underscores."),
			oneOf(str(n.pkMode, "none", "Where the primary key comes from."),
				"none", "kafka", "record_key", "record_value", "record_header"),
			list(n.pkFields, "Fields of the primary key. By default all that the mode gives."),
			list(n.include, "Fields that become columns, beside those of the key. Empty: all."),
			list(n.exclude, "Fields that become no columns."),
			flag(n.quote, "false", "Names keep their case. Otherwise they become lower case, as unquoted names do."),
			str(n.zone, "UTC", "Time zone in which points in time become timestamps without one."),
		),
		grouped("DDL Support", plugin.Medium,
			oneOf(str(n.evolution, "none", "Basic: create tables and add columns that are missing."), "none", "basic")),
		grouped("Retries", plugin.Medium,
			number(n.retries, "5", "How often in a row a batch is tried again when the database is not there. -1: for ever."),
			unused(number("flush.retry.delay.ms", "1000", "Pause between tries."), "the runner sets the pauses"),
		))
}
