package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// resetFlags are the flags of group reset.
type resetFlags struct {
	to     string
	offset int64
	shift  int64
	topics []string
	dry    bool
}

func newGroupReset(c *cli) *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use:   "reset GROUP",
		Short: "Set where a group reads on",
		Long: `Set where a group reads on: at the earliest or latest offset, at a time, at an offset, or a number of records
further or back. It is about the topics named, or the partitions TOPIC:PARTITION,PARTITION,..., or all that the group
has offsets of. What is outside a log becomes its nearest end.

The group must have no members, for they would commit over it: stop them first. --dry-run works all the same.`,
		Example: `  millrace group reset billing --to earliest --dry-run
  millrace group reset billing --to 2026-01-02T03:04:05Z --topic orders
  millrace group reset billing --offset 1200 --topic orders:0
  millrace group reset billing --shift -100`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.body(cmd)
			if err != nil {
				return err
			}
			return c.resetGroup(cmd.Context(), args[0], body)
		},
	}
	cmd.Flags().StringVar(&f.to, "to", "", "earliest, latest, or a time such as 2026-01-31, 1700000000000 or 15m")
	cmd.Flags().Int64Var(&f.offset, "offset", 0, "to this offset")
	cmd.Flags().Int64Var(&f.shift, "shift", 0, "so many records further, or back if negative")
	cmd.Flags().StringArrayVar(&f.topics, "topic", nil, "only this topic, or TOPIC:0,1 for some of it; may be repeated")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show what would change")
	return cmd
}

// body is the request that the flags ask for.
func (f *resetFlags) body(cmd *cobra.Command) (map[string]any, error) {
	body, given := map[string]any{"dry_run": f.dry}, 0
	if cmd.Flags().Changed("to") {
		given++
		if err := f.goal(body, time.Now()); err != nil {
			return nil, err
		}
	}
	if cmd.Flags().Changed("offset") {
		given++
		if body["offset"] = f.offset; f.offset < 0 {
			return nil, usagef("--offset %d: an offset is at least 0; --shift goes back", f.offset)
		}
	}
	if cmd.Flags().Changed("shift") {
		given++
		body["shift"] = f.shift
	}
	if given != 1 {
		return nil, usagef("want just one of --to, --offset and --shift")
	}
	var topics []string
	var partitions []map[string]any
	for _, text := range f.topics {
		topic, list, some := strings.Cut(text, ":")
		if !some {
			topics = append(topics, topic)
			continue
		}
		for number := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("--topic %s: want TOPIC, or TOPIC:PARTITION,PARTITION,... such as orders:0,3", text)
			}
			partitions = append(partitions, map[string]any{"topic": topic, "partition": n})
		}
	}
	if topics != nil {
		body["topics"] = topics
	}
	if partitions != nil {
		body["partitions"] = partitions
	}
	return body, nil
}

// goal is what --to says: an end of the log, or a time as consume's --from takes it, or in milliseconds.
func (f *resetFlags) goal(body map[string]any, now time.Time) error {
	if f.to == "earliest" || f.to == "latest" {
		body["to"] = f.to
		return nil
	}
	body["timestamp"] = f.to
	if _, err := strconv.ParseInt(f.to, 10, 64); err == nil {
		return nil
	}
	t, err := parseTime(f.to, now)
	if err != nil {
		return usagef("--to %s: want earliest, latest, or a time such as 2026-01-31, 1700000000000 or 15m", f.to)
	}
	body["timestamp"] = t.UTC().Format(time.RFC3339Nano)
	return nil
}

// groupReset is the answer to a reset.
type groupReset struct {
	DryRun     bool `json:"dry_run"`
	Members    int  `json:"members"`
	Count      int  `json:"count"`
	Partitions []struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		From      *int64 `json:"from"`
		To        int64  `json:"to"`
		Clamped   bool   `json:"clamped"`
	} `json:"partitions"`
}

func (c *cli) resetGroup(ctx context.Context, id string, body map[string]any) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = r.do(ctx, jsonCall(http.MethodPost, groupPath(id)+"/offsets:reset", body), &raw)
	if err != nil || asJSON {
		return c.raw(raw, err)
	}
	var done groupReset
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	verb := "reset"
	if done.DryRun {
		verb = "would reset"
	}
	fmt.Fprintf(c.out, "%s group %s in %s\n", verb, id, plural(done.Count, "partition"))
	w := c.table("TOPIC\tPARTITION\tFROM\tTO")
	for _, p := range done.Partitions {
		note := ""
		if p.Clamped {
			note = "\tthe nearest end of the log"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d%s\n", p.Topic, p.Partition, number(p.From), p.To, note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := done.Count - len(done.Partitions); more > 0 {
		fmt.Fprintf(c.err, "and %d more\n", more)
	}
	if done.DryRun && done.Members > 0 {
		fmt.Fprintf(c.err, "the group has %s: a reset would be refused; stop them first\n", plural(done.Members, "member"))
	}
	return nil
}
