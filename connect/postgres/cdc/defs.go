package cdc

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/connect/plugin"
)

// The groups of settings.
const (
	groupDatabase = "Database"
	groupSlot     = "Slot and publication"
	groupFilter   = "What is captured"
	groupSnapshot = "Snapshot"
	groupEvent    = "Events"
	groupType     = "Values"
	groupRun      = "Running"
)

// def makes a setting of middling importance with a default.
func def(name string, t plugin.Type, value, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Default: value, Importance: plugin.Medium, Doc: doc}
}

// optional makes a setting that is absent by default.
func optional(name string, t plugin.Type, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Null: true, Importance: plugin.Medium, Doc: doc}
}

func oneOf(name, value, doc string, values ...string) plugin.Def {
	d := def(name, plugin.String, value, doc)
	d.Values = values
	return d
}

// unused makes a setting that is understood and does nothing, and says why.
func unused(name string, t plugin.Type, value, why string) plugin.Def {
	d := def(name, t, value, "Has no effect: "+why+".")
	d.Importance, d.Unused = plugin.Low, why
	return d
}

func required(d plugin.Def) plugin.Def {
	d.Required, d.Null, d.Default, d.Importance = true, false, "", plugin.High
	return d
}

func checked(d plugin.Def, check func(string) error) plugin.Def {
	d.Check = check
	return d
}

func group(name string, defs ...plugin.Def) []plugin.Def {
	for i := range defs {
		defs[i].Group, defs[i].Order, defs[i].Width = name, i+1, "MEDIUM"
	}
	return defs
}

// Defs are the settings of the connector, by their names in Debezium's configurations.
func Defs() plugin.Defs {
	return slices.Concat(databaseDefs(), slotDefs(), filterDefs(), snapshotDefs(), snapshotMoreDefs(), eventDefs(),
		typeDefs(), runDefs())
}

