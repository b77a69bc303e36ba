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

func newTxn(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "List, describe and abort transactions",
		Example: `  millrace txn list --state open
  millrace txn describe copier-1
  millrace txn abort copier-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newTxnList(c), newTxnDescribe(c), newTxnAbort(c))
	return cmd
}

func txnPath(id string) string { return "/v1/transactions/" + url.PathEscape(id) }

// txnSummary is a transactional id in a list.
type txnSummary struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	ProducerID int64  `json:"producer_id"`
}

// txnDescription is what GET /v1/transactions/{transactional_id} answers.
type txnDescription struct {
	ID         string            `json:"id"`
	State      string            `json:"state"`
	Epoch      int               `json:"epoch"`
	ProducerID int64             `json:"producer_id"`
	TimeoutMS  int64             `json:"timeout_ms"`
	Started    *string           `json:"started,omitempty"`
	Partitions []groupAssignment `json:"partitions"`
}

func newTxnList(c *cli) *cobra.Command {
	var state string
	var openFor time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List transactional ids",
		Long: `List the transactional ids that the cluster knows, and the state of the last transaction of each. Ids that
begin with __millrace-once- are of transactions that were made by one request each.`,
		Example: `  millrace txn list
  millrace txn list --state open
  millrace txn list --open-for 5m
  millrace txn list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"limit": {"1000"}}
			if state != "" {
				query.Set("state", state)
			}
			if openFor != 0 {
				query.Set("open_for", openFor.String())
			}
			return c.listTxns(cmd.Context(), query)
		},
	}
	cmd.Flags().StringVar(&state, "state", "",
		"only those in this state: empty, open, committing, aborting, committed or aborted")
	cmd.Flags().DurationVar(&openFor, "open-for", 0, "only transactions that have been open for longer, such as 5m")
	return cmd
}

// listTxns reads all pages.
func (c *cli) listTxns(ctx context.Context, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	all, err := pages[txnSummary](ctx, r, "/v1/transactions", query)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.err, "no transactions")
		return nil
	}
	w := c.table("ID\tSTATE\tPRODUCER")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\n", t.ID, t.State, t.ProducerID)
	}
	return w.Flush()
}

func newTxnDescribe(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "describe ID",
		Short: "Show the last transaction of an id",
		Long: `Show the state of a transactional id, the epoch in use, and the partitions that its transaction writes to, or,
once that is decided, those that do not know yet.`,
		Example: `  millrace txn describe copier-1
  millrace txn describe copier-1 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.describeTxn(cmd.Context(), args[0]) },
	}
}

func (c *cli) describeTxn(ctx context.Context, id string) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var t txnDescription
	if err := r.do(ctx, call{method: http.MethodGet, path: txnPath(id)}, &t); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(t)
	}
	started := "-"
	if t.Started != nil {
		started = *t.Started
	}
	fmt.Fprintf(c.out, "id        %s\nstate     %s\nepoch     %d\nproducer  %d\ntimeout   %s\nstarted   %s\n",
		t.ID, t.State, t.Epoch, t.ProducerID, time.Duration(t.TimeoutMS)*time.Millisecond, started)
	if len(t.Partitions) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := c.table("TOPIC\tPARTITIONS")
	for _, p := range t.Partitions {
		var numbers []string
		for _, n := range p.Partitions {
			numbers = append(numbers, strconv.Itoa(n))
		}
		fmt.Fprintf(w, "%s\t%s\n", p.Topic, strings.Join(numbers, ","))
	}
	return w.Flush()
}

func newTxnAbort(c *cli) *cobra.Command {
	epoch := -1
	cmd := &cobra.Command{
		Use:   "abort ID",
		Short: "Abort what an id has open",
		Long: `Abort the transaction that a transactional id has open, so that readers of committed records go on. Its
producer is fenced: its next request is refused with 403. Where nothing is open, nothing is done.

With --epoch only the transaction of that epoch is aborted.`,
		Example: `  millrace txn abort copier-1
  millrace txn abort copier-1 --epoch 7`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if cmd.Flags().Changed("epoch") {
				if epoch < 0 {
					return usagef("--epoch %d: want 0 or more", epoch)
				}
				query.Set("epoch", strconv.Itoa(epoch))
			}
			return c.abortTxn(cmd.Context(), args[0], query)
		},
	}
	cmd.Flags().IntVar(&epoch, "epoch", -1, "only the transaction of this epoch")
	return cmd
}

func (c *cli) abortTxn(ctx context.Context, id string, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var before txnDescription
	if !query.Has("epoch") {
		if err := r.do(ctx, call{method: http.MethodGet, path: txnPath(id)}, &before); err != nil {
			return err
		}
	}
	var t struct {
		ID    string `json:"id"`
		State string `json:"state"`
		Epoch int    `json:"epoch"`
	}
	if err := r.do(ctx, call{method: http.MethodPost, path: txnPath(id) + "/abort", query: query}, &t); err != nil {
		return err
	}
	switch {
	case asJSON:
		return json.NewEncoder(c.out).Encode(t)
	case before.State != "" && before.State != "open":
		fmt.Fprintf(c.out, "%s has nothing open: its last transaction is %s\n", t.ID, t.State)
	default:
		fmt.Fprintf(c.out, "aborted the transaction of %s; the epoch in use is %d now\n", t.ID, t.Epoch)
	}
	return nil
}
