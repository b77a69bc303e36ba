package connect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/connect/store"
)

// rootLogger is the name of what is above all loggers.
const rootLogger = "root"

// mostLoggers bounds how many loggers there are.
const mostLoggers = 1000

// loggerNameBytes bounds the name of a logger.
const loggerNameBytes = 200

// LoggerLevel is the level of a logger.
type LoggerLevel struct {
	Level        string `json:"level"`
	LastModified *int64 `json:"last_modified"` // milliseconds since 1970; nil: it is as it was at the start
}

// Loggers are loggers with names, of which each lets pass what its level says. A name is made of parts with dots
// between them; a logger without a level has that of the nearest name above, at last root's. They are safe for
// concurrent use.
type Loggers struct {
	base slog.Handler // takes what passes, whatever its own level
	now  func() time.Time

	state atomic.Pointer[levels]

	mu    sync.Mutex
	names map[string]bool // of loggers that were made or given a level; guarded by mu
}

// levels are the levels that were set. They never change.
type levels struct {
	root slog.Level
	set  map[string]level // root's too, once it was set
}

type level struct {
	at       slog.Level
	modified int64
}

// NewLoggers makes loggers over a handler. Root has the level from which the handler takes records.
func NewLoggers(base slog.Handler, now func() time.Time) *Loggers {
	l := &Loggers{base: base, now: now, names: map[string]bool{}}
	root := slog.Level(math.MaxInt)
	for at := slog.LevelError; at >= levelOf("TRACE"); at -= 4 {
		if base.Enabled(context.Background(), at) {
			root = at
		}
	}
	l.state.Store(&levels{root: root, set: map[string]level{}})
	return l
}

// Logger is the logger of a name.
func (l *Loggers) Logger(name string) *slog.Logger {
	l.mu.Lock()
	l.names[name] = true
	l.mu.Unlock()
	return slog.New(&namedHandler{loggers: l, name: name, Handler: l.base})
}

// namedHandler lets pass what the level of its name says.
type namedHandler struct {
	slog.Handler
	loggers *Loggers
	name    string
}

// Enabled says whether records of a level pass.
func (h *namedHandler) Enabled(_ context.Context, at slog.Level) bool {
	return at >= h.loggers.state.Load().of(h.name).at
}

// WithAttrs is the handler with attributes.
func (h *namedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &namedHandler{Handler: h.Handler.WithAttrs(attrs), loggers: h.loggers, name: h.name}
}

// WithGroup is the handler within a group.
func (h *namedHandler) WithGroup(name string) slog.Handler {
	return &namedHandler{Handler: h.Handler.WithGroup(name), loggers: h.loggers, name: h.name}
}

// of is the level that holds for a name.
func (s *levels) of(name string) level {
	for name != "" && name != rootLogger && len(s.set) > 0 {
		if at, ok := s.set[name]; ok {
			return at
		}
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	if at, ok := s.set[rootLogger]; ok {
		return at
	}
	return level{at: s.root}
}

// Level is the level of a logger that is in use or was given one.
func (l *Loggers) Level(name string) (LoggerLevel, bool) {
	all := l.List()
	at, ok := all[name]
	return at, ok
}

// List is the levels of all loggers that are in use or were given one, by name.
func (l *Loggers) List() map[string]LoggerLevel {
	state := l.state.Load()
	out := map[string]LoggerLevel{}
	for _, name := range l.known() {
		at := state.of(name)
		told := LoggerLevel{Level: levelName(at.at)}
		if at.modified != 0 {
			told.LastModified = &at.modified
		}
		out[name] = told
	}
	return out
}

// known are the names of loggers, sorted.
func (l *Loggers) known() []string {
	l.mu.Lock()
	names := maps.Clone(l.names)
	l.mu.Unlock()
	names[rootLogger] = true
	return slices.Sorted(maps.Keys(names))
}

// Set sets the level of a logger and of all below it, and gives their names.
func (l *Loggers) Set(name, to string) ([]string, error) {
	at, err := parseLevel(to)
	if err != nil {
		return nil, err
	}
	if err := checkLogger(name); err != nil {
		return nil, err
	}
	new := level{at: at, modified: max(l.now().UnixMilli(), 1)}
	for {
		old := l.state.Load()
		next := &levels{root: old.root, set: maps.Clone(old.set)}
		changed := []string{name}
		for _, other := range l.known() {
			if name == rootLogger && other != rootLogger || strings.HasPrefix(other, name+".") {
				changed = append(changed, other)
				delete(next.set, other) // it has the level of the name above from now on
			}
		}
		next.set[name] = new
		if err := l.know(name); err != nil {
			return nil, err
		}
		if l.state.CompareAndSwap(old, next) {
			slices.Sort(changed)
			return changed, nil
		}
	}
}

// know remembers a name, which is in use from now on.
func (l *Loggers) know(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.names) >= mostLoggers && !l.names[name] && name != rootLogger {
		return refuse(badRequest, "There are %d loggers, which is the most.", mostLoggers)
	}
	l.names[name] = true
	return nil
}

