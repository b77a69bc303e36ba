package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"millrace/server/metadata"
	"millrace/storage"
)

// Voter is a node that takes part in the agreement.
type Voter struct {
	ID int32
	// Address is its base URL, http://host:port.
	Address string
}

// Config is what Open needs.
type Config struct {
	NodeID int32
	// FS is the data directory's. The folder metadata in it is the quorum's, and made if need be. Only one process
	// at a time may have it open, so hold the data directory's lock.
	FS      storage.FS
	Machine *metadata.Machine
	Logger  *slog.Logger
	// Voters lists all voters when the cluster is founded; later what was agreed on counts. Empty
	// means this node alone. A node that is not among them waits until the leader adds it.
	Voters []Voter
	// Address is this node's base URL.
	Address string
	// StreamLayer connects the members; nil is allowed where this node is the only one. It belongs to the quorum
	// and is closed with it, also when Open fails.
	StreamLayer raft.StreamLayer
	// Fatal is called at most once, when the log holds a command that this version does not
	// understand: the node must stop. It may be nil.
	Fatal func(error)
	// Known says that the node has been in a cluster: then a log that is not there was lost, and no new cluster is
	// founded in its place.
	Known bool
	// HeartbeatTimeout is how long a follower waits for its leader; zero is one second.
	HeartbeatTimeout time.Duration
	// SegmentBytes is the size of a file of the log, taken when the file is made; zero is 4 MiB.
	SegmentBytes int
}

const (
	// maxCommandBytes bounds a command; the log takes entries of up to 64 MiB.
	maxCommandBytes = 32 << 20
	// maxProposals bounds the proposals on their way.
	maxProposals = 1024
	// snapshotEvery is the number of log entries after which a snapshot is taken, and the number
	// that stay in the log for followers that are a little behind.
	snapshotEvery = 1024
	// snapshotAtClose is the number of log entries that are worth a snapshot before the end,
	// because the next start would have to replay them.
	snapshotAtClose = 256
	// snapshotPause is the least time between two snapshots.
	snapshotPause = 30 * time.Second
	// maxStreams is the number of idle connections kept to each voter.
	maxStreams = 3
	// streamTimeout is the longest that one message to a voter takes.
	streamTimeout = 10 * time.Second
)

// Raft is a Quorum over hashicorp/raft.
type Raft struct {
	config    Config
	raft      *raft.Raft
	transport transport
	streams   *Streams    // nil where others are not reached over streams
	doubting  atomic.Bool // whether standIn runs
	stores    *stores
	machine   *machine
	slots     chan struct{} // one for each proposal or change of members on its way

	leadership chan bool             // from raft: won and lost
	observed   chan raft.Observation // from raft: there is another leader
	leading    atomic.Uint64         // the term in which this node leads and has applied what was before; 0: none
	ready      chan struct{}         // closed when this node leads for the first time
	closing    chan struct{}         // closed when Close begins
	ending     func() raft.Future    // begins the end of raft, once
	ended      chan struct{}         // closed when raft has ended

	mu      sync.Mutex
	closed  bool           // guarded by mu
	changed chan struct{}  // guarded by mu; closed and replaced when the leader changes
	wg      sync.WaitGroup // adding is guarded by mu, so nothing is added once closed is set
}

// Open opens or founds the metadata log. With a single voter it returns when this node leads and all stored commands
// are applied. Else it returns without a leader: the machine holds the last snapshot, and what was agreed on after it
// follows once a leader is heard of.
func Open(ctx context.Context, c Config) (*Raft, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := openStores(c.FS, c.SegmentBytes, newLogger(c.Logger))
	if err != nil {
		err = fmt.Errorf("open the metadata log: %w", err)
		if c.StreamLayer != nil {
			err = errors.Join(err, c.StreamLayer.Close())
		}
		return nil, err
	}
	q, err := open(ctx, c, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the metadata log: %w", err), s.close())
	}
	return q, nil
}

// open starts the agreement over open stores. When it fails the stores are still open.
func open(ctx context.Context, c Config, s *stores) (*Raft, error) {
	if c.StreamLayer == nil && (len(c.Voters) > 1 || c.founders()[0].ID != c.NodeID) {
		return nil, fmt.Errorf("%d voters need a stream layer to talk over", len(c.Voters))
	}
	q := &Raft{
		config:     c,
		stores:     s,
		machine:    &machine{image: c.Machine, applied: s.applied, fatal: c.Fatal},
		slots:      make(chan struct{}, maxProposals),
		leadership: make(chan bool, 8),
		observed:   make(chan raft.Observation, 8),
		ready:      make(chan struct{}),
		closing:    make(chan struct{}),
		ended:      make(chan struct{}),
		changed:    make(chan struct{}),
	}
	q.transport = newTransport(c)
	conf := q.raftConfig()
	err := s.found(conf, q.transport, c)
	if err == nil {
		err = s.check()
	}
	if err == nil {
		err = q.newRaft(conf)
	}
	if err != nil {
		err = errors.Join(err, q.transport.Close())
		q.wg.Wait()
		return nil, err
	}
	q.ending = sync.OnceValue(q.raft.Shutdown)
	q.raft.RegisterObserver(raft.NewObserver(q.observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	q.wg.Go(q.watchLeadership)
	q.wg.Go(q.watchLeader)
	if streams, ok := c.StreamLayer.(*Streams); ok {
		q.streams = streams
		streams.onEnd(q.streamEnded)
	}
	if err := q.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, q.stop())
	}
	return q, nil
}

