package connectors_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// validation is the answer to a validation.
type validation struct {
	Name    string   `json:"name"`
	Count   int      `json:"error_count"`
	Groups  []string `json:"groups"`
	Configs []struct {
		Definition *struct {
			Name, Type, Importance, Documentation, Width string
			Required                                     bool
			Default                                      *string `json:"default_value"`
			Group                                        string
			Display                                      string `json:"display_name"`
			Dependents                                   []string
			Order                                        int
		}
		Value struct {
			Name        string
			Value       *string
			Recommended []string `json:"recommended_values"`
			Errors      []string
			Visible     bool
		}
	} `json:"configs"`
	Settings struct {
		Understood []string
		Ignored    []struct{ Name, Reason string }
		Refused    []string
	} `json:"settings"`
}

func (f *fixture) validate(class, config string) *validation {
	f.t.Helper()
	a := f.send("PUT", "/connector-plugins/"+class+"/config/validate", config)
	require.Equal(f.t, 200, a.status, a.text)
	var v validation
	require.NoError(f.t, json.Unmarshal([]byte(a.text), &v), a.text)
	return &v
}

// errors are the errors by key.
func (v *validation) errors() map[string][]string {
	out := map[string][]string{}
	for _, c := range v.Configs {
		if len(c.Value.Errors) > 0 {
			out[c.Value.Name] = c.Value.Errors
		}
	}
	return out
}

// value is a setting's value, nil if it has none.
func (v *validation) value(key string) *string {
	for _, c := range v.Configs {
		if c.Value.Name == key {
			return c.Value.Value
		}
	}
	return nil
}

func (v *validation) ignored(key string) string {
	for _, i := range v.Settings.Ignored {
		if i.Name == key {
			return i.Reason
		}
	}
	return ""
}

// A good config is told whole: groups, definitions in order, values with their defaults, passwords hidden.
func TestValidateAGoodConfig(t *testing.T) {
	f := start(t)
	v := f.validate("CountSource", `{"name":"c",`+source+`,"tasks.max":3,"password":"pw","cache":2,"tpoics":"x",
		"consumer.override.foo":"1","producer.override.compression.type":"zstd","key.converter.schemas.enable":false,
		"value.converter":"org.apache.kafka.connect.json.JsonConverter","value.converter.schemas.enable":false}`)
	require.Equal(t, "org.example.CountSourceConnector", v.Name)
	require.Zero(t, v.Count, "%v", v.errors())
	require.Equal(t, []string{"Common", "Transforms", "Predicates", "Error Handling", "Topic Creation",
		"Exactly Once Support", "offsets.topic", "Connection", "Mode"}, v.Groups)
	names := []string{}
	for i, c := range v.Configs {
		require.NotNil(t, c.Definition, c.Value.Name)
		require.Equal(t, c.Definition.Name, c.Value.Name)
		require.Contains(t, []string{"BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"},
			c.Definition.Type)
		require.Contains(t, []string{"HIGH", "MEDIUM", "LOW"}, c.Definition.Importance)
		require.Contains(t, []string{"NONE", "SHORT", "MEDIUM", "LONG"}, c.Definition.Width)
		require.NotEmpty(t, c.Definition.Display)
		require.NotNil(t, c.Definition.Dependents)
		require.Positive(t, c.Definition.Order)
		require.NotNil(t, c.Value.Recommended)
		require.NotNil(t, c.Value.Errors)
		require.True(t, c.Value.Visible)
		require.Equal(t, c.Definition.Required, c.Definition.Required && c.Definition.Default == nil)
		if i == 0 {
			require.Equal(t, "name", c.Definition.Name)
		}
		names = append(names, c.Value.Name)
	}
	require.Less(t, slices.Index(names, "errors.tolerance"), slices.Index(names, "host"), "the runner's come first")
	require.Less(t, slices.Index(names, "topic"), slices.Index(names, "value.converter.schemas.enable"))
	require.Equal(t, "3", *v.value("tasks.max"))
	require.Equal(t, "fast", *v.value("mode"))
	require.Equal(t, "", *v.value("transforms"))
	require.Equal(t, "[hidden]", *v.value("password"))
	require.Nil(t, v.value("header.converter"))
	require.NotContains(t, names, "topics", "of sinks")
	require.NotContains(t, names, "tpoics")
	require.Contains(t, v.Settings.Understood, "value.converter.schemas.enable")
	require.Empty(t, v.Settings.Refused)
	require.Equal(t, "nothing is cached here", v.ignored("cache"))
	require.Contains(t, v.ignored("tpoics"), "no setting of this connector has this name")
	require.Contains(t, v.ignored("consumer.override.foo"), "client")
	require.Contains(t, v.Settings.Understood, "producer.override.compression.type")
	require.Contains(t, v.Settings.Understood, "key.converter.schemas.enable", "of the worker's own")
}

