package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// throttleHelp says what --throttle takes.
const throttleHelp = "bytes a second that each broker copies and sends at most, such as 50MB or 64MiB"

// parseRate reads a throttle; "" is none.
func parseRate(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, factor := text, int64(1)
	for _, unit := range []struct {
		name string
		size int64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
	} {
		if n, ok := strings.CutSuffix(text, unit.name); ok {
			number, factor = n, unit.size
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/factor {
		return 0, usagef("--throttle %s: want bytes a second, such as 50MB, 64MiB or 1000000", text)
	}
	return n * factor, nil
}

// drainPlan is the answer to a drain, as far as the tables show it.
type drainPlan struct {
	Count int `json:"count"`
	Moves []struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Replicas  []int  `json:"replicas"`
		To        []int  `json:"to"`
	} `json:"moves"`
	Unmovable struct {
		Count int `json:"count"`
		Items []struct {
			Topic     string `json:"topic"`
			Partition int    `json:"partition"`
			Detail    string `json:"detail"`
		} `json:"items"`
	} `json:"unmovable"`
}

func newClusterDrain(c *cli) *cobra.Command {
	var dry, wait bool
	var throttle string
	cmd := &cobra.Command{
		Use:   "drain ID",
		Short: "Move all replicas off a broker",
		Long: `Move all replicas off a broker, each to the active broker that holds least and has none of the partition, on
another rack than the others where there is one. Nothing is lost, and all can be read and written meanwhile.

With --wait the command shows how many partitions are left, ends when there are none, and removes the throttle. It
can be interrupted and started again at any time: the moves go on without it.`,
		Example: `  millrace cluster drain 3 --dry-run
  millrace cluster drain 3 --throttle 50MB --wait`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nodeID(args[0]); err != nil {
				return err
			}
			rate, err := parseRate(throttle)
			if err != nil {
				return err
			}
			if dry && wait {
				return usagef("--dry-run and --wait: a plan has nothing to wait for")
			}
			body := map[string]any{"dry_run": dry}
			if rate > 0 {
				body["throttle_bytes_per_second"] = rate
			}
			return c.drain(cmd.Context(), args[0], body, wait)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would move")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until nothing is left on the broker")
	cmd.Flags().StringVar(&throttle, "throttle", "", throttleHelp)
	return cmd
}

func (c *cli) drain(ctx context.Context, id string, body map[string]any, wait bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, jsonCall(http.MethodPost, "/v1/cluster/brokers/"+id+"/drain", body), &raw); err != nil {
		return err
	}
	var plan drainPlan
	if err := json.Unmarshal(raw, &plan); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if asJSON {
		err = c.raw(raw, nil)
	} else {
		err = c.showPlan(id, &plan, body["dry_run"] == true)
	}
	if err != nil || !wait {
		return err
	}
	if err := c.awaitDrain(ctx, r, id); err != nil {
		return err
	}
	if _, throttled := body["throttle_bytes_per_second"]; throttled {
		if err := r.do(ctx, call{method: http.MethodDelete, path: "/v1/cluster/throttle"}, nil); err != nil {
			return err
		}
	}
	if !asJSON {
		fmt.Fprintf(c.out, "broker %s is empty; stop its node, then 'millrace cluster decommission %s'\n", id, id)
	}
	return nil
}

func (c *cli) showPlan(id string, plan *drainPlan, dry bool) error {
	verb := "move"
	if dry {
		verb = "would move"
	}
	fmt.Fprintf(c.out, "%s %s off broker %s", plural(plan.Count, "partition"), verb+ending(plan.Count, dry), id)
	if plan.Unmovable.Count > 0 {
		fmt.Fprintf(c.out, "; %d cannot, so a drain would be refused", plan.Unmovable.Count)
	}
	fmt.Fprintln(c.out)
	if plan.Count == 0 && plan.Unmovable.Count == 0 {
		return nil
	}
	w := c.table("TOPIC\tPARTITION\tREPLICAS\tTO")
	for _, m := range plan.Moves {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", m.Topic, m.Partition, ids(m.Replicas), ids(m.To))
	}
	for _, u := range plan.Unmovable.Items {
		fmt.Fprintf(w, "%s\t%d\t-\tnowhere: %s\n", u.Topic, u.Partition, u.Detail)
	}
	return w.Flush()
}

// ending is the s of "1 partition moves".
func ending(n int, dry bool) string {
	if n == 1 && !dry {
		return "s"
	}
	return ""
}

// awaitDrain waits until a broker holds nothing and shows on standard error how many replicas are left.
func (c *cli) awaitDrain(ctx context.Context, r *remote, id string) error {
	return c.await(ctx, [2]string{"partition", "left on broker " + id}, func() (int, error) {
		var brokers struct{ Items []clusterBroker }
		if err := r.get(ctx, "/v1/cluster/brokers", &brokers); err != nil {
			return 0, err
		}
		for _, b := range brokers.Items {
			if strconv.Itoa(b.ID) == id {
				return b.Replicas, nil
			}
		}
		return 0, nil
	})
}

