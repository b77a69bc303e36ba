package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// Config is what a Worker is given.
type Config struct {
	Client   *client.Client
	Requests kmsg.Requestor // for what Client does not do: groups
	Schemas  *schemaregistry.Registry
	Serde    func() *serde.Serde // nil as long as there is none
	Classes  []plugin.Class
	Settings Settings
	NodeID   int32
	WorkerID string // host:port, as it stands in statuses
	// ScratchDir is a folder for files of tasks. What is in it when the worker starts is from an earlier run, and goes.
	ScratchDir  string
	Environment func(name string) (string, bool) // of the process; nil: nothing is in it
	Logger      *slog.Logger
	Now         func() time.Time
	Rand        *rand.Rand
	Registerer  prometheus.Registerer
}

// Settings are the settings of a worker. All workers of a group have the same.
type Settings struct {
	GroupID                               string
	ConfigTopic, OffsetTopic, StatusTopic string
	OffsetPartitions, StatusPartitions    int32
	Replication                           int16 // of the three topics; -1: three, or as many as there are brokers

	// The converters of connectors that name none, and their settings without a prefix.
	KeyConverter, ValueConverter, HeaderConverter                string
	KeyConverterProps, ValueConverterProps, HeaderConverterProps map[string]string

	SessionTimeout      time.Duration
	HeartbeatInterval   time.Duration
	RebalanceTimeout    time.Duration
	OffsetFlushInterval time.Duration
	TaskShutdownTimeout time.Duration // what is not stopped by then is abandoned

	RestartBackoff    time.Duration // before the first restart of what failed; doubled each time
	RestartBackoffMax time.Duration
	RestartHealthy    time.Duration // after which a failure counts as the first again

	OverridePolicy     string // All, None or Principal
	TopicCreation      bool
	TopicTracking      bool
	TopicTrackingReset bool
	RevealSecrets      bool     // passwords are shown in what is read
	FilePaths          []string // below which the file and directory providers may read
	EnvAllow           string   // which variables the environment provider may read, as a regular expression; "": none
}

// DefaultSettings are the settings of a worker that is given none.
func DefaultSettings() Settings {
	return Settings{
		GroupID: "connect-cluster", ConfigTopic: "connect-configs", OffsetTopic: "connect-offsets",
		StatusTopic: "connect-status", OffsetPartitions: 25, StatusPartitions: 5, Replication: -1,
		KeyConverter:    "org.apache.kafka.connect.json.JsonConverter",
		ValueConverter:  "org.apache.kafka.connect.json.JsonConverter",
		HeaderConverter: "org.apache.kafka.connect.storage.SimpleHeaderConverter",
		SessionTimeout:  3 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 10 * time.Second,
		OffsetFlushInterval: 5 * time.Second, TaskShutdownTimeout: 5 * time.Second,
		RestartBackoff: time.Second, RestartBackoffMax: 5 * time.Minute, RestartHealthy: 10 * time.Minute,
		OverridePolicy: "All", TopicCreation: true, TopicTracking: true, TopicTrackingReset: true,
	}
}

// Worker is one member of the group of workers.
type Worker struct {
	cfg     Config
	log     *slog.Logger
	catalog *catalog
}

// New makes a Worker. It does no I/O.
func New(cfg Config) (*Worker, error) {
	if cfg.Client == nil || cfg.Requests == nil {
		return nil, errors.New("a worker needs a client and a requestor")
	}
	if cfg.Settings.HeartbeatInterval*2 > cfg.Settings.SessionTimeout {
		return nil, fmt.Errorf("the heartbeat interval %s must be at most half of the session time %s",
			cfg.Settings.HeartbeatInterval, cfg.Settings.SessionTimeout)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Worker{cfg: cfg, log: cfg.Logger, catalog: newCatalog(cfg.Classes)}, nil
}

// Run does all that a worker does until ctx ends. Then it stops its tasks in order, leaves the group, and returns.
func (w *Worker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Ready says why the worker cannot serve requests, or nil.
func (w *Worker) Ready() error { return nil }
