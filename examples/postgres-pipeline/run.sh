#!/usr/bin/env bash
# A table here becomes a topic becomes a table there, in one command:
#
#   ./run.sh                         with a PostgreSQL server that is installed: one of its own is started, and ended
#   SHOP_URL=postgres://... WAREHOUSE_URL=postgres://... ./run.sh
#                                    with two databases that are there; wal_level must be logical for the first
#   ./run.sh --docker                with Docker and nothing else
#
# It starts a Millrace node of its own too, from MILLRACE, the PATH or bin/, on a free port.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

say() { printf '\n== %s\n' "$*"; }
fail() { echo "run.sh: $*" >&2; exit 1; }

case "${1:-}" in
'') ;;
--docker)
	cd "$root"
	trap 'docker compose --profile pipeline down --volumes' EXIT
	docker compose --profile pipeline run --build --rm pipeline
	exit
	;;
*) fail "unknown argument $1; the head of this file says how it is used" ;;
esac

MILLRACE=${MILLRACE:-$(command -v millrace || echo "$root/bin/millrace")}
[ -x "$MILLRACE" ] || fail "there is no millrace: run 'make build' in $root, or set MILLRACE to the binary"
for tool in psql curl; do
	command -v $tool >/dev/null || fail "$tool is missing"
done

# A folder that the server's user can reach as well.
work=$(mktemp -d "${TMPDIR:-/tmp}/pipeline.XXXXXX")
chmod 755 "$work"
node='' server=''

clean_up() {
	code=$?
	trap - EXIT
	set +e
	if [ -n "$node" ]; then
		kill -TERM "$node" && wait "$node"
	fi
	if [ -n "$server" ]; then
		as_server "$bin/pg_ctl" -D "$work/postgres" -m fast -w stop >/dev/null
	fi
	if [ $code -ne 0 ] && [ -e "$work/node.log" ]; then
		echo "run.sh: the end of the node's log:" >&2
		tail -n 20 "$work/node.log" >&2
	fi
	rm -rf "$work"
	exit $code
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# as_server runs a program as a user that PostgreSQL runs as: not as root.
as_server() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid "$owner" --regid "$(id -g "$owner")" --clear-groups "$@"
	else
		"$@"
	fi
}

start_postgres() {
	bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
	if [ ! -x "$bin/initdb" ]; then
		bin=$(dirname "$(command -v initdb || echo /none)")
	fi
	[ -x "$bin/initdb" ] || fail "no PostgreSQL server is installed (initdb): install one, set SHOP_URL and WAREHOUSE_URL, or" \
		"use --docker"
	owner=postgres
	id -u $owner >/dev/null 2>&1 || owner=nobody
	say "a PostgreSQL server of its own, in $work/postgres"
	mkdir "$work/postgres"
	if [ "$(id -u)" = 0 ]; then chown "$owner" "$work/postgres"; fi
	cd "$work/postgres"
	as_server "$bin/initdb" -D "$work/postgres" -U postgres --auth=trust --encoding=UTF8 --no-sync >/dev/null
	port=$(free_port)
	printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $port" "unix_socket_directories = ''" "wal_level = logical" \
		>>"$work/postgres/postgresql.conf"
	as_server "$bin/pg_ctl" -D "$work/postgres" -l "$work/postgres/log" -w start >/dev/null
	server=yes
	cd "$here"
	for database in shop warehouse; do
		psql -X -q "postgres://postgres@127.0.0.1:$port/postgres" -c "CREATE DATABASE $database"
	done
	SHOP_URL=postgres://postgres@127.0.0.1:$port/shop
	WAREHOUSE_URL=postgres://postgres@127.0.0.1:$port/warehouse
}

# free_port finds a port on which nobody listens.
free_port() {
	for p in $(seq $((20000 + RANDOM % 10000)) 32000); do
		if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	fail "no port is free"
}

# export_parts NAME URL: the parts of postgres://user:password@host:port/database, for the node, which puts them into
# the configs.
export_parts() {
	local part='([^:@/?]*)'
	[[ "$2" =~ ^postgres(ql)?://$part(:$part)?@$part(:([0-9]+))?/$part ]] ||
		fail "$1_URL must be postgres://user:password@host:port/database"
	export "PIPELINE_$1_USER=$(decode "${BASH_REMATCH[2]}")" "PIPELINE_$1_PASSWORD=$(decode "${BASH_REMATCH[4]}")"
	export "PIPELINE_$1_HOST=${BASH_REMATCH[5]}" "PIPELINE_$1_PORT=${BASH_REMATCH[7]:-5432}"
	export "PIPELINE_$1_DATABASE=$(decode "${BASH_REMATCH[8]}")"
}

decode() { printf '%b' "${1//%/\\x}"; }

if [ -z "${SHOP_URL:-}${WAREHOUSE_URL:-}" ]; then
	start_postgres
elif [ -z "${SHOP_URL:-}" ] || [ -z "${WAREHOUSE_URL:-}" ] || [ "$SHOP_URL" = "$WAREHOUSE_URL" ]; then
	fail "set both SHOP_URL and WAREHOUSE_URL, to two databases"
fi
export SHOP_URL WAREHOUSE_URL MILLRACE
export_parts SHOP "$SHOP_URL"
export_parts WAREHOUSE "$WAREHOUSE_URL"

port=$(free_port)
export MILLRACE_URL=http://127.0.0.1:$port
say "a Millrace node of its own, at $MILLRACE_URL"
"$MILLRACE" serve --listen "127.0.0.1:$port" --data-dir "$work/data" \
	--set 'connect.config.providers.env.allowlist.pattern=PIPELINE_.*' >"$work/node.log" 2>&1 &
node=$!
until "$MILLRACE" health >/dev/null 2>&1; do
	kill -0 "$node" 2>/dev/null || { node=''; fail "the node did not start"; }
	sleep 0.1
done

"$here/pipeline.sh"