// Errors are told at the setting that is to blame, all together, and by the connector too.
func TestValidateTellsAllErrors(t *testing.T) {
	f := start(t)
	for _, c := range []struct{ config, key, want string }{
		{`{` + source + `}`, "name", `Missing required configuration "name"`},
		{`{"name":"c","connector.class":"CountSource"}`, "topic", `Missing required configuration "topic"`},
		{`{"name":"c",` + source + `,"tasks.max":"many"}`, "tasks.max", "number"},
		{`{"name":"c",` + source + `,"tasks.max":0}`, "tasks.max", "at least 1"},
		{`{"name":"c",` + source + `,"mode":"odd"}`, "mode", "fast, slow"},
		{`{"name":"c",` + source + `,"mode":null}`, "mode", "null"},
		{`{"name":"c",` + source + `,"other":null}`, "other", "null"},
		{`{"name":"c",` + source + `,"errors.tolerance":"some"}`, "errors.tolerance", "none, all"},
		{`{"name":"c",` + source + `,"host":"nowhere"}`, "host", "nobody answers"},
		{`{"name":"c",` + source + `,"host":"bad-x"}`, "slot", "there is no slot"},
		{`{"name":"c",` + source + `,"key.converter":"No"}`, "key.converter", "JsonConverter"},
		{`{"name":"c",` + source + `,"value.converter":"JsonConverter","value.converter.schemas.enable":"x"}`,
			"value.converter.schemas.enable", "true or false"},
		{`{"name":"c",` + source + `,"transforms":"a"}`, "transforms.a.type", "Missing required"},
		{`{"name":"c",` + source + `,"transforms":"a,a"}`, "transforms", "twice"},
		{`{"name":"c",` + source + `,"transforms":"a","transforms.a.type":"No"}`, "transforms.a.type", "no transform"},
		{`{"name":"c",` + source + `,"transforms":"a","transforms.a.type":"No","transforms.a.predicate":"p"}`,
			"transforms.a.predicate", "not one of the names"},
		{`{"name":"c",` + source + `,"transforms":"a","transforms.a.type":"No","transforms.a.negate":true}`,
			"transforms.a.negate", "negated"},
		{`{"name":"c",` + source + `,"predicates":"p","predicates.p.type":"No"}`, "predicates.p.type", "no predicate"},
		{`{"name":"c",` + source + `,"topic.creation.default.partitions":1}`, "topic.creation.default.replication.factor",
			"Missing required"},
		{`{"name":"c",` + source + `,"topic.creation.groups":"g","topic.creation.default.partitions":0,
			"topic.creation.default.replication.factor":-1}`, "topic.creation.default.partitions", "-1 or between 1"},
		{`{"name":"c",` + source + `,"topic.creation.groups":"g","topic.creation.default.partitions":1,
			"topic.creation.default.replication.factor":-1}`, "topic.creation.g.include", "Missing required"},
		{`{"name":"c",` + source + `,"password":"[hidden]"}`, "password", "give the password"},
		{`{"name":"c",` + source + `,"host":"${env:NO_SUCH}"}`, "host", "${env:NO_SUCH}"},
		{`{"name":"s","connector.class":"NullSink"}`, "topics", "topics.regex"},
		{`{"name":"s","connector.class":"NullSink","topics":"a","topics.regex":"b"}`, "topics", "only one"},
		{`{"name":"s","connector.class":"NullSink","topics":"a/b"}`, "topics", "a/b"},
		{`{"name":"s","connector.class":"NullSink","topics.regex":"("}`, "topics.regex", "regular expression"},
		{`{"name":"s","connector.class":"NullSink","topics":"a,b","errors.deadletterqueue.topic.name":"b"}`,
			"errors.deadletterqueue.topic.name", "b"},
		{`{"name":"s","connector.class":"NullSink","topics":"a","consumer.override.max.poll.records":"x"}`,
			"consumer.override.max.poll.records", "number"},
		{`{"name":"s","connector.class":"NullSink","topics":"a","consumer.override.isolation.level":"x"}`,
			"consumer.override.isolation.level", "read_committed"},
		{`{"name":"cluster","connector.class":"NullSink","topics":"a"}`, "name", "connect-cluster"},
		{`{"name":"s","connector.class":"NullSink","topics":"a","consumer.override.group.id":"connect-cluster"}`,
			"consumer.override.group.id", "connect-cluster"},
	} {
		class := "CountSource"
		if strings.Contains(c.config, "NullSink") {
			class = "NullSink"
		}
		v := f.validate(class, c.config)
		got := v.errors()
		require.Contains(t, got, c.key, c.config)
		require.Contains(t, strings.Join(got[c.key], "\n"), c.want, c.config)
		require.Contains(t, v.Settings.Refused, c.key)
		n := 0
		for _, errs := range got {
			n += len(errs)
		}
		require.Equal(t, n, v.Count, c.config)
		if c.key != "name" { // which is put in
			require.Equal(t, 400, f.send("PUT", "/connectors/c/config", c.config).status, "it is not created either")
		}
	}
	v := f.validate("CountSource",
		`{"name":"c","connector.class":"CountSource","tasks.max":0,"host":"bad-host","mode":"odd"}`)
	require.Equal(t, 5, v.Count, "%v", v.errors())
	require.Nil(t, v.Configs[0].Definition, "of a key that is not known")
	require.Equal(t, "slot", v.Configs[0].Value.Name)
}

