package schemaregistry

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
	"millrace/schemaregistry/schema"
)

// Config is what a Registry is made of. Client is required.
type Config struct {
	Client *client.Client
	// Topic is the log; "_schemas" by default.
	Topic string
	// Compatibility is the level where none is set; BACKWARD by default.
	Compatibility string
	// ModeFixed refuses changes of modes.
	ModeFixed bool
	// Formats are the languages of schemas; Avro, JSON Schema and Protobuf by default.
	Formats map[schema.Type]schema.Format
	Limits  Limits

	Logger     *slog.Logger          // discarded by default
	Now        func() time.Time      // time.Now by default
	Rand       *rand.Rand            // a seed of its own by default
	Registerer prometheus.Registerer // nil: no metrics
}

// Limits bound what the Registry takes and keeps. Zero values take the defaults.
type Limits struct {
	RecordBytes    int           // of one record of the log; 1,000,000
	References     int           // that one schema has, directly or not; 1000
	ReferenceDepth int           // of references that have references; 100
	ParsedBytes    int           // texts of the schemas that are kept in parsed form; 8 MiB
	FreshWait      time.Duration // a read's wait for the log's end before it answers from memory; 2 s
	WriteWait      time.Duration // a write's wait for its outcome, where the request has no sooner deadline; 30 s
}

// Registry is the schema registry of one node. It is safe for concurrent use.
type Registry struct {
	cfg Config
}

// New makes a Registry. It does no I/O; Run reads the log.
func New(cfg Config) (*Registry, error) {
	if cfg.Client == nil {
		return nil, errors.New("schemaregistry: Config needs a Client")
	}
	return &Registry{cfg: cfg}, nil
}

// Run reads the log until ctx ends, and returns nil then. It goes on after errors.
func (r *Registry) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Topic names the log.
func (r *Registry) Topic() string { return r.cfg.Topic }

// Ready says why the registry cannot answer, nil if it can.
func (r *Registry) Ready() error { return nil }

// Offset is where the log is read up to.
func (r *Registry) Offset() int64 { return 0 }

// Fresh waits until all that was written before is read.
func (r *Registry) Fresh(context.Context) error { return errNotBuilt }
