package connect

import (
	"context"
	"errors"
	"maps"
	"slices"

	"millrace/connect/plugin"
	"millrace/connect/store"
)

// TaskID names a task.
type TaskID struct {
	Connector string `json:"connector"`
	Task      int    `json:"task"`
}

// ConnectorInfo is what a connector is by its config. Passwords in it are masked, unless the worker reveals them.
type ConnectorInfo struct {
	Name   string            `json:"name"`
	Config map[string]string `json:"config"`
	Tasks  []TaskID          `json:"tasks"`
	Type   string            `json:"type"` // source, sink or unknown
}

// TaskInfo is what a task is by its config, masked likewise.
type TaskInfo struct {
	ID     TaskID            `json:"id"`
	Config map[string]string `json:"config"`
}

// ConnectorState is what the worker that has a connector says of it.
type ConnectorState struct {
	State    string `json:"state"`
	WorkerID string `json:"worker_id"`
	Trace    string `json:"trace,omitempty"`
}

// TaskState is what the worker that has a task says of it.
type TaskState struct {
	ID int `json:"id"`
	ConnectorState
}

// ConnectorStatus is how it stands with a connector and its tasks.
type ConnectorStatus struct {
	Name      string         `json:"name"`
	Connector ConnectorState `json:"connector"`
	Tasks     []TaskState    `json:"tasks"`
	Type      string         `json:"type"`
}

// Described is a connector in a list.
type Described struct {
	Info   *ConnectorInfo
	Status *ConnectorStatus
}

// unknownType is the type of a connector of a class that there is not.
const unknownType = "unknown"

// fresh reads all that was acknowledged before, through whichever node.
func (w *Worker) fresh(ctx context.Context) (*store.Configs, error) {
	if err := w.store.Fresh(ctx); err != nil {
		return nil, storeFault(err)
	}
	return w.store.Configs(), nil
}

// connector is a connector as it is now.
func (w *Worker) connector(ctx context.Context, name string) (*store.Connector, error) {
	all, err := w.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return known(all, name)
}

// known is a connector that must be there.
func known(all *store.Configs, name string) (*store.Connector, error) {
	if c := all.Connectors[name]; c != nil {
		return c, nil
	}
	return nil, refuse(notFound, "There is no connector %.300q.", name)
}

// update changes the configs.
func (w *Worker) update(ctx context.Context, decide func(*store.Configs) ([]store.Change, error)) (
	*store.Configs, error,
) {
	all, err := w.store.Update(ctx, decide)
	if err != nil {
		return nil, storeFault(err)
	}
	return all, nil
}

// storeFault is an error of the store, or of a decision, as an Error.
func storeFault(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var of *store.Error
	status := unavailable
	if errors.As(err, &of) && of.Refused {
		status = badRequest
	}
	if of == nil {
		text := "The configs of connectors cannot be read or written: " + err.Error() + "."
		return &Error{Status: status, Message: text, Cause: err}
	}
	return &Error{Status: status, Message: of.Message + ".", Cause: err}
}

// Connectors lists the names of all connectors, sorted.
func (w *Worker) Connectors(ctx context.Context) ([]string, error) {
	all, err := w.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(all.Connectors)), nil
}

// Describe describes all connectors, by name.
func (w *Worker) Describe(ctx context.Context) (map[string]Described, error) {
	all, err := w.fresh(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Described, len(all.Connectors))
	for name, c := range all.Connectors {
		out[name] = Described{Info: w.info(c), Status: w.status(c)}
	}
	return out, nil
}

// Info tells what a connector is.
func (w *Worker) Info(ctx context.Context, name string) (*ConnectorInfo, error) {
	c, err := w.connector(ctx, name)
	if err != nil {
		return nil, err
	}
	return w.info(c), nil
}

// Status tells how it stands with a connector.
func (w *Worker) Status(ctx context.Context, name string) (*ConnectorStatus, error) {
	c, err := w.connector(ctx, name)
	if err != nil {
		return nil, err
	}
	return w.status(c), nil
}

// TaskStatus tells how it stands with a task.
func (w *Worker) TaskStatus(ctx context.Context, name string, task int) (*TaskState, error) {
	c, err := w.connector(ctx, name)
	if err == nil {
		err = knownTask(c, task)
	}
	if err != nil {
		return nil, err
	}
	return &w.status(c).Tasks[task], nil
}

