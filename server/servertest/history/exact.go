package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The kinds of operations of transactions and groups. The partitions that they concern are looked at by CheckExact
// alone.
const (
	Init      Kind = "init"      // a transactional id got a producer
	Txn       Kind = "txn"       // a transaction, from its first request to the answer to its end
	Poll      Kind = "poll"      // committed records of a partition were read
	Commit    Kind = "commit"    // an offset of a group was committed
	Committed Kind = "committed" // the committed offset of a group was read
	Assign    Kind = "assign"    // a member was told which partitions it has
	Put       Kind = "put"       // Values[0] became the value of Key
	Get       Kind = "get"       // the value of Key was read
)

// Transaction is what is more about an operation of a transaction.
type Transaction struct {
	ID         string `json:"id"` // the transactional id
	ProducerID int64  `json:"producer_id"`
	Epoch      int16  `json:"epoch"`
	Sends      []Sent `json:"sends,omitempty"`
	Reads      []Sent `json:"reads,omitempty"` // what was polled in it
	// Decide is when its end was asked for first, 0 if it never was; Commit says which.
	Decide time.Duration `json:"decide,omitempty"`
	Commit bool          `json:"commit,omitempty"`
	// Again says that the values may be sent in several transactions, of which one at most is committed.
	Again bool `json:"again,omitempty"`
}

// Sent is a value on its way into a partition, or out of it. The offset is -1 when it is not known.
type Sent struct {
	Partition Partition `json:"partition"`
	Value     string    `json:"value"`
	Offset    int64     `json:"offset"`
}

// Membership is what is more about an operation of a member of a group.
type Membership struct {
	Group    string `json:"group"`
	Member   string `json:"member,omitempty"`
	Epoch    int32  `json:"epoch"` // or generation
	Protocol string `json:"protocol,omitempty"`
	// Assigned is what a member has.
	Assigned []Partition `json:"assigned,omitempty"`
	// Offset was committed, or was what is committed, -1 for nothing; with it came Token, which is of one commit alone. A
	// commit without a token comes from a member whose offsets only grow.
	Offset int64  `json:"offset"`
	Token  string `json:"token,omitempty"`
	// Txn is the token's transaction, if it is of one.
	Txn *Op `json:"-"`
}

// The protocols of groups.
const (
	Classic  = "classic"
	Consumer = "consumer"
	Worker   = "worker" // over HTTP
)

// Stored is a record that is in a log at the end.
type Stored struct {
	Offset    int64
	Value     string
	Committed bool // or not of a transaction
}

// Facts are what is there at the end.
type Facts struct {
	// Logs are the records of partitions that transactions write to, by offset, the aborted ones too.
	Logs map[Partition][]Stored
	// Offsets are what groups have committed.
	Offsets map[string]map[Partition]int64
	// Copies are topics each of whose committed values is in another topic once, as CopyOf it.
	Copies map[string]string
}

const copied, copier = "copy of ", " by "

// CopyOf is a value in a topic of copies, which says who made it: each try is another value.
func CopyOf(value, by string) string { return copied + value + copier + by }

// SourceOf is the value that was copied, "" if there is none.
func SourceOf(value string) string {
	source, ok := strings.CutPrefix(value, copied)
	if !ok {
		return ""
	}
	source, _, _ = strings.Cut(source, copier)
	return source
}

// String tells the transaction for Op.String.
func (t *Transaction) String() string {
	s := fmt.Sprintf("%s %d/%d", t.ID, t.ProducerID, t.Epoch)
	for _, v := range t.Sends {
		s += fmt.Sprintf(" %s@%d=%q", v.Partition, v.Offset, v.Value)
	}
	if t.Decide > 0 {
		s += fmt.Sprintf(" commit=%t at %.6f", t.Commit, t.Decide.Seconds())
	}
	return s
}

// String tells the membership for Op.String.
func (m *Membership) String() string {
	s := fmt.Sprintf("%s %q of %s in %d", m.Protocol, m.Member, m.Group, m.Epoch)
	if m.Token != "" || m.Offset != 0 {
		s += fmt.Sprintf(" offset %d %s", m.Offset, m.Token)
	}
	if len(m.Assigned) > 0 {
		s += fmt.Sprintf(" has %v", m.Assigned)
	}
	return s
}

// exact is the state that the passes of CheckExact share.
type exact struct {
	ops    []*Op
	facts  Facts
	txns   map[string]*Op       // by the values that they sent
	stored map[string][]located // by value
	at     map[place]Stored
	owned  map[string]map[Partition][]tenure // of groups, filled in by owners
}

// located is where a stored value lies.
type located struct {
	place
	committed bool
}

func (l located) rank() int {
	if l.committed {
		return 1
	}
	return 0
}

// CheckExact gives what is wrong with what transactions and groups did, as Check does for the rest.
func CheckExact(ops []*Op, facts Facts) (found []*Violation) {
	e := &exact{
		ops: ops, facts: facts, txns: map[string]*Op{}, stored: map[string][]located{}, at: map[place]Stored{},
		owned: map[string]map[Partition][]tenure{},
	}
	e.index()
	for _, pass := range []func() *Violation{
		e.placed, e.fates, e.aborted, e.epochs, e.fenced, e.sequences, e.cycles, e.copies,
		e.generations, e.owners, e.stale, e.offsets, e.growing, e.delivered, e.keys,
	} {
		if v := pass(); v != nil {
			found = append(found, v)
		}
	}
	return found
}

func (e *exact) index() {
	for _, o := range e.ops {
		if o.Kind != Txn {
			continue
		}
		for _, s := range o.Txn.Sends {
			e.txns[s.Value] = o
		}
	}
	for _, p := range sortedPartitions(e.facts.Logs) {
		for _, s := range e.facts.Logs[p] {
			at := place{p, s.Offset}
			e.at[at] = s
			if e.stored[s.Value] = append(e.stored[s.Value], located{at, s.Committed}); s.Committed { // it comes first
				list := e.stored[s.Value]
				slices.SortStableFunc(list, func(a, b located) int { return cmp.Compare(b.rank(), a.rank()) })
			}
		}
	}
}
