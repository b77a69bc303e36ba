package simtest

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/server"
	"millrace/server/quorum"
	"millrace/server/servertest/memnet"
	"millrace/storage/storagetest"
)

const port = 8082

// machine is a host with a disk, on which a node lives one life after the other.
type machine struct {
	s      *sim
	id     int32
	name   string
	faults diskFaults
	skew   atomic.Int64 // of its clock
	failed atomic.Bool  // the node wants a restart: its disk has failed a call, or it is no member any more
	ruined atomic.Bool  // its disk may hold what no node starts on
	cuts   atomic.Int32 // of ways between it and clients
	upset  atomic.Int64 // when clients could last not reach it, since the history's begin
	logs   ring
	rng    *rand.Rand // of crashes; under lock

	// lock has one place: whoever starts or ends a life holds it, for as long as that takes.
	lock chan struct{}

	mu    sync.Mutex
	host  *memnet.Host    // guarded by mu
	disk  *storagetest.FS // guarded by mu
	next  *storagetest.FS // guarded by mu; the disk of the next life, once this one has ended
	node  *server.Node    // guarded by mu; nil while there is none
	life  uint64          // guarded by mu
	quota int64           // guarded by mu
	older *storagetest.FS // guarded by mu; what the disk held at the end of an earlier life
	rot   map[string]bool // guarded by mu; the logs that are damaged
}

func newMachine(s *sim, id int32) *machine {
	m := &machine{
		s: s, id: id, name: fmt.Sprint("n", id), lock: make(chan struct{}, 1), disk: storagetest.New(),
		rng: rand.New(rand.NewPCG(s.opts.Seed, 100+uint64(id))), rot: map[string]bool{},
	}
	m.faults.rng = rand.New(rand.NewPCG(s.opts.Seed, 200+uint64(id)))
	if s.plan.skewed {
		m.skew.Store(int64(around(m.rng, time.Hour)) * int64(id-2))
	}
	return m
}

func (m *machine) url() string { return fmt.Sprintf("http://%s:%d", m.name, port) }

// rack is where the machine stands: the first is alone, the others are together.
func (m *machine) rack() string { return fmt.Sprint("rack", min(m.id, 2)) }

// shut notes that ways between the machine and clients are cut, or no longer.
func (m *machine) shut(more int32) {
	m.cuts.Add(more)
	m.upset.Store(int64(m.s.h.Now()))
}

// reachable says whether nothing was between the machine and its clients since a time.
func (m *machine) reachable(since time.Duration) bool {
	return m.cuts.Load() == 0 && m.upset.Load() < int64(since) && m.alive() != nil
}

// now is the machine's wall clock.
func (m *machine) now() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) }

// alive gives the node, nil when there is none or its end has begun.
func (m *machine) alive() *server.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil {
		return nil
	}
	return m.node
}

// lives is how often a node was started there.
func (m *machine) lives() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// start begins a life, if there is none.
func (m *machine) start() error {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	m.mu.Lock()
	if m.node != nil {
		m.mu.Unlock()
		return nil
	}
	if m.next != nil {
		m.disk, m.next = m.next, nil
	}
	m.disk.SetFault(m.faults.fault)
	m.disk.SetQuota(m.quota)
	m.host = m.s.net.Boot(m.name)
	m.life++
	host, disk, life := m.host, m.disk, m.life
	m.mu.Unlock()
	listener, err := host.Listen(port)
	if err == nil {
		cfg := m.config(disk, life)
		cfg.Listener, cfg.Dial = listener, host.Dial
		var node *server.Node
		if node, err = server.Open(cfg); err == nil {
			m.mu.Lock()
			m.node = node
			m.mu.Unlock()
			return nil
		}
	}
	m.fence(modeKill, false)
	return err
}

// config is the node's, but for its network.
func (m *machine) config(disk *storagetest.FS, life uint64) server.Config {
	s := m.s
	cfg := server.DefaultConfig()
	cfg.NodeID = m.id
	cfg.DataDir = s.opts.Scratch
	cfg.FS = disk
	cfg.Broker = map[string]string{}
	for k, v := range s.plan.broker {
		cfg.Broker[k] = v
	}
	if s.plan.racks {
		cfg.Broker["broker.rack"] = m.rack()
	}
	cfg.Now = m.now
	cfg.Rand = rand.New(rand.NewPCG(s.opts.Seed, 1000*uint64(m.id)+life))
	cfg.Logger = slog.New(slog.NewTextHandler(&m.logs, &slog.HandlerOptions{Level: slog.LevelInfo})).With("at", m.name)
	cfg.Fatal = func(err error) { m.fatal(life, err) }
	cfg.Flaws, cfg.RegistryFlaws = s.opts.Flaws, s.opts.RegistryFlaws
	if len(s.nodes) > 1 {
		cfg.ClusterSecret = []byte("the secret of a cluster in a simulation")
		for _, n := range s.nodes {
			cfg.Voters = append(cfg.Voters, quorum.Voter{ID: n.id, Address: n.url()})
		}
	}
	return cfg
}

// fence ends what a life can do, at once: its disk and its network fail from now on. It says whether the life was
// going on.
func (m *machine) fence(mode storagetest.Mode, power bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil || m.host == nil {
		return false
	}
	m.next = m.disk.Crash(mode, m.rng)
	m.upset.Store(int64(m.s.h.Now()))
	if m.faults.lied() && mode != modeKill {
		m.s.exemptAll("%s has lost what it said was synced", m.name)
	}
	if power {
		m.host.PowerOff()
	} else {
		m.host.Kill()
	}
	return true
}

// kill ends a life at once. What is left of it can do nothing any more; its end is awaited in the background, where it
// takes as long as its requests take to give up.
func (m *machine) kill(mode storagetest.Mode, power bool) {
	m.fence(mode, power)
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	m.mu.Lock()
	defer m.mu.Unlock()
	if node := m.node; node != nil && m.next != nil {
		m.node = nil
		m.s.remains.Go(func() { _ = node.Kill() }) // all its files and connections fail, as they should
	}
}

// stopInOrder ends a life as SIGTERM does.
func (m *machine) stopInOrder() error {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	m.mu.Lock()
	node := m.node
	m.mu.Unlock()
	if node == nil {
		return nil
	}
	err := node.Close()
	m.fence(modeKill, false)
	m.mu.Lock()
	m.node = nil
	m.mu.Unlock()
	return err
}

// fatal is what a node calls when it cannot go on: the process ends, and whatever watches over it starts it again.
func (m *machine) fatal(life uint64, err error) {
	m.mu.Lock()
	now := m.life
	m.mu.Unlock()
	if now != life || !m.fence(modeKill, false) {
		return // it is about to end anyway
	}
	m.s.note("%s cannot go on: %v", m.name, err)
	m.s.ends.Go(func() {
		m.kill(modeKill, false)
		if sleep(m.s.healing, 2*time.Second) {
			m.tryStart()
		}
	})
}

// tryStart starts a node that may fail to, since its disk is full for example; then it stays down until somebody tries
// again.
func (m *machine) tryStart() {
	if err := m.start(); err != nil {
		m.s.note("%s does not start: %v", m.name, err)
	}
}

// setQuota bounds the bytes that the disk takes beyond what it has; below 0 there is no bound.
func (m *machine) setQuota(beyond int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota = 0
	if beyond >= 0 {
		m.quota = m.disk.Used() + beyond
	}
	m.disk.SetQuota(m.quota)
}
