package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newCluster(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look at a cluster, change its nodes, move its data",
		Long: `Look at a cluster, change its nodes, move its data. Any node answers.

docs/cluster.md tells how to start three nodes, add and remove one, and what to do when one is lost.`,
		Example: `  millrace cluster status
  millrace cluster health --require ok --wait 1m
  millrace cluster add 4=http://h4:8082
  millrace cluster drain 3 --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newClusterStatus(c), newClusterHealth(c), newClusterMembers(c), newClusterAdd(c), newClusterRemove(c),
		newClusterPromote(c), newClusterDemote(c), newClusterTransfer(c), newClusterDrain(c), newClusterDecommission(c),
		newClusterReassign(c), newClusterReassignments(c), newClusterElect(c))
	return cmd
}

// clusterSummary is what GET /v1/cluster answers, as far as the tables show it.
type clusterSummary struct {
	ID         string   `json:"cluster_id"`
	Controller int      `json:"controller"`
	Quorum     int      `json:"quorum_leader"`
	Topics     int      `json:"topics"`
	Partitions int      `json:"partitions"`
	Status     string   `json:"status"`
	Reasons    []string `json:"reasons"`
}

// clusterBroker is a broker in a list.
type clusterBroker struct {
	ID         int     `json:"id"`
	Host       string  `json:"host"`
	Port       int     `json:"port"`
	Rack       *string `json:"rack"`
	State      string  `json:"state"`
	Controller bool    `json:"controller"`
	Leaders    int     `json:"leaders"`
	Replicas   int     `json:"replicas"`
	InSync     int     `json:"in_sync"`
	Bytes      *int64  `json:"bytes"`
	Free       *int64  `json:"disk_free_bytes"`
}

// clusterMember is a member of the metadata quorum.
type clusterMember struct {
	ID          int     `json:"id"`
	URL         string  `json:"url"`
	Voter       bool    `json:"voter"`
	Leader      bool    `json:"leader"`
	LastContact *string `json:"last_contact"`
}

func (m clusterMember) role() string {
	switch {
	case m.Leader:
		return "leader"
	case m.Voter:
		return "voter"
	}
	return "follower"
}

func newClusterStatus(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the cluster and its brokers",
		Example: `  millrace cluster status
  millrace cluster status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.showCluster(cmd.Context()) },
	}
}

func (c *cli) showCluster(ctx context.Context) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.get(ctx, "/v1/cluster", &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var s clusterSummary
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	var brokers struct{ Items []clusterBroker }
	if err := r.get(ctx, "/v1/cluster/brokers", &brokers); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "cluster %s: %s\n", s.ID, s.Status)
	for _, reason := range s.Reasons {
		fmt.Fprintf(c.out, "  %s\n", reason)
	}
	fmt.Fprintf(c.out, "controller %s, %s, %s\n\n", orNone(s.Controller), plural(s.Topics, "topic"),
		plural(s.Partitions, "partition"))
	w := c.table("BROKER\tADDRESS\tRACK\tSTATE\tLEADS\tREPLICAS\tIN SYNC\tSIZE\tFREE")
	for _, b := range brokers.Items {
		fmt.Fprintf(w, "%d\t%s:%d\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", b.ID, b.Host, b.Port, orDash(b.Rack),
			strings.ReplaceAll(b.State, "_", " "), b.Leaders, b.Replicas, b.InSync, byteCount(b.Bytes), byteCount(b.Free))
	}
	return w.Flush()
}

// get reads a path.
func (r *remote) get(ctx context.Context, path string, out any) error {
	return r.do(ctx, call{method: http.MethodGet, path: path}, out)
}

// raw prints an answer as the server sent it.
func (c *cli) raw(text json.RawMessage, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(c.out, "%s\n", strings.TrimSpace(string(text)))
	}
	return err
}

func orNone(id int) string {
	if id < 0 {
		return "none"
	}
	return strconv.Itoa(id)
}

func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return *s
}

// byteCount writes a size for people.
func byteCount(n *int64) string {
	if n == nil {
		return "-"
	}
	const unit = 1024
	size, i := float64(*n), 0
	for ; size >= unit && i < 4; i++ {
		size /= unit
	}
	if i == 0 {
		return strconv.FormatInt(*n, 10) + " B"
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGT"[i-1])
}

// clusterHealth is what GET /v1/cluster/health answers, as far as the tables show it.
type clusterHealth struct {
	Status     string   `json:"status"`
	Reasons    []string `json:"reasons"`
	Partitions struct {
		Total           int           `json:"total"`
		Offline         partitionList `json:"offline"`
		UnderMin        partitionList `json:"under_min_isr"`
		AtMin           partitionList `json:"at_min_isr"`
		UnderReplicated partitionList `json:"under_replicated"`
	} `json:"partitions"`
}

type partitionList struct {
	Count int `json:"count"`
	Items []struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Leader    int    `json:"leader"`
		Replicas  []int  `json:"replicas"`
		ISR       []int  `json:"isr"`
		MinISR    int    `json:"min_isr"`
	} `json:"items"`
}

