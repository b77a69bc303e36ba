package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/connect/provider"
)

// errTooLong ends a wait.
var errTooLong = errors.New("it takes too long")

// configHelp says what a file with a config may be.
const configHelp = `FILE is a config as JSON ({"connector.class": ..., ...}), a whole request to create a connector
({"name": ..., "config": {...}}), or a properties file (key=value in lines); - is standard input. A setting given with
--set goes before one in the file. A secret is better kept out of the file: the nodes put values in place of references
such as ${file:/run/secrets/db.properties:password} and ${env:DB_PASSWORD}, as far as their settings allow.
`

// settingFlags are the flags of commands that take a config.
type settingFlags struct {
	file string
	sets []string
}

func (f *settingFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "the file with the config; - is standard input")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "KEY=VALUE of a setting; may be given more than once")
}

// connectorFile is a config that was read, and what came with it.
type connectorFile struct {
	name    string
	config  map[string]json.RawMessage
	initial string
}

// read reads the config that the flags give.
func (f *settingFlags) read(c *cli) (*connectorFile, error) {
	out := &connectorFile{config: map[string]json.RawMessage{}}
	if f.file != "" {
		text, err := c.readText(f.file)
		if err != nil {
			return nil, err
		}
		if out, err = parseConnector(text); err != nil {
			return nil, failf(exitFailed, "%s: %w", f.file, err)
		}
	}
	for _, set := range f.sets {
		key, value, ok := strings.Cut(set, "=")
		if !ok || key == "" {
			return nil, usagef("--set %q: want KEY=VALUE", set)
		}
		out.config[key] = jsonText(value)
	}
	return out, nil
}

func jsonText(text string) json.RawMessage {
	b, _ := json.Marshal(text) // a text can always be written
	return b
}

// parseConnector reads a config in any of its forms.
func parseConnector(text string) (*connectorFile, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		if !strings.ContainsAny(text, "=:") {
			return nil, errors.New("it is neither a JSON object nor KEY=VALUE in lines")
		}
		props := provider.Properties(text)
		f := &connectorFile{name: strings.TrimSpace(props["name"]), config: map[string]json.RawMessage{}}
		for key, value := range props {
			f.config[key] = jsonText(strings.TrimSpace(value))
		}
		return f, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	config, whole := members["config"]
	if whole && len(config) > 0 && bytes.TrimSpace(config)[0] == '{' {
		f := &connectorFile{name: unquote(members["name"]), initial: unquote(members["initial_state"])}
		return f, json.Unmarshal(config, &f.config)
	}
	return &connectorFile{name: unquote(members["name"]), config: members}, nil
}

// unquote is the text of a JSON string, "" of anything else.
func unquote(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text) // what is no text is refused by the server
	return text
}

func newConnectorCreate(c *cli) *cobra.Command {
	var f settingFlags
	var wait bool
	var limit time.Duration
	var state string
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a connector",
		Long: `Create a connector. Its config is checked first, which includes a look at the database. The name may stand in
the file.

` + configHelp,
		Example: `  millrace connector create orders -f orders.json --wait
  millrace connector create -f request.json
  millrace connector create orders -f orders.properties --set tasks.max=4 --state stopped`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.readFor(c, cmd, args)
			if err != nil {
				return err
			}
			if state != "" {
				file.initial = strings.ToUpper(state)
			}
			return c.createConnector(cmd.Context(), file, wait, limit)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&state, "state", "", "what it does at first: running, paused or stopped")
	addWait(cmd, &wait, &limit, "the connector and its tasks run")
	return cmd
}

// readFor reads the config of a command that names a connector, or leaves that to the file.
func (f *settingFlags) readFor(c *cli, cmd *cobra.Command, args []string) (*connectorFile, error) {
	if f.file == "" && len(f.sets) == 0 {
		return nil, usageOf(cmd, "no config: give a file with -f, or settings with --set")
	}
	file, err := f.read(c)
	if err != nil {
		return nil, err
	}
	if len(args) == 1 {
		file.name = args[0]
		if _, ok := file.config["name"]; ok {
			file.config["name"] = jsonText(args[0])
		}
	}
	return file, nil
}

func (c *cli) createConnector(ctx context.Context, f *connectorFile, wait bool, limit time.Duration) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	if f.name == "" {
		return usagef("the connector has no name: give one as the argument, or in the file")
	}
	body := map[string]any{"name": f.name, "config": f.config}
	if f.initial != "" {
		body["initial_state"] = f.initial
	}
	var raw json.RawMessage
	if err := r.do(ctx, jsonCall(http.MethodPost, "/connectors", body), &raw); err != nil {
		return err
	}
	if wait {
		a := awaited{what: "running", limit: limit, until: allIn("RUNNING")}
		switch strings.ToUpper(f.initial) {
		case "STOPPED":
			a = awaited{what: "stopped", limit: limit, until: stopped}
		case "PAUSED":
			a = awaited{what: "paused", limit: limit, until: allIn("PAUSED")}
		}
		if err := c.awaitConnector(ctx, r, f.name, a); err != nil {
			return err
		}
	}
	if asJSON {
		return c.raw(raw, nil)
	}
	fmt.Fprintf(c.out, "created connector %s\n", f.name)
	return nil
}