// newRaft starts raft from a goroutine of its own, which a failed write may end.
func (q *Raft) newRaft(conf *raft.Config) error {
	err := ErrOffline
	done := make(chan struct{})
	q.wg.Go(func() {
		defer close(done)
		q.raft, err = raft.NewRaft(conf, q.machine, q.stores.log, q.stores.log, q.stores.snapshots, q.transport)
	})
	<-done
	if failed := q.stores.log.failure(); failed != nil {
		return failed
	}
	return err
}

func (q *Raft) raftConfig() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = serverID(q.config.NodeID)
	conf.Logger = newLogger(q.config.Logger)
	conf.NotifyCh = q.leadership
	conf.NoLegacyTelemetry = true
	conf.ShutdownOnRemove = false // it may be added again
	conf.SnapshotThreshold = snapshotEvery
	conf.TrailingLogs = snapshotEvery
	conf.SnapshotInterval = snapshotPause
	if t := q.config.HeartbeatTimeout; t > 0 {
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = t, t, t/2
		conf.CommitTimeout = min(conf.CommitTimeout, t/10)
	}
	return conf
}

// heartbeatTimeout is how long a follower waits for its leader.
func (c Config) heartbeatTimeout() time.Duration {
	if c.HeartbeatTimeout > 0 {
		return c.HeartbeatTimeout
	}
	return time.Second
}

// founders are the voters that found the cluster.
func (c Config) founders() []Voter {
	if len(c.Voters) == 0 {
		return []Voter{{ID: c.NodeID, Address: c.Address}}
	}
	return c.Voters
}

// servers returns the founders as raft wants them.
func (c Config) servers() raft.Configuration {
	var all raft.Configuration
	for _, v := range c.founders() {
		address := v.Address
		if address == "" {
			address = string(serverID(v.ID))
		}
		all.Servers = append(all.Servers, raft.Server{ID: serverID(v.ID), Address: raft.ServerAddress(address)})
	}
	return all
}

func serverID(node int32) raft.ServerID { return raft.ServerID(strconv.Itoa(int(node))) }

// awaitReady waits until a node that is the only voter leads.
func (q *Raft) awaitReady(ctx context.Context) error {
	var voters []raft.Server
	for _, s := range q.servers() {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s)
		}
	}
	if len(voters) != 1 || voters[0].ID != serverID(q.config.NodeID) {
		return nil
	}
	// Nobody else can lead, so there is no use in waiting for a leader's heartbeat first.
	q.transport.campaign(voters[0])
	select {
	case <-q.ready:
		return q.machine.failure()
	case <-q.stores.log.offline:
		return q.stores.log.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watchLeadership keeps leading: after an election this node leads once it has applied what the
// leaders before it committed.
func (q *Raft) watchLeadership() {
	first := true
	for {
		select {
		case won := <-q.leadership:
			term := q.raft.CurrentTerm()
			// In another term than the barrier's it is another leadership, which is told anew.
			won = won && q.raft.Barrier(0).Error() == nil && q.raft.CurrentTerm() == term
			if !won {
				term = 0
			}
			q.leading.Store(term)
			if won && first {
				first = false
				close(q.ready)
			}
			q.notify()
			if won {
				q.correctAddress()
			}
		case <-q.closing:
			return
		}
	}
}

// watchLeader tells of other leaders, and takes a node out of the agreement whose log is offline: so that another
// voter leads.
func (q *Raft) watchLeader() {
	offline := q.stores.log.offline
	for {
		select {
		case <-q.observed:
			q.notify()
		case <-offline:
			offline = nil
			q.ending()
			q.leading.Store(0)
			_ = q.transport.Close() // Close of the quorum reports its error
			q.notify()
		case <-q.closing:
			return
		}
	}
}

// notify wakes who waits for another leader.
func (q *Raft) notify() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.changed)
	q.changed = make(chan struct{})
}

