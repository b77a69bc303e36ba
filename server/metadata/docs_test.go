package metadata_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const docsFile = "../../docs/configuration.md"

// TestDocumentation checks that docs/configuration.md says what the tables say.
func TestDocumentation(t *testing.T) {
	words, err := os.ReadFile("testdata/configuration.tmpl")
	require.NoError(t, err)
	want := strings.NewReplacer("{{topic}}\n", topicTable(), "{{broker}}\n", brokerTable()).Replace(string(words))
	if *update {
		require.NoError(t, os.WriteFile(docsFile, []byte(want), 0o644))
	}
	have, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "out of date: run make generate")
}

func topicTable() string {
	var b strings.Builder
	row(&b, "key", "type", "default", "values", "acts", "broker keys", "meaning")
	row(&b, "---", "---", "---", "---", "---", "---", "---")
	for _, k := range metadata.NewSchema().Topic.Keys() {
		var synonyms []string
		for _, s := range k.Synonyms {
			synonyms = append(synonyms, code(s.Name))
		}
		row(&b, code(k.Name), typeName(k.Type), defaultText(k), k.Valid(), acts(k), strings.Join(synonyms, ", "), k.Doc)
	}
	return b.String()
}

func brokerTable() string {
	var b strings.Builder
	row(&b, "key", "type", "default", "values", "acts", "update", "meaning")
	row(&b, "---", "---", "---", "---", "---", "---", "---")
	for _, k := range metadata.NewSchema().Broker.Keys() {
		row(&b, code(k.Name), typeName(k.Type), defaultText(k), k.Valid(), acts(k), k.Update.String(), k.Doc)
	}
	return b.String()
}

func row(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func code(text string) string { return "`" + text + "`" }

func typeName(t kmsg.ConfigType) string { return strings.ToLower(t.String()) }

func acts(k *metadata.ConfigKey) string {
	if k.Acts {
		return "yes"
	}
	return "no"
}

func defaultText(k *metadata.ConfigKey) string {
	switch {
	case k.NoDefault:
		return "not set"
	case k.Default == "":
		return "empty"
	default:
		return code(k.Default)
	}
}