func newConnectorValidate(c *cli) *cobra.Command {
	var f settingFlags
	cmd := &cobra.Command{
		Use:   "validate [NAME]",
		Short: "Check a config without storing it",
		Long: `Check a config as creating a connector would, which includes a look at the database. Shows what is wrong by
setting, and which settings do nothing here. With the name of a connector that is there, a password that is masked
([hidden]) stands for that connector's. Ends with exit code 1 if anything is wrong.

` + configHelp,
		Example: `  millrace connector validate -f orders.json
  millrace connector validate orders -f orders.json -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.readFor(c, cmd, args)
			if err != nil {
				return err
			}
			return c.validateConnector(cmd.Context(), file)
		},
	}
	f.add(cmd)
	return cmd
}

// connectorVerdict is what a validation answers, as far as the tables show it.
type connectorVerdict struct {
	Count   int `json:"error_count"`
	Configs []struct {
		Value struct {
			Name   string   `json:"name"`
			Errors []string `json:"errors"`
		} `json:"value"`
	} `json:"configs"`
	Settings struct {
		Ignored []struct {
			Name   string `json:"name"`
			Reason string `json:"reason"`
		} `json:"ignored"`
	} `json:"settings"`
}

func (c *cli) validateConnector(ctx context.Context, f *connectorFile) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	class := unquote(f.config["connector.class"])
	if class == "" {
		return failf(exitFailed, "the config has no connector.class; 'millrace connector plugins' lists the classes")
	}
	if f.name == "" {
		f.name = "unnamed"
	}
	f.config["name"] = jsonText(f.name)
	var raw json.RawMessage
	path := "/connector-plugins/" + url.PathEscape(class) + "/config/validate"
	if err := r.do(ctx, jsonCall(http.MethodPut, path, f.config), &raw); err != nil {
		return err
	}
	var v connectorVerdict
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if asJSON {
		err = c.raw(raw, nil)
	} else {
		err = c.showVerdict(&v)
	}
	if err == nil && v.Count > 0 {
		err = failf(exitFailed, "the config has %s", plural(v.Count, "error"))
	}
	return err
}

func (c *cli) showVerdict(v *connectorVerdict) error {
	if v.Count == 0 {
		fmt.Fprintln(c.out, "the config is good")
	}
	for _, config := range v.Configs {
		for _, e := range config.Value.Errors {
			fmt.Fprintf(c.out, "error    %s: %s\n", config.Value.Name, strings.ReplaceAll(e, "\n", "\n         "))
		}
	}
	for _, i := range v.Settings.Ignored {
		fmt.Fprintf(c.out, "ignored  %s: %s\n", i.Name, i.Reason)
	}
	return nil
}

func newConnectorConfig(c *cli) *cobra.Command {
	var f settingFlags
	var unset []string
	cmd := &cobra.Command{
		Use:   "config NAME",
		Short: "Show a connector's config, change some of it, or replace it",
		Long: `Show the config of a connector. With --set and --unset change some settings; with --file replace them all, and
create the connector if it is not there. A connector whose config stays as it is goes on undisturbed.

Passwords are shown as [hidden] unless the nodes are set to show them; put back as [hidden], they stay as they are.

` + configHelp,
		Example: `  millrace connector config orders
  millrace connector config orders --set tasks.max=4 --unset transforms
  millrace connector config orders -o json > orders.json
  millrace connector config orders -f orders.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.file != "" && len(unset) > 0 {
				return usagef("--unset changes a config, but --file replaces it: leave the setting out of the file")
			}
			file, err := f.read(c)
			if err != nil {
				return err
			}
			ask := call{method: http.MethodGet, path: connectorPath(args[0], "config")}
			switch {
			case f.file != "":
				if _, ok := file.config["name"]; ok {
					file.config["name"] = jsonText(args[0])
				}
				ask = jsonCall(http.MethodPut, ask.path, file.config)
			case len(f.sets) > 0 || len(unset) > 0:
				for _, key := range unset {
					file.config[key] = json.RawMessage("null")
				}
				ask = jsonCall(http.MethodPatch, ask.path, file.config)
			}
			return c.connectorConfig(cmd.Context(), ask)
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "KEY of a setting to remove; may be given more than once")
	return cmd
}

func (c *cli) connectorConfig(ctx context.Context, ask call) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, ask, &raw); err != nil {
		return err
	}
	config := map[string]string{}
	if ask.method == http.MethodGet {
		err = json.Unmarshal(raw, &config)
	} else {
		var info struct {
			Config json.RawMessage `json:"config"`
		}
		if err = json.Unmarshal(raw, &info); err == nil {
			raw = info.Config
			err = json.Unmarshal(raw, &config)
		}
	}
	if err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if asJSON {
		return c.raw(raw, nil)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(c.out, "%s=%s\n", key, config[key])
	}
	return nil
}
