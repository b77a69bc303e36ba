package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGroupList(t *testing.T) {
	first := `{"items":[{"group":"a","type":"consumer","state":"preparing_rebalance","protocol_type":"consumer",
		"lag":{"partitions":3,"records":12,"max_records":7,"unknown":1}}],"next_cursor":"YQ"}`
	last := `{"items":[{"group":"b","type":"classic","state":"empty","protocol_type":""}]}`
	url, requests := answering(t, answer(200, first), answer(200, last))
	out, stderr, code := command(t, "", "group", "list", "--lag", "--state", "empty", "--type", "classic", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `GROUP  TYPE      STATE                PARTITIONS  LAG  MOST
a      consumer  preparing rebalance  3           12   7  1 partition unknown
b      classic   empty                -           -    -
`, out)
	require.Equal(t, []string{
		"GET /v1/groups?lag=true&limit=1000&state=empty&type=classic  ",
		"GET /v1/groups?cursor=YQ&lag=true&limit=1000&state=empty&type=classic  ",
	}, requests())

	url, _ = answering(t, answer(200, last))
	out, _, code = command(t, "", "group", "list", "--url", url)
	require.Equal(t, exitOK, code)
	require.Equal(t, "GROUP  TYPE     STATE\nb      classic  empty\n", out)
	out, _, _ = command(t, "", "group", "list", "-o", "json", "--url", url)
	require.JSONEq(t, `[{"group":"b","type":"classic","state":"empty","protocol_type":""}]`, out)
	url, _ = answering(t, answer(200, `{"items":[]}`))
	out, stderr, _ = command(t, "", "group", "list", "--url", url)
	require.Empty(t, out)
	require.Equal(t, "no groups\n", stderr)
	out, _, _ = command(t, "", "group", "list", "-o", "json", "--url", url)
	require.Equal(t, "[]\n", out)
}

