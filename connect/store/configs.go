package store

import (
	"maps"
	"slices"

	"millrace/client/statetopic"
)

// State is what a connector shall be.
type State string

// The target states.
const (
	Started State = "STARTED"
	Paused  State = "PAUSED"
	Stopped State = "STOPPED"
)

// Configs is all that the config topic says, up to an offset. It never changes, and must not be changed.
type Configs struct {
	Offset     int64 // the next one to read
	Connectors map[string]*Connector
	Loggers    map[string]Logger // by name, of records that came after the start of this node

	place *statetopic.Place // up to which the topic is read
}

// Logger is a level that was set for all nodes.
type Logger struct {
	Level  string
	Offset int64 // of the record
}

// Connector is what the config topic says of one connector.
type Connector struct {
	Name   string
	Props  map[string]string
	Offset int64 // of the record with Props
	Target State
	// Tasks are the settings of its tasks, by number. TasksOffset is that of the record that made them valid, -1 if there
	// was none.
	Tasks       []map[string]string
	TasksOffset int64
	// Inconsistent says that a part of the newest Tasks is missing: they are to be generated anew.
	Inconsistent bool
	// Fenced is for how many tasks earlier producers were fenced, and FencedOffset that of the record which says so: 0
	// and -1 if there was none.
	Fenced       int
	FencedOffset int64
	// Restart is the newest request to restart the connector, nil if none came since the start of this node.
	Restart *Restart
	// TaskRestarts are the offsets of the newest requests to restart a task, by its number.
	TaskRestarts map[int]int64

	restarts []Restart // the newest ones, in their order
	keys     []string  // of all records about it that are not null
}

// Restart is a request to restart a connector.
type Restart struct {
	Offset       int64 // of the request
	IncludeTasks bool
	OnlyFailed   bool
}

// RestartAfter is what all requests behind an offset ask for together: the wider one wins. Its offset is that of the
// newest one. False: there is none.
func (c *Connector) RestartAfter(offset int64) (r Restart, ok bool) {
	for _, next := range c.restarts {
		switch {
		case next.Offset <= offset:
		case !ok:
			r, ok = next, true
		default:
			r = Restart{
				Offset: next.Offset, IncludeTasks: r.IncludeTasks || next.IncludeTasks,
				OnlyFailed: r.OnlyFailed && next.OnlyFailed,
			}
		}
	}
	return r, ok
}

// Configs is what was read so far.
func (s *Store) Configs() *Configs { return s.known.Load() }