func checkLogger(name string) error {
	if name == "" || len(name) > loggerNameBytes {
		return refuse(badRequest, "The name of a logger has 1 to %d bytes.", loggerNameBytes)
	}
	return nil
}

// levelNames are the levels, the quietest first. Those that slog does not name are between or beyond its own.
var levelNames = [...]struct {
	name string
	at   slog.Level
}{
	{"OFF", math.MaxInt}, {"FATAL", slog.LevelError + 4}, {"ERROR", slog.LevelError}, {"WARN", slog.LevelWarn},
	{"INFO", slog.LevelInfo}, {"DEBUG", slog.LevelDebug}, {"TRACE", slog.LevelDebug - 4}, {"ALL", math.MinInt},
}

func levelOf(name string) slog.Level {
	for _, n := range levelNames {
		if n.name == name {
			return n.at
		}
	}
	return slog.LevelInfo
}

// parseLevel reads a level. One that there is not is not found, as Kafka Connect has it.
func parseLevel(name string) (slog.Level, error) {
	for _, n := range levelNames {
		if strings.EqualFold(n.name, name) {
			return n.at, nil
		}
	}
	all := make([]string, len(levelNames))
	for i := range levelNames {
		all[i] = levelNames[i].name
	}
	return 0, refuse(notFound, "There is no level %.40q; there are %s.", name, strings.Join(all, ", "))
}

// levelName is the name of a level: of the loudest one that lets no more pass.
func levelName(at slog.Level) string {
	for _, n := range levelNames {
		if n.at <= at {
			return n.name
		}
	}
	return fmt.Sprint(at)
}

// logger is the logger of a part of the worker.
func (w *Worker) logger(part string) *slog.Logger {
	if w.cfg.Loggers == nil {
		return w.log
	}
	return w.cfg.Loggers.Logger("connect." + part)
}

// followLoggers gives this node's loggers the levels that are set for all nodes, in that order, until ctx ends. What
// this node alone was told in between does not outlast that.
func (w *Worker) followLoggers(ctx context.Context) {
	if w.cfg.Loggers == nil {
		return
	}
	var last map[string]store.Logger
	for ctx.Err() == nil {
		changed := w.store.Changed() // before the look, so that nothing is missed between the two
		now := w.store.Configs().Loggers
		inOrder := func(a, b string) int { return cmp.Compare(now[a].Offset, now[b].Offset) }
		for _, name := range slices.SortedFunc(maps.Keys(now), inOrder) {
			if now[name] == last[name] {
				continue
			}
			if _, err := w.cfg.Loggers.Set(name, now[name].Level); err != nil {
				w.log.Warn("a logger's level cannot be set", "logger", name, "err", err)
			}
		}
		last = now
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
