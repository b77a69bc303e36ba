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

func newGroup(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "List, describe, reset and delete consumer groups, and see how far they are behind",
		Example: `  millrace group list --lag
  millrace group describe billing
  millrace group lag billing
  millrace group reset billing --to earliest --topic orders --dry-run
  millrace group delete billing`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newGroupList(c), newGroupDescribe(c), newGroupLag(c), newGroupReset(c), newGroupDelete(c))
	return cmd
}

func groupPath(id string) string { return "/v1/groups/" + url.PathEscape(id) }

// groupSummary is a group in a list.
type groupSummary struct {
	Group string `json:"group"`
	Type  string `json:"type"`
	State string `json:"state"`
	Kind  string `json:"protocol_type"`
	Lag   *struct {
		Partitions int   `json:"partitions"`
		Records    int64 `json:"records"`
		MaxRecords int64 `json:"max_records"`
		Unknown    int   `json:"unknown"`
	} `json:"lag,omitempty"`
}

// groupDescription is what GET /v1/groups/{group} answers, as far as the tables show it.
type groupDescription struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	State       string `json:"state"`
	Assignor    string `json:"assignor"`
	Epoch       *int64 `json:"epoch"`
	Coordinator *int64 `json:"coordinator"`
	Members     []struct {
		Member       string            `json:"member"`
		Instance     *string           `json:"instance"`
		ClientID     string            `json:"client_id"`
		Host         string            `json:"host"`
		Epoch        *int64            `json:"epoch"`
		Subscription []string          `json:"subscription"`
		Pattern      *string           `json:"pattern"`
		Assignment   []groupAssignment `json:"assignment"`
	} `json:"members"`
}

type groupAssignment struct {
	Topic      string `json:"topic"`
	Partitions []int  `json:"partitions"`
}

// groupLag is what GET /v1/groups/{group}/lag answers.
type groupLag struct {
	Group string `json:"group"`
	State string `json:"state"`
	Total struct {
		Records  int64  `json:"records"`
		MaxLagMs *int64 `json:"max_lag_ms"`
		Unknown  int    `json:"unknown"`
	} `json:"total"`
	Count      int `json:"count"`
	Partitions []struct {
		Topic     string  `json:"topic"`
		Partition int     `json:"partition"`
		Committed *int64  `json:"committed"`
		End       *int64  `json:"end"`
		Lag       *int64  `json:"lag"`
		LagMs     *int64  `json:"lag_ms"`
		Member    *string `json:"member"`
		ClientID  *string `json:"client_id"`
		Host      *string `json:"host"`
		Detail    string  `json:"detail"`
	} `json:"partitions"`
}

func newGroupList(c *cli) *cobra.Command {
	var lag bool
	query := url.Values{"limit": {"1000"}}
	var state, kind string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List consumer groups",
		Example: `  millrace group list
  millrace group list --lag
  millrace group list --state empty -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lag {
				query.Set("lag", "true")
			}
			if state != "" {
				query.Set("state", state)
			}
			if kind != "" {
				query.Set("type", kind)
			}
			return c.listGroups(cmd.Context(), query)
		},
	}
	cmd.Flags().BoolVar(&lag, "lag", false, "show how many records each is behind")
	cmd.Flags().StringVar(&state, "state", "", "only groups in this state, such as empty or stable")
	cmd.Flags().StringVar(&kind, "type", "", "only groups of this protocol: classic or consumer")
	return cmd
}

// listGroups reads all pages.
func (c *cli) listGroups(ctx context.Context, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	groups, err := pages[groupSummary](ctx, r, "/v1/groups", query)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(groups)
	}
	if len(groups) == 0 {
		fmt.Fprintln(c.err, "no groups")
		return nil
	}
	if !query.Has("lag") {
		w := c.table("GROUP\tTYPE\tSTATE")
		for _, g := range groups {
			fmt.Fprintf(w, "%s\t%s\t%s\n", g.Group, g.Type, words(g.State))
		}
		return w.Flush()
	}
	w := c.table("GROUP\tTYPE\tSTATE\tPARTITIONS\tLAG\tMOST")
	for _, g := range groups {
		partitions, lag, most := "-", "-", "-"
		if l := g.Lag; l != nil {
			partitions, lag, most = strconv.Itoa(l.Partitions), number(&l.Records), number(&l.MaxRecords)
			if l.Unknown > 0 {
				most += fmt.Sprintf("\t%s unknown", plural(l.Unknown, "partition"))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", g.Group, g.Type, words(g.State), partitions, lag, most)
	}
	return w.Flush()
}

// words shows a name of several words.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

func newGroupDescribe(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's state and its members",
		Example: `  millrace group describe billing
  millrace group describe billing -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := r.get(cmd.Context(), groupPath(args[0]), &raw); err != nil || asJSON {
				return c.raw(raw, err)
			}
			var g groupDescription
			if err := json.Unmarshal(raw, &g); err != nil {
				return fmt.Errorf("the server's answer: %w", err)
			}
			return c.showGroup(&g)
		},
	}
}

