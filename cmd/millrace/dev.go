package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/server"
	"millrace/server/quorum"
)

const (
	devNodes = 3
	// devDrain is short: the nodes of one process stop together, so there is nobody to hand over to for long.
	devDrain = 4 * time.Second
	// devReady bounds the wait for the cluster to form.
	devReady = 60 * time.Second
)

func newDev(c *cli) *cobra.Command {
	var broker []string
	s := defaultSettings()
	s.LogLevel = "warn"
	s.DrainTimeout = devDrain
	port := 8082
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of three nodes in one process, for demos and tests",
		Long: `Run a cluster of three nodes in one process until SIGINT or SIGTERM, for demos and tests.

The nodes listen on three ports of 127.0.0.1, from --port on, and keep their data below --data-dir, so that the next
run goes on where this one stopped. Topics get three replicas and min.insync.replicas=2 unless --set says otherwise.

It shows what a cluster does and survives nothing more than one node does: for that, run ` + "`millrace serve`" + ` on
three machines; docs/cluster.md says how.`,
		Example: `  millrace dev
  millrace dev --port 9000 --data-dir /tmp/dev --set num.partitions=6`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&s.DataDir, "data-dir", "./data-dev", "folder of the nodes' data; made when missing")
	f.IntVar(&port, "port", port, "port of the first node; the others take the next two")
	f.StringArrayVar(&broker, "set", nil, "broker setting by Kafka's name for all nodes, NAME=VALUE; may be repeated")
	f.StringVar(&s.LogLevel, "log-level", s.LogLevel, "debug, info, warn or error")
	f.StringVar(&s.LogFormat, "log-format", s.LogFormat, "text, json, or auto: text on a terminal, else json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.Broker["default.replication.factor"], s.Broker["min.insync.replicas"] = "3", "2"
		if err := s.applyBroker(broker); err != nil {
			return &failure{exitUsage, err}
		}
		if port < 1 || port > 65535-devNodes {
			return usagef("--port %d: want one from 1 to %d", port, 65535-devNodes)
		}
		return c.dev(cmd.Context(), s, port)
	}
	return cmd
}

// dev runs the nodes until a signal or a fault ends them.
func (c *cli) dev(ctx context.Context, s settings, port int) error {
	logger, err := c.logger(s)
	if err != nil {
		return err
	}
	var stopping atomic.Bool
	logger = slog.New(untilStop{logger.Handler(), &stopping})
	tuneCollector(s, logger)
	s.Environment = c.lookupEnv
	fatal := make(chan error, devNodes)
	configs := devConfigs(s, port, logger, func(err error) {
		select {
		case fatal <- err:
		default:
		}
	})
	var nodes []*server.Node
	for _, cfg := range configs {
		node, err := server.Open(cfg)
		if err != nil {
			stopping.Store(true)
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w with --port", err)
			}
			return errors.Join(fmt.Errorf("start node %d: %w", cfg.NodeID, err), closeNodes(nodes))
		}
		nodes = append(nodes, node)
	}
	if err := awaitNodes(ctx, nodes, fatal); err != nil {
		return errors.Join(fmt.Errorf("start: %w", err), closeNodes(nodes))
	}
	c.greetDev(nodes, s)
	select {
	case <-ctx.Done():
		c.stop() // from here on a second signal ends the process at once
		stopping.Store(true)
		return closeNodes(nodes)
	case err := <-fatal:
		return errors.Join(fmt.Errorf("a node cannot go on: %w", err), closeNodes(nodes))
	}
}

// devConfigs are the configs of the nodes, which share a secret that nobody else learns.
func devConfigs(s settings, port int, logger *slog.Logger, fatal func(error)) []server.Config {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	var voters []quorum.Voter
	for i := range devNodes {
		voters = append(voters, quorum.Voter{ID: int32(i + 1), Address: "http://" + devAddress(port+i)})
	}
	var configs []server.Config
	for i := range devNodes {
		cfg := s.Config
		cfg.NodeID, cfg.Listen = int32(i+1), devAddress(port+i)
		cfg.DataDir = filepath.Join(s.DataDir, "node-"+strconv.Itoa(i+1))
		cfg.Voters, cfg.ClusterSecret = voters, secret
		cfg.Logger, cfg.Fatal = logger.With("at", i+1), fatal
		configs = append(configs, cfg)
	}
	return configs
}

// untilStop drops the warnings of nodes that stop: all of them stop at once, so each misses the others.
type untilStop struct {
	slog.Handler
	stopping *atomic.Bool
}

// Enabled implements slog.Handler.
func (h untilStop) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, level) && (level != slog.LevelWarn || !h.stopping.Load())
}

// WithAttrs implements slog.Handler.
func (h untilStop) WithAttrs(attrs []slog.Attr) slog.Handler {
	return untilStop{h.Handler.WithAttrs(attrs), h.stopping}
}

// WithGroup implements slog.Handler.
func (h untilStop) WithGroup(name string) slog.Handler {
	return untilStop{h.Handler.WithGroup(name), h.stopping}
}

func devAddress(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// awaitNodes waits until all nodes have joined their cluster and know each other.
func awaitNodes(ctx context.Context, nodes []*server.Node, fatal <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, devReady)
	defer cancel()
	for _, n := range nodes {
		ready := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			err := n.AwaitReady(ctx)
			if err == nil {
				err = n.AwaitBrokers(ctx, devNodes)
			}
			ready <- err
		})
		select {
		case err := <-ready:
			if err != nil {
				return err
			}
		case err := <-fatal:
			cancel()
			wg.Wait()
			return err
		}
	}
	return nil
}

// closeNodes stops all nodes at once: one after the other, the last ones would wait for a quorum that is gone.
func closeNodes(nodes []*server.Node) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// greetDev tells a person where the nodes are and what to try.
func (c *cli) greetDev(nodes []*server.Node, s settings) {
	if s.LogFormat == "json" {
		return
	}
	fmt.Fprintf(c.out, `
  Millrace %s: a cluster of %d nodes is ready, data in %s

`, version, len(nodes), s.DataDir)
	for i, n := range nodes {
		fmt.Fprintf(c.out, "    node %d  %s\n", i+1, n.URL())
	}
	fmt.Fprintf(c.out, `
  curl %s/v1/topics/greetings/records -d '{"hello":"world"}'
  curl '%s/v1/topics/greetings/records?offset=earliest'
  millrace cluster health

`, nodes[0].URL(), nodes[1].URL())
}
