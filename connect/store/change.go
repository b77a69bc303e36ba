package store

import "slices"

// Change is one change of the configs.
type Change struct {
	kind    keyKind
	name    string
	task    int
	remove  bool
	props   map[string]string
	tasks   []map[string]string
	state   State
	count   int
	restart Restart
	level   string
}

// PutConnector sets the settings of a connector.
func PutConnector(name string, props map[string]string) Change {
	return Change{kind: connectorKey, name: name, props: props}
}

// DeleteConnector deletes a connector with all that is known of it but its offsets and status.
func DeleteConnector(name string) Change { return Change{kind: connectorKey, name: name, remove: true} }

// PutTasks sets the settings of all tasks of a connector.
func PutTasks(name string, props []map[string]string) Change {
	return Change{kind: taskKey, name: name, tasks: props}
}

// SetTarget sets what a connector shall be.
func SetTarget(name string, state State) Change {
	return Change{kind: targetKey, name: name, state: state}
}

// SetFenced notes for how many tasks earlier producers were fenced.
func SetFenced(name string, tasks int) Change {
	return Change{kind: fencedKey, name: name, count: tasks}
}

// RequestRestart asks for a restart of a connector. The offset of r is of no meaning.
func RequestRestart(name string, r Restart) Change {
	return Change{kind: restartKey, name: name, restart: r}
}

// RequestTaskRestart asks for a restart of one task.
func RequestTaskRestart(name string, task int) Change {
	return Change{kind: taskRestartKey, name: name, task: task}
}

// SetLogger sets the level of a logger on all nodes.
func SetLogger(name, level string) Change {
	return Change{kind: loggerKey, name: name, level: level}
}

// outRecord is a record to write. A nil value is a null.
type outRecord struct {
	key   string
	value []byte
}

// records are what changes write, given what is known. Connectors come first: tasks that come before theirs are of one
// that was deleted.
func (c *Configs) records(changes []Change) (out []outRecord) {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b Change) int {
		return int(min(a.kind, connectorKey+1)) - int(min(b.kind, connectorKey+1))
	})
	for i := range changes {
		ch := &changes[i]
		add := func(kind keyKind, task int, value []byte) {
			out = append(out, outRecord{configKey{kind, ch.name, task}.String(), value})
		}
		known := c.Connectors[ch.name]
		switch {
		case ch.kind == connectorKey && ch.remove:
			add(connectorKey, 0, nil)
			add(targetKey, 0, nil)
			out = append(out, known.leftovers()...)
		case ch.kind == connectorKey:
			add(connectorKey, 0, propsValue(ch.props))
			// Once the older record of the connector is compacted away, its tasks would stand before it, and count for
			// nothing.
			if again := known.tasksAgain(); again != nil && !replaced(changes, ch.name) {
				out = append(out, again...)
			}
		case ch.kind == taskKey:
			out = append(out, taskRecords(ch.name, ch.tasks, nil, known)...)
		case ch.kind == targetKey:
			add(targetKey, 0, targetValue(ch.state))
		case ch.kind == fencedKey:
			add(fencedKey, 0, fencedValue(ch.count))
		case ch.kind == restartKey:
			add(restartKey, 0, restartValue(ch.restart))
		case ch.kind == taskRestartKey:
			add(taskRestartKey, ch.task, []byte("{}"))
		case ch.kind == loggerKey:
			add(loggerKey, 0, levelValue(ch.level))
		}
	}
	return out
}

// leftovers are nulls for all other records about a connector that is deleted.
func (c *Connector) leftovers() (out []outRecord) {
	if c == nil {
		return nil
	}
	for _, key := range c.keys {
		if kind := readConfigKey(key).kind; kind != connectorKey && kind != targetKey {
			out = append(out, outRecord{key, nil})
		}
	}
	return out
}

// tasksAgain are the records of a connector's tasks as they are, nil if it never had any.
func (c *Connector) tasksAgain() []outRecord {
	if c == nil || c.TasksOffset < 0 || c.Inconsistent {
		return nil
	}
	return taskRecords(c.Name, c.Tasks, &c.TasksOffset, nil)
}

// replaced says whether changes set the tasks of a connector, or delete it.
func replaced(changes []Change, name string) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.name == name && (c.kind == taskKey || c.remove) })
}

// taskRecords are the tasks of a connector with their commit, and nulls for what there is of others.
func taskRecords(name string, tasks []map[string]string, since *int64, known *Connector) (out []outRecord) {
	for i, props := range tasks {
		out = append(out, outRecord{configKey{taskKey, name, i}.String(), propsValue(props)})
	}
	out = append(out, outRecord{configKey{kind: commitKey, name: name}.String(), commitValue(len(tasks), since)})
	if known == nil {
		return out
	}
	for _, key := range known.keys {
		if k := readConfigKey(key); k.kind.hasTask() && k.task >= len(tasks) {
			out = append(out, outRecord{key, nil})
		}
	}
	return out
}
