package simtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/server/servertest/memnet"
)

// plan is what a seed makes of a run, but for when goroutines take turns.
type plan struct {
	nodes    int
	link     memnet.Link
	broker   map[string]string // settings of every node
	segment  int               // bytes
	shapes   []shape
	skewed   bool // clocks differ
	producer int  // clients by kind
	reader   int
	live     int
	think    time.Duration // between the requests of a client, on average
	patience time.Duration // how long a client waits for an answer
	chaos    float64       // how often a request is doubled, delayed or reset
	faults   int
	gap      time.Duration // between faults, on average
	length   time.Duration // of a fault, on average
	overlap  bool          // faults may overlap
	kinds    []faultKind
	racks    bool // nodes have racks, and some readers want theirs
	damage   bool // a disk may lose what was synced to it
	exact    *exactPlan
	registry *registryPlan
}

// shape is a topic's.
type shape struct {
	partitions int
	minISR     int
	unclean    bool
	trimmed    bool // its oldest records go, by size and by request
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// around draws a duration with a mean, from a tenth of it to a few times as much.
func around(r *rand.Rand, mean time.Duration) time.Duration {
	return mean/10 + time.Duration(min(r.ExpFloat64(), 4)*0.9*float64(mean))
}

func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &plan{
		nodes: 3,
		link: memnet.Link{
			Latency: pick(r, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond),
			Jitter:  pick(r, 0, 200*time.Microsecond, 3*time.Millisecond),
		},
		segment:  pick(r, 4<<10, 16<<10, 1<<20),
		producer: 2 + r.IntN(3), reader: 1 + r.IntN(2), live: 1 + r.IntN(2),
		think:    pick(r, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond),
		patience: pick(r, 3*time.Second, 8*time.Second, 35*time.Second),
		chaos:    pick(r, 0, 0.02, 0.1),
		faults:   pick(r, 0, 3, 5, 8, 8, 12),
		gap:      pick(r, 500*time.Millisecond, 1500*time.Millisecond, 3*time.Second),
		length:   pick(r, 500*time.Millisecond, 2*time.Second, 4*time.Second, 8*time.Second),
		overlap:  r.IntN(3) > 0,
		skewed:   r.IntN(3) == 0,
	}
	p.broker = map[string]string{
		"auto.create.topics.enable":               "false",
		"broker.session.timeout.ms":               pick(r, "3000", "9000"),
		"broker.heartbeat.interval.ms":            pick(r, "500", "2000"),
		"replica.lag.time.max.ms":                 pick(r, "1500", "4000", "10000"),
		"replica.fetch.max.bytes":                 pick(r, "1048576", "1048576", "2000"),
		"auto.leader.rebalance.enable":            pick(r, "true", "false"),
		"log.flush.offset.checkpoint.interval.ms": "1000",
	}
	if r.IntN(2) == 0 {
		p.broker["leader.imbalance.check.interval.seconds"] = "5"
	}
	p.shapes = drawShapes(r)
	p.kinds = drawKinds(r)
	p.more(rand.New(rand.NewPCG(seed, 3)))
	return p
}

// more adds to about half of the plans what the others do without. It draws from a stream of its own, so that the
// others stay what they are.
func (p *plan) more(r *rand.Rand) {
	p.racks = r.IntN(3) == 0
	if r.IntN(4) == 0 {
		p.shapes = append(p.shapes, shape{partitions: 1, minISR: pick(r, 1, 2), trimmed: true})
		p.kinds = append(p.kinds, trimKind())
		p.broker["log.retention.check.interval.ms"] = "2000"
		p.broker["log.initial.task.delay.ms"] = "0"
	}
	if r.IntN(3) > 0 {
		return
	}
	kinds := damageKinds()
	r.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
	p.kinds = append(p.kinds, kinds[:1+r.IntN(3)]...)
	p.faults = max(p.faults, 5)
	p.damage = slices.ContainsFunc(p.kinds, func(k faultKind) bool { return k.damages })
	for i := range p.shapes {
		p.shapes[i].minISR = 2 // a record that rests on one disk does not outlive it
	}
	p.broker["min.insync.replicas"] = "2"
}

