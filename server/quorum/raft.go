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
)

// Voter is a node that takes part in the agreement.
type Voter struct {
	ID int32
	// Address is where its StreamLayer answers; it says nothing when it is the only voter.
	Address string
}

// Config is what Open needs.
type Config struct {
	NodeID int32
	// Dir is the folder for the log and the snapshots; it is made if need be. Only one process at
	// a time may have it open: a second one waits for ever, so hold the data directory's lock.
	Dir     string
	Machine *metadata.Machine
	Logger  *slog.Logger
	// Voters lists all voters when the cluster is founded; later what was agreed on counts. Empty
	// means this node alone.
	Voters []Voter
	// StreamLayer connects the voters; nil is allowed where this node is the only one.
	StreamLayer raft.StreamLayer
	// Fatal is called at most once, when the log holds a command that this version does not
	// understand: the node must stop. It may be nil.
	Fatal func(error)
	// Known says that the node has been in a cluster: then a log that is not there was lost, and no new cluster is
	// founded in its place.
	Known bool
	// HeartbeatTimeout is how long a follower waits for its leader; zero is one second.
	HeartbeatTimeout time.Duration
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
	stores    *stores
	machine   *machine
	slots     chan struct{} // one for each proposal on its way

	leadership chan bool // from raft: won and lost
	leading    atomic.Bool
	ready      chan struct{} // closed when this node leads for the first time
	closing    chan struct{} // closed when Close begins

	mu     sync.Mutex
	closed bool           // guarded by mu
	wg     sync.WaitGroup // adding is guarded by mu, so nothing is added once closed is set
}

// Open opens or founds the metadata log. It returns when the machine holds what was stored; with a
// single voter also when this node leads and all stored commands are applied.
func Open(ctx context.Context, c Config) (*Raft, error) {
	s, err := openStores(c.Dir, newLogger(c.Logger))
	if err != nil {
		return nil, fmt.Errorf("open metadata log in %s: %w", c.Dir, err)
	}
	q, err := open(ctx, c, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open metadata log in %s: %w", c.Dir, err), s.close())
	}
	return q, nil
}

// open starts the agreement over open stores. When it fails the stores are still open.
func open(ctx context.Context, c Config, s *stores) (*Raft, error) {
	if len(c.Voters) > 1 && c.StreamLayer == nil {
		return nil, fmt.Errorf("%d voters need a stream layer to talk over", len(c.Voters))
	}
	q := &Raft{
		config:     c,
		stores:     s,
		machine:    &machine{image: c.Machine, applied: s.applied, fatal: c.Fatal},
		slots:      make(chan struct{}, maxProposals),
		leadership: make(chan bool, 8),
		ready:      make(chan struct{}),
		closing:    make(chan struct{}),
	}
	q.transport = newTransport(c)
	conf := q.raftConfig()
	err := s.found(conf, q.transport, c)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, errors.Join(err, q.transport.Close())
	}
	if err := q.newRaft(conf); err != nil {
		return nil, errors.Join(err, q.transport.Close())
	}
	q.wg.Go(q.watchLeadership)
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
	conf.SnapshotThreshold = snapshotEvery
	conf.TrailingLogs = snapshotEvery
	conf.SnapshotInterval = snapshotPause
	if t := q.config.HeartbeatTimeout; t > 0 {
		conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = t, t, t/2
		conf.CommitTimeout = min(conf.CommitTimeout, t/10)
	}
	return conf
}

// servers returns the voters that found the cluster.
func (c Config) servers() raft.Configuration {
	voters := c.Voters
	if len(voters) == 0 {
		voters = []Voter{{ID: c.NodeID}}
	}
	var all raft.Configuration
	for _, v := range voters {
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
	f := q.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	servers := f.Configuration().Servers
	if len(servers) != 1 || servers[0].ID != serverID(q.config.NodeID) {
		return nil
	}
	// Nobody else can lead, so there is no use in waiting for a leader's heartbeat first.
	q.transport.campaign(servers[0])
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
			won = won && q.raft.Barrier(0).Error() == nil
			q.leading.Store(won)
			if won && first {
				first = false
				close(q.ready)
			}
		case <-q.closing:
			return
		}
	}
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
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return proposal{err: ErrNotLeader}
	default:
		return proposal{err: fmt.Errorf("metadata proposal with unknown outcome: %w", err)}
	}
	out := f.Response().(outcome)
	return proposal{out.result, f.Index(), out.err}
}

// usable returns why nothing can be proposed here now, or nil.
func (q *Raft) usable() error {
	if err := q.machine.failure(); err != nil {
		return err
	}
	if err := q.stores.log.failure(); err != nil {
		return err
	}
	if !q.leading.Load() {
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
func (q *Raft) IsLeader() bool { return q.leading.Load() }

// Offline implements Quorum.
func (q *Raft) Offline() error { return q.stores.log.failure() }

// Leader implements Quorum.
func (q *Raft) Leader() int32 {
	_, id := q.raft.LeaderWithID()
	n, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
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
	err := q.raft.Shutdown().Error() // ends elections and proposals; waits for raft's goroutines
	q.leading.Store(false)
	q.transport.CloseStreams() // the transport's Close only ends its listener
	err = errors.Join(err, q.transport.Close())
	q.wg.Wait()
	return err
}
