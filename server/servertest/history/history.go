// Package history is what clients of a cluster did and what they were told, and the checks that hold the cluster to it.
//
// A history is a list of operations, each with when it was called, when it returned, and what came of it: done,
// certainly not done, or unknown. Checks are one pass each over the list, linear but for sorting, in an order in which
// later ones may rely on earlier ones. What they find names the invariant and the operations that contradict each
// other.
//
// Clients of a simulation add operations from many goroutines; the checks run when all have ended.
package history

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Partition names a partition of one life of a topic: a topic that was deleted and made again is another one.
type Partition struct {
	Topic  string
	Number int32
}

// String gives TOPIC/NUMBER.
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// Outcome is what came of an operation.
type Outcome uint8

// The outcomes.
const (
	Info Outcome = iota // it may or may not have been done, now or later
	OK                  // it was done
	Fail                // it was not done and never will be
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"info", "ok", "fail"}[o] }

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Kind is what an operation does.
type Kind string

// The kinds.
const (
	Send  Kind = "send"  // Values to Partition
	Read  Kind = "read"  // Values at Offsets of Partition
	Trim  Kind = "trim"  // what lies below Base of Partition
	Admin Kind = "admin" // Note says what
	Fault Kind = "fault" // something the nemesis did; Note says what
)

// Op is one operation. A request that is tried again is several.
type Op struct {
	ID      int           `json:"id"`
	Kind    Kind          `json:"kind"`
	Client  string        `json:"client"`
	Session string        `json:"session,omitempty"` // within it, order counts
	Seq     int           `json:"seq,omitempty"`     // order in the session; tries share one
	Node    string        `json:"node,omitempty"`    // who was asked
	API     string        `json:"api,omitempty"`
	Invoke  time.Duration `json:"invoke"`
	Return  time.Duration `json:"return"`
	Outcome Outcome       `json:"outcome"`
	Note    string        `json:"note,omitempty"`

	Partition Partition `json:"partition"`
	Values    []string  `json:"values,omitempty"`

	// Of a send. Base is the offset of the first value, -1 when it was not told. Idempotent sends may be tried again
	// without being stored twice; Again marks those that are; Doubled ones were sent twice at once.
	Acks       int   `json:"acks,omitempty"`
	Base       int64 `json:"base,omitempty"`
	Idempotent bool  `json:"idempotent,omitempty"`
	Again      bool  `json:"again,omitempty"`
	Doubled    bool  `json:"doubled,omitempty"`

	// Of a read. It asked for From and on; what came is Values at Offsets. A read that failed with OutOfRange was told
	// that the log does not reach there. Final reads are those after the end.
	From       int64   `json:"from,omitempty"`
	Offsets    []int64 `json:"offsets,omitempty"`
	OutOfRange bool    `json:"out_of_range,omitempty"`
	Final      bool    `json:"final,omitempty"`

	Key    string       `json:"key,omitempty"`
	Txn    *Transaction `json:"txn,omitempty"`
	Group  *Membership  `json:"group,omitempty"`
	Schema *Schema      `json:"schema,omitempty"`
}

// String gives the operation on one line.
func (o *Op) String() string {
	s := fmt.Sprintf("#%d %s %s by %s", o.ID, o.Kind, o.Outcome, o.Client)
	if o.Session != "" {
		s += fmt.Sprintf(" (%s, %d)", o.Session, o.Seq)
	}
	s += fmt.Sprintf(" at %s %s, %.6f to %.6f", o.Node, o.API, o.Invoke.Seconds(), o.Return.Seconds())
	switch o.Kind {
	case Send:
		s += fmt.Sprintf(": %s acks=%d base=%d %s", o.Partition, o.Acks, o.Base, brief(o.Values))
	case Trim:
		s += fmt.Sprintf(": %s to %d", o.Partition, o.Base)
	case Read:
		s += fmt.Sprintf(": %s from %d %s", o.Partition, o.From, brief(o.Values))
		if len(o.Offsets) > 0 {
			s += fmt.Sprintf(" at %d to %d", o.Offsets[0], o.Offsets[len(o.Offsets)-1])
		}
	}
	if o.Kind == Poll || o.Kind == Put || o.Kind == Get {
		s += fmt.Sprintf(": %s %s %s at %d", o.Partition, o.Key, brief(o.Values), o.Offsets)
	}
	if o.Txn != nil {
		s += ": " + o.Txn.String()
	}
	if o.Group != nil {
		s += fmt.Sprintf(": %s %s", o.Partition, o.Group)
	}
	if o.Schema != nil {
		s += ": " + o.Schema.String()
	}
	if o.Note != "" {
		s += ": " + o.Note
	}
	return s
}

func brief(values []string) string {
	if len(values) > 8 {
		return fmt.Sprintf("%q and %d more", values[:8], len(values)-8)
	}
	return fmt.Sprintf("%q", values)
}

// History collects operations. It is safe for concurrent use.
type History struct {
	began time.Time

	mu  sync.Mutex
	ops []*Op // guarded by mu
}

// New begins a history.
func New() *History { return &History{began: time.Now()} }

// Now is the time since the history began.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add takes in an operation that has returned. It must not be changed after.
func (h *History) Add(o *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.ID = len(h.ops) + 1
	h.ops = append(h.ops, o)
}

// Ops are the operations so far, in the order of their return.
func (h *History) Ops() []*Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Write writes the operations as lines of JSON.
func (h *History) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	for _, o := range h.Ops() {
		if err := e.Encode(o); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return nil
}
