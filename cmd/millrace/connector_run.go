package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newConnectorRestart(c *cli) *cobra.Command {
	var tasks, failed bool
	var task int
	cmd := &cobra.Command{
		Use:   "restart NAME",
		Short: "Restart a connector, its tasks, or one task",
		Example: `  millrace connector restart orders
  millrace connector restart orders --tasks --only-failed
  millrace connector restart orders --task 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, query := connectorPath(args[0], "restart"), url.Values{}
			if cmd.Flags().Changed("task") {
				if tasks || failed || task < 0 {
					return usagef("--task wants the number of one task, and goes with neither --tasks nor --only-failed")
				}
				path = connectorPath(args[0], "tasks", strconv.Itoa(task), "restart")
			}
			if tasks {
				query.Set("includeTasks", "true")
			}
			if failed {
				query.Set("onlyFailed", "true")
			}
			return c.restartConnector(cmd.Context(), args[0], call{method: http.MethodPost, path: path, query: query})
		},
	}
	cmd.Flags().BoolVar(&tasks, "tasks", false, "restart the tasks too")
	cmd.Flags().BoolVar(&failed, "only-failed", false, "restart only what has failed")
	cmd.Flags().IntVar(&task, "task", 0, "restart this task alone")
	return cmd
}

func (c *cli) restartConnector(ctx context.Context, name string, ask call) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, ask, &raw); err != nil {
		return err
	}
	if len(raw) == 0 {
		if !asJSON {
			fmt.Fprintf(c.out, "%s restarts\n", name)
		}
		return nil
	}
	if asJSON {
		return c.raw(raw, nil)
	}
	var s connectorStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	return c.showStatus(&s)
}

func newConnectorPause(c *cli) *cobra.Command {
	return c.newTarget("pause", "Pause a connector: its tasks stay, and move no records", "pausing",
		awaited{what: "paused", until: allIn("PAUSED")})
}

func newConnectorResume(c *cli) *cobra.Command {
	return c.newTarget("resume", "Resume a connector that is paused or stopped", "resuming",
		awaited{what: "running", until: allIn("RUNNING")})
}

func newConnectorStop(c *cli) *cobra.Command {
	return c.newTarget("stop", "Stop a connector: its tasks go, and its config stays", "stopping",
		awaited{what: "stopped", until: stopped})
}

// newTarget is a command that sets what connectors do.
func (c *cli) newTarget(verb, short, doing string, a awaited) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   verb + " NAME...",
		Short: short,
		Example: fmt.Sprintf(`  millrace connector %[1]s orders
  millrace connector %[1]s orders payments --wait`, verb),
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			var asked []string
			err = c.each("connector", args, func(name string) error {
				err := r.do(cmd.Context(), call{method: http.MethodPut, path: connectorPath(name, verb)}, nil)
				if err == nil {
					asked = append(asked, name)
				}
				return err
			})
			if codeOf(err).endsAll() {
				return err
			}
			return errors.Join(err, c.each("connector", asked, func(name string) error {
				is := doing
				if wait {
					if err := c.awaitConnector(cmd.Context(), r, name, a); err != nil {
						return err
					}
					is = a.what
				}
				if !asJSON {
					fmt.Fprintf(c.out, "%s is %s\n", name, is)
				}
				return nil
			}))
		},
	}
	addWait(cmd, &wait, &a.limit, "it is "+a.what+" with all its tasks")
	return cmd
}

func newConnectorOffsets(c *cli) *cobra.Command {
	var reset bool
	var file string
	cmd := &cobra.Command{
		Use:   "offsets NAME",
		Short: "Show how far a connector has come, set it, or have it begin anew",
		Long: `Show the offsets of a connector: of a source what it has read of each partition of its own, of a sink what its
consumer group has committed. A connector that is stopped may be given others: with --reset it begins anew, with --file
it gets those in a file, in the form in which -o json shows them; there an offset that is null is forgotten.`,
		Example: `  millrace connector offsets orders
  millrace connector offsets orders -o json > offsets.json
  millrace connector offsets orders -f offsets.json
  millrace connector offsets orders --reset`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := connectorPath(args[0], "offsets")
			switch {
			case reset && file != "":
				return usagef("--reset forgets all offsets, and --file sets some: give one of them")
			case reset:
				return c.setOffsets(cmd.Context(), call{method: http.MethodDelete, path: path})
			case file != "":
				text, err := c.readText(file)
				if err != nil {
					return err
				}
				if !json.Valid([]byte(text)) {
					return failf(exitFailed, `%s: it is not JSON such as {"offsets":[{"partition":{...},"offset":{...}}]}`, file)
				}
				return c.setOffsets(cmd.Context(), jsonCall(http.MethodPatch, path, json.RawMessage(text)))
			}
			return c.showOffsets(cmd.Context(), path)
		},
	}
	cmd.Flags().BoolVar(&reset, "reset", false, "forget all offsets; the connector must be stopped")
	cmd.Flags().StringVarP(&file, "file", "f", "", "a file with offsets to set; - is standard input")
	return cmd
}

func (c *cli) setOffsets(ctx context.Context, ask call) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, ask, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var m struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Fprintln(c.out, m.Message)
	return nil
}

func (c *cli) showOffsets(ctx context.Context, path string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, call{method: http.MethodGet, path: path}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var all struct {
		Offsets []struct {
			Partition, Offset map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if len(all.Offsets) == 0 {
		fmt.Fprintln(c.err, "no offsets")
		return nil
	}
	w := c.table("PARTITION\tOFFSET")
	for _, o := range all.Offsets {
		fmt.Fprintf(w, "%s\t%s\n", inWords(o.Partition), inWords(o.Offset))
	}
	return w.Flush()
}

// inWords is an object as key=value pairs.
func inWords(m map[string]json.RawMessage) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := string(m[key])
		if text := unquote(m[key]); text != "" {
			value = text
		}
		out = append(out, key+"="+value)
	}
	return dash(strings.Join(out, " "))
}

func newConnectorDelete(c *cli) *cobra.Command {
	var offsets bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete connectors",
		Long: `Delete connectors. How far each has come stays, so that a new one of the same name goes on from there. With
--offsets that is forgotten too: the connector is stopped, its offsets are reset, and it is deleted.`,
		Example: `  millrace connector delete orders
  millrace connector delete orders --offsets`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			return c.each("connector", args, func(name string) error {
				if offsets {
					if err := c.forgetOffsets(cmd.Context(), r, name, limit); err != nil {
						return err
					}
				}
				err := r.do(cmd.Context(), call{method: http.MethodDelete, path: connectorPath(name)}, nil)
				if err == nil && !asJSON {
					fmt.Fprintf(c.out, "deleted connector %s\n", name)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&offsets, "offsets", false, "also forget how far it has come")
	cmd.Flags().DurationVar(&limit, "wait-for", time.Minute, "how long --offsets waits for the connector to stop at most")
	return cmd
}

// forgetOffsets stops a connector and resets its offsets.
func (c *cli) forgetOffsets(ctx context.Context, r *remote, name string, limit time.Duration) error {
	if err := r.do(ctx, call{method: http.MethodPut, path: connectorPath(name, "stop")}, nil); err != nil {
		return err
	}
	err := c.awaitConnector(ctx, r, name, awaited{what: "stopped", limit: limit, until: stopped})
	if err != nil {
		return err
	}
	return r.do(ctx, call{method: http.MethodDelete, path: connectorPath(name, "offsets")}, nil)
}

func newConnectorPlugins(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "plugins [NAME]",
		Short: "List the classes of connectors, or the settings of one",
		Long: `List the classes of connectors, with --all also converters, transforms and predicates. With the name of one,
list its settings.`,
		Example: `  millrace connector plugins
  millrace connector plugins --all
  millrace connector plugins PostgresSource`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return c.pluginSettings(cmd.Context(), args[0])
			}
			return c.listPlugins(cmd.Context(), all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also converters, transforms and predicates")
	return cmd
}

func (c *cli) listPlugins(ctx context.Context, all bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	query := url.Values{"connectorsOnly": {strconv.FormatBool(!all)}}
	var raw json.RawMessage
	err = r.do(ctx, call{method: http.MethodGet, path: "/connector-plugins", query: query}, &raw)
	if err != nil || asJSON {
		return c.raw(raw, err)
	}
	var plugins []struct{ Class, Type, Version string }
	if err := json.Unmarshal(raw, &plugins); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	w := c.table("CLASS\tTYPE\tVERSION")
	for _, p := range plugins {
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Class, words(p.Type), dash(p.Version))
	}
	return w.Flush()
}

func (c *cli) pluginSettings(ctx context.Context, name string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	path := "/connector-plugins/" + url.PathEscape(name) + "/config"
	if err := r.do(ctx, call{method: http.MethodGet, path: path}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var settings []struct {
		Name, Type, Documentation string
		Required                  bool
		Default                   *string `json:"default_value"`
	}
	if err := json.Unmarshal(raw, &settings); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	w := c.table("SETTING\tTYPE\tDEFAULT\tWHAT IT DOES")
	for _, s := range settings {
		value := "-"
		switch {
		case s.Required:
			value = "(required)"
		case s.Default != nil && *s.Default != "":
			value = *s.Default
		}
		doc, _, _ := strings.Cut(s.Documentation, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, strings.ToLower(s.Type), value, doc)
	}
	return w.Flush()
}
