package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/metadata"
)

var update = flag.Bool("update", false, "write docs/running.md from the table in the code")

// docs/running.md says what the code does: its table is the code's, its words are in testdata.
func TestRunningDocument(t *testing.T) {
	words, err := os.ReadFile("testdata/running.md")
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| name | default | |\n|---|---|---|\n")
	for _, n := range nodeSettings() {
		value := "none"
		if n.value != "" {
			value = "`" + n.value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", n.name, value, n.doc)
	}
	want := strings.Replace(string(words), "{{node}}\n", table.String(), 1)
	want = strings.Replace(want, "{{limits}}\n", limitsTable(), 1)
	const name = "../../docs/running.md"
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/running.md is stale: run make generate")
}

// limitsTable lists the limits with their defaults in the code.
func limitsTable() string {
	http, l, m := server.DefaultConfig().HTTP, server.DefaultConfig().Limits, metadata.DefaultLimits()
	var table strings.Builder
	table.WriteString("| of | limit | beyond it |\n|---|---|---|\n")
	for _, row := range [][3]string{
		{"connections", count(http.MaxConnections) + ", `max-connections`", "they wait to be accepted"},
		{"HTTP/2 requests at once on a connection", count(http.MaxStreams), "the client waits"},
		{"time for the header block of a request", seconds(http.ReadHeaderTimeout), "the connection ends"},
		{"time between two requests on a connection", seconds(http.IdleTimeout), "the connection ends"},
		{"header block, with the first line", size(http.MaxHeaderBytes), "431, from the HTTP library"},
		{"URI", size(l.URIBytes), "414"},
		{"query parameters", count(l.QueryParameters), "400"},
		{"body as sent", size(l.BodyBytes), "413"},
		{"body of a request on `/v1` that manages topics", size(1 << 20), "413"},
		{"body after decompression", size(l.ExpandedBytes), "413"},
		{"expanded bytes for each byte sent", count(l.ExpansionRatio) + ", beyond " + size(l.ExpansionFree), "413"},
		{"window of a zstd body", size(8 << 20), "413"},
		{"pace of a body", size(l.BodyRate) + "/s over " + seconds(l.BodyWindow), "408"},
		{"JSON nesting of a body's own structure; of a value in it", "64; 10,000", "400"},
		{"records in a produce request", count(l.Records), "413"},
		{"a record batch", "`max.message.bytes` of the topic", "413"},
		{"bodies of all requests being served", size(int(l.InFlightBytes)), "503 with `Retry-After`"},
		{"a request of another node; all of them at a time", size(128<<20) + "; " + size(256<<20),
			"413; 503, and it is asked again"},
		{"streams of the metadata quorum, of another node and of all", "16; 256", "the oldest is closed"},
		{"long polls and live streams", count(int(l.Streams)), "503 with `Retry-After`"},
		{"answers of reads being written", size(256 << 20), "503 with `Retry-After`"},
		{"records and bytes of a page", "10,000 and 16 MiB", "400 if more are asked for"},
		{"wait of a long poll", "60 s", "400"},
		{"a position in `from` or `Last-Event-ID`", "60 KiB, of 10,000 partitions", "400"},
		{"topics; partitions of the cluster; of a topic",
			count(m.Topics) + "; " + count(m.Partitions) + "; " + count(m.TopicPartitions), "409"},
	} {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	return table.String()
}

// count writes a number with commas.
func count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func seconds(d time.Duration) string { return count(int(d.Seconds())) + " s" }

func size(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return count(n>>20) + " MiB"
	}
	return count(n>>10) + " KiB"
}