func databaseDefs() []plugin.Def {
	return group(groupDatabase,
		required(optional("database.hostname", plugin.String, "Host of the database server.")),
		checked(def("database.port", plugin.Int, "5432", "Port of the database server."), port),
		required(optional("database.user", plugin.String, "Role to connect as. It needs LOGIN and REPLICATION.")),
		optional("database.password", plugin.Password, "Password of the role."),
		required(optional("database.dbname", plugin.String, "Database that is captured.")),
		oneOf("database.sslmode", "prefer", "How the connection is encrypted.",
			"disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
		optional("database.sslcert", plugin.String, "File with the client's certificate."),
		optional("database.sslkey", plugin.String, "File with the client's key."),
		optional("database.sslpassword", plugin.Password, "Password of the client's key."),
		optional("database.sslrootcert", plugin.String, "File with the certificates of who may sign the server's."),
		unused("database.sslfactory", plugin.String, "", "it names a Java class"),
		optional("database.initial.statements", plugin.String,
			"SQL that is run at the start of each session but that of replication; statements are separated by semicolons."),
		checked(def("database.query.timeout.ms", plugin.Int, "600000",
			"How long a statement of the connector's may take. 0: as long as it wants."), above(-1)),
		unused("database.tcpKeepAlive", plugin.Boolean, "true", "connections are always kept alive"),
	)
}

func slotDefs() []plugin.Def {
	return group(groupSlot,
		checked(def("plugin.name", plugin.String, "pgoutput", "Output plugin of the slot; only pgoutput is read."),
			outputPlugin),
		checked(def("slot.name", plugin.String, "debezium", "Name of the replication slot. One connector, one slot."),
			slotName),
		def("slot.drop.on.stop", plugin.Boolean, "false",
			"Drop the slot when the task stops. What is written meanwhile is lost to the connector: for tests only."),
		def("slot.failover", plugin.Boolean, "false", "Make the slot one that standbys take over, from PostgreSQL 17 on."),
		checked(def("slot.max.retries", plugin.Int, "6", "How often a slot that is in use elsewhere is tried again."),
			above(-1)),
		checked(def("slot.retry.delay.ms", plugin.Long, "10000", "How long to wait between such tries."), above(0)),
		def("slot.stream.params", plugin.String, "", "More options of pgoutput, as name=value; separated by semicolons."),
		def("publication.name", plugin.String, "dbz_publication", "Name of the publication."),
		oneOf("publication.autocreate.mode", "all_tables", "What to do when the publication is missing: make it for all "+
			"tables, make and keep it for the captured tables, make an empty one, or fail. Tables whose UPDATE and DELETE "+
			"would begin to fail by it are refused.", "all_tables", "filtered", "disabled", "no_tables"),
		checked(def("millrace.publication.check.ms", plugin.Int, "30000", "How often it is seen whether tables have come "+
			"into the publication, whose rows are then read, or, where publication.autocreate.mode is filtered, should come "+
			"into it. 0: only at the start."), above(-1)),
		def("publish.via.partition.root", plugin.Boolean, "false",
			"Changes in partitions come as those of the table that is partitioned; of a publication that is made here."),
		optional("replica.identity.autoset.values", plugin.List,
			"Replica identities to set at the start: schema.table:FULL, DEFAULT, NOTHING or INDEX name; the table is an "+
				"anchored expression."),
		oneOf("lsn.flush.mode", "connector", "Who tells the server what is safe: the connector, or nobody (manual), "+
			"which keeps the server's log until somebody advances the slot.", "connector", "manual", "connector_and_driver"),
		oneOf("offset.mismatch.strategy", "no_validation", "What to do when the slot has been moved past what is stored. "+
			"no_validation refuses to start, as changes are missing; trust_slot and trust_greater_lsn go on from the slot; "+
			"trust_offset asks for the stored place, and is refused where the server no longer has it.",
			"no_validation", "trust_offset", "trust_slot", "trust_greater_lsn"),
		checked(def("status.update.interval.ms", plugin.Int, "10000", "How often the server is told how far things are."),
			above(0)),
		unused("xmin.fetch.interval.ms", plugin.Long, "0", "the slot's xmin is a metric here"),
		def("millrace.wal.alarm.bytes", plugin.Long, "10737418240",
			"A warning is logged when the slot holds back more than so much of the server's log. 0: never."),
	)
}

func filterDefs() []plugin.Def {
	list := func(name, doc string) plugin.Def {
		return checked(optional(name, plugin.List, doc+" Regular expressions of the whole name, separated by commas."),
			patterns)
	}
	return group(groupFilter,
		list("schema.include.list", "Schemas that are captured."),
		list("schema.exclude.list", "Schemas that are not captured."),
		list("table.include.list", "Tables that are captured, as schema.table."),
		list("table.exclude.list", "Tables that are not captured, as schema.table."),
		list("column.include.list", "Columns that are captured, as schema.table.column. Keys always are."),
		list("column.exclude.list", "Columns that are not captured, as schema.table.column. Keys always are."),
		checked(optional("message.key.columns", plugin.String,
			"Other keys than the primary ones: schema.table:column,column; more of them. The table is a regular expression."),
			keyColumns),
		list("message.prefix.include.list", "Prefixes of logical messages that are captured."),
		list("message.prefix.exclude.list", "Prefixes of logical messages that are not captured."),
		checked(def("skipped.operations", plugin.List, "t",
			"Operations that give no events: c, u, d, t (create, update, delete, truncate), or none."), operations),
		def("skip.messages.without.change", plugin.Boolean, "false",
			"No event for an update that leaves all captured columns alone; needs REPLICA IDENTITY FULL."),
		checked(def("guardrail.collections.max", plugin.Int, "0", "Refuse to capture more tables than this. 0: any number."),
			above(-1)),
		oneOf("guardrail.collections.limit.action", "warn", "What to do above that number.", "warn", "fail"),
	)
}

func snapshotDefs() []plugin.Def {
	return group(groupSnapshot,
		oneOf("snapshot.mode", "initial", "When the rows that are there already are read: initial (there is no offset), "+
			"always (at each start), initial_only (and nothing after it), no_data (never), when_needed (there is no offset, "+
			"or the slot has lost what is after it), configuration_based.",
			"initial", "always", "initial_only", "no_data", "never", "when_needed", "configuration_based"),
		def("snapshot.mode.configuration.based.snapshot.data", plugin.Boolean, "false", "Of configuration_based: read rows."),
		unused("snapshot.mode.configuration.based.snapshot.schema", plugin.Boolean, "false", "schemas come with the changes"),
		def("snapshot.mode.configuration.based.start.stream", plugin.Boolean, "false", "Of configuration_based: stream."),
		def("snapshot.mode.configuration.based.snapshot.on.data.error", plugin.Boolean, "false",
			"Of configuration_based: read rows anew when the slot has lost what is after the offset."),
		unused("snapshot.mode.configuration.based.snapshot.on.schema.error", plugin.Boolean, "false",
			"there is no schema history to be at fault"),
		unused("snapshot.isolation.mode", plugin.String, "serializable",
			"a snapshot is always one consistent view, by repeatable read"),
		unused("snapshot.locking.mode", plugin.String, "none", "no table is locked"),
		unused("snapshot.lock.timeout.ms", plugin.Long, "10000", "no table is locked"),
		checked(optional("snapshot.include.collection.list", plugin.List,
			"Of the captured tables those that are read, as anchored expressions."), patterns),
		optional("snapshot.select.statement.overrides", plugin.List,
			"Tables, as schema.table, whose rows are read by snapshot.select.statement.overrides.SCHEMA.TABLE."),
		checked(def("snapshot.fetch.size", plugin.Int, "10240", "How many rows of a table without a key go into one "+
			"transaction."),
			above(0)),
		unused("snapshot.max.threads", plugin.Int, "1", "tables are read one after the other, and large ones beside the "+
			"stream"),
		checked(def("snapshot.delay.ms", plugin.Long, "0", "How long to wait before the snapshot."), above(-1)),
		checked(def("streaming.delay.ms", plugin.Long, "0", "How long to wait between snapshot and stream."), above(-1)),
		checked(def("millrace.snapshot.small.rows", plugin.Long, "10000",
			"Tables of about so many rows at most are read in one consistent view before streaming begins. Larger ones with "+
				"a key are read chunk by chunk beside the stream, and go on after a restart where they were."), above(-1)),
	)
}

func snapshotMoreDefs() []plugin.Def {
	return group(groupSnapshot,
		checked(def("incremental.snapshot.chunk.size", plugin.Int, "1024", "How many rows make a chunk."), above(0)),
		oneOf("incremental.snapshot.watermarking.strategy", "insert_insert",
			"How the ends of a chunk are marked in the signal table, unless read.only is true.",
			"insert_insert", "insert_delete"),
		def("read.only", plugin.Boolean, "false",
			"Write nothing into the database: chunks are placed by pg_current_snapshot, and there is no heartbeat by message."),
		optional("signal.data.collection", plugin.String, "The table, as schema.table, by which signals come. It must be "+
			"captured."),
		def("signal.enabled.channels", plugin.List, "source", "How signals come; source is the table above."),
		unused("signal.kafka.topic", plugin.String, "", "signals come by the table"),
		unused("signal.kafka.bootstrap.servers", plugin.String, "", "signals come by the table"),
		unused("signal.file", plugin.String, "", "signals come by the table"),
		unused("signal.poll.interval.ms", plugin.Long, "5000", "signals come with the changes"),
		def("notification.enabled.channels", plugin.List, "", "Where snapshots report what they do: log."),
		unused("notification.sink.topic.name", plugin.String, "", "notifications go to the log"),
		unused("incremental.snapshot.allow.schema.changes", plugin.Boolean, "false", "they are always allowed"),
	)
}

func above(n int64) func(string) error {
	return func(v string) error {
		var x int64
		if _, err := fmt.Sscan(v, &x); err != nil || x <= n {
			return fmt.Errorf("it must be above %d", n)
		}
		return nil
	}
}

func port(v string) error {
	if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 65535 {
		return errors.New("it must be a port, from 1 to 65535")
	}
	return nil
}

func outputPlugin(v string) error {
	if !strings.EqualFold(v, "pgoutput") {
		return errors.New("only pgoutput, which is a part of PostgreSQL, is read: set plugin.name=pgoutput, or leave it " +
			"out, and name a slot that is of no other plugin")
	}
	return nil
}

func slotName(v string) error {
	ok := len(v) > 0 && len(v) <= 63
	for _, c := range v {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return errors.New("a slot's name has 1 to 63 lower case letters, digits and underscores")
	}
	return nil
}

func patterns(v string) error {
	_, err := compile(splitList(v))
	return err
}

func operations(v string) error {
	for _, o := range splitList(v) {
		if !slices.Contains([]string{"c", "u", "d", "t", "none"}, o) {
			return fmt.Errorf("%q is none of c, u, d, t, none", o)
		}
	}
	return nil
}

func splitList(v string) (out []string) {
	for e := range strings.SplitSeq(v, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

func compile(list []string) (out []*regexp.Regexp, err error) {
	for _, e := range list {
		r, err := regexp.Compile("(?i)^(?:" + e + ")$")
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression", e)
		}
		out = append(out, r)
	}
	return out, nil
}
