package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newTopic(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "List, create, describe, change and delete topics",
		Example: `  millrace topic create orders --partitions 4 --config retention.ms=86400000
  millrace topic list
  millrace topic describe orders`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newTopicList(c), newTopicCreate(c), newTopicDescribe(c), newTopicAlter(c), newTopicDelete(c))
	return cmd
}

// topicSummary is a topic in a list and as the answer to its creation.
type topicSummary struct {
	Name        string `json:"name"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replication_factor"`
	Internal    bool   `json:"internal"`
}

// topicDescription is what GET /v1/topics/{topic} answers, as far as the tables show it.
type topicDescription struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions []struct {
		Partition int    `json:"partition"`
		Leader    int    `json:"leader"`
		Epoch     int    `json:"leader_epoch"`
		Replicas  []int  `json:"replicas"`
		ISR       []int  `json:"isr"`
		Earliest  *int64 `json:"earliest_offset"`
		Latest    *int64 `json:"latest_offset"`
	} `json:"partitions"`
	Configs []topicConfig `json:"configs"`
}

type topicConfig struct {
	Name    string  `json:"name"`
	Value   *string `json:"value"`
	Source  string  `json:"source"`
	Default bool    `json:"default"`
}

func topicPath(name string) string { return "/v1/topics/" + url.PathEscape(name) }

func newTopicList(c *cli) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Example: `  millrace topic list
  millrace topic list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.listTopics(cmd.Context(), internal) },
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

// listTopics reads all pages.
func (c *cli) listTopics(ctx context.Context, internal bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	query := url.Values{"limit": {"1000"}, "internal": {strconv.FormatBool(internal)}}
	topics, err := pages[topicSummary](ctx, r, "/v1/topics", query)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(topics)
	}
	if len(topics) == 0 {
		fmt.Fprintln(c.err, "no topics; make one with 'millrace topic create NAME', or just produce to it")
		return nil
	}
	w := c.table("TOPIC\tPARTITIONS\tREPLICATION")
	for _, t := range topics {
		fmt.Fprintf(w, "%s\t%d\t%d\n", t.Name, t.Partitions, t.Replication)
	}
	return w.Flush()
}

// table starts a table on standard output.
func (c *cli) table(header string) *tabwriter.Writer {
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, header)
	return w
}

// client reads the flags that all client commands have.
func (c *cli) client() (asJSON bool, r *remote, err error) {
	if asJSON, err = c.asJSON(); err != nil {
		return false, nil, err
	}
	r, err = c.remote()
	return asJSON, r, err
}

// configFlags reads --config NAME=VALUE flags, and --reset NAME ones as nulls.
func configFlags(set, reset []string) (map[string]*string, error) {
	configs := map[string]*string{}
	for _, kv := range set {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usagef("--config %s: want NAME=VALUE, for example retention.ms=86400000", kv)
		}
		configs[name] = &value
	}
	for _, name := range reset {
		if _, ok := configs[name]; ok {
			return nil, usagef("%s is both set and reset", name)
		}
		configs[name] = nil
	}
	return configs, nil
}

func newTopicCreate(c *cli) *cobra.Command {
	var partitions, replication int
	var configs []string
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Create a topic",
		Long:  "Create a topic. What is not given takes the server's default: num.partitions and so on.",
		Example: `  millrace topic create orders
  millrace topic create orders --partitions 4 --config retention.ms=86400000 --config compression.type=zstd`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(atLeastOne(cmd, "partitions"), atLeastOne(cmd, "replication-factor")); err != nil {
				return err
			}
			body := map[string]any{"name": args[0]}
			if partitions != 0 {
				body["partitions"] = partitions
			}
			if replication != 0 {
				body["replication_factor"] = replication
			}
			return c.createTopic(cmd.Context(), body, configs)
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "how many partitions")
	cmd.Flags().IntVarP(&replication, "replication-factor", "r", 0, "how many replicas of each")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "topic config by Kafka's name, NAME=VALUE; may be repeated")
	return cmd
}

func (c *cli) createTopic(ctx context.Context, body map[string]any, set []string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	configs, err := configFlags(set, nil)
	if err != nil {
		return err
	}
	if len(configs) > 0 {
		body["configs"] = configs
	}
	var t topicSummary
	if err := r.do(ctx, jsonCall(http.MethodPost, "/v1/topics", body), &t); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(t)
	}
	fmt.Fprintf(c.out, "created topic %s with %s\n", t.Name, plural(t.Partitions, "partition"))
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "ch") {
		what += "e"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// jsonCall is a call with a JSON body.
func jsonCall(method, path string, body any) call {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	return call{method: method, path: path, body: text, header: http.Header{"Content-Type": {"application/json"}}}
}

func newTopicDescribe(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show a topic's partitions and configs",
		Example: `  millrace topic describe orders
  millrace topic describe orders --all
  millrace topic describe orders -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := r.do(cmd.Context(), call{method: http.MethodGet, path: topicPath(args[0])}, &raw); err != nil {
				return err
			}
			return c.showTopic(raw, asJSON, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show every config, not only those that differ from the built-in default")
	return cmd
}

