package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/connect/convert"
	"millrace/connect/plugin"
	"millrace/schemaregistry/serde"
)

// stopLimit bounds what a task does to end in order.
const stopLimit = 4 * time.Second

// run is one run of a task: what sources and sinks have in common.
type run struct {
	*Runner
	spec     Spec
	set      *settings
	chain    *chain
	rand     *rand.Rand
	log      *slog.Logger
	registry *registry
	metrics  *metrics
	dead     *deadLetters
	notes    *notes
	troubles *troubles
	connect  plugin.Connector
	endShow  func() // ends registry

	dirMu sync.Mutex
	dirs  []string // guarded by dirMu: to be removed
}

func (r *Runner) newRun(s Spec) (*run, error) {
	t := &run{Runner: r, spec: s, rand: r.fork()}
	t.log = r.opts.Logger.With("connector", s.Connector, "task", s.ID)
	set, problems := readSettings(s.Class.Kind, s.Connector, s.Props)
	if err := settingsError(problems); err != nil {
		return nil, err
	}
	if slices.Contains(r.opts.Internal, set.deadLetters) {
		return nil, settingsError([]plugin.Problem{{Key: deadLetterName, Message: "topic " + set.deadLetters +
			" is one of the workers themselves"}})
	}
	t.set = set
	deps := convert.Deps{Schemas: r.opts.Schemas, Serde: t.serde(), Logger: t.log}
	var err error
	if t.chain, err = newChain(s.Props, r.opts.Defaults, deps); err != nil {
		return nil, err
	}
	if t.connect = s.Class.New(); t.connect == nil {
		return nil, fmt.Errorf("class %s makes no connector", s.Class.Class)
	}
	t.registry, t.endShow = r.register(s.Connector, s.ID)
	if t.metrics, err = newMetrics(t.registry, s.Class.Kind); err != nil {
		t.endShow()
		return nil, err
	}
	t.chain.retry = &retrier{
		limit: set.retryFor, longest: set.retryDelay, rand: t.rand,
		count: func() { t.metrics.failures.retries.Inc() },
	}
	t.dead = newDeadLetters(t)
	t.troubles = &troubles{tell: s.Trouble}
	t.notes = openNotes(func(ctx context.Context, topics []string) error {
		return r.opts.Store.AddTopics(ctx, s.Connector, s.ID, topics...)
	}, t.log)
	return t, nil
}

func (t *run) serde() *serde.Serde {
	if t.opts.Serde == nil {
		return nil
	}
	return t.opts.Serde()
}

// close ends what the run does beside the task, and takes away what it shows, and its files.
func (t *run) close() {
	t.notes.close()
	t.endShow()
	t.dirMu.Lock()
	dirs := t.dirs
	t.dirs = nil
	t.dirMu.Unlock()
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			t.log.Warn("files of a task could not be removed", "dir", dir, "err", err)
		}
	}
}

// context is what a task may ask.
func (t *run) context() plugin.TaskContext {
	return plugin.TaskContext{
		Connector: t.spec.Connector, Task: t.spec.ID, Logger: t.log, Now: t.opts.Now, Metrics: t.registry, Dir: t.dir,
		Trouble: func(why error) { t.troubles.set(ownWork, why) },
	}
}

// dir makes a folder for files of the task.
func (t *run) dir() (string, error) {
	if t.opts.ScratchDir == "" {
		return "", errors.New("this worker has no folder for files of tasks")
	}
	if err := os.MkdirAll(t.opts.ScratchDir, 0o700); err != nil {
		return "", fmt.Errorf("files of a task: %w", err)
	}
	name := url.PathEscape(t.spec.Connector)
	name = name[:min(len(name), 100)] + "-" + strconv.Itoa(t.spec.ID) + "-"
	dir, err := os.MkdirTemp(filepath.Clean(t.opts.ScratchDir), name)
	if err != nil {
		return "", fmt.Errorf("files of a task: %w", err)
	}
	t.dirMu.Lock()
	defer t.dirMu.Unlock()
	t.dirs = append(t.dirs, dir)
	return dir, nil
}

// paused says whether the task is to be paused; changed is closed when that may be otherwise.
func (t *run) paused() (paused bool, changed <-chan struct{}) {
	if t.spec.Target == nil {
		return false, nil
	}
	return t.spec.Target()
}

// started tells that the task runs.
func (t *run) started() {
	if t.spec.Running != nil {
		t.spec.Running()
	}
}

// stopping is a context for what is to be done while ctx may have ended.
func stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
}

// spend counts and logs a fault. It says whether the record may be passed over.
func (t *run) spend(f *fault, where ...any) bool {
	m := t.metrics.failures
	m.failures.Inc()
	m.last.Set(float64(t.opts.Now().UnixMilli()))
	passed := t.set.tolerant && f.passable()
	if passed {
		m.skipped.Inc()
	} else {
		m.errors.Inc()
	}
	if t.set.log {
		m.logged.Inc()
		attrs := []any{"stage", string(f.stage), "class", f.class, "err", f.err}
		if t.set.logCoords {
			attrs = append(attrs, where...)
		}
		t.log.Error("a record cannot go on", attrs...)
	}
	return passed
}