func (c *cli) showGroup(g *groupDescription) error {
	fmt.Fprintf(c.out, "group %s, type %s, %s", g.Group, g.Type, words(g.State))
	if g.Assignor != "" {
		fmt.Fprintf(c.out, ", assignor %s", g.Assignor)
	}
	if g.Epoch != nil {
		fmt.Fprintf(c.out, ", epoch %d", *g.Epoch)
	}
	if g.Coordinator != nil {
		fmt.Fprintf(c.out, ", coordinator %d", *g.Coordinator)
	}
	fmt.Fprintf(c.out, ", %s\n", plural(len(g.Members), "member"))
	if len(g.Members) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := c.table("MEMBER\tINSTANCE\tCLIENT\tHOST\tEPOCH\tSUBSCRIBED\tREADS")
	for _, m := range g.Members {
		wants := m.Subscription
		if m.Pattern != nil {
			wants = append(wants, "/"+*m.Pattern+"/")
		}
		reads := make([]string, len(m.Assignment))
		for i, a := range m.Assignment {
			reads[i] = a.Topic + ":" + ids(a.Partitions)
		}
		topics, partitions := strings.Join(wants, ","), strings.Join(reads, " ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Member, orDash(m.Instance), orDash(&m.ClientID), orDash(&m.Host),
			number(m.Epoch), orDash(&topics), orDash(&partitions))
	}
	return w.Flush()
}

func newGroupLag(c *cli) *cobra.Command {
	var dirty bool
	cmd := &cobra.Command{
		Use:   "lag GROUP",
		Short: "Show how far a group is behind, in records and in time",
		Long: `Show for each partition where a group is, where the partition ends, how many records are between, how old the
next one to read is, and which member reads it. 'millrace group list --lag' shows all groups.`,
		Example: `  millrace group lag billing
  millrace group lag billing -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			get := call{method: http.MethodGet, path: groupPath(args[0]) + "/lag"}
			if dirty {
				get.query = url.Values{"isolation": {"read_uncommitted"}}
			}
			var raw json.RawMessage
			if err := r.do(cmd.Context(), get, &raw); err != nil || asJSON {
				return c.raw(raw, err)
			}
			var l groupLag
			if err := json.Unmarshal(raw, &l); err != nil {
				return fmt.Errorf("the server's answer: %w", err)
			}
			return c.showLag(&l)
		},
	}
	cmd.Flags().BoolVar(&dirty, "uncommitted", false, "count records of open transactions too")
	return cmd
}

func (c *cli) showLag(l *groupLag) error {
	fmt.Fprintf(c.out, "group %s, %s: %s behind", l.Group, words(l.State), plural(int(l.Total.Records), "record"))
	if age := l.Total.MaxLagMs; age != nil && *age > 0 {
		fmt.Fprintf(c.out, ", %s", shortAge(age))
	}
	if l.Total.Unknown > 0 {
		fmt.Fprintf(c.out, "; %s unknown", plural(l.Total.Unknown, "partition"))
	}
	fmt.Fprintln(c.out)
	if len(l.Partitions) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := c.table("TOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tBEHIND\tMEMBER\tCLIENT\tHOST")
	for _, p := range l.Partitions {
		if p.Detail != "" {
			p.Detail = "\t" + p.Detail
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", p.Topic, p.Partition, number(p.Committed), number(p.End),
			number(p.Lag), shortAge(p.LagMs), orDash(p.Member), orDash(p.ClientID), orDash(p.Host), p.Detail)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := l.Count - len(l.Partitions); more > 0 {
		fmt.Fprintf(c.err, "and %d more\n", more)
	}
	return nil
}

// shortAge shows a time in milliseconds, to the second where it is long.
func shortAge(ms *int64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 10_000:
		return (time.Duration(*ms) * time.Millisecond).String()
	}
	return (time.Duration(*ms/1000) * time.Second).String()
}

func newGroupDelete(c *cli) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups with all their offsets, or a group's offsets of a topic",
		Long: `Delete groups with all their offsets, or with --topic a group's offsets of one topic. There is no way back and
no question first. A group that has members is not deleted: stop them first.`,
		Example: `  millrace group delete billing reports
  millrace group delete billing --topic orders`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			return c.each("group", args, func(id string) error {
				return c.deleteGroup(cmd.Context(), r, id, topic, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only the offsets of this topic")
	return cmd
}

func (c *cli) deleteGroup(ctx context.Context, r *remote, id, topic string, asJSON bool) error {
	if topic == "" {
		err := r.do(ctx, call{method: http.MethodDelete, path: groupPath(id)}, nil)
		if err == nil && !asJSON {
			fmt.Fprintf(c.out, "deleted group %s\n", id)
		}
		return err
	}
	var raw json.RawMessage
	path := groupPath(id) + "/offsets/" + url.PathEscape(topic)
	if err := r.do(ctx, call{method: http.MethodDelete, path: path}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var done struct{ Count int }
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Fprintf(c.out, "deleted the offsets of group %s in %s of topic %s\n", id, plural(done.Count, "partition"), topic)
	return nil
}
