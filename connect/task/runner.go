package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// ErrFenced says that the task is run by somebody else as well, who began later. Whoever owns the task all the same
// runs it again.
var ErrFenced = errors.New("another worker runs this task")

// Converters name the converters of connectors that name none, and their settings without a prefix.
type Converters struct {
	Key, Value, Header                string
	KeyProps, ValueProps, HeaderProps map[string]string
}

// Options are what a Runner needs. Client, Requests, which lead to the same cluster, and Store must be there.
type Options struct {
	Client   *client.Client
	Requests kmsg.Requestor
	Store    *store.Store
	Schemas  *schemaregistry.Registry
	Serde    func() *serde.Serde // nil, or gives nil, as long as there is none
	GroupID  string              // of the workers: the beginning of transactional ids
	Defaults Converters
	// FlushInterval is how often a sink is asked what may be committed; 5 s by default.
	FlushInterval time.Duration
	// Session is how long a sink's task may not be heard of before its group goes on without it; 3 s by default.
	Session time.Duration
	// NoTopicCreation leaves it to the cluster whether a topic is made that is not there.
	NoTopicCreation bool
	// NoTopicTracking leaves out to note which topics a connector uses.
	NoTopicTracking bool
	// Internal are the topics of the workers themselves, that no record may be aimed at.
	Internal   []string
	ScratchDir string // a folder for files of tasks; "": tasks that want files fail
	ClientHost string // told to those who look at groups
	Logger     *slog.Logger
	Now        func() time.Time
	Rand       *rand.Rand
	Registerer prometheus.Registerer // nil: nothing is measured
}

// Spec is one task.
type Spec struct {
	Connector string
	ID        int
	Class     *plugin.Class
	Props     map[string]string // of the connector and the task, resolved
	// Target says whether the task is to be paused, and gives a channel that is closed when that may have changed. It is
	// not called after Run has returned; nil: never.
	Target func() (paused bool, changed <-chan struct{})
	// Running is called once, when the task has started; may be nil.
	Running func()
	// Trouble is told what keeps the task from its work while it tries again, and nil when nothing does any more. It must
	// not wait; nil: nobody listens.
	Trouble func(why error)
	// StillOwner asks whether the task is this worker's still; it is called after all others were fenced, before
	// anything is read. An error ends the task; nil: it is.
	StillOwner func(ctx context.Context) error
}

// Runner runs tasks. It is safe for concurrent use.
type Runner struct {
	opts Options

	mu   sync.Mutex
	rand *rand.Rand           // guarded by mu
	live map[string]*registry // guarded by mu: by task, whose metrics are shown
}

// New makes a Runner. It does no I/O.
func New(o Options) (*Runner, error) {
	if o.Client == nil || o.Requests == nil || o.Store == nil || o.GroupID == "" {
		return nil, errors.New("tasks need a client, a requestor, a store and a group")
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = 5 * time.Second
	}
	if o.Session <= 0 {
		o.Session = memberSession
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Runner{opts: o, rand: o.Rand, live: make(map[string]*registry)}, nil
}

// Run runs a task until ctx ends, and returns nil then, or until it fails. It returns when the task is stopped and
// nothing of it runs any more. It may be called again for the same task, also while an earlier call still runs: that
// one is fenced, and returns ErrFenced.
func (r *Runner) Run(ctx context.Context, s Spec) (err error) {
	if s.Class == nil || s.Class.New == nil {
		return errors.New("a task needs a class")
	}
	t, err := r.newRun(s)
	if err != nil {
		return err
	}
	defer t.close()
	defer func() { // what a plugin does must not end the node
		if what := recover(); what != nil {
			err = fmt.Errorf("a plugin panicked: %v\n%s", what, debug.Stack())
		}
	}()
	if s.Class.Kind == plugin.SinkKind {
		err = t.runSink(ctx)
	} else {
		err = t.runSource(ctx)
	}
	if ctx.Err() != nil && !errors.Is(err, ErrFenced) {
		return nil
	}
	return err
}

// fork gives a source of randomness for one task.
func (r *Runner) fork() *rand.Rand {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rand.New(rand.NewPCG(r.rand.Uint64(), r.rand.Uint64()))
}