func TestGroupDescribe(t *testing.T) {
	body := `{"group":"a b","type":"consumer","state":"stable","assignor":"uniform","epoch":7,"coordinator":2,"members":[
		{"member":"m1","instance":null,"client_id":"c","host":"10.0.0.7","epoch":7,"subscription":["t"],"pattern":"t.*",
		"assignment":[{"topic":"t","partitions":[0,2]},{"topic":"u","partitions":[1]}]},
		{"member":"m2","instance":"i","client_id":"","host":"","epoch":null,"subscription":[],"pattern":null,
		"assignment":[]}]}`
	url, requests := answering(t, answer(200, body))
	out, stderr, code := command(t, "", "group", "describe", "a b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `group a b, type consumer, stable, assignor uniform, epoch 7, coordinator 2, 2 members

MEMBER  INSTANCE  CLIENT  HOST      EPOCH  SUBSCRIBED  READS
m1      -         c       10.0.0.7  7      t,/t.*/     t:0,2 u:1
m2      i         -       -         -      -           -
`, out)
	require.Equal(t, "GET /v1/groups/a%20b  ", requests()[0])
	out, _, _ = command(t, "", "group", "describe", "a b", "-o", "json", "--url", url)
	require.JSONEq(t, body, out)
}

func TestGroupLag(t *testing.T) {
	body := `{"group":"g","state":"stable","total":{"records":9,"max_records":9,"max_lag_ms":3725000,"unknown":1},
		"count":4,"partitions":[
		{"topic":"t","partition":0,"committed":1,"end":10,"lag":9,"lag_ms":3725000,"member":"m","client_id":"c","host":"h"},
		{"topic":"t","partition":1,"committed":5,"end":5,"lag":0,"lag_ms":0,"member":null,"client_id":null,"host":null},
		{"topic":"t","partition":2,"committed":5,"end":null,"lag":null,"lag_ms":null,"member":null,"client_id":null,
		"host":null,"detail":"it has no leader"}]}`
	url, requests := answering(t, answer(200, body))
	out, stderr, code := command(t, "", "group", "lag", "g", "--uncommitted", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `group g, stable: 9 records behind, 1h2m5s; 1 partition unknown

TOPIC  PARTITION  COMMITTED  END  LAG  BEHIND  MEMBER  CLIENT  HOST
t      0          1          10   9    1h2m5s  m       c       h
t      1          5          5    0    0s      -       -       -
t      2          5          -    -    -       -       -       -  it has no leader
`, out)
	require.Equal(t, "and 1 more\n", stderr)
	require.Equal(t, "GET /v1/groups/g/lag?isolation=read_uncommitted  ", requests()[0])
}

func TestGroupReset(t *testing.T) {
	done := `{"group":"g","dry_run":false,"members":0,"count":2,"partitions":[
		{"topic":"t","partition":0,"from":4,"to":0,"clamped":true},{"topic":"t","partition":1,"from":null,"to":3}]}`
	for _, ask := range []struct {
		args []string
		body string
	}{
		{[]string{"--to", "earliest"}, `{"dry_run":false,"to":"earliest"}`},
		{[]string{"--to", "2026-01-02T03:04:05Z", "--topic", "t"},
			`{"dry_run":false,"timestamp":"2026-01-02T03:04:05Z","topics":["t"]}`},
		{[]string{"--to", "@1767319445678"}, `{"dry_run":false,"timestamp":"2026-01-02T02:04:05.678Z"}`},
		{[]string{"--to", "1767319445678"}, `{"dry_run":false,"timestamp":"1767319445678"}`},
		{[]string{"--offset", "0", "--topic", "t:0,3", "--topic", "u"},
			`{"dry_run":false,"offset":0,"partitions":[{"partition":0,"topic":"t"},{"partition":3,"topic":"t"}],` +
				`"topics":["u"]}`},
		{[]string{"--shift", "-100", "--dry-run"}, `{"dry_run":true,"shift":-100}`},
		{[]string{"--shift=0"}, `{"dry_run":false,"shift":0}`},
	} {
		url, requests := answering(t, answer(200, done))
		out, stderr, code := command(t, "", append([]string{"group", "reset", "g", "--url", url}, ask.args...)...)
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, "POST /v1/groups/g/offsets:reset  "+ask.body, requests()[0])
		require.Equal(t, `reset group g in 2 partitions
TOPIC  PARTITION  FROM  TO
t      0          4     0  the nearest end of the log
t      1          -     3
`, out)
	}
	url, _ := answering(t, answer(200, strings.NewReplacer(`"dry_run":false`, `"dry_run":true`, `"members":0`,
		`"members":2`, `"count":2`, `"count":5`).Replace(done)))
	out, stderr, code := command(t, "", "group", "reset", "g", "--to", "latest", "--dry-run", "--url", url)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "would reset group g in 5 partitions\n")
	require.Equal(t, "and 3 more\nthe group has 2 members: a reset would be refused; stop them first\n", stderr)

	url, requests := answering(t, answer(500, ""))
	for _, args := range [][]string{
		{}, {"--to", "soon"}, {"--to", "earliest", "--offset", "1"}, {"--offset", "1", "--shift", "1"}, {"--offset", "-1"},
		{"--shift", "1", "--topic", "t:x"}, {"--shift", "1", "--topic", "t:"}, {"--shift", "1", "--topic", "t:-1"},
	} {
		_, stderr, code := command(t, "", append([]string{"group", "reset", "g", "--url", url}, args...)...)
		require.Equal(t, exitUsage, code, "%v %s", args, stderr)
	}
	require.Empty(t, requests())
}

func TestGroupDelete(t *testing.T) {
	url, requests := answering(t, answer(http.StatusNoContent, ""))
	out, stderr, code := command(t, "", "group", "delete", "a", "b/c", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "deleted group a\ndeleted group b/c\n", out)
	require.Equal(t, []string{"DELETE /v1/groups/a  ", "DELETE /v1/groups/b%2Fc  "}, requests())

	url, requests = answering(t, answer(200, `{"count":1,"deleted":[{"topic":"t","partition":0}]}`))
	out, stderr, code = command(t, "", "group", "delete", "a", "--topic", "t", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "deleted the offsets of group a in 1 partition of topic t\n", out)
	require.Equal(t, "DELETE /v1/groups/a/offsets/t  ", requests()[0])

	members := `{"type":"/v1/errors#NON_EMPTY_GROUP","title":"The group still has members","status":409,
		"detail":"Group a has members. Stop its members first.","error_code":50002}`
	url, requests = answering(t, answer(409, members))
	_, stderr, code = command(t, "", "group", "delete", "a", "b", "--url", url)
	require.NotEqual(t, exitOK, code)
	require.Contains(t, stderr, "Stop its members first.")
	require.Len(t, requests(), 2, "and goes on")
}
