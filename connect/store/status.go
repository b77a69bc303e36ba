package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millrace/client/statetopic"
)

// Status is what is said of a connector or a task.
type Status struct {
	State      string // RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING
	Trace      string
	WorkerID   string
	Generation int64
}

// The states that decide which of two statuses holds.
const (
	stateRunning    = "RUNNING"
	stateUnassigned = "UNASSIGNED"
)

// The records of the status topic. Keys are text, values JSON without a schema, null where nothing is to be said:
//
//	status-connector-<c>               {"state":S,"trace":T,"worker_id":W,"generation":N}
//	status-task-<c>-<n>                likewise
//	status-topic-<t>:connector-<c>     {"topic":{"name":T,"connector":C,"task":N,"discoverTimestamp":MS}}
const (
	connectorStatusPrefix = "status-connector-"
	taskStatusPrefix      = "status-task-"
	topicStatusPrefix     = "status-topic-"
	topicStatusInfix      = ":connector-"
)

func connectorStatusKey(name string) string { return connectorStatusPrefix + name }

func taskStatusKey(name string, task int) string {
	return taskStatusPrefix + name + "-" + strconv.Itoa(task)
}

func topicStatusKey(connector, topic string) string {
	return topicStatusPrefix + topic + topicStatusInfix + connector
}

// statusValue is the value of a status.
type statusValue struct {
	State      string  `json:"state"`
	Trace      *string `json:"trace"`
	WorkerID   string  `json:"worker_id"`
	Generation int64   `json:"generation"`
}

func (st *Status) value() []byte {
	v := statusValue{State: st.State, WorkerID: st.WorkerID, Generation: st.Generation}
	if st.Trace != "" {
		v.Trace = &st.Trace
	}
	return encode(v)
}

func readStatus(value []byte) (st Status, err error) {
	var v statusValue
	if err := json.Unmarshal(value, &v); err != nil {
		return st, fmt.Errorf("value: %w", err)
	}
	if v.State == "" {
		return st, errors.New("the value lacks a state")
	}
	st = Status{State: v.State, WorkerID: v.WorkerID, Generation: v.Generation}
	if v.Trace != nil {
		st.Trace = *v.Trace
	}
	return st, nil
}

// topicUse is the value of a topic that a connector uses.
type topicUse struct {
	Topic struct {
		Name       string `json:"name"`
		Connector  string `json:"connector"`
		Task       int    `json:"task"`
		Discovered int64  `json:"discoverTimestamp"`
	} `json:"topic"`
}

// statusFold is what the records of the status topic add up to.
type statusFold struct {
	skip skip

	mu    sync.RWMutex
	names map[string]*statusEntry // by connector; guarded by mu
}

// statusEntry is what is said of one connector.
type statusEntry struct {
	connector *Status
	tasks     map[int]Status
	topics    map[string]struct{}
}

func newStatusFold(skip skip) *statusFold {
	return &statusFold{skip: skip, names: map[string]*statusEntry{}}
}

func (f *statusFold) settle() {}

// take implements fold.
func (f *statusFold) take(records []statetopic.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range records {
		r := &records[i]
		if err := f.applyLocked(string(r.Key), r.Value); err != nil {
			f.skip("a status record", r.Partition, r.Offset, err)
		}
	}
}

// applyLocked takes in one record; keys that are not known mean nothing.
func (f *statusFold) applyLocked(key string, value []byte) error {
	if name, ok := strings.CutPrefix(key, connectorStatusPrefix); ok {
		return f.putLocked(name, value, func(e *statusEntry) (Status, bool) {
			if e.connector == nil {
				return Status{}, false
			}
			return *e.connector, true
		}, func(e *statusEntry, st *Status) { e.connector = st })
	}
	if rest, ok := strings.CutPrefix(key, taskStatusPrefix); ok {
		name, task, ok := cutTask(rest)
		if !ok {
			return errors.New("the key lacks the number of a task")
		}
		return f.putLocked(name, value, func(e *statusEntry) (Status, bool) {
			st, ok := e.tasks[task]
			return st, ok
		}, func(e *statusEntry, st *Status) {
			if st == nil {
				delete(e.tasks, task)
			} else {
				e.tasks[task] = *st
			}
		})
	}
	if rest, ok := strings.CutPrefix(key, topicStatusPrefix); ok {
		topic, name, ok := strings.Cut(rest, topicStatusInfix)
		if !ok {
			return errors.New("the key lacks a connector")
		}
		e := f.entryLocked(name)
		if e.topics[topic] = struct{}{}; value == nil {
			delete(e.topics, topic)
		}
		f.dropLocked(name, e)
	}
	return nil
}

// putLocked takes in a status, by how to read and write it. That something is assigned to nobody does not count where
// another worker says that it runs, and is not of an earlier generation: who lost it was slow to say so.
func (f *statusFold) putLocked(name string, value []byte, get func(*statusEntry) (Status, bool),
	set func(*statusEntry, *Status),
) error {
	var st *Status
	if value != nil {
		read, err := readStatus(value)
		if err != nil {
			return err
		}
		st = &read
	}
	e := f.entryLocked(name)
	defer f.dropLocked(name, e)
	if was, ok := get(e); ok && st != nil && st.State == stateUnassigned && was.State == stateRunning {
		if st.Generation < was.Generation || st.Generation == was.Generation && st.WorkerID != was.WorkerID {
			return nil
		}
	}
	set(e, st)
	return nil
}

