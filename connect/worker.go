package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/provider"
	"millrace/connect/store"
	"millrace/connect/task"
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
	ScratchDir string
	// AwaitTopic waits until a topic exists, at little cost; nil: the cluster is asked now and then.
	AwaitTopic func(ctx context.Context, topic string) error
	// Gone says which nodes are out of service, and gives a channel that is closed when that may have changed; nil: a
	// worker that is gone is noticed by the end of its session alone.
	Gone        func() (nodes []int32, changed <-chan struct{})
	Environment func(name string) (string, bool) // of the process; nil: nothing is in it
	Logger      *slog.Logger
	Loggers     *Loggers // of which the parts of the worker have one each; nil: all have Logger
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
	// providers resolve the references of configs.
	providers *provider.Providers
	store     *store.Store
	herd      *herd
	waiting   atomic.Pointer[error] // what the worker waits for; nil: it is ready
	checks    chan struct{}         // has an element for each look at the outside that is under way
}

// New makes a Worker. It does no I/O.
func New(cfg Config) (_ *Worker, err error) {
	if cfg.Client == nil || cfg.Requests == nil {
		return nil, errors.New("a worker needs a client and a requestor")
	}
	if cfg.Settings.HeartbeatInterval*2 > cfg.Settings.SessionTimeout {
		return nil, fmt.Errorf("the heartbeat interval %s must be at most half of the session time %s",
			cfg.Settings.HeartbeatInterval, cfg.Settings.SessionTimeout)
	}
	if cfg.Logger == nil && cfg.Loggers != nil {
		cfg.Logger = cfg.Loggers.Logger("connect")
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
	w := &Worker{cfg: cfg, log: cfg.Logger, catalog: newCatalog(cfg.Classes), checks: make(chan struct{}, mostChecks)}
	w.setWaiting(errStarting)
	s := cfg.Settings
	w.store, err = store.New(store.Options{
		Client: cfg.Client, ConfigTopic: s.ConfigTopic, OffsetTopic: s.OffsetTopic, StatusTopic: s.StatusTopic,
		OffsetPartitions: s.OffsetPartitions, StatusPartitions: s.StatusPartitions, Replication: s.Replication,
		Logger: w.logger("store"), Now: cfg.Now, Rand: w.fork(), Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	w.providers, err = provider.New(provider.Options{
		Paths: s.FilePaths, EnvAllow: s.EnvAllow, Environment: cfg.Environment,
	})
	if err != nil {
		return nil, err
	}
	if w.herd, err = w.newHerd(); err != nil {
		return nil, err
	}
	return w, nil
}

// newHerd makes what runs the connectors.
func (w *Worker) newHerd() (*herd, error) {
	s := w.cfg.Settings
	runner, err := task.New(task.Options{
		Client: w.cfg.Client, Requests: w.cfg.Requests, Store: w.store, Schemas: w.cfg.Schemas, Serde: w.cfg.Serde,
		GroupID: s.GroupID, FlushInterval: s.OffsetFlushInterval, NoTopicCreation: !s.TopicCreation,
		NoTopicTracking: !s.TopicTracking, Internal: []string{s.ConfigTopic, s.OffsetTopic, s.StatusTopic},
		Defaults: task.Converters{
			Key: s.KeyConverter, Value: s.ValueConverter, Header: s.HeaderConverter,
			KeyProps: s.KeyConverterProps, ValueProps: s.ValueConverterProps, HeaderProps: s.HeaderConverterProps,
		},
		ScratchDir: w.cfg.ScratchDir, ClientHost: w.cfg.WorkerID, Logger: w.logger("task"), Now: w.cfg.Now, Rand: w.fork(),
		Registerer: w.cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	h := &herd{
		settings: s, workerID: w.cfg.WorkerID, node: w.cfg.NodeID, gone: w.cfg.Gone, store: w.store, runner: runner,
		providers: w.providers, class: w.Class, hidden: w.hidden, log: w.logger("herd"),
		statuses: newStatuses(w.store, w.log),
		events:   make(chan func()), ended: make(chan struct{}), rand: w.fork(), asked: -1, workOffset: -1,
		units: make(map[workID]*unit), since: make(map[workID]int32), requests: make(map[string]requested),
	}
	h.metrics = newMetrics(w.cfg.Registerer, h)
	m := newMembership(s, w.cfg.Requests, w.logger("group"), w.fork())
	m.claim, m.divide, m.joins, m.assigned, m.lost = h.claim, h.divide, h.metrics.joining, h.assigned, h.lost
	h.member = m
	return h, nil
}

// fork seeds the chance of one part.
func (w *Worker) fork() *rand.Rand {
	return rand.New(rand.NewPCG(w.cfg.Rand.Uint64(), w.cfg.Rand.Uint64()))
}

// ErrKilled is the cause of the end of Run's context with which nothing is handed over.
var ErrKilled = errors.New("the worker is killed")

var (
	errStarting = errors.New("the worker is starting")
	errReading  = errors.New("the worker reads the configs of connectors")
)

// farewell bounds how long the last statuses are written for.
const farewell = 2 * time.Second

// Run does all that a worker does until ctx ends. Then it stops its tasks in order, leaves the group, and returns. It
// is called once. As long as there is no topic of configs the worker is ready, and only waits for it.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.clearScratch(); err != nil {
		w.log.Warn("files of earlier tasks could not be removed", "err", err)
	}
	// What the rest needs ends last.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	var below sync.WaitGroup
	defer below.Wait()
	defer end()
	below.Go(func() { _ = w.store.Run(base) }) // it ends with base
	w.setWaiting(errReading)
	if w.store.AwaitRead(ctx) != nil {
		return nil
	}
	w.setWaiting(nil)
	if w.awaitTopic(ctx) != nil {
		return nil
	}
	below.Go(func() { w.herd.statuses.run(base) })
	below.Go(func() { w.followLoggers(base) })
	killed := func() bool { return errors.Is(context.Cause(ctx), ErrKilled) }
	membership, leave := context.WithCancel(base)
	var group sync.WaitGroup
	group.Go(func() { w.herd.member.run(membership, func() bool { return !killed() }) })
	w.herd.run(ctx)
	if !killed() {
		last, cancel := context.WithTimeout(base, farewell)
		w.herd.statuses.flush(last)
		cancel()
	}
	leave()
	group.Wait()
	return nil
}

// awaitTopic waits until there is a topic of configs.
func (w *Worker) awaitTopic(ctx context.Context) error {
	if w.cfg.AwaitTopic != nil {
		return w.cfg.AwaitTopic(ctx, w.cfg.Settings.ConfigTopic)
	}
	for ctx.Err() == nil {
		if _, err := w.cfg.Client.Topic(ctx, w.cfg.Settings.ConfigTopic, client.Refuse); err == nil {
			return nil
		}
		wait(ctx, topicPause)
	}
	return context.Cause(ctx)
}

// topicPause is how often a cluster is asked for the topic of configs that does not tell.
const topicPause = 2 * time.Second

// clearScratch makes the folder for files of tasks, with nothing in it.
func (w *Worker) clearScratch() error {
	if w.cfg.ScratchDir == "" {
		return nil
	}
	return os.RemoveAll(w.cfg.ScratchDir) // tasks make it when they need it
}

func (w *Worker) setWaiting(why error) {
	if why == nil {
		w.waiting.Store(nil)
		return
	}
	w.waiting.Store(&why)
}

// Ready says why the worker cannot serve requests, or nil.
func (w *Worker) Ready() error {
	if why := w.waiting.Load(); why != nil {
		return *why
	}
	return nil
}
