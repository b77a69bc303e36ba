package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millrace/client"
	"millrace/connect"
	"millrace/connect/plugin"
	"millrace/connect/postgres/cdc"
	"millrace/connect/postgres/polling"
	"millrace/connect/postgres/sink"
	"millrace/server/metadata"
)

// connectors is the node's worker, which runs connectors.
type connectors struct {
	worker  *connect.Worker // nil: the node runs none
	running sync.WaitGroup
	stop    context.CancelCauseFunc
}

// scratchDir is the folder for files of tasks, in the data directory.
const scratchDir = "connect-scratch"

// classes are the classes of connectors that the node has. Those that it was given go before its own of the same name.
func (n *Node) classes() []plugin.Class {
	return slices.Concat(n.cfg.Connectors, []plugin.Class{polling.Class(), cdc.Class()}, sink.Classes())
}

// openConnect makes the node's worker, which works from when the node has joined. The node is ready without it.
func (n *Node) openConnect(c *client.Client) (err error) {
	s := n.machine.Image().Settings().Connect
	if !s.Enable {
		return nil
	}
	scratch := ""
	if n.cfg.FS == nil {
		scratch = filepath.Join(n.cfg.DataDir, scratchDir)
	}
	n.connect.worker, err = connect.New(connect.Config{
		Client: c, Requests: n.cluster, Schemas: n.schemas.registry, Serde: n.schemas.serde.Load,
		Classes: n.classes(), Settings: workerSettings(&s), NodeID: n.cfg.NodeID,
		WorkerID:   strings.TrimPrefix(n.cfg.address(n.Addr()), "http://"),
		ScratchDir: scratch, AwaitTopic: n.awaitTopic, Gone: n.goneBrokers, Environment: n.cfg.Environment,
		Logger: n.levels.Logger("connect"), Loggers: n.levels, Now: n.cfg.Now, Rand: n.fork(), Registerer: n.registry,
	})
	if err != nil {
		return fmt.Errorf("connectors: %w", err)
	}
	var ctx context.Context
	ctx, n.connect.stop = context.WithCancelCause(context.Background())
	n.connect.running.Go(func() {
		select {
		case <-n.joined:
			_ = n.connect.worker.Run(ctx) // it ends with ctx
		case <-ctx.Done():
		}
	})
	return nil
}

// close stops the worker and what it runs. Killed: it hands nothing over.
func (c *connectors) close(killed bool) {
	if c.stop != nil {
		why := ErrDraining
		if killed {
			why = connect.ErrKilled
		}
		c.stop(why)
	}
	c.running.Wait()
}

// awaitTopic waits until a topic exists, as far as this node knows.
func (n *Node) awaitTopic(ctx context.Context, topic string) error {
	for {
		next := n.changed() // before the look, so that nothing is missed between the two
		if n.machine.Image().Topic(topic) != nil {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goneBrokers are the nodes whose brokers are fenced, and a channel that is closed when that may have changed.
func (n *Node) goneBrokers() (nodes []int32, changed <-chan struct{}) {
	changed = n.changed() // before the look, so that nothing is missed between the two
	for _, b := range n.machine.Image().Brokers() {
		if b.Fenced {
			nodes = append(nodes, b.ID)
		}
	}
	return nodes, changed
}

// workerSettings are the settings of a worker by those of the node.
func workerSettings(s *metadata.ConnectSettings) connect.Settings {
	schemas := func(on bool) map[string]string { return map[string]string{"schemas.enable": strconv.FormatBool(on)} }
	return connect.Settings{
		GroupID: s.GroupID, ConfigTopic: s.ConfigTopic, OffsetTopic: s.OffsetTopic, StatusTopic: s.StatusTopic,
		OffsetPartitions: s.OffsetPartitions, StatusPartitions: s.StatusPartitions, Replication: s.Replication,
		KeyConverter: s.KeyConverter, ValueConverter: s.ValueConverter, HeaderConverter: s.HeaderConverter,
		KeyConverterProps: schemas(s.KeySchemas), ValueConverterProps: schemas(s.ValueSchemas),
		SessionTimeout: s.SessionTimeout, HeartbeatInterval: s.HeartbeatInterval, RebalanceTimeout: s.RebalanceTimeout,
		OffsetFlushInterval: s.OffsetFlushInterval, TaskShutdownTimeout: s.TaskShutdownTimeout,
		RestartBackoff: s.RestartBackoff, RestartBackoffMax: s.RestartBackoffMax, RestartHealthy: s.RestartHealthy,
		OverridePolicy: s.OverridePolicy, TopicCreation: s.TopicCreation, TopicTracking: s.TopicTracking,
		TopicTrackingReset: s.TopicTrackingReset, RevealSecrets: s.RevealSecrets, FilePaths: s.FilePaths,
		EnvAllow: s.EnvAllow,
	}
}
