package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The records of the config topic. Keys are text, values JSON without a schema:
//
//	connector-<c>          {"properties":{..}}            a connector; null: it is deleted
//	task-<c>-<n>           {"properties":{..}}            a task, once a commit says so
//	commit-<c>             {"tasks":N}                    the tasks 0..N-1 before it are valid; with "since":O, an
//	                                                      addition of Millrace's, they are since the record at O
//	target-state-<c>       {"state":S,"state.v2":V}       what the connector shall be
//	tasks-fencing-<c>      {"task-count":N}               earlier producers of so many tasks are fenced
//	restart-connector-<c>  {"include-tasks":B,"only-failed":B}
//	restart-task-<c>-<n>   {}                             Millrace's own
//	logger-cluster-<l>     {"level":"INFO"}
//	session-key            of no meaning here
type keyKind int8

const (
	otherKey keyKind = iota
	connectorKey
	taskKey
	commitKey
	targetKey
	fencedKey
	restartKey
	taskRestartKey
	loggerKey
)

// prefix is how keys of a kind begin.
func (k keyKind) prefix() string {
	return [...]string{
		"", "connector-", "task-", "commit-", "target-state-", "tasks-fencing-", "restart-connector-", "restart-task-",
		"logger-cluster-",
	}[k]
}

// hasTask says whether keys of a kind end with the number of a task.
func (k keyKind) hasTask() bool { return k == taskKey || k == taskRestartKey }

// configKey is what a record is about. Name is that of a connector, or of a logger.
type configKey struct {
	kind keyKind
	name string
	task int
}

func (k configKey) String() string {
	if k.kind.hasTask() {
		return k.kind.prefix() + k.name + "-" + strconv.Itoa(k.task)
	}
	return k.kind.prefix() + k.name
}

// readConfigKey reads a key; it is of otherKey if it means nothing here.
func readConfigKey(key string) configKey {
	for kind := connectorKey; kind <= loggerKey; kind++ {
		name, ok := strings.CutPrefix(key, kind.prefix())
		switch {
		case !ok:
			continue
		case !kind.hasTask():
			return configKey{kind: kind, name: name}
		}
		if name, task, ok := cutTask(name); ok {
			return configKey{kind: kind, name: name, task: task}
		}
	}
	return configKey{}
}

// cutTask splits a name from the number of a task behind it.
func cutTask(text string) (name string, task int, ok bool) {
	i := strings.LastIndexByte(text, '-')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 31)
	if err != nil || text[i+1] == '+' || len(text)-i > 2 && text[i+1] == '0' {
		return "", 0, false
	}
	return text[:i], int(n), true
}

// configValue is a value of the config topic; which field counts is a matter of the key.
type configValue struct {
	props   map[string]string
	count   int
	since   *int64
	state   State
	restart Restart
	level   string
}

// readConfigValue reads a value. Members that are not known are passed over. Null has no fields.
func readConfigValue(kind keyKind, value []byte) (v configValue, err error) {
	if value == nil {
		return v, nil
	}
	var in struct {
		Properties   map[string]*string `json:"properties"`
		Tasks        *int               `json:"tasks"`
		Since        *int64             `json:"since"`
		TaskCount    *int               `json:"task-count"`
		State        string             `json:"state"`
		StateV2      string             `json:"state.v2"`
		IncludeTasks *bool              `json:"include-tasks"`
		OnlyFailed   *bool              `json:"only-failed"`
		Level        string             `json:"level"`
	}
	if err := json.Unmarshal(value, &in); err != nil {
		return v, fmt.Errorf("value: %w", err)
	}
	switch kind {
	case connectorKey, taskKey:
		v.props, err = properties(in.Properties)
	case commitKey:
		v.since = in.Since
		v.count, err = count("tasks", in.Tasks)
	case fencedKey:
		v.count, err = count("task-count", in.TaskCount)
	case targetKey:
		v.state, err = targetOf(in.State, in.StateV2)
	case restartKey:
		if in.IncludeTasks == nil || in.OnlyFailed == nil {
			return v, errors.New("the value lacks include-tasks or only-failed")
		}
		v.restart = Restart{IncludeTasks: *in.IncludeTasks, OnlyFailed: *in.OnlyFailed}
	case loggerKey:
		if v.level = in.Level; v.level == "" {
			err = errors.New("the value lacks a level")
		}
	}
	return v, err
}

// properties are settings as they are in a value. One that is null is not there.
func properties(in map[string]*string) (map[string]string, error) {
	if in == nil {
		return nil, errors.New("the value lacks properties")
	}
	out := make(map[string]string, len(in))
	for key, value := range in {
		if value != nil {
			out[key] = *value
		}
	}
	return out, nil
}

func count(name string, n *int) (int, error) {
	if n == nil || *n < 0 || *n > math.MaxInt32 {
		return 0, errors.New("the value lacks " + name + ", or it is out of range")
	}
	return *n, nil
}

// targetOf is the target state by both fields: old workers know the first one alone, in which STOPPED is PAUSED.
func targetOf(state, v2 string) (State, error) {
	if v2 != "" {
		state = v2
	}
	switch s := State(strings.ToUpper(state)); s {
	case Started, Paused, Stopped:
		return s, nil
	}
	return "", fmt.Errorf("there is no target state %q", state)
}

// encode makes a value.
func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("a value of fields that always encode does not: " + err.Error())
	}
	return out
}

func propsValue(props map[string]string) []byte {
	if props == nil {
		props = map[string]string{}
	}
	return encode(struct {
		Properties map[string]string `json:"properties"`
	}{props})
}

func commitValue(tasks int, since *int64) []byte {
	return encode(struct {
		Tasks int    `json:"tasks"`
		Since *int64 `json:"since,omitempty"`
	}{tasks, since})
}

func fencedValue(tasks int) []byte {
	return encode(struct {
		Tasks int `json:"task-count"`
	}{tasks})
}

func targetValue(s State) []byte {
	old := s
	if s == Stopped {
		old = Paused
	}
	return encode(struct {
		State   State `json:"state"`
		StateV2 State `json:"state.v2"`
	}{old, s})
}

func restartValue(r Restart) []byte {
	return encode(struct {
		IncludeTasks bool `json:"include-tasks"`
		OnlyFailed   bool `json:"only-failed"`
	}{r.IncludeTasks, r.OnlyFailed})
}

func levelValue(level string) []byte {
	return encode(struct {
		Level string `json:"level"`
	}{level})
}