// Changed gives a channel that is closed when the leader changes, or whether this node leads. Ask for it before
// looking at either.
func (q *Raft) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// Propose implements Quorum.
func (q *Raft) Propose(ctx context.Context, command []byte) (metadata.Result, uint64, error) {
	if len(command) > maxCommandBytes {
		return metadata.Result{}, 0, fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, len(command), maxCommandBytes)
	}
	if err := q.usable(); err != nil {
		return metadata.Result{}, 0, err
	}
	select {
	case q.slots <- struct{}{}:
	default:
		return metadata.Result{}, 0, ErrBusy
	}
	done := make(chan proposal, 1)
	if !q.start(func() {
		done <- q.propose(command)
		<-q.slots
	}) {
		<-q.slots
		return metadata.Result{}, 0, ErrClosed
	}
	select {
	case p := <-done:
		if failed := q.stores.log.failure(); p.err != nil && failed != nil {
			p.err = failed
		}
		return p.result, p.index, p.err
	case <-q.stores.log.offline:
		return metadata.Result{}, 0, q.stores.log.failure()
	case <-ctx.Done():
		return metadata.Result{}, 0, ctx.Err()
	}
}

type proposal struct {
	result metadata.Result
	index  uint64
	err    error
}

func (q *Raft) propose(command []byte) proposal {
	f := q.raft.Apply(command, 0)
	switch err := f.Error(); {
	case err == nil:
	case notProposed(err):
		return proposal{err: ErrNotLeader}
	default:
		return proposal{err: fmt.Errorf("metadata proposal with unknown outcome: %w", err)}
	}
	out := f.Response().(outcome)
	return proposal{out.result, f.Index(), out.err}
}

// notProposed tells the errors of raft after which nothing was proposed.
func notProposed(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress)
}

// usable returns why nothing can be proposed here now, or nil.
func (q *Raft) usable() error {
	if err := q.machine.failure(); err != nil {
		return err
	}
	if err := q.stores.log.failure(); err != nil {
		return err
	}
	if !q.IsLeader() {
		return ErrNotLeader
	}
	return nil
}

// start runs fn in a goroutine that Close waits for. False: this is closed and fn does not run.
func (q *Raft) start(fn func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.wg.Go(fn)
	return true
}

// IsLeader implements Quorum.
func (q *Raft) IsLeader() bool {
	term := q.leading.Load()
	return term != 0 && term == q.raft.CurrentTerm() && q.raft.State() == raft.Leader && q.stores.log.failure() == nil
}

// Verify asks a majority whether this node leads still. It takes an entry of the log, since messages without one may be
// answered by echoes, or the leader's lease where there is no majority.
func (q *Raft) Verify() error { return q.raft.Barrier(0).Error() }

// Offline implements Quorum.
func (q *Raft) Offline() error { return q.stores.log.failure() }

// Leader implements Quorum.
func (q *Raft) Leader() int32 {
	_, id := q.raft.LeaderWithID()
	return nodeID(id)
}

// nodeID is the number of a node, or -1.
func nodeID(id raft.ServerID) int32 {
	n, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// LeaderAddress is the base URL of the leader, or "" when there is none or it is not known.
func (q *Raft) LeaderAddress() string {
	address, _ := q.raft.LeaderWithID()
	return baseURL(address)
}

// baseURL leaves out what stands for an address where a node never had one.
func baseURL(a raft.ServerAddress) string {
	if _, err := strconv.Atoi(string(a)); err == nil {
		return ""
	}
	return string(a)
}

// Applied is the log index of the last command that is applied here.
func (q *Raft) Applied() uint64 { return q.config.Machine.Image().Index }

// Term is the newest term that this node knows of.
func (q *Raft) Term() uint64 { return q.raft.CurrentTerm() }

// LastContact is when this node last heard of the leader: now if it leads, never if it has not heard of any.
func (q *Raft) LastContact() time.Time {
	if q.raft.State() == raft.Leader {
		return time.Now()
	}
	return q.raft.LastContact()
}

// Close ends the agreement. Proposals on their way have an unknown outcome.
func (q *Raft) Close() error {
	q.mu.Lock()
	already := q.closed
	q.closed = true
	q.mu.Unlock()
	if already {
		return nil
	}
	q.snapshotBeforeEnd()
	return errors.Join(q.stop(), q.stores.close())
}

// snapshotBeforeEnd takes a snapshot when the next start would otherwise replay much. Without it the
// start is slower and no worse, so failing is no failure.
func (q *Raft) snapshotBeforeEnd() {
	applied, last := q.raft.AppliedIndex(), q.stores.lastSnapshot()
	if applied < last+snapshotAtClose || q.usable() != nil {
		return
	}
	if err := q.raft.Snapshot().Error(); err != nil {
		q.config.Logger.Warn("no snapshot of the metadata at the end", "err", err)
	}
}

// stop ends raft and all that it started, but for the stores.
func (q *Raft) stop() error {
	close(q.closing)
	ended := q.ending() // ends elections and proposals
	q.leading.Store(0)
	// Messages on their way would be waited for, so they end first.
	q.transport.CloseStreams() // the transport's Close only ends its listener
	err := errors.Join(q.transport.Close(), ended.Error())
	close(q.ended)
	q.wg.Wait()
	return err
}
