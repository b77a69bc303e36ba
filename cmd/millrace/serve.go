package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/server"
)

func newServe(c *cli) *cobra.Command {
	var file string
	var broker []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until SIGINT or SIGTERM. No flag is needed.

Every setting below can also stand in a YAML file (--config) as "NAME: value", or in the environment as MILLRACE_NAME
with _ for each - and dot. A flag wins over the environment, which wins over the file. Broker settings keep the names
they have in Kafka, such as log.retention.hours: give them with --set, in the file, or as MILLRACE_LOG_RETENTION_HOURS.
docs/running.md and docs/configuration.md list them all.

The first signal drains: no new work, running requests end, everything is synced. A second one exits at once, which
loses nothing that was acknowledged.`,
		Example: `  millrace serve
  millrace serve --data-dir /var/lib/millrace --listen 127.0.0.1:9000
  millrace serve --set num.partitions=4 --set log.retention.hours=24
  MILLRACE_LOG_SYNC=interval millrace serve --config millrace.yaml
  millrace serve --node-id 1 --listen 10.0.0.1:8082 --insecure --cluster-secret-file secret \
    --voters 1=http://10.0.0.1:8082,2=http://10.0.0.2:8082,3=http://10.0.0.3:8082`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML file of settings (default $MILLRACE_CONFIG)")
	f.StringArrayVar(&broker, "set", nil, "broker setting by Kafka's name, NAME=VALUE; may be repeated")
	for _, n := range nodeSettings() {
		f.String(n.name, n.value, n.doc)
	}
	f.Lookup("insecure").NoOptDefVal = "true"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := c.settings(cmd, file, broker)
		if err != nil {
			return &failure{exitUsage, err}
		}
		return c.serve(cmd.Context(), s)
	}
	return cmd
}

// settings gathers what serve is told, in order of rising priority: built-in, file, environment, flags.
func (c *cli) settings(cmd *cobra.Command, file string, broker []string) (settings, error) {
	s := defaultSettings()
	if file == "" {
		file = c.getenv("MILLRACE_CONFIG")
	}
	if file != "" {
		if err := s.readFile(file); err != nil {
			return s, err
		}
	}
	if err := s.readEnviron(c.environ); err != nil {
		return s, err
	}
	for _, n := range nodeSettings() {
		if fl := cmd.Flags().Lookup(n.name); fl.Changed {
			if err := s.apply(n.name, fl.Value.String()); err != nil {
				return s, fmt.Errorf("flag --%w", err)
			}
		}
	}
	if err := s.applyBroker(broker); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// serve runs the node until a signal or a fault ends it.
func (c *cli) serve(ctx context.Context, s settings) error {
	logger, err := c.logger(s)
	if err != nil {
		return err
	}
	tuneCollector(s, logger)
	fatal := make(chan error, 1)
	s.Logger = logger
	s.Environment = c.lookupEnv
	s.Fatal = func(err error) {
		select {
		case fatal <- err:
		default:
		}
	}
	node, err := server.Open(s.Config)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w with --listen", err)
	}
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer c.greeter(ctx, node, s)()
	select {
	case <-ctx.Done():
		c.stop() // from here on a second signal ends the process at once
		logger.Info("stopping: draining requests; a second signal exits now")
		if err := node.Close(); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		logger.Info("stopped")
		return nil
	case err := <-fatal:
		if errors.Is(err, server.ErrNotJoined) {
			return errors.Join(fmt.Errorf("start: %w", err), node.Close())
		}
		return fmt.Errorf("the node cannot go on, and was left as after a crash: %w", err)
	}
}

// lookupEnv looks up a variable of the environment.
func (c *cli) lookupEnv(name string) (string, bool) {
	for _, kv := range c.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// greeter greets once the node has joined its cluster. What it returns ends that.
func (c *cli) greeter(ctx context.Context, node *server.Node, s settings) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if node.AwaitReady(ctx) == nil {
			c.greet(node, s)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// greet tells a person where the node is and what to type first. The same facts are in the log for everyone else.
func (c *cli) greet(n *server.Node, s settings) {
	s.Logger.Info("node started", "url", n.URL(), "node", s.NodeID, "data", s.DataDir, "version", version)
	if s.LogFormat == "json" {
		return
	}
	fmt.Fprintf(c.out, `
  Millrace %s is ready at %s, data in %s

  curl %s/v1/topics/greetings/records -d '{"hello":"world"}'
  curl '%s/v1/topics/greetings/records?offset=earliest'

`, version, n.URL(), s.DataDir, n.URL(), n.URL())
}

// logger writes text to a terminal and JSON elsewhere, to standard error.
func (c *cli) logger(s settings) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, usagef("log-level %q: want debug, info, warn or error", s.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readableDurations}
	switch {
	case s.LogFormat == "text", s.LogFormat == "auto" && isTerminal(c.err):
		return slog.New(slog.NewTextHandler(c.err, o)), nil
	case s.LogFormat == "json", s.LogFormat == "auto":
		return slog.New(slog.NewJSONHandler(c.err, o)), nil
	}
	return nil, usagef("log-format %q: want text, json or auto", s.LogFormat)
}

// readableDurations writes durations as 958ms, which are nanoseconds in JSON otherwise.
func readableDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	d := a.Value.Duration()
	for _, unit := range []time.Duration{time.Millisecond, time.Microsecond} {
		if d.Abs() >= 10*unit {
			d = d.Round(unit)
			break
		}
	}
	return slog.String(a.Key, d.String())
}

// tuneCollector trades memory for time: a larger heap between collections, bounded by a soft limit. GOGC and
// GOMEMLIMIT, when set, are left as they are.
func tuneCollector(s settings, logger *slog.Logger) {
	limit := s.MemoryLimit
	if limit == 0 {
		limit = machineMemory() / 2
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(s.GCPercent)
		(&collector{percent: s.GCPercent, now: s.GCPercent}).watch()
	}
	if os.Getenv("GOMEMLIMIT") == "" && limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	logger.Debug("collector tuned", "gcPercent", s.GCPercent, "memoryLimit", limit)
}

// machineMemory is what the machine or the control group has, in bytes; 0 when neither says.
func machineMemory() int64 {
	least := int64(math.MaxInt64)
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(name); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err == nil {
			least = min(least, kib<<10)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