// await asks until nothing is left, through faults that pass, and shows how much is left: in place on a terminal, else
// a line for each change. what is a noun and what follows it.
func (c *cli) await(ctx context.Context, what [2]string, left func() (int, error)) error {
	terminal, last, failures := isTerminal(c.err), -1, 0
	for {
		n, err := left()
		switch {
		case err != nil && (!retryable(err) || failures >= maxPollFailures):
			return err
		case err != nil:
			failures++
		default:
			failures = 0
			if n != last && terminal {
				fmt.Fprintf(c.err, "\r%s %s\x1b[K", plural(n, what[0]), what[1])
			} else if n != last {
				fmt.Fprintf(c.err, "%s %s\n", plural(n, what[0]), what[1])
			}
			if last = n; n == 0 {
				if terminal {
					fmt.Fprintln(c.err)
				}
				return nil
			}
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// maxPollFailures is how many times in a row a command that waits may fail to ask.
const maxPollFailures = 60

func newClusterReassign(c *cli) *cobra.Command {
	var throttle string
	var wait bool
	cmd := &cobra.Command{
		Use:   "reassign TOPIC PARTITION ID,ID,...",
		Short: "Change the brokers that hold a partition",
		Long: `Change the brokers that hold a partition. The first is the preferred leader. New replicas are filled first;
those left out go once all new ones are in sync. A longer or shorter list changes the replication factor.`,
		Example: `  millrace cluster reassign orders 0 2,3,1
  millrace cluster reassign orders 0 2,3,1 --throttle 50MB --wait`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			partition, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || partition < 0 {
				return usagef("%s: want a partition, which is a number from 0", args[1])
			}
			var replicas []json.Number
			for text := range strings.SplitSeq(args[2], ",") {
				if err := nodeID(text); err != nil {
					return usagef("%s: want the ids of brokers with commas between, such as 1,2,4", args[2])
				}
				replicas = append(replicas, json.Number(text))
			}
			rate, err := parseRate(throttle)
			if err != nil {
				return err
			}
			body := map[string]any{"reassignments": []map[string]any{
				{"topic": args[0], "partition": partition, "replicas": replicas},
			}}
			if rate > 0 {
				body["throttle_bytes_per_second"] = rate
			}
			return c.reassign(cmd.Context(), body, fmt.Sprintf("%s-%d", args[0], partition), wait)
		},
	}
	cmd.Flags().StringVar(&throttle, "throttle", "", throttleHelp)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done, and remove the throttle then")
	return cmd
}

func (c *cli) reassign(ctx context.Context, body map[string]any, what string, wait bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, jsonCall(http.MethodPost, "/v1/cluster/reassignments", body), &raw); err != nil {
		return err
	}
	if asJSON {
		if err := c.raw(raw, nil); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.out, "%s is being reassigned\n", what)
	}
	if !wait {
		return nil
	}
	err = c.await(ctx, [2]string{"reassignment", "under way"}, func() (int, error) {
		page, err := r.reassignments(ctx)
		n := 0
		for _, m := range page.Items {
			if fmt.Sprintf("%s-%d", m.Topic, m.Partition) == what {
				n = 1
			}
		}
		return n, err
	})
	if err != nil {
		return err
	}
	if _, throttled := body["throttle_bytes_per_second"]; throttled {
		return r.do(ctx, call{method: http.MethodDelete, path: "/v1/cluster/throttle"}, nil)
	}
	return nil
}

// reassignmentPage is what GET /v1/cluster/reassignments answers.
type reassignmentPage struct {
	Count int `json:"count"`
	Items []struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Replicas  []int  `json:"replicas"`
		Adding    []int  `json:"adding"`
		Removing  []int  `json:"removing"`
		Leader    int    `json:"leader"`
		ISR       []int  `json:"isr"`
		Lags      []struct {
			Broker int    `json:"broker"`
			Lag    *int64 `json:"lag"`
		} `json:"lags"`
	} `json:"items"`
	Throttle *struct {
		Rate int64 `json:"bytes_per_second"`
	} `json:"throttle"`
}

func (r *remote) reassignments(ctx context.Context) (reassignmentPage, error) {
	var page reassignmentPage
	err := r.get(ctx, "/v1/cluster/reassignments?limit=1000", &page)
	return page, err
}

