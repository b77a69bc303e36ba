package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/api"
	"millrace/api/registry"
	"millrace/client"
	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// schemas is the node's schema registry and its API.
type schemas struct {
	registry *schemaregistry.Registry
	api      *registry.API
	serde    atomic.Pointer[serde.Serde] // nil until there is a registry
	reading  sync.WaitGroup
	stop     context.CancelFunc
}

// openSchemas makes the schema registry. It reads its log from when the node has joined until it is closed.
func (n *Node) openSchemas(edge *api.Edge, c *client.Client) (err error) {
	s := n.machine.Image().Settings()
	n.schemas.registry, err = schemaregistry.New(schemaregistry.Config{
		Client: c, Compatibility: s.SchemaCompatibilityLevel, ModeFixed: !s.SchemaModeMutability,
		Logger: n.log, Now: n.cfg.Now, Rand: n.fork(), Registerer: n.registry, Flaws: n.cfg.RegistryFlaws,
		Limits: n.cfg.RegistryLimits,
	})
	if err != nil {
		return err
	}
	n.schemas.serde.Store(serde.New(n.schemas.registry))
	n.schemas.api = registry.New(registry.Options{
		Edge: edge, Client: c, Registry: n.schemas.registry, Version: n.cfg.Version, Commit: n.cfg.Commit,
		Forward: func(w http.ResponseWriter, r *http.Request, topic string, partition int32) bool {
			return edge.ForwardPartition(w, r, topic, partition)
		},
	})
	var ctx context.Context
	ctx, n.schemas.stop = context.WithCancel(context.Background())
	n.schemas.reading.Go(func() {
		select {
		case <-n.joined:
			_ = n.schemas.registry.Run(ctx) // it ends with ctx
		case <-ctx.Done():
		}
	})
	return nil
}

// close ends the reading.
func (s *schemas) close() {
	if s.stop != nil {
		s.stop()
	}
	s.reading.Wait()
}

// readWait is how long a start waits for the schema registry. Readiness tells what takes longer.
const readWait = 5 * time.Second

// awaitRead waits until the registry has read its log, but not for long.
func (s *schemas) awaitRead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	_ = s.registry.AwaitRead(ctx) // Ready says what is amiss
}
