package store

import "context"

// Status is what is said of a connector or a task.
type Status struct {
	State      string // RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING
	Trace      string
	WorkerID   string
	Generation int64
}

// PutConnectorStatus says what a connector is. A safe put does nothing if another worker has said something in the same
// or a later generation.
func (s *Store) PutConnectorStatus(ctx context.Context, name string, st Status, safe bool) error {
	return errUnfinished
}

// PutTaskStatus says what a task is, by the rules of PutConnectorStatus.
func (s *Store) PutTaskStatus(ctx context.Context, name string, task int, st Status, safe bool) error {
	return errUnfinished
}

// ConnectorStatus is what was said of a connector last.
func (s *Store) ConnectorStatus(name string) (Status, bool) { return Status{}, false }

// TaskStatuses are what was said of the tasks of a connector last, by their numbers.
func (s *Store) TaskStatuses(name string) map[int]Status { return nil }

// ForgetStatus forgets what was said of a connector and its tasks, and which topics it uses.
func (s *Store) ForgetStatus(ctx context.Context, name string) error { return errUnfinished }

// ForgetTaskStatus forgets what was said of the tasks of a connector from a number on.
func (s *Store) ForgetTaskStatus(ctx context.Context, name string, from int) error { return errUnfinished }

// AddTopic notes that a connector uses a topic. What is known is not written again.
func (s *Store) AddTopic(ctx context.Context, connector, topic string, task int) error { return errUnfinished }

// Topics are the topics that a connector has used since it was made or reset, by name.
func (s *Store) Topics(connector string) []string { return nil }

// ResetTopics forgets which topics a connector has used.
func (s *Store) ResetTopics(ctx context.Context, connector string) error { return errUnfinished }
