package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	drained = `{"broker":3,"dry_run":false,"count":2,"moves":[` +
		`{"topic":"t","partition":0,"replicas":[3,1],"to":[2,1]},{"topic":"t","partition":1,"replicas":[1,3],"to":[1,2]}],` +
		`"unmovable":{"count":0,"items":[]}}`
	twoLeft = `{"items":[{"id":1,"replicas":2},{"id":3,"replicas":2}]}`
	oneLeft = `{"items":[{"id":1,"replicas":2},{"id":3,"replicas":1}]}`
	empty   = `{"items":[{"id":1,"replicas":2},{"id":3,"replicas":0}]}`
)

// A drain that waits shows what is left, goes on through a fault that passes, and removes its throttle in the end.
func TestDrainWaits(t *testing.T) {
	url, requests := answering(t, answer(202, drained), answer(200, twoLeft), answer(503, overloaded),
		answer(200, oneLeft), answer(200, empty), answer(http.StatusNoContent, ""))
	out, stderr, code := command(t, "", "cluster", "drain", "3", "--throttle", "2MiB", "--wait", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "2 partitions move off broker 3\n")
	require.Contains(t, out, "t      1          1,3       1,2\n")
	require.Contains(t, out, "broker 3 is empty; stop its node, then 'millrace cluster decommission 3'\n")
	require.Equal(t, `2 partitions left on broker 3
1 partition left on broker 3
0 partitions left on broker 3
`, stderr)
	seen := requests()
	require.Len(t, seen, 6)
	require.Contains(t, seen[0], `{"dry_run":false,"throttle_bytes_per_second":2097152}`)
	require.Contains(t, seen[5], "DELETE /v1/cluster/throttle")
}

// A wait ends at once when the answer is a refusal that time does not change.
func TestDrainGivesUp(t *testing.T) {
	url, _ := answering(t, answer(202, drained), answer(400, refused))
	_, stderr, code := command(t, "", "cluster", "drain", "3", "--wait", "--url", url)
	require.Equal(t, exitFailed, code, stderr)
}

func TestReassignWaits(t *testing.T) {
	moving := `{"count":1,"throttle":null,"items":[{"topic":"t","partition":0,"lags":[]}]}`
	other := `{"count":1,"throttle":null,"items":[{"topic":"t","partition":1,"lags":[]}]}`
	url, requests := answering(t, answer(202, `{"items":[]}`), answer(200, moving), answer(200, other))
	_, stderr, code := command(t, "", "cluster", "reassign", "t", "0", "1,2", "--wait", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Len(t, requests(), 3)
	require.Contains(t, requests()[0], `{"reassignments":[{"partition":0,"replicas":[1,2],"topic":"t"}]}`)
}

func TestHealthOfTheClusterWaits(t *testing.T) {
	bad := `{"status":"degraded","reasons":["broker 3 does not answer"],"partitions":{"under_replicated":{"count":1,` +
		`"items":[{"topic":"t","partition":0,"leader":1,"replicas":[1,3],"isr":[1],"min_isr":1}]},` +
		`"at_min_isr":{"count":1,"items":[{"topic":"t","partition":0,"leader":1,"replicas":[1,3],"isr":[1],"min_isr":1}]}}}`
	good := `{"status":"ok","reasons":[]}`
	url, _ := answering(t, answer(200, bad), answer(503, overloaded), answer(200, good))
	out, stderr, code := command(t, "", "cluster", "health", "--require", "ok", "--wait", "1m", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "ok\n", out)

	url, _ = answering(t, answer(200, bad))
	out, stderr, code = command(t, "", "cluster", "health", "--require", "ok", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "the cluster is degraded, and --require ok was asked for")
	require.Contains(t, out, "  broker 3 does not answer\n")
	require.Contains(t, out, "t      0          at min ISR  1       1,3       1    1\n")
	_, stderr, code = command(t, "", "cluster", "health", "--require", "degraded", "--url", url)
	require.Equal(t, exitOK, code, stderr)
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "1": 1, "50MB": 50e6, "64MiB": 64 << 20, "1 GB": 1e9, "3kB": 3000, "10B": 10, "2GiB": 2 << 30,
		"3000000000": 3e9,
	} {
		got, err := parseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"MB", "-1", "0", "1.5MB", "1XB", "99999999999GB"} {
		_, err := parseRate(text)
		require.Error(t, err, text)
	}
}

// Ids go into JSON and paths as they are given.
func TestNodeIDsAreWrittenAsNumbers(t *testing.T) {
	for _, text := range []string{"0", "7", "2147483647"} {
		require.NoError(t, nodeID(text), text)
	}
	for _, text := range []string{"", "-1", "+3", "007", "1/x", "2147483648"} {
		require.Error(t, nodeID(text), text)
	}
}

// A partition that is not whole says so.
func TestDescribeMarksPartitions(t *testing.T) {
	url, _ := answering(t, answer(200, `{"name":"t","id":"x","configs":[],"partitions":[
		{"partition":0,"leader":1,"replicas":[1,2],"isr":[1,2],"earliest_offset":0,"latest_offset":7},
		{"partition":1,"leader":2,"replicas":[2,1],"isr":[2],"earliest_offset":0,"latest_offset":7},
		{"partition":2,"leader":-1,"replicas":[1,2],"isr":[2],"earliest_offset":null,"latest_offset":null}]}`))
	out, stderr, code := command(t, "", "topic", "describe", "t", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "0          1       0      1,2       1,2  0         7\n")
	require.Contains(t, out, "1          2       0      2,1       2    0         7  under-replicated\n")
	require.Contains(t, out, "2          none    0      1,2       2    -         -  offline\n")
}
