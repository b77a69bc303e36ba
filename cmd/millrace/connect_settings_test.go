package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// connectSetting is one as the API of connectors tells it.
type connectSetting struct {
	Name          string
	Type          string
	Required      bool
	DefaultValue  *string `json:"default_value"`
	Documentation string
	Group         string
}

// runnerGroups are the groups of the settings that all connectors have.
var runnerGroups = []string{"Common", "Transforms", "Predicates", "Error Handling", "Topic Creation",
	"Exactly Once Support", "offsets.topic"}

const settingsHead = `# Settings of connectors

Every setting of every class, as ` + "`GET /connector-plugins/CLASS/config`" + ` tells them. [connect.md](connect.md)
says how connectors are used. The tables are written from a running node by ` + "`make generate`" + `; a test holds the
two together.

*Ignored* settings are understood, so that configs for other products can be posted as they are, and do nothing here,
for the reason that is given. What a class does not know is passed over too, and listed by
` + "`millrace connector validate`" + `.
`

// docs/connect-settings.md says what a node says of the settings of connectors.
func TestConnectSettingsDocument(t *testing.T) {
	p := serve(t, t.TempDir())
	page := new(strings.Builder)
	page.WriteString(settingsHead)
	const sourceClass, sinkClass = "io.confluent.connect.jdbc.JdbcSourceConnector", "PostgresSink"
	sources, sinks := p.settings(t, sourceClass), p.settings(t, sinkClass)
	own := func(s connectSetting) bool { return !slices.Contains(runnerGroups, s.Group) }
	both := func(s connectSetting) bool { return !own(s) && sinks.has(s.Name) && sources.has(s.Name) }
	sink := func(s connectSetting) bool { return !own(s) && !sources.has(s.Name) }
	sources.table(page, "All connectors", both)
	sources.table(page, "All sources", func(s connectSetting) bool { return !own(s) && !both(s) })
	sinks.table(page, "All sinks", sink)
	for _, class := range []string{"io.debezium.connector.postgresql.PostgresConnector", sourceClass, sinkClass,
		"io.confluent.connect.jdbc.JdbcSinkConnector", "io.debezium.connector.jdbc.JdbcSinkConnector"} {
		p.settings(t, class).table(page, "`"+class+"`", own)
	}
	for _, kind := range []string{"converter", "transformation", "predicate"} {
		p.others(t, page, kind)
	}
	const name = "../../docs/connect-settings.md"
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(page.String()), 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(got), "docs/connect-settings.md is stale: run make generate")
}

// classSettings are the settings of a class, and why some of them are ignored.
type classSettings struct {
	list    []connectSetting
	ignored map[string]string
}

func (p *process) settings(t *testing.T, class string) (c classSettings) {
	t.Helper()
	status, body := p.get(t, "/connector-plugins/"+class+"/config")
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &c.list))
	if !strings.HasSuffix(class, "Connector") && class != "PostgresSink" {
		return c
	}
	config := map[string]string{}
	for _, s := range c.list {
		if config[s.Name] = "1"; s.DefaultValue != nil {
			config[s.Name] = *s.DefaultValue
		}
	}
	config["connector.class"] = class
	text, err := json.Marshal(config)
	require.NoError(t, err)
	url := p.url + "/connector-plugins/" + class + "/config/validate"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(text))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", answer)
	var told struct {
		Settings struct {
			Ignored []struct{ Name, Reason string }
		}
	}
	require.NoError(t, json.Unmarshal(answer, &told))
	c.ignored = map[string]string{}
	for _, s := range told.Settings.Ignored {
		c.ignored[s.Name] = s.Reason
	}
	return c
}

func (c classSettings) has(name string) bool {
	return slices.ContainsFunc(c.list, func(s connectSetting) bool { return s.Name == name })
}

// table writes the settings that are wanted: first what does something, then what does not.
func (c classSettings) table(page *strings.Builder, title string, want func(connectSetting) bool) {
	fmt.Fprintf(page, "\n## %s\n\n| setting | type | default | |\n|---|---|---|---|\n", title)
	for _, s := range c.list {
		if want(s) && c.ignored[s.Name] == "" {
			s.row(page, s.Documentation)
		}
	}
	for _, s := range c.list {
		if why := c.ignored[s.Name]; want(s) && why != "" {
			s.row(page, "*Ignored*: "+why+".")
		}
	}
}

func (s connectSetting) row(page *strings.Builder, what string) {
	value := "required"
	switch {
	case s.Required:
	case s.DefaultValue == nil:
		value = "none"
	case *s.DefaultValue == "":
		value = "empty"
	default:
		value = "`" + *s.DefaultValue + "`"
	}
	what = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(what)
	fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", s.Name, strings.ToLower(s.Type), value, what)
}

// others writes the settings of converters, transforms or predicates.
func (p *process) others(t *testing.T, page *strings.Builder, kind string) {
	t.Helper()
	status, body := p.get(t, "/connector-plugins?connectorsOnly=false")
	require.Equal(t, http.StatusOK, status, body)
	var plugins []struct{ Class, Type string }
	require.NoError(t, json.Unmarshal([]byte(body), &plugins))
	titles := map[string]string{
		"converter":      "Converters, behind `key.converter.` and `value.converter.`",
		"transformation": "Transforms, behind `transforms.NAME.`",
		"predicate":      "Predicates, behind `predicates.NAME.`",
	}
	fmt.Fprintf(page, "\n## %s\n", titles[kind])
	for _, plugin := range plugins {
		class := plugin.Class
		// A transform of keys has the settings of the one of values.
		if plugin.Type != kind || strings.HasSuffix(class, "$Key") {
			continue
		}
		c := p.settings(t, strings.ReplaceAll(class, "$", "%24"))
		title := "### `" + strings.Replace(class, "$Value", "$Key` and `$Value", 1) + "`"
		if len(c.list) == 0 {
			fmt.Fprintf(page, "\n%s\n\nNone.\n", title)
			continue
		}
		fmt.Fprintf(page, "\n%s\n\n| setting | type | default | |\n|---|---|---|---|\n", title)
		for _, s := range c.list {
			s.row(page, s.Documentation)
		}
	}
}
