package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout bounds the check: a node that takes longer is not healthy.
const healthTimeout = 2 * time.Second

func newHealth(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a node is ready, for scripts and containers",
		Long: `Check whether a node is ready to serve, and say what it waits for when it is not.

` + "`millrace cluster health`" + ` tells of the whole cluster.`,
		Example: `  millrace health
  millrace health --url http://127.0.0.1:8083`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.health(cmd.Context()) },
	}
	cmd.Flags().StringVar(&c.url, "url", "", "the node's URL (default $MILLRACE_URL, else "+defaultURL+")")
	return cmd
}

func (c *cli) health(ctx context.Context) error {
	r, err := c.remote()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	ask := call{method: http.MethodGet, path: "/health/ready"}
	req, err := r.request(ctx, ask)
	if err != nil {
		return err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return r.noAnswer(ctx, ask, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return r.noAnswer(ctx, ask, err)
	}
	if resp.StatusCode != http.StatusOK {
		return failf(exitFailed, "%s is not ready: %s", r.base, body)
	}
	_, err = fmt.Fprintf(c.out, "%s", body)
	return err
}