func newClusterReassignments(c *cli) *cobra.Command {
	var cancel, unthrottle bool
	cmd := &cobra.Command{
		Use:   "reassignments [TOPIC PARTITION]",
		Short: "List the reassignments under way, or cancel them",
		Long: `List the reassignments under way, with how many records each new replica lacks; or cancel one, or all, by which
the partitions go back to the replicas they had; or remove the throttle.`,
		Example: `  millrace cluster reassignments
  millrace cluster reassignments --cancel
  millrace cluster reassignments --cancel orders 0
  millrace cluster reassignments --remove-throttle`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return fmt.Errorf("want none or two")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/v1/cluster/reassignments"
			if len(args) == 2 {
				if err := nodeID(args[1]); err != nil {
					return usagef("%s: want a partition, which is a number from 0", args[1])
				}
				path += "/" + url.PathEscape(args[0]) + "/" + args[1]
			}
			switch {
			case cancel && unthrottle:
				return usagef("--cancel and --remove-throttle: want one of them")
			case unthrottle:
				return c.removeThrottle(cmd.Context())
			case cancel:
				return c.cancelReassignments(cmd.Context(), path)
			case len(args) > 0:
				return usagef("a topic and a partition go with --cancel only")
			}
			return c.listReassignments(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel them, or the one named")
	cmd.Flags().BoolVar(&unthrottle, "remove-throttle", false, "let copying go on at full speed")
	return cmd
}

func (c *cli) removeThrottle(ctx context.Context) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	if err := r.do(ctx, call{method: http.MethodDelete, path: "/v1/cluster/throttle"}, nil); err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintln(c.out, "nothing is throttled")
	}
	return nil
}

func (c *cli) cancelReassignments(ctx context.Context, path string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, call{method: http.MethodDelete, path: path}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var done struct{ Count int }
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Fprintf(c.out, "cancelled %s\n", plural(done.Count, "reassignment"))
	return nil
}

func (c *cli) listReassignments(ctx context.Context) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	if asJSON {
		var raw json.RawMessage
		err := r.get(ctx, "/v1/cluster/reassignments?limit=1000", &raw)
		return c.raw(raw, err)
	}
	page, err := r.reassignments(ctx)
	if err != nil {
		return err
	}
	if page.Count == 0 {
		fmt.Fprintln(c.err, "no reassignments are under way")
	} else {
		w := c.table("TOPIC\tPARTITION\tLEADER\tREPLICAS\tADDING\tREMOVING\tISR\tLAG")
		for _, m := range page.Items {
			lags := make([]string, len(m.Lags))
			for i, l := range m.Lags {
				lags[i] = fmt.Sprintf("%d: %s", l.Broker, number(l.Lag))
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Topic, m.Partition, orNone(m.Leader), ids(m.Replicas),
				ids(m.Adding), ids(m.Removing), ids(m.ISR), strings.Join(lags, ", "))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if more := page.Count - len(page.Items); more > 0 {
		fmt.Fprintf(c.err, "and %d more\n", more)
	}
	if page.Throttle != nil {
		fmt.Fprintf(c.err, "copying is throttled to %d bytes a second a broker", page.Throttle.Rate)
		if page.Count == 0 {
			fmt.Fprint(c.err, "; 'millrace cluster reassignments --remove-throttle' ends that")
		}
		fmt.Fprintln(c.err)
	}
	return nil
}

func newClusterElect(c *cli) *cobra.Command {
	var unclean bool
	cmd := &cobra.Command{
		Use:   "elect-leaders [TOPIC PARTITION]",
		Short: "Make the preferred replicas leaders again",
		Long: `Make the first replica of each partition its leader again where it is in sync: of all partitions, or of one.

--unclean is the last resort for a partition whose in-sync replicas are all lost: the first replica that is alive
becomes the leader, and records that only the lost ones had are gone, acknowledged ones too.`,
		Example: `  millrace cluster elect-leaders
  millrace cluster elect-leaders orders 0
  millrace cluster elect-leaders orders 0 --unclean`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return fmt.Errorf("want none or two")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if unclean {
				if len(args) == 0 {
					return usagef("--unclean loses records: name the topic and the partition that it is for")
				}
				body["unclean"] = true
			}
			if len(args) == 2 {
				if err := nodeID(args[1]); err != nil {
					return usagef("%s: want a partition, which is a number from 0", args[1])
				}
				body["partitions"] = []map[string]any{{"topic": args[0], "partition": json.Number(args[1])}}
			}
			return c.elect(cmd.Context(), body)
		},
	}
	cmd.Flags().BoolVar(&unclean, "unclean", false, "take a replica that is not in sync, and lose records")
	return cmd
}

func (c *cli) elect(ctx context.Context, body map[string]any) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = r.do(ctx, jsonCall(http.MethodPost, "/v1/cluster/leader-elections", body), &raw)
	if err != nil || asJSON {
		return c.raw(raw, err)
	}
	var done struct{ Count, Unchanged int }
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Fprintf(c.out, "new leaders of %s; %d unchanged\n", plural(done.Count, "partition"), done.Unchanged)
	return nil
}
