package consumer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// Bounds of all members of a node together.
const (
	defaultMaxMembers = 10_000
	fetchSlots        = 64 // polls that hold what they fetched without waiting for it
	expanders         = 8
	watchInterval     = 250 * time.Millisecond // of looks where groups have their coordinators
)

// Options are what Members is made of. Client and Requests, which lead to the same cluster, are required.
type Options struct {
	Client   *client.Client
	Requests kmsg.Requestor
	// Local says whether the members of a group live on this node; nil: of all groups.
	Local      func(group string) bool
	Arena      func() *record.Arena // memory of what is fetched; nil: the heap
	Now        func() time.Time     // time.Now by default
	Logger     *slog.Logger         // discarded by default
	Rand       *rand.Rand           // draws ids; a seed of its own by default
	MaxMembers int                  // 10,000 by default
}

// Members are the members that this node runs. It is safe for concurrent use.
type Members struct {
	o      Options
	codecs *record.Codecs
	slots  chan struct{} // one element a poll that holds what it fetched
	life   context.Context
	end    context.CancelFunc
	wg     sync.WaitGroup // of members' loops

	mu      sync.Mutex
	members map[memberKey]*Member // guarded by mu
	closed  bool                  // guarded by mu
	watched bool                  // guarded by mu: watch runs
	rand    *rand.Rand            // guarded by mu
}

type memberKey struct{ group, id string }

// New makes Members. It does no I/O; Close ends what it starts later.
func New(o Options) *Members {
	if o.Local == nil {
		o.Local = func(string) bool { return true }
	}
	if o.Arena == nil {
		o.Arena = func() *record.Arena { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if o.MaxMembers <= 0 {
		o.MaxMembers = defaultMaxMembers
	}
	m := &Members{
		o: o, codecs: record.NewCodecs(expanders), slots: make(chan struct{}, fetchSlots),
		members: make(map[memberKey]*Member), rand: o.Rand,
	}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// Close ends all members and returns when none runs any more. They stay in their groups, for another node to take
// them over, but for those that are bound to this node, which leave.
func (m *Members) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.wg.Wait()
}

// Count is how many members this node runs.
func (m *Members) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.members)
}

// Join makes a member and waits until it has joined its group.
func (m *Members) Join(ctx context.Context, c Config) (*Member, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Topics = sorted(c.Topics)
	if c.ID == "" {
		c.ID = m.drawID()
	}
	k := newMember(m, c)
	if err := m.enter(k); err != nil {
		return nil, err
	}
	if _, err := m.begin(ctx, k, nil); err != nil {
		k.desert() // who asked for it does not come back
		return nil, err
	}
	return k, nil
}

// drawID draws a member id.
func (m *Members) drawID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b [16]byte
	for i := range b {
		b[i] = byte(m.rand.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// enter takes a member in, before it has joined.
func (m *Members) enter(k *Member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrMoved
	case m.members[k.key()] != nil:
		return ErrTaken
	case len(m.members) >= m.o.MaxMembers:
		return ErrTooMany
	}
	m.members[k.key()] = k
	return nil
}

// begin starts the loop of a member that was entered, and waits until it has joined or was taken over.
func (m *Members) begin(ctx context.Context, k *Member, from *described) (*Member, error) {
	m.mu.Lock()
	if m.closed {
		delete(m.members, k.key())
		m.mu.Unlock()
		k.finish(ErrMoved)
		return nil, ErrMoved
	}
	m.wg.Go(func() { k.run(from) })
	if !m.watched {
		m.watched = true
		m.wg.Go(m.watch)
	}
	m.mu.Unlock()
	return k.await(ctx)
}

// watch makes members whose group has its coordinator elsewhere notice that, whatever they wait for.
func (m *Members) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.life.Done():
			return
		}
		m.mu.Lock()
		all := slices.Collect(maps.Values(m.members))
		m.mu.Unlock()
		for _, k := range all {
			if !m.o.Local(k.group) {
				k.mu.Lock()
				k.wakeLocked()
				k.mu.Unlock()
			}
		}
	}
}

// forget drops a member, so that nobody finds it.
func (m *Members) forget(k *Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[k.key()] == k {
		delete(m.members, k.key())
	}
}

// Find is the member of an id: one that this node runs, or one that another node ran, which is taken over.
func (m *Members) Find(ctx context.Context, group, id string) (*Member, error) {
	m.mu.Lock()
	k := m.members[memberKey{group, id}]
	m.mu.Unlock()
	if k != nil {
		return k.await(ctx)
	}
	if !m.o.Local(group) {
		return nil, ErrMoved // two nodes that both ran it would fence each other
	}
	d, err := m.describe(ctx, group, id)
	if err != nil {
		return nil, err
	}
	c := d.state.Config
	c.Group, c.ID = group, id
	k = newMember(m, c)
	k.restore(d.state)
	switch err := m.enter(k); {
	case errors.Is(err, ErrTaken):
		return m.Find(ctx, group, id) // somebody else was quicker
	case err != nil:
		return nil, err
	}
	return m.begin(ctx, k, d)
}

// described is what the coordinator knows of a member.
type described struct {
	state *state
	epoch int32
	owned []ownedTopic
}

// describe asks the coordinator for a member that a node of this cluster ran.
func (m *Members) describe(ctx context.Context, group, id string) (*described, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, m.o.Requests)
	if err != nil {
		return nil, noAnswer("description of group "+group, err)
	}
	if len(resp.Groups) != 1 {
		return nil, noAnswer("description of group "+group, errMissing)
	}
	g := &resp.Groups[0]
	switch e := kerr.TypedErrorForCode(g.ErrorCode); e {
	case nil:
	case kerr.GroupIDNotFound:
		return nil, ErrUnknownMember
	default:
		return nil, client.Fault(e, "group %q could not be described: %s", group, e.Description)
	}
	for i := range g.Members {
		of := &g.Members[i]
		if of.MemberID != id {
			continue
		}
		raw, _ := ktag.MemberState(&of.UnknownTags)
		s, ok := decodeState(raw)
		if !ok || s.Here {
			return nil, ErrUnknownMember // somebody else runs it
		}
		d := &described{state: s, epoch: of.MemberEpoch}
		for _, t := range of.Assignment.TopicPartitions {
			d.owned = append(d.owned, ownedTopic{t.TopicID, t.Partitions})
		}
		return d, nil
	}
	return nil, ErrUnknownMember
}

var errMissing = errors.New("the answer does not name it")

func noAnswer(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, client.ErrNoAnswer, err)
}
