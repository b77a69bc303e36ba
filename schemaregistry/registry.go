package schemaregistry

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
	"millrace/client/statetopic"
	"millrace/schemaregistry/schema"
)

// DefaultTopic is the log where none is named.
const DefaultTopic = "_schemas"

// Config is what a Registry is made of. Client is required.
type Config struct {
	Client *client.Client
	// Topic is the log; DefaultTopic by default.
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

	// Flaws are faults planted on purpose, a test hook.
	Flaws Flaws
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
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	parsed  *parseCache
	heavies heavies
	tail    *statetopic.Tail // of the log

	writing chan struct{} // holds one token while a write is under way

	mu    sync.RWMutex
	state *state            // guarded by mu; never nil
	at    *statetopic.Place // what state is; guarded by mu
}

// New makes a Registry. It does no I/O; Run reads the log.
func New(cfg Config) (*Registry, error) {
	if cfg.Client == nil {
		return nil, errors.New("schemaregistry: Config needs a Client")
	}
	cfg.setDefaults()
	if !validLevel(cfg.Compatibility) {
		return nil, fmt.Errorf("schemaregistry: %q is no compatibility level", cfg.Compatibility)
	}
	r := &Registry{
		cfg: cfg, log: cfg.Logger, parsed: newParseCache(cfg.Limits.ParsedBytes),
		heavies: newHeavies(), writing: make(chan struct{}, 1), state: newState(), at: &statetopic.Place{},
	}
	r.tail = statetopic.New(statetopic.Options{
		Client: cfg.Client, Topic: cfg.Topic, What: "the log of schemas", Fold: &folding{r: r}, Skip: r.skip,
		Logger: cfg.Logger, Rand: cfg.Rand, FreshWait: cfg.Limits.FreshWait, FirstOnly: true,
		Flaws: statetopic.Flaws{AnyOffset: cfg.Flaws.AnyOffset, Early: cfg.Flaws.Early},
	})
	r.metrics = newMetrics(cfg.Registerer, r)
	return r, nil
}

func (c *Config) setDefaults() {
	if c.Topic == "" {
		c.Topic = DefaultTopic
	}
	if c.Compatibility == "" {
		c.Compatibility = Backward
	}
	c.Compatibility = strings.ToUpper(c.Compatibility)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.Formats == nil {
		c.Formats = formats()
	}
	l := &c.Limits
	for _, p := range []struct {
		v *int
		d int
	}{{&l.RecordBytes, 1_000_000}, {&l.References, 1000}, {&l.ReferenceDepth, 100}, {&l.ParsedBytes, 8 << 20}} {
		if *p.v == 0 {
			*p.v = p.d
		}
	}
	if l.FreshWait == 0 {
		l.FreshWait = 2 * time.Second
	}
	if l.WriteWait == 0 {
		l.WriteWait = 30 * time.Second
	}
}

// Topic names the log.
func (r *Registry) Topic() string { return r.cfg.Topic }

// Offset is where the log is read up to.
func (r *Registry) Offset() int64 { return r.tail.At().Offset() }

// The bounds of Ready.
const (
	readyLag     = 1000             // records that may not be read yet
	readySilence = 30 * time.Second // since the log was heard of
)

// Ready says why the registry cannot answer, nil if it can. It is cheap.
func (r *Registry) Ready() error {
	lag, heard := r.tail.Heard()
	silence := time.Since(heard)
	switch {
	case !r.tail.Loaded():
		return fmt.Errorf("the schema registry is still reading %s", r.cfg.Topic)
	case silence > readySilence:
		return fmt.Errorf("the schema registry has not heard of %s for %v", r.cfg.Topic, silence.Round(time.Second))
	case lag > readyLag:
		return fmt.Errorf("the schema registry has not read the last %d records of %s", lag, r.cfg.Topic)
	}
	return nil
}

// read calls f with the state, which f must not keep or change.
func (r *Registry) read(f func(s *state)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f(r.state)
}
