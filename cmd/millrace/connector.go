package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newConnector(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connector",
		Short: "Run connectors: create, check, watch, pause, stop and delete them",
		Long: `Run connectors, which move rows of databases into topics and records of topics into databases. The commands
also work with Kafka Connect, by --url.`,
		Example: `  millrace connector plugins
  millrace connector validate -f orders.json
  millrace connector create orders -f orders.json --wait
  millrace connector list
  millrace connector status orders
  millrace connector config orders --set tasks.max=4
  millrace connector restart orders --tasks --only-failed
  millrace connector stop orders --wait
  millrace connector offsets orders
  millrace connector delete orders`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newConnectorList(c), newConnectorCreate(c), newConnectorValidate(c), newConnectorStatus(c),
		newConnectorRestart(c), newConnectorPause(c), newConnectorResume(c), newConnectorStop(c), newConnectorOffsets(c),
		newConnectorConfig(c), newConnectorDelete(c), newConnectorPlugins(c))
	return cmd
}

func connectorPath(name string, more ...string) string {
	path := "/connectors/" + url.PathEscape(name)
	for _, m := range more {
		path += "/" + m
	}
	return path
}

// partStatus is the state of a connector or a task.
type partStatus struct {
	ID     int    `json:"id"`
	State  string `json:"state"`
	Worker string `json:"worker_id"`
	Trace  string `json:"trace"`
}

// connectorStatus is what GET /connectors/{connector}/status answers.
type connectorStatus struct {
	Name      string       `json:"name"`
	Type      string       `json:"type"`
	Connector partStatus   `json:"connector"`
	Tasks     []partStatus `json:"tasks"`
}

// summary is the states of the tasks in a few words: "3 RUNNING, 1 FAILED".
func (s *connectorStatus) summary() string {
	counts := map[string]int{}
	for _, t := range s.Tasks {
		counts[t.State]++
	}
	var out []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[state], state))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}

func newConnectorList(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List connectors with their state and that of their tasks",
		Example: `  millrace connector list
  millrace connector list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.listConnectors(cmd.Context()) },
	}
}

func (c *cli) listConnectors(ctx context.Context) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	query := url.Values{"expand": {"info", "status"}}
	if err := r.do(ctx, call{method: http.MethodGet, path: "/connectors", query: query}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var all map[string]struct {
		Info struct {
			Config map[string]string `json:"config"`
		} `json:"info"`
		Status connectorStatus `json:"status"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.err, "no connectors")
		return nil
	}
	w := c.table("CONNECTOR\tTYPE\tSTATE\tTASKS\tCLASS")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name].Status
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, s.Type, dash(s.Connector.State), s.summary(),
			all[name].Info.Config["connector.class"])
	}
	return w.Flush()
}

func newConnectorStatus(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "status NAME",
		Short: "Show the state of a connector and its tasks, and why they failed",
		Example: `  millrace connector status orders
  millrace connector status orders -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.connectorStatus(cmd.Context(), args[0]) },
	}
}

func (c *cli) connectorStatus(ctx context.Context, name string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = r.do(ctx, call{method: http.MethodGet, path: connectorPath(name, "status")}, &raw)
	if err != nil || asJSON {
		return c.raw(raw, err)
	}
	var s connectorStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	return c.showStatus(&s)
}

func (c *cli) showStatus(s *connectorStatus) error {
	w := c.table("PART\tSTATE\tWORKER")
	fmt.Fprintf(w, "%s %s\t%s\t%s\n", s.Type, s.Name, s.Connector.State, dash(s.Connector.Worker))
	for _, t := range s.Tasks {
		fmt.Fprintf(w, "task %d\t%s\t%s\n", t.ID, t.State, dash(t.Worker))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	trace := func(what, text string) {
		if text != "" {
			fmt.Fprintf(c.out, "\n%s:\n  %s\n", what, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
		}
	}
	trace("connector", s.Connector.Trace)
	for _, t := range s.Tasks {
		trace(fmt.Sprintf("task %d", t.ID), t.Trace)
	}
	return nil
}

// awaited is what a command waits for.
type awaited struct {
	what  string // in words, as "running"
	limit time.Duration
	until func(*connectorStatus) (bool, error)
}

// addWait adds the flags of a command that may wait.
func addWait(cmd *cobra.Command, wait *bool, limit *time.Duration, what string) {
	cmd.Flags().BoolVar(wait, "wait", false, "wait until "+what)
	cmd.Flags().DurationVar(limit, "wait-for", time.Minute, "how long --wait waits at most")
}

// allIn says of a connector whether it is in a state with all its tasks, of which it has some.
func allIn(state string) func(*connectorStatus) (bool, error) {
	return func(s *connectorStatus) (bool, error) {
		if err := s.failure(); err != nil {
			return false, err
		}
		other := func(t partStatus) bool { return t.State != state }
		return s.Connector.State == state && len(s.Tasks) > 0 && !slices.ContainsFunc(s.Tasks, other), nil
	}
}

// stopped says whether a connector is stopped and has no tasks.
func stopped(s *connectorStatus) (bool, error) {
	return s.Connector.State == "STOPPED" && len(s.Tasks) == 0, nil
}

// failure is why a part of a connector has failed, nil if none has.
func (s *connectorStatus) failure() error {
	if s.Connector.State == "FAILED" {
		return failf(exitFailed, "connector %s has failed: %s", s.Name, strings.TrimSpace(s.Connector.Trace))
	}
	for _, t := range s.Tasks {
		if t.State == "FAILED" {
			return failf(exitFailed, "task %d of connector %s has failed: %s", t.ID, s.Name, strings.TrimSpace(t.Trace))
		}
	}
	return nil
}

// awaitConnector asks for the state of a connector until it is as it should be, and shows each change on standard
// error.
func (c *cli) awaitConnector(ctx context.Context, r *remote, name string, a awaited) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errTooLong)
	defer cancel()
	failures, last := 0, ""
	for {
		var s connectorStatus
		err := r.do(ctx, call{method: http.MethodGet, path: connectorPath(name, "status")}, &s)
		done := false
		switch {
		case context.Cause(ctx) == errTooLong:
			return failf(exitFailed, "connector %s is not %s after %s: %s; 'millrace connector status %s' tells more",
				name, a.what, a.limit, last, name)
		case statusOf(err) == http.StatusNotFound: // its state is not told yet
		case err != nil && (!retryable(err) && statusOf(err) != http.StatusConflict || failures >= maxPollFailures):
			return err
		case err != nil:
			failures++
		default:
			failures = 0
			if now := fmt.Sprintf("connector %s, tasks %s", s.Connector.State, s.summary()); now != last {
				fmt.Fprintf(c.err, "%s: %s\n", name, now)
				last = now
			}
			if done, err = a.until(&s); done || err != nil {
				return err
			}
		}
		if err := pause(ctx, pollEvery); err != nil && context.Cause(ctx) != errTooLong {
			return err
		}
	}
}

// dash stands for what is empty.
func dash(text string) string { return orDash(&text) }
