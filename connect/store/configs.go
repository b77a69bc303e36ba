package store

import (
	"context"
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
	Loggers    map[string]string // levels by name, of records that came after the start of this node
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
	// Fenced is for how many tasks earlier producers were fenced, 0 if that was never noted, and FencedOffset that of the
	// record that says so, -1 without one.
	Fenced       int
	FencedOffset int64
	// Restart is the newest request to restart the connector, nil if none came since the start of this node.
	Restart *Restart
	// TaskRestarts are the offsets of the newest requests to restart a task, by its number.
	TaskRestarts map[int]int64
}

// Restart is a request to restart a connector.
type Restart struct {
	Offset       int64 // of the request
	IncludeTasks bool
	OnlyFailed   bool
}

// Configs is what was read so far.
func (s *Store) Configs() *Configs { return &Configs{} }

// Changed is closed at the next change of Configs.
func (s *Store) Changed() <-chan struct{} { return nil }

// Update has a change decided against all configs that were acknowledged, and appends it as one batch if nobody has
// written meanwhile; else it is decided anew. An error of decide ends it, as does a decision to change nothing. It
// returns the configs with the change in them.
func (s *Store) Update(ctx context.Context, decide func(*Configs) ([]Change, error)) (*Configs, error) {
	return nil, errUnfinished
}

// Change is one change of the configs.
type Change struct{}

// PutConnector sets the settings of a connector.
func PutConnector(name string, props map[string]string) Change { return Change{} }

// DeleteConnector deletes a connector with all that is known of it but its offsets and status.
func DeleteConnector(name string) Change { return Change{} }

// PutTasks sets the settings of all tasks of a connector.
func PutTasks(name string, props []map[string]string) Change { return Change{} }

// SetTarget sets what a connector shall be.
func SetTarget(name string, state State) Change { return Change{} }

// SetFenced notes for how many tasks earlier producers were fenced.
func SetFenced(name string, tasks int) Change { return Change{} }

// RequestRestart asks for a restart of a connector. The offset of r is of no meaning.
func RequestRestart(name string, r Restart) Change { return Change{} }

// RequestTaskRestart asks for a restart of one task.
func RequestTaskRestart(name string, task int) Change { return Change{} }

// SetLogger sets the level of a logger on all nodes.
func SetLogger(name, level string) Change { return Change{} }