// What the path and the config say must be one class.
func TestValidateNeedsItsClass(t *testing.T) {
	f := start(t)
	at := "PUT /connector-plugins/"
	f.run(
		step{at + "CountSource/config/validate", `{}`, 400, "connector.class"},
		step{at + "CountSource/config/validate", `{"connector.class":"NullSink"}`, 400, "CountSource"},
		step{at + "CountSource/config/validate", `{"connector.class":"No","password":"pw"}`, 400, "NullSinkConnector"},
		step{at + "No/config/validate", `{"connector.class":"NullSink"}`, 400, "No"},
		step{at + "CountSource/config/validate", `[]`, 400, ""},
		step{at + "CountSource/config/validate", `{"a":{},"connector.class":"CountSource"}`, 400, "object"},
	)
	for _, name := range []string{"CountSource", "CountSourceConnector", "org.example.CountSourceConnector",
		"com.old.Counter", "Counter"} {
		v := f.validate(name, `{"name":"c","topic":"t","connector.class":"CountSourceConnector"}`)
		require.Zero(t, v.Count)
		v = f.validate("CountSource", `{"name":"c","topic":"t","connector.class":"`+name+`"}`)
		require.Equal(t, name, v.Name)
	}
}

// No answer holds what a reference stands for, also where a connector puts it into its words; nor a password.
func TestSecretsAreNotTold(t *testing.T) {
	dir := t.TempDir()
	secrets := filepath.Join(dir, "s.properties")
	require.NoError(t, os.WriteFile(secrets, []byte("host=bad-s3cr3t\npw=p4ssw0rd\n"), 0o600))
	f := start(t, "connect.config.providers.file.allowed.paths="+dir)
	ref := func(key string) string { return "${file:" + secrets + ":" + key + "}" }
	config := `{"name":"c",` + source + `,"host":"` + ref("host") + `","password":"` + ref("pw") + `"}`
	for _, a := range []*answer{
		f.send("PUT", "/connector-plugins/CountSource/config/validate", config),
		f.send("PUT", "/connectors/c/config", config),
	} {
		require.Contains(t, a.text, "cannot go to ${file:")
		require.NotContains(t, a.text, "s3cr3t")
		require.NotContains(t, a.text, "p4ssw0rd")
	}
	v := f.validate("CountSource", config)
	require.Equal(t, ref("host"), *v.value("host"))
	require.Equal(t, ref("pw"), *v.value("password"), "which is no secret")

	require.NoError(t, os.WriteFile(secrets, []byte("host=good\npw=p4ssw0rd\n"), 0o600))
	f.run(step{"PUT /connectors/c/config", config, 201,
		`{"config":{"host":"` + ref("host") + `","password":"` + ref("pw") + `"}}`})
	f.await("/connectors/c/status", `{"tasks":[{"state":"RUNNING"}]}`)
	for _, path := range []string{
		"/connectors/c", "/connectors/c/config", "/connectors/c/tasks", "/connectors/c/tasks-config",
		"/connectors?expand=info&expand=status",
	} {
		require.NotContains(t, f.send("GET", path, "").text, "p4ssw0rd", path)
	}
}

