package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
)

// Options are what a Store needs. Client must be there; all else has a default.
type Options struct {
	Client *client.Client
	// ConfigTopic, OffsetTopic and StatusTopic are the names of the topics: connect-configs, connect-offsets and
	// connect-status by default.
	ConfigTopic, OffsetTopic, StatusTopic string
	// OffsetPartitions and StatusPartitions are how many partitions these topics are made with, 25 and 5 by default.
	OffsetPartitions, StatusPartitions int32
	// Replication is how many replicas the topics are made with; -1 or 0 is three, or as many as there are brokers.
	Replication int16
	Logger      *slog.Logger
	Now         func() time.Time // the wall clock
	Registerer  prometheus.Registerer
}

// Store is the shared state of connectors, as far as it is read. It is safe for concurrent use.
type Store struct {
	opts Options
}

var errUnfinished = errors.New("the store does nothing yet")

// New returns a Store. It does no I/O; Run does.
func New(o Options) (*Store, error) {
	return &Store{opts: o}, nil
}

// Run reads the topics until ctx ends, and returns nil then. It goes on after errors.
func (s *Store) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// AwaitRead waits until all of the topics was read once.
func (s *Store) AwaitRead(ctx context.Context) error { return errUnfinished }

// Fresh waits until all configs and status that were acknowledged before it was called are read. All who wait share one
// question to the cluster.
func (s *Store) Fresh(ctx context.Context) error { return errUnfinished }
