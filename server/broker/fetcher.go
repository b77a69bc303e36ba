package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/server/partition"
)

// fetchers are what this node fetches with, one fetcher for each broker that leads something it follows.
// Everything here is guarded by the broker's turn: only OnImage, Start and Close come here.
type fetchers struct {
	broker  *Broker
	started bool
	leaders map[int32]*fetcher
}

func newFetchers(b *Broker) *fetchers { return &fetchers{broker: b, leaders: make(map[int32]*fetcher)} }

// start lets the loops run that were filled before the broker was registered.
func (s *fetchers) start() {
	s.started = true
	for _, f := range s.leaders {
		f.start()
	}
}

// add has a partition fetched from its leader, from flush on.
func (s *fetchers) add(leader int32, p *feed) {
	f := s.leaders[leader]
	if f == nil {
		f = newFetcher(s.broker, leader)
		s.leaders[leader] = f
		if s.started {
			f.start()
		}
	}
	f.live++
	p.fetcher = f
	f.pending = append(f.pending, p)
}

// flush hands the loops what was added since the last call, so that one image interrupts each once.
func (s *fetchers) flush() {
	for _, f := range s.leaders {
		if len(f.pending) > 0 {
			f.quiet.add(f.pending...)
			f.pending = f.pending[:0]
		}
	}
}

// end stops the fetching of a partition. A request that names it may still be on its way; the partition
// drops its answer.
func (s *fetchers) end(p *feed) {
	p.end()
	f := p.fetcher
	if f.live--; f.live == 0 {
		f.cancel()
		delete(s.leaders, f.leader)
	}
}

// hurry has a leader tried again at once: the metadata says something new about that broker.
func (s *fetchers) hurry(leader int32) {
	if f := s.leaders[leader]; f != nil {
		f.quiet.hurry.Store(true)
		f.busy.hurry.Store(true)
		f.rouse()
	}
}

// fetcher fetches what this node follows of one leader, in two loops: the partitions in which something is
// going on are fetched by themselves, so that a round of theirs does not cost one of a thousand that rest.
type fetcher struct {
	broker      *Broker
	leader      int32
	ctx         context.Context
	cancel      context.CancelFunc
	quiet, busy *fetchLoop
	live        int         // feeds that have not ended; guarded by the broker's turn
	pending     []*feed     // added and not flushed; guarded by the broker's turn
	down        atomic.Bool // the operator was told that the leader cannot be reached
}

func newFetcher(b *Broker, leader int32) *fetcher {
	f := &fetcher{broker: b, leader: leader}
	f.ctx, f.cancel = context.WithCancel(b.ctx)
	f.quiet, f.busy = newFetchLoop(f), newFetchLoop(f)
	return f
}

func (f *fetcher) start() {
	f.broker.wg.Go(f.quiet.run)
	f.broker.wg.Go(f.busy.run)
}

func (f *fetcher) rouse() {
	f.quiet.rouse()
	f.busy.rouse()
}

// orphaned has a follower that is waited for fetched without the delay of a long poll that does not know of that.
func (b *Broker) orphaned(n partition.Name) {
	if f := b.view.Load().feed(n); f != nil { // else its first fetch is still to come
		f.fetcher.quiet.add()
		f.fetcher.busy.add()
	}
}

// When a partition is moved from one loop to the other.
const (
	// fewFeeds is with how many partitions one loop does.
	fewFeeds = 16
	// busyRounds answers with records, within busyTime, make a partition a busy one.
	busyRounds = 4
	busyTime   = time.Second
	// quietTime is how long nothing comes before it is a quiet one again.
	quietTime = 5 * time.Second
)

// feed is one partition in the loop of its leader, for as long as the node follows that leader in one
// leader epoch. A newer role makes a new feed.
type feed struct {
	follower *partition.Follower
	name     partition.Name
	epoch    int32    // the leader's
	fetcher  *fetcher // set when it is added

	// Of the loop that has it.
	records time.Time // when records came last
	since   time.Time // when rounds began to be counted
	rounds  int       // that brought records

	mu sync.Mutex
	// Guarded by mu.
	outside   bool          // not in the ISR: may ask for more
	throttled bool          // outside, and throttled by its topic
	ended     bool          // no request may name it any more
	held      bool          // no request may name it for now
	asked     bool          // a request that names it is on its way
	due       time.Time     // when it may be asked for
	pause     time.Duration // the last back-off, 0 after success
	deep      bool          // the last answer was full: there is more to come
	failed    int16         // the error code of the last answer
	faulty    bool          // the back-off is because of the log here
}

func newFeed(f *partition.Follower, n partition.Name, epoch int32) *feed {
	return &feed{follower: f, name: n, epoch: epoch}
}

// renew takes up what the metadata says of the replica, and ends a back-off that is because of the leader.
func (f *feed) renew(outside, throttled bool) {
	f.mu.Lock()
	f.outside, f.throttled = outside, outside && throttled
	if !f.faulty {
		f.due = time.Time{}
	}
	f.mu.Unlock()
	f.fetcher.rouse()
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// hold keeps the partition out of requests until release. It is false while one on its way names it.
func (f *feed) hold() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = true
	return !f.asked
}

func (f *feed) release() {
	f.mu.Lock()
	f.held = false
	f.mu.Unlock()
	f.fetcher.rouse()
}

// gone tells whether the feed has ended.
func (f *feed) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// ask says whether a request may name the partition now, and else when.
func (f *feed) ask(now time.Time) (ok bool, due time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.held {
		return false, time.Time{}
	}
	if now.Before(f.due) {
		return false, f.due
	}
	f.asked = true
	return true, f.due
}

// answered says that the request is over. It reports whether somebody waits for that.
func (f *feed) answered() (held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = false
	return f.held
}

// backOff keeps the partition out of requests for a while: first as long as given, then twice as long
// each time, up to most. It reports whether the code is news.
func (f *feed) backOff(now time.Time, code int16, first, most time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = min(max(2*f.pause, first), most)
	f.due = now.Add(f.pause)
	news := f.failed != code
	f.failed = code
	return news
}

// fault is backOff because of the log here, which newer metadata does not help.
func (f *feed) fault(now time.Time, code int16, first, most time.Duration) bool {
	f.mu.Lock()
	f.faulty = true
	f.mu.Unlock()
	return f.backOff(now, code, first, most)
}

// came notes that records came.
func (f *feed) came(now time.Time) {
	if f.records = now; now.Sub(f.since) > busyTime {
		f.since, f.rounds = now, 0
	}
	f.rounds++
}

// taken notes a good answer. It reports whether there was a bad one before.
func (f *feed) taken(full bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	recovered := f.failed != 0
	f.pause, f.failed, f.faulty, f.deep = 0, 0, false, full
	return recovered
}

// slow tells whether the partition is throttled.
func (f *feed) slow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.throttled
}

// wants tells how the partition is to be asked for.
func (f *feed) wants() (far, throttled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outside || f.deep, f.throttled
}
