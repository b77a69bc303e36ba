package server_test

import (
	"bytes"
	"html"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
)

// asShown runs a line with a curl that does not wait for ever and tells the status behind the body. A live stream has
// no end: it is cut when a second has passed, or much later where its answer has not begun by then.
const asShown = `curl() {
  case "$*" in
  *text/event-stream*) mosts='1 60' ;;
  *) mosts=60 ;;
  esac
  for most in $mosts; do
    out=$(command curl -sS --max-time $most -w '\n%{http_code}' "$@" 2>&1; echo .)
    case "$out" in *000.) ;; *) break ;; esac
  done
  printf %s "${out%.}"
}
`

// Every line of curl on the page of the contract works as it stands, against the node that shows it: what it sends is
// what the contract's example says, and the addresses are the node's own.
func TestLinesOfDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs curl some eighty times")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("the page is written with curl: install it")
	}
	g := newRig(t)
	page := string(g.send(t, g.request(t, g.op(t, "getDocs"))).body)
	require.Contains(t, page, g.cluster)
	require.NotContains(t, page, "127.0.0.1:8082")
	articles := regexp.MustCompile(`(?s)<article id="(\w+)">(.*?)</article>`).FindAllStringSubmatch(page, -1)
	lines := regexp.MustCompile(`(?s)<div class="call"><pre>(.*?)</pre>`)
	ran := 0
	for _, a := range articles {
		for _, line := range lines.FindAllStringSubmatch(a[2], -1) {
			if needsAbsent[a[1]] {
				g.clear(t)
			} else {
				g.restore(t)
			}
			g.clean = false
			end := g.worker(t, a[1], line[1])
			out, status := g.shell(t, g.inTransaction(t, a[1], html.UnescapeString(line[1])))
			end()
			require.Regexp(t, `^(2\d\d`+refusedByOne(a[1])+`)$`, status, "%s:\n%s\n%s", a[1], html.UnescapeString(line[1]), out)
			ran++
		}
	}
	require.Greater(t, ran, 70)

	produce := html.UnescapeString(page[strings.Index(page, `<article id="produceRecords">`):])
	for _, media := range []string{"application/x-ndjson", "application/vnd.millrace.records+ndjson"} {
		g.restore(t)
		g.clean = false
		call := regexp.MustCompile(`(?s)>` + regexp.QuoteMeta(media) + `</p>\s*<div class="call"><pre>(.*?)</pre>`)
		line := call.FindStringSubmatch(produce)
		require.NotNil(t, line, media)
		out, _ := g.shell(t, line[1])
		require.Contains(t, out, `"count":2`, "one record a line")
	}
}

// worker makes the member that a line about workers names, where it names one, in a group without others, and the
// instance that a line about instances names, as it needs it. The function takes the member away again.
func (g *rig) worker(t *testing.T, operation, line string) (end func()) {
	t.Helper()
	switch operation {
	case "createV2Instance":
		g.dropInstance(t, "c1")
		return func() {}
	case "subscribeV2Instance", "assignV2Instance":
		g.dropInstance(t, "c1")
		g.instance(t, `{"name":"c1"}`, "")
		return func() {}
	case "readV2Records":
		for _, format := range []string{"json", "avro", "jsonschema", "protobuf"} {
			if strings.Contains(line, "kafka."+format+".v2") { // from the end: the keys of orders are in none of them
				g.dropInstance(t, "c1")
				g.instance(t, `{"name":"c1","format":"`+format+`","consumer.request.timeout.ms":50}`, `{"topics":["orders"]}`)
			}
		}
		return func() {}
	case "commitGroupOffsets", "leaveGroup":
		g.dropInstance(t, "c1")
	default:
		return func() {}
	}
	group, err := client.New(g.node.Requestor(), client.Options{}).DescribeGroup(t.Context(), "billing")
	require.NoError(t, err)
	for _, m := range group.Members { // of lines before
		g.call(t, "DELETE", "/v1/groups/billing/members/"+m.ID, nil, nil)
	}
	if !strings.Contains(line, "worker-1") {
		return func() {}
	}
	g.call(t, "GET", "/v1/groups/billing/records?topics=orders&member=worker-1&auto_offset_reset=earliest", nil, nil)
	return func() {
		if operation != "leaveGroup" {
			g.call(t, "DELETE", "/v1/groups/billing/members/worker-1", nil, nil)
		}
	}
}

// inTransaction begins the transaction that a line writes in or ends, and puts its epoch into the line.
func (g *rig) inTransaction(t *testing.T, operation, line string) string {
	t.Helper()
	if !slices.Contains([]string{
		"produceRecordsInTransaction", "commitTransactionOffsets", "commitTransaction", "abortTransaction",
	}, operation) {
		return line
	}
	var begun struct{ Epoch int }
	g.call(t, "POST", "/v1/transactions/copier-1", nil, &begun)
	epoch := "epoch=" + strconv.Itoa(begun.Epoch)
	if operation == "commitTransaction" || operation == "abortTransaction" {
		g.call(t, "POST", "/v1/transactions/copier-1/records?topic=orders&"+epoch, map[string]int{"order": 10}, nil)
	}
	return strings.Replace(line, "epoch=0", epoch, 1)
}

// refusedByOne is the status, as a part of an expression, by which one node by itself may refuse an operation; "" if it
// may not.
func refusedByOne(operation string) string {
	for example, status := range ofSeveral {
		if strings.HasPrefix(example, operation+" ") {
			return "|" + strconv.Itoa(status)
		}
	}
	return ""
}

// shell runs a line and gives what curl printed and the status of the answer.
func (g *rig) shell(t *testing.T, line string) (out, status string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", asShown+line)
	cmd.Dir = t.TempDir()
	text, _ := cmd.CombinedOutput() // a live stream is cut by the time that curl is given
	text = bytes.TrimSpace(text)
	i := bytes.LastIndexByte(text, '\n')
	return string(text[:max(i, 0)]), string(text[i+1:])
}