func (f *statusFold) entryLocked(name string) *statusEntry {
	e := f.names[name]
	if e == nil {
		e = &statusEntry{tasks: map[int]Status{}, topics: map[string]struct{}{}}
		f.names[name] = e
	}
	return e
}

// dropLocked lets go of an entry that says nothing.
func (f *statusFold) dropLocked(name string, e *statusEntry) {
	if e.connector == nil && len(e.tasks) == 0 && len(e.topics) == 0 {
		delete(f.names, name)
	}
}

// look calls see with what is said of a connector, if anything is.
func (f *statusFold) look(name string, see func(e *statusEntry)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if e := f.names[name]; e != nil {
		see(e)
	}
}

// ConnectorStatus is what was said of a connector last.
func (s *Store) ConnectorStatus(name string) (st Status, ok bool) {
	s.statusNow.Load().look(name, func(e *statusEntry) {
		if e.connector != nil {
			st, ok = *e.connector, true
		}
	})
	return st, ok
}

// TaskStatuses are what was said of the tasks of a connector last, by their numbers.
func (s *Store) TaskStatuses(name string) (out map[int]Status) {
	s.statusNow.Load().look(name, func(e *statusEntry) { out = maps.Clone(e.tasks) })
	return out
}

func (s *Store) taskStatus(name string, task int) (st Status, ok bool) {
	s.statusNow.Load().look(name, func(e *statusEntry) { st, ok = e.tasks[task] })
	return st, ok
}

// Topics are the topics that a connector has used since it was made or reset, by name.
func (s *Store) Topics(connector string) (out []string) {
	s.statusNow.Load().look(connector, func(e *statusEntry) { out = slices.Sorted(maps.Keys(e.topics)) })
	return out
}

// PutConnectorStatus says what a connector is. A safe put does nothing if another worker has said something in the same
// or a later generation.
func (s *Store) PutConnectorStatus(ctx context.Context, name string, st Status, safe bool) error {
	if was, ok := s.ConnectorStatus(name); safe && ok && was.outranks(&st) {
		return nil
	}
	return s.put(ctx, outRecord{connectorStatusKey(name), st.value()})
}

// PutTaskStatus says what a task is, by the rules of PutConnectorStatus.
func (s *Store) PutTaskStatus(ctx context.Context, name string, task int, st Status, safe bool) error {
	if was, ok := s.taskStatus(name, task); safe && ok && was.outranks(&st) {
		return nil
	}
	return s.put(ctx, outRecord{taskStatusKey(name, task), st.value()})
}

// outranks says whether a status is not to be replaced safely by another.
func (st *Status) outranks(o *Status) bool {
	return st.WorkerID != o.WorkerID && st.Generation >= o.Generation
}

// ForgetStatus forgets what was said of a connector and its tasks, and which topics it uses.
func (s *Store) ForgetStatus(ctx context.Context, name string) error {
	var gone []outRecord
	s.statusNow.Load().look(name, func(e *statusEntry) {
		if e.connector != nil {
			gone = append(gone, outRecord{key: connectorStatusKey(name)})
		}
		for task := range e.tasks {
			gone = append(gone, outRecord{key: taskStatusKey(name, task)})
		}
		for topic := range e.topics {
			gone = append(gone, outRecord{key: topicStatusKey(name, topic)})
		}
	})
	return s.put(ctx, gone...)
}

// ForgetTaskStatus forgets what was said of the tasks of a connector from a number on.
func (s *Store) ForgetTaskStatus(ctx context.Context, name string, from int) error {
	var gone []outRecord
	for task := range s.TaskStatuses(name) {
		if task >= from {
			gone = append(gone, outRecord{key: taskStatusKey(name, task)})
		}
	}
	return s.put(ctx, gone...)
}

// AddTopics notes that a connector uses topics. What is known is not written again.
func (s *Store) AddTopics(ctx context.Context, connector string, task int, topics ...string) error {
	topics = slices.Clone(topics)
	s.statusNow.Load().look(connector, func(e *statusEntry) {
		topics = slices.DeleteFunc(topics, func(topic string) bool {
			_, known := e.topics[topic]
			return known
		})
	})
	records := make([]outRecord, len(topics))
	for i, topic := range topics {
		var use topicUse
		use.Topic.Name, use.Topic.Connector, use.Topic.Task = topic, connector, task
		use.Topic.Discovered = s.opts.Now().UnixMilli()
		records[i] = outRecord{topicStatusKey(connector, topic), encode(use)}
	}
	return s.put(ctx, records...)
}

// ResetTopics forgets which topics a connector has used.
func (s *Store) ResetTopics(ctx context.Context, connector string) error {
	var gone []outRecord
	for _, topic := range s.Topics(connector) {
		gone = append(gone, outRecord{key: topicStatusKey(connector, topic)})
	}
	return s.put(ctx, gone...)
}