// Changed is closed at the next change of Configs. Who wants to miss none asks for it before Configs.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) publishConfigs(f fold, at *statetopic.Place) {
	c := &Configs{Offset: at.Offset(), place: at}
	was := s.known.Load()
	news := f.(*configFold).snapshot(c) || was.place.Topic != at.Topic
	s.known.Store(c)
	if !news {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// maxRestarts is how many requests for a restart are kept of a connector.
const maxRestarts = 16

// configFold is what the records of the config topic add up to.
type configFold struct {
	skip  skip
	names map[string]*entry
	dirty map[string]bool // what the snapshot does not know yet
	// loggers are replaced, not changed, once they are in a snapshot.
	loggers map[string]Logger
	settled bool // what was there at the start is read
	known   map[string]*Connector
	news    bool // something but a connector has changed
}

// entry is all that is known under the name of a connector, whether it exists or not.
type entry struct {
	props        map[string]string // nil: it does not exist
	offset       int64
	target       State
	deferred     map[int]map[string]string // tasks that wait for their commit
	tasks        []map[string]string
	tasksOffset  int64
	inconsistent bool
	fenced       int
	fencedOffset int64
	restarts     []Restart
	taskRestarts map[int]int64
	keys         map[string]struct{}
}

func newConfigFold(skip skip) *configFold {
	return &configFold{
		skip: skip, names: map[string]*entry{}, dirty: map[string]bool{}, known: map[string]*Connector{},
		loggers: map[string]Logger{}, news: true,
	}
}

func (f *configFold) settle() { f.settled = true }

// snapshot fills in what the fold says, and tells whether anything has changed since the last time.
func (f *configFold) snapshot(c *Configs) (news bool) {
	if len(f.dirty) > 0 {
		f.known = maps.Clone(f.known)
		for name := range f.dirty {
			delete(f.known, name)
			if e := f.names[name]; e != nil && e.props != nil {
				f.known[name] = e.connector(name)
			}
		}
	}
	news = f.news || len(f.dirty) > 0
	f.dirty, f.news = map[string]bool{}, false
	c.Connectors, c.Loggers = f.known, f.loggers
	return news
}

func (e *entry) connector(name string) *Connector {
	c := &Connector{
		Name: name, Props: e.props, Offset: e.offset, Target: e.target, TasksOffset: e.tasksOffset,
		Inconsistent: e.inconsistent, Fenced: e.fenced, FencedOffset: e.fencedOffset,
		TaskRestarts: maps.Clone(e.taskRestarts), restarts: slices.Clone(e.restarts),
		keys: slices.Sorted(maps.Keys(e.keys)),
	}
	if c.Target == "" {
		c.Target = Started
	}
	if !e.inconsistent {
		c.Tasks = e.tasks
	}
	if n := len(c.restarts); n > 0 {
		c.Restart = &c.restarts[n-1]
	}
	return c
}

// take implements fold.
func (f *configFold) take(records []statetopic.Record) {
	for i := range records {
		r := &records[i]
		key := readConfigKey(string(r.Key))
		if key.kind == otherKey {
			continue
		}
		if err := f.apply(key, r); err != nil {
			f.skip("a config record", r.Partition, r.Offset, err)
		}
	}
}

func (f *configFold) entry(name string) *entry {
	e := f.names[name]
	if e == nil {
		e = &entry{tasksOffset: -1, fencedOffset: -1, keys: map[string]struct{}{}}
		f.names[name] = e
	}
	return e
}

func (f *configFold) apply(key configKey, r *statetopic.Record) error {
	if key.kind == loggerKey {
		return f.logger(key, r)
	}
	v, err := readConfigValue(key.kind, r.Value)
	if err != nil {
		return err
	}
	e := f.entry(key.name)
	f.dirty[key.name] = true
	if r.Value == nil {
		e.forget(key)
		delete(e.keys, string(r.Key))
		if len(e.keys) == 0 {
			delete(f.names, key.name)
		}
		return nil
	}
	e.keys[string(r.Key)] = struct{}{}
	switch key.kind {
	case connectorKey:
		e.props, e.offset = v.props, r.Offset
	case taskKey:
		if e.deferred == nil {
			e.deferred = map[int]map[string]string{}
		}
		e.deferred[key.task] = v.props
	case commitKey:
		e.commit(v, r.Offset)
	case targetKey:
		e.target = v.state
	case fencedKey:
		e.fenced, e.fencedOffset = v.count, r.Offset
	case restartKey, taskRestartKey:
		if f.settled && e.props != nil {
			e.restart(key, v.restart, r.Offset)
		}
	}
	return nil
}

// forget takes in a null.
func (e *entry) forget(key configKey) {
	switch key.kind {
	case connectorKey:
		e.props, e.tasks, e.tasksOffset, e.inconsistent, e.deferred = nil, nil, -1, false, nil
		e.restarts, e.taskRestarts = nil, nil
	case taskKey:
		delete(e.deferred, key.task)
	case targetKey:
		e.target = ""
	case fencedKey:
		e.fenced, e.fencedOffset = 0, -1
	}
}

// commit makes the tasks that wait valid, if they are all there. Those of a connector that was deleted are of no use:
// what deleted it may have been compacted away.
func (e *entry) commit(v configValue, offset int64) {
	waiting := e.deferred
	e.deferred = nil
	if e.props == nil {
		return
	}
	e.tasks, e.tasksOffset, e.inconsistent = nil, offset, true
	if len(waiting) < v.count {
		return
	}
	tasks := make([]map[string]string, v.count)
	for i := range tasks {
		props, ok := waiting[i]
		if !ok {
			return
		}
		tasks[i] = props
	}
	e.tasks, e.inconsistent = tasks, false
	if v.since != nil && *v.since < offset {
		e.tasksOffset = *v.since
	}
}

func (e *entry) restart(key configKey, r Restart, offset int64) {
	if key.kind == taskRestartKey {
		if e.taskRestarts == nil {
			e.taskRestarts = map[int]int64{}
		}
		if key.task < len(e.tasks) {
			e.taskRestarts[key.task] = offset
		}
		return
	}
	r.Offset = offset
	e.restarts = append(e.restarts, r)
	if n := len(e.restarts); n > maxRestarts {
		e.restarts = slices.Delete(e.restarts, 0, n-maxRestarts)
	}
}

// logger takes in the level of a logger. What was set before the start of this node is of no interest.
func (f *configFold) logger(key configKey, r *statetopic.Record) error {
	if !f.settled {
		return nil
	}
	v, err := readConfigValue(key.kind, r.Value)
	if err != nil {
		return err
	}
	next := maps.Clone(f.loggers)
	if r.Value == nil {
		delete(next, key.name)
	} else {
		next[key.name] = Logger{v.level, r.Offset}
	}
	f.loggers, f.news = next, true
	return nil
}