func newClusterHealth(c *cli) *cobra.Command {
	var require string
	var wait time.Duration
	var limit int
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Tell whether all is well, and what is not",
		Long: `Tell whether all is well, and what is not.

ok           everything is as it should be
degraded     all can be read and written, but the next fault will hurt: a broker is away or a replica is behind
unavailable  something cannot be read, or not written with acks=all, or nothing can be changed

The command itself ends with 0 whatever it tells, unless --require says what is good enough.`,
		Example: `  millrace cluster health
  millrace cluster health --require ok
  millrace cluster health --require degraded --wait 1m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := atLeastOne(cmd, "limit"); err != nil {
				return err
			}
			return c.checkHealth(cmd.Context(), require, wait, limit)
		},
	}
	cmd.Flags().StringVar(&require, "require", "", "end with 1 unless the status is ok, or at least degraded")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for what --require wants")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many partitions of each kind to list, up to 1000")
	return cmd
}

// pollEvery is how often a command that waits looks again.
const pollEvery = 500 * time.Millisecond

func (c *cli) checkHealth(ctx context.Context, require string, wait time.Duration, limit int) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	if require != "" && require != "ok" && require != "degraded" {
		return usagef("--require %s: want ok or degraded", require)
	}
	path := "/v1/cluster/health?limit=" + strconv.Itoa(limit)
	for deadline := time.Now().Add(wait); ; {
		var raw json.RawMessage
		var h clusterHealth
		err := r.get(ctx, path, &raw)
		if err == nil {
			err = json.Unmarshal(raw, &h)
		}
		enough := err == nil && (require == "" || h.Status == "ok" || h.Status == require)
		if !enough && time.Now().Before(deadline) {
			if err := pause(ctx, pollEvery); err != nil {
				return err
			}
			continue
		}
		if err == nil && asJSON {
			err = c.raw(raw, nil)
		} else if err == nil {
			err = c.showHealth(&h)
		}
		if err == nil && !enough {
			err = failf(exitFailed, "the cluster is %s, and --require %s was asked for", h.Status, require)
		}
		return err
	}
}

// pause waits, unless the command is to end.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (c *cli) showHealth(h *clusterHealth) error {
	fmt.Fprintln(c.out, h.Status)
	for _, reason := range h.Reasons {
		fmt.Fprintf(c.out, "  %s\n", reason)
	}
	kinds := []struct {
		state string
		list  *partitionList
	}{
		{"offline", &h.Partitions.Offline}, {"under min ISR", &h.Partitions.UnderMin},
		{"at min ISR", &h.Partitions.AtMin}, {"under-replicated", &h.Partitions.UnderReplicated},
	}
	shown := map[string]bool{}
	var rows []string
	for _, k := range kinds {
		for _, p := range k.list.Items {
			at := p.Topic + "-" + strconv.Itoa(p.Partition)
			if shown[at] {
				continue // the worst of its states is there
			}
			shown[at] = true
			rows = append(rows, fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%s\t%d", p.Topic, p.Partition, k.state,
				orNone(p.Leader), ids(p.Replicas), ids(p.ISR), p.MinISR))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := c.table("TOPIC\tPARTITION\tSTATE\tLEADER\tREPLICAS\tISR\tMIN ISR")
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	return w.Flush()
}

func newClusterMembers(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the members of the metadata quorum",
		Example: `  millrace cluster members
  millrace cluster members -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := r.get(cmd.Context(), "/v1/cluster/members", &raw); err != nil || asJSON {
				return c.raw(raw, err)
			}
			var members struct{ Items []clusterMember }
			if err := json.Unmarshal(raw, &members); err != nil {
				return fmt.Errorf("the server's answer: %w", err)
			}
			w := c.table("MEMBER\tURL\tROLE\tLAST CONTACT")
			for _, m := range members.Items {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", m.ID, m.URL, m.role(), orDash(m.LastContact))
			}
			return w.Flush()
		},
	}
}