// showTopic prints an answer that describes a topic.
func (c *cli) showTopic(raw json.RawMessage, asJSON, all bool) error {
	if asJSON {
		_, err := fmt.Fprintf(c.out, "%s\n", raw)
		return err
	}
	var t topicDescription
	if err := json.Unmarshal(raw, &t); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Fprintf(c.out, "topic %s, id %s, %s\n\n", t.Name, t.ID, plural(len(t.Partitions), "partition"))
	if err := c.showPartitions(&t); err != nil {
		return err
	}
	shown := slices.DeleteFunc(t.Configs, func(k topicConfig) bool { return k.Default && !all })
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := c.table("CONFIG\tVALUE\tSOURCE")
	for _, k := range shown {
		value := ""
		if k.Value != nil {
			value = *k.Value
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Name, value, k.Source)
	}
	return w.Flush()
}

// showPartitions prints a topic's partitions; those that are not whole say so.
func (c *cli) showPartitions(t *topicDescription) error {
	w := c.table("PARTITION\tLEADER\tEPOCH\tREPLICAS\tISR\tEARLIEST\tLATEST")
	for _, p := range t.Partitions {
		state := ""
		switch {
		case p.Leader < 0:
			state = "\toffline"
		case len(p.ISR) < len(p.Replicas):
			state = "\tunder-replicated"
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\t%s\t%s%s\n", p.Partition, orNone(p.Leader), p.Epoch, ids(p.Replicas),
			ids(p.ISR), number(p.Earliest), number(p.Latest), state)
	}
	return w.Flush()
}

func ids(list []int) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func newTopicAlter(c *cli) *cobra.Command {
	var partitions int
	var set, reset []string
	cmd := &cobra.Command{
		Use:   "alter TOPIC",
		Short: "Change a topic's configs or add partitions",
		Long: `Change a topic's configs or add partitions. Configs that are not named stay as they are.

Partitions can only be added. Records with a key then go to other partitions than before.`,
		Example: `  millrace topic alter orders --config retention.ms=3600000 --reset segment.ms
  millrace topic alter orders --partitions 8`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := atLeastOne(cmd, "partitions"); err != nil {
				return err
			}
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			configs, err := configFlags(set, reset)
			if err != nil {
				return err
			}
			body := map[string]any{}
			if len(configs) > 0 {
				body["configs"] = configs
			}
			if partitions != 0 {
				body["partitions"] = partitions
			}
			if len(body) == 0 {
				return usagef("nothing to change: give --config, --reset or --partitions")
			}
			var raw json.RawMessage
			if err := r.do(cmd.Context(), jsonCall(http.MethodPatch, topicPath(args[0]), body), &raw); err != nil {
				return err
			}
			return c.showTopic(raw, asJSON, false)
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "how many partitions there are to be")
	cmd.Flags().StringArrayVarP(&set, "config", "c", nil, "set a topic config, NAME=VALUE; may be repeated")
	cmd.Flags().StringArrayVar(&reset, "reset", nil, "return a topic config to its default; may be repeated")
	return cmd
}

func newTopicDelete(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics with all their records",
		Long:  "Delete topics with all their records. There is no way back and no question first.",
		Example: `  millrace topic delete orders
  millrace topic delete orders payments`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON, r, err := c.client()
			if err != nil {
				return err
			}
			return c.each("topic", args, func(name string) error {
				err := r.do(cmd.Context(), call{method: http.MethodDelete, path: topicPath(name)}, nil)
				if err == nil && !asJSON {
					fmt.Fprintf(c.out, "deleted topic %s\n", name)
				}
				return err
			})
		},
	}
	return cmd
}