func knownTask(c *store.Connector, task int) error {
	if task < 0 || task >= len(c.Tasks) {
		return refuse(notFound, "The connector %.300q has no task %d.", c.Name, task)
	}
	return nil
}

// Tasks tells what the tasks of a connector are.
func (w *Worker) Tasks(ctx context.Context, name string) ([]TaskInfo, error) {
	c, err := w.connector(ctx, name)
	if err != nil {
		return nil, err
	}
	out := make([]TaskInfo, len(c.Tasks))
	for i, own := range c.Tasks {
		out[i] = TaskInfo{ID: TaskID{name, i}, Config: w.masked(merge(c.Props, own))}
	}
	return out, nil
}

// Topics lists the topics that a connector has used since it was made, or since ResetTopics; none of one that is not
// there.
func (w *Worker) Topics(ctx context.Context, name string) ([]string, error) {
	if !w.cfg.Settings.TopicTracking {
		return nil, refuse(forbidden, "Which topics connectors use is not tracked, by the settings of the cluster.")
	}
	if _, err := w.fresh(ctx); err != nil {
		return nil, err
	}
	return list(w.store.Topics(name)), nil
}

// ResetTopics forgets which topics a connector has used.
func (w *Worker) ResetTopics(ctx context.Context, name string) error {
	if s := &w.cfg.Settings; !s.TopicTracking || !s.TopicTrackingReset {
		return refuse(forbidden, "Which topics a connector has used may not be reset, by the settings of the cluster.")
	}
	if _, err := w.fresh(ctx); err != nil {
		return err
	}
	if err := w.store.ResetTopics(ctx, name); err != nil {
		return storeFault(err)
	}
	return nil
}

// SetLogger sets the level of a logger on all nodes, soon.
func (w *Worker) SetLogger(ctx context.Context, name, level string) error {
	at, err := parseLevel(level)
	if err == nil {
		err = checkLogger(name)
	}
	if err != nil {
		return err
	}
	_, err = w.update(ctx, func(now *store.Configs) ([]store.Change, error) {
		if _, known := now.Loggers[name]; !known && len(now.Loggers) >= mostLoggers {
			return nil, refuse(badRequest, "The levels of %d loggers are set already, which is the most.", mostLoggers)
		}
		return []store.Change{store.SetLogger(name, levelName(at))}, nil
	})
	return err
}

// typeOf is the type of a connector by its config.
func (w *Worker) typeOf(props map[string]string) string {
	class, err := w.Class(props[classKey])
	if err != nil {
		return unknownType
	}
	return string(class.Kind)
}

// isSource says whether a connector is a source; an unknown one is none.
func (w *Worker) isSource(c *store.Connector) bool {
	return w.typeOf(c.Props) == string(plugin.SourceKind)
}

func (w *Worker) info(c *store.Connector) *ConnectorInfo {
	out := &ConnectorInfo{Name: c.Name, Config: w.masked(c.Props), Type: w.typeOf(c.Props)}
	out.Tasks = make([]TaskID, len(c.Tasks))
	for i := range out.Tasks {
		out.Tasks[i] = TaskID{c.Name, i}
	}
	return out
}

func (w *Worker) status(c *store.Connector) *ConnectorStatus {
	st, ok := w.store.ConnectorStatus(c.Name)
	out := &ConnectorStatus{Name: c.Name, Connector: stateOf(st, ok), Type: w.typeOf(c.Props)}
	tasks := w.store.TaskStatuses(c.Name)
	out.Tasks = make([]TaskState, len(c.Tasks))
	for i := range out.Tasks {
		st, ok := tasks[i]
		out.Tasks[i] = TaskState{i, stateOf(st, ok)}
	}
	return out
}

// stateOf is a status as it is told. What nobody has said anything of, nobody has taken up yet.
func stateOf(st store.Status, ok bool) ConnectorState {
	if !ok {
		return ConnectorState{State: stateUnassigned}
	}
	return ConnectorState{State: st.State, WorkerID: st.WorkerID, Trace: st.Trace}
}
