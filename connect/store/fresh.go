package store

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// ask is a question for the end of a topic that is yet to be put. All who wait for it came before it was.
type ask struct {
	done chan struct{}
	at   *place
	err  error
}

var errStopped = errors.New("the store has stopped")

// reach waits until all that was written before a question is read, and tells where that is.
func (t *tail) reach(ctx context.Context, a *ask) (*place, error) {
	for {
		end, err := t.await(ctx, a)
		if err != nil {
			return nil, err
		}
		at, moved := t.whereabouts()
		for at.topic == end.topic && !at.covers(end) && len(at.offsets) >= len(end.offsets) {
			select {
			case <-moved:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			at, moved = t.whereabouts()
		}
		if at.covers(end) && t.isLoaded() {
			return at, nil
		}
		t.kick() // the tail, or the client's metadata, is of another topic
		if err := awaitEither(ctx, moved, retryWait); err != nil {
			return nil, err
		}
		a = t.ask()
	}
}

// reachEnd is reach for a write, which goes on as long as it has time where the end cannot be told.
func (t *tail) reachEnd(ctx context.Context) (*place, error) {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		at, err := t.reach(ctx, t.ask())
		if err == nil || errors.Is(err, errStopped) || isRefusal(err) || pause(ctx, wait) != nil {
			return at, err
		}
	}
}

// awaitEither waits for a channel, but no longer than d.
func awaitEither(ctx context.Context, moved <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-moved:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tail) awaitRead(ctx context.Context) error {
	for {
		_, moved := t.whereabouts()
		if t.isLoaded() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask joins the next question for the end of the topic, which is put later than this call.
func (t *tail) ask() *ask {
	t.mu.Lock()
	a := t.next
	switch {
	case t.stopped:
		a = &ask{done: make(chan struct{}), err: errStopped}
		close(a.done)
	case a == nil:
		a = &ask{done: make(chan struct{})}
		t.next = a
	}
	t.mu.Unlock()
	select {
	case t.asking <- struct{}{}:
	default:
	}
	return a
}

func (t *tail) await(ctx context.Context, a *ask) (*place, error) {
	select {
	case <-a.done:
		return a.at, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerAsks puts the questions until ctx ends.
func (t *tail) answerAsks(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-t.asking:
		case <-ctx.Done():
		}
		a := t.takeAsk(ctx.Err() != nil)
		if a == nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, freshWait)
		a.at, a.err = t.end(bounded)
		cancel()
		close(a.done)
	}
	if a := t.takeAsk(true); a != nil {
		a.err = errStopped
		close(a.done)
	}
}

// takeAsk takes the question that all wait for, nil if nobody does. After the last one nobody may ask.
func (t *tail) takeAsk(last bool) *ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.next
	t.next, t.stopped = nil, last
	return a
}

// end is where the topic ends by its leaders.
func (t *tail) end(ctx context.Context) (*place, error) {
	topic, err := t.s.client.Topic(ctx, t.topic, client.Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return &place{}, nil
	}
	if err != nil {
		return nil, err
	}
	f := follower{tail: t, topic: topic}
	ends, err := f.lookUp(ctx, client.Latest)
	if err != nil {
		return nil, err
	}
	return &place{topic: topic.ID, offsets: ends}, nil
}
