package broker

import (
	"sync"
	"time"

	"millrace/server/partition"
)

// fetchers are the fetch loops of this node, one for each broker that leads something it follows.
// Everything here is guarded by the broker's turn: only OnImage, Start and Close come here.
type fetchers struct {
	broker  *Broker
	started bool
	loops   map[int32]*fetchLoop
}

func newFetchers(b *Broker) *fetchers { return &fetchers{broker: b, loops: make(map[int32]*fetchLoop)} }

// start lets the loops run that were filled before the broker was registered.
func (s *fetchers) start() {
	s.started = true
	for _, l := range s.loops {
		l.start()
	}
}

// add has a partition fetched from its leader.
func (s *fetchers) add(leader int32, f *feed) {
	l := s.loops[leader]
	if l == nil {
		l = newFetchLoop(s.broker, leader)
		s.loops[leader] = l
		if s.started {
			l.start()
		}
	}
	l.live++
	f.loop = l
	l.add(f)
}

// end stops the fetching of a partition. A request that names it may still be on its way; the partition
// drops its answer.
func (s *fetchers) end(f *feed) {
	f.end()
	l := f.loop
	if l.live--; l.live == 0 {
		l.cancel()
		delete(s.loops, l.leader)
	}
}

// hurry has the loop of a leader try again at once: the metadata says something new about that broker.
func (s *fetchers) hurry(leader int32) {
	if l := s.loops[leader]; l != nil {
		l.hurry.Store(true)
		l.rouse()
	}
}

// feed is one partition in the loop of its leader, for as long as the node follows that leader in one
// leader epoch. A newer role makes a new feed.
type feed struct {
	follower *partition.Follower
	name     partition.Name
	epoch    int32      // the leader's
	loop     *fetchLoop // set when it is added

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
}

func newFeed(f *partition.Follower, n partition.Name, epoch int32) *feed {
	return &feed{follower: f, name: n, epoch: epoch}
}

// renew takes up what the metadata says of the replica, and ends its back-off.
func (f *feed) renew(outside, throttled bool) {
	f.mu.Lock()
	f.outside, f.throttled = outside, outside && throttled
	f.due = time.Time{}
	f.mu.Unlock()
	f.loop.rouse()
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
	f.loop.rouse()
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

// taken notes a good answer. It reports whether there was a bad one before.
func (f *feed) taken(full bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	recovered := f.failed != 0
	f.pause, f.failed, f.deep = 0, 0, full
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
