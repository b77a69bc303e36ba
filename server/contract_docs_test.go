package server_test

import (
	"bytes"
	"html"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asShown runs a line with a curl that does not wait for ever and tells the status behind the body.
// A worker's page waits for records.
const asShown = `curl() {
  case "$*" in
  *text/event-stream*) most=1 ;;
  */groups/*/records*) most=9 ;;
  *) most=1 ;;
  esac
  command curl -sS --max-time $most -w '\n%{http_code}' "$@"
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
			out, status := g.shell(t, html.UnescapeString(line[1]))
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
