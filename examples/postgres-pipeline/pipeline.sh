#!/bin/sh
# The demo itself: a table in one database becomes a topic becomes a table in another one. It wants
#   SHOP_URL, WAREHOUSE_URL   the two databases, as psql takes them
#   MILLRACE_URL              a node that reads the variables in source.json and sink.json (run.sh and
#                             docker-compose.yml start such ones)
# and makes a schema, pipeline, in both, which it drops at the end with all else that it made.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
MILLRACE=${MILLRACE:-millrace}
export PSQL_PAGER=cat

say() { printf '\n== %s\n' "$*"; }
shop() { psql -X -q -v ON_ERROR_STOP=1 "$SHOP_URL" "$@"; }
warehouse() { psql -X -q -v ON_ERROR_STOP=1 "$WAREHOUSE_URL" "$@"; }

# show NAME COMMAND: the table as a database has it.
show() {
	printf '%s:\n' "$1"
	"$1" -c 'SELECT * FROM pipeline.orders ORDER BY id'
}

# both says whether the two tables have the same rows and columns.
both() {
	for f in shop warehouse; do
		"$f" -At -c "SELECT to_jsonb(o) FROM pipeline.orders o ORDER BY id" >"$work/$f" 2>/dev/null || return 1
	done
	cmp -s "$work/shop" "$work/warehouse"
}

# until_both waits for the rows to arrive, two minutes at most.
until_both() {
	n=0
	until both; do
		n=$((n + 1))
		if [ $n -gt 1200 ]; then
			echo "the tables are not equal after two minutes" >&2
			"$MILLRACE" connector status pipeline-source >&2 || true
			"$MILLRACE" connector status pipeline-sink >&2 || true
			exit 1
		fi
		sleep 0.1
	done
}

# A name that is taken is somebody else's: nothing is dropped that was there before.
made=''
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
for f in shop warehouse; do
	if ! "$f" -c 'CREATE SCHEMA pipeline'; then
		[ $f = shop ] || shop -c 'DROP SCHEMA pipeline'
		echo "the demo wants to make a schema named pipeline in both databases, and cannot" >&2
		exit 1
	fi
done

clean_up() {
	set +e
	say 'clean up: connectors, slot, publication, tables'
	for c in $made; do "$MILLRACE" connector delete "$c" --offsets; done
	# A connector's slot stays when it is deleted: it would hold back the server's log for ever.
	n=0
	until [ -z "$(shop -At -c "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'pipeline'")" ] || [ $n -gt 600 ]; do
		shop -At -c "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
			WHERE slot_name = 'pipeline' AND NOT active" >/dev/null
		n=$((n + 1))
		sleep 0.1
	done
	shop -c 'SET client_min_messages = warning' -c 'DROP PUBLICATION IF EXISTS pipeline' -c 'DROP SCHEMA pipeline CASCADE'
	warehouse -c 'SET client_min_messages = warning' -c 'DROP SCHEMA pipeline CASCADE'
	"$MILLRACE" topic delete shop.pipeline.orders
	rm -rf "$work"
}
trap clean_up EXIT

say 'a table in the shop'
shop <<'SQL'
CREATE TABLE pipeline.orders (
  id bigint PRIMARY KEY,
  customer text NOT NULL,
  items int NOT NULL,
  placed timestamptz NOT NULL DEFAULT date_trunc('second', now())
);
INSERT INTO pipeline.orders (id, customer, items) VALUES (1, 'Ann', 2), (2, 'Bob', 1), (3, 'Cyd', 9);
SQL
show shop

say 'becomes a topic: source.json'
"$MILLRACE" connector create -f "$here/source.json" --wait
made=pipeline-source
n=0
until "$MILLRACE" topic describe shop.pipeline.orders >/dev/null 2>&1 || [ $n -gt 600 ]; do
	n=$((n + 1))
	sleep 0.1
done
echo 'of each record the key, and the row after the change:'
"$MILLRACE" consume shop.pipeline.orders --count 3 -o json |
	sed -E 's/.*"key":(\{[^}]*\}).*"after":(.*),"source":.*/\1  \2/'

say 'becomes a table in the warehouse: sink.json'
"$MILLRACE" connector create -f "$here/sink.json" --wait
made="pipeline-sink $made"
until_both
show warehouse

say 'and follows it: rows change, come and go, and a column is added'
shop <<'SQL'
UPDATE pipeline.orders SET items = 3 WHERE id = 1;
DELETE FROM pipeline.orders WHERE id = 2;
ALTER TABLE pipeline.orders ADD COLUMN note text;
INSERT INTO pipeline.orders (id, customer, items, note) VALUES (4, 'Dee', 1, 'a gift');
SQL
until_both
show shop
show warehouse
"$MILLRACE" connector list

say 'the two tables are equal'