// resize makes it a plan for so many nodes. Nothing is done to a node alone that only others could make good.
func (p *plan) resize(nodes int) {
	p.nodes = nodes
	for i := range p.shapes {
		p.shapes[i].minISR = min(p.shapes[i].minISR, nodes)
	}
	if nodes > 1 {
		return
	}
	p.damage = false
	delete(p.broker, "min.insync.replicas")
	p.kinds = slices.DeleteFunc(p.kinds, func(k faultKind) bool {
		return slices.ContainsFunc(damageKinds(), func(d faultKind) bool { return d.name == k.name })
	})
}

func (p *plan) topics() (topics []*topic) {
	for i, s := range p.shapes {
		topics = append(topics, &topic{
			name: "t" + strconv.Itoa(i), partitions: s.partitions, minISR: s.minISR, unclean: s.unclean, trimmed: s.trimmed,
		})
	}
	return topics
}

// configs are a topic's, as JSON.
func (p *plan) configs(t *topic) string {
	segment, more := p.segment, ""
	if t.trimmed {
		segment, more = min(segment, 4<<10), `,"retention.bytes":"12000"`
	}
	if t.keyed {
		more += `,"cleanup.policy":"compact"`
	}
	if t.name == schemasTopic { // as the registry makes it
		more += fmt.Sprintf(`,"message.timestamp.after.max.ms":"%d"`, math.MaxInt64)
	}
	return fmt.Sprintf(`{"internal.segment.bytes":"%d","min.insync.replicas":"%d",`+
		`"unclean.leader.election.enable":"%t"%s}`, segment, t.minISR, t.unclean, more)
}

// String tells the plan on one line.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "latency %v+%v, segments %d", p.link.Latency, p.link.Jitter, p.segment)
	for i, s := range p.shapes {
		fmt.Fprintf(&b, ", t%d: %d partitions min ISR %d", i, s.partitions, s.minISR)
		if s.unclean {
			b.WriteString(" unclean")
		}
		if s.trimmed {
			b.WriteString(" trimmed")
		}
	}
	fmt.Fprintf(&b, ", %d producers, %d readers, %d live, think %v, patience %v, chaos %v",
		p.producer, p.reader, p.live, p.think, p.patience, p.chaos)
	if p.racks {
		b.WriteString(", racks")
	}
	if p.exact != nil {
		b.WriteString(", " + p.exact.String())
	}
	if p.registry != nil {
		b.WriteString(", " + p.registry.String())
	}
	fmt.Fprintf(&b, ", session %s, lag %s", p.broker["broker.session.timeout.ms"], p.broker["replica.lag.time.max.ms"])
	fmt.Fprintf(&b, ", %d faults of %v every %v, overlap %t, of:", p.faults, p.length, p.gap, p.overlap)
	for _, k := range p.kinds {
		b.WriteString(" " + k.name)
	}
	return b.String()
}

// drawShapes draws topics: one that wants two replicas for every record, and mostly one that is content with one.
func drawShapes(r *rand.Rand) []shape {
	shapes := []shape{{partitions: 1 + r.IntN(3), minISR: 2}}
	if r.IntN(4) > 0 {
		shapes = append(shapes, shape{partitions: 1 + r.IntN(2), minISR: 1, unclean: r.IntN(4) == 0})
	}
	return shapes
}

// drawKinds draws which faults a run knows: sometimes all, more often a few, so that each meets each.
func drawKinds(r *rand.Rand) (kinds []faultKind) {
	all := allKinds()
	if r.IntN(4) == 0 {
		return all
	}
	for range 2 + r.IntN(4) {
		kinds = append(kinds, all[r.IntN(len(all))])
	}
	return kinds
}