func newClusterAdd(c *cli) *cobra.Command {
	var voter bool
	cmd := &cobra.Command{
		Use:   "add ID=URL",
		Short: "Add a node to the quorum, or tell a node's new address",
		Long: `Add a node to the metadata quorum, or tell a node's new address.

A node that is started with the cluster's --voters and secret and a --node-id of its own adds itself, as a broker
without a vote. This is for a node whose address has changed, or for one that is to vote at once: --voter gives it a
vote. Keep the number of voters at 3 or 5.`,
		Example: `  millrace cluster add 4=http://h4:8082
  millrace cluster add 4=http://h4:8082 --voter`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, base, ok := strings.Cut(args[0], "=")
			id, err := strconv.ParseInt(text, 10, 32)
			if !ok || err != nil || id < 1 {
				return usagef("%s: want ID=URL, for example 4=http://h4:8082", args[0])
			}
			if u, err := url.Parse(base); err != nil || u.Host == "" {
				return usagef("%s: want the node's URL after the =, for example 4=http://h4:8082", args[0])
			}
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			body := map[string]any{"id": id, "url": base}
			var raw json.RawMessage
			if err := r.do(cmd.Context(), jsonCall(http.MethodPost, "/v1/cluster/members", body), &raw); err != nil {
				return err
			}
			if asJSON {
				err = c.raw(raw, nil)
			} else {
				_, err = fmt.Fprintf(c.out, "added member %d at %s\n", id, base)
			}
			if err != nil || !voter {
				return err
			}
			promote := fmt.Sprintf("/v1/cluster/members/%d/promote", id)
			return r.do(cmd.Context(), call{method: http.MethodPost, path: promote}, nil)
		},
	}
	cmd.Flags().BoolVar(&voter, "voter", false, "let the node vote")
	return cmd
}

// nodeID checks an argument that is a node's id, written as JSON writes numbers.
func nodeID(text string) error {
	if id, err := strconv.ParseInt(text, 10, 32); err != nil || id < 0 || strconv.FormatInt(id, 10) != text {
		return usagef("%s: want a node's id, which is a whole number", text)
	}
	return nil
}

// memberCommand is a command that does one thing to one node by its id.
type memberCommand struct {
	name, short, long, example string
	method, path, what         string // the path stands behind the id of the collection's
	done                       string
}

func (c *cli) newMember(m memberCommand) *cobra.Command {
	return &cobra.Command{
		Use: m.name + " ID", Short: m.short, Long: m.long, Example: "  millrace cluster " + m.name + " " + m.example,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nodeID(args[0]); err != nil {
				return err
			}
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			if err := r.do(cmd.Context(), call{method: m.method, path: m.path + args[0] + m.what}, nil); err != nil {
				return err
			}
			if !asJSON {
				fmt.Fprintf(c.out, m.done+"\n", args[0])
			}
			return nil
		},
	}
}

func newClusterRemove(c *cli) *cobra.Command {
	return c.newMember(memberCommand{
		name: "remove", short: "Remove a node from the metadata quorum", example: "3",
		long: `Remove a node from the metadata quorum: it no longer votes and no longer learns what changes.

A node that runs is not removed. To take a node away for good: drain it, stop it, decommission it, and remove it.`,
		method: http.MethodDelete, path: "/v1/cluster/members/", done: "removed member %s",
	})
}

func newClusterPromote(c *cli) *cobra.Command {
	return c.newMember(memberCommand{
		name: "promote", short: "Let a member vote", example: "3",
		long: `Let a member vote. Its node must be up. Keep the number of voters odd: four survive the loss of no more voters
than three.`,
		method: http.MethodPost, path: "/v1/cluster/members/", what: "/promote", done: "member %s votes",
	})
}

func newClusterDemote(c *cli) *cobra.Command {
	return c.newMember(memberCommand{
		name: "demote", short: "Take a member's vote", example: "3",
		long:   "Take a member's vote. Its node goes on to serve.",
		method: http.MethodPost, path: "/v1/cluster/members/", what: "/demote", done: "member %s does not vote any more",
	})
}

func newClusterDecommission(c *cli) *cobra.Command {
	return c.newMember(memberCommand{
		name: "decommission", short: "Forget a broker that is gone for good", example: "3",
		long: `Forget a broker that is gone for good. It must hold no replica and must have stopped: drain it, stop its
node, then decommission it. A refusal says what is missing.`,
		method: http.MethodDelete, path: "/v1/cluster/brokers/", done: "broker %s is forgotten",
	})
}

func newClusterTransfer(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer-leadership [ID]",
		Short: "Hand the lead of the metadata quorum over",
		Long: `Hand the lead of the metadata quorum over, to the voter ID or to the one that is best caught up.

A node that is stopped hands over by itself; this is for maintenance that it should not lead through.`,
		Example: `  millrace cluster transfer-leadership
  millrace cluster transfer-leadership 2`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if len(args) == 1 {
				if err := nodeID(args[0]); err != nil {
					return err
				}
				body["to"] = json.Number(args[0])
			}
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			if err := r.do(cmd.Context(), jsonCall(http.MethodPost, "/v1/cluster/leadership:transfer", body), nil); err != nil {
				return err
			}
			switch {
			case asJSON:
			case len(args) == 1:
				fmt.Fprintf(c.out, "node %s leads now\n", args[0])
			default:
				fmt.Fprintln(c.out, "another voter leads now; see 'millrace cluster members'")
			}
			return nil
		},
	}
}