// A masked password stands for the one that is stored, as long as it would be sent to the same place.
func TestMaskedPasswords(t *testing.T) {
	f := start(t)
	url := `"url":"postgresql://u:s3cr3t@db/x?password=0ther&a=b"`
	f.run(
		step{"PUT /connectors/c/config", `{` + source + `,"password":"pw","api.key":"k3y",` + url + `}`, 201,
			`{"config":{"password":"[hidden]","api.key":"[hidden]","url":"postgresql://u:[hidden]@db/x?password=[hidden]&a=b"}}`},
	)
	f.run(
		step{"PUT /connectors/c/config", f.send("GET", "/connectors/c/config", "").text, 200, `{"name":"c"}`},
		step{"PUT /connectors/c/config", `{` + source + `,"password":"[hidden]","host":"elsewhere"}`, 400,
			"give the password again"},
		step{"PUT /connectors/c/config", `{` + source + `,"url":"postgresql://u:[hidden]@evil/x"}`, 400, "give the password"},
		step{"PATCH /connectors/c/config", `{"mode":"slow","password":"[hidden]"}`, 200, `{"config":{"mode":"slow"}}`},
		step{"PATCH /connectors/c/config", `{"host":"elsewhere"}`, 200, `{"config":{"host":"elsewhere"}}`},
	)
	v := f.validate("CountSource", `{"name":"c",`+source+`,"password":"[hidden]","host":"elsewhere"}`)
	require.Zero(t, v.Count, "%v", v.errors())
	v = f.validate("CountSource", `{"name":"c",`+source+`,"password":"[hidden]","host":"evil"}`)
	require.Contains(t, v.errors(), "password")

	open := start(t, "connect.reveal.secrets=true")
	open.run(
		step{"PUT /connectors/c/config", `{` + source + `,"password":"pw"}`, 201, `{"config":{"password":"pw"}}`},
		step{"GET /connectors/c/config", "", 200, `{"password":"pw"}`},
	)
}

// What a connector says of a URL that it cannot use has no password in it.
func TestPasswordsInMessages(t *testing.T) {
	f := start(t)
	config := `{"name":"c",` + source + `,"host":"bad-x://u:pw@h?password=0ther-s3cret"}`
	for _, a := range []*answer{
		f.send("PUT", "/connector-plugins/CountSource/config/validate", config),
		f.send("PUT", "/connectors/c/config", config),
	} {
		require.Contains(t, a.text, "cannot go to bad-x://u:[hidden]@h?password=[hidden]")
		require.NotContains(t, a.text, "0ther-s3cret")
	}
}
