package metadata

import (
	"fmt"
	"io"
	"maps"
	"strconv"
	"sync/atomic"

	"millrace/internal/invariant"
)

// Machine holds the current image and applies commands to it. One caller at a time applies and
// restores (the quorum's, in log order); anybody may read the image at any time.
type Machine struct {
	image atomic.Pointer[Image]
	// turn is a lock of one slot: it is held while watchers work, which may wait for disks.
	turn     chan struct{}
	watchers []func(old, now *Image) // guarded by turn
	settled  atomic.Pointer[settled]
}

// settled is the state of a machine after all watchers were told of an image.
type settled struct {
	index uint64
	next  chan struct{} // closed when there is a next one
}

// Options is what a Machine needs to know about its node.
type Options struct {
	NodeID int32
	// Static is the broker configuration of the node's own file, by Kafka's names.
	Static map[string]string
}

// NewMachine returns a machine without brokers and topics. It fails when the static configuration is
// not valid.
func NewMachine(o Options) (*Machine, error) {
	schema := NewSchema()
	if err := schema.ValidateStatic(o.Static); err != nil {
		return nil, fmt.Errorf("broker configuration: %w", err)
	}
	m := &Machine{turn: make(chan struct{}, 1)}
	node := &nodeView{schema: schema, id: strconv.Itoa(int(o.NodeID)), static: maps.Clone(o.Static)}
	m.image.Store(emptyImage(node))
	m.settled.Store(&settled{next: make(chan struct{})})
	return m, nil
}

// Image returns the current image.
func (m *Machine) Image() *Image { return m.image.Load() }

// Settled is the index up to which all watchers know the image, and a channel that is closed when that changes.
func (m *Machine) Settled() (index uint64, next <-chan struct{}) {
	s := m.settled.Load()
	return s.index, s.next
}

// Watch calls fn for every change from now on, in order and before Apply returns, so a topic is
// known to all watchers when its creation is answered. First it calls fn with the current image and
// no old one. Watch before the commands to see are applied; fn must not call Watch or Apply.
func (m *Machine) Watch(fn func(old, now *Image)) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.watchers = append(m.watchers, fn)
	fn(nil, m.Image())
}

// Apply applies the log entry of that index and answers what came of it. An error means that this
// version does not understand the entry: the node must not go on, since its peers might.
func (m *Machine) Apply(index uint64, entry []byte) (Result, error) {
	c, err := Decode(entry)
	if err != nil {
		return Result{}, fmt.Errorf("log entry %d: %w", index, err)
	}
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	old := m.Image()
	invariant.Check(index > old.Index, "command %d applied after %d", index, old.Index)
	now, r := old.Apply(index, c)
	m.publish(old, now, r.Changed)
	return r, nil
}

// Restore replaces the image by that of a snapshot.
func (m *Machine) Restore(r io.Reader) error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	old := m.Image()
	now, err := readSnapshot(r, old.node)
	if err != nil {
		return fmt.Errorf("restore metadata snapshot: %w", err)
	}
	m.publish(old, now, true)
	return nil
}

// publish makes the image current and tells the watchers. The turn is held.
func (m *Machine) publish(old, now *Image, changed bool) {
	m.image.Store(now)
	if changed {
		for _, fn := range m.watchers {
			fn(old, now)
		}
	}
	was := m.settled.Swap(&settled{index: now.Index, next: make(chan struct{})})
	close(was.next)
}
