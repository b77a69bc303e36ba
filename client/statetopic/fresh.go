package statetopic

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// ErrStopped says that the topic is not read any more, since Run has returned.
var ErrStopped = errors.New("the topic is not read any more")

var errAnother = errors.New("the topic is another one now")

// Ask is a question for the end of the topic. All who wait for it came before it was put.
type Ask struct {
	done chan struct{}
	at   *Place
	err  error
}

// Ask joins the next question for the end of the topic, which is put later than this call.
func (t *Tail) Ask() *Ask {
	t.mu.Lock()
	a := t.next
	switch {
	case t.stopped:
		a = &Ask{done: make(chan struct{}), err: ErrStopped}
		close(a.done)
	case a == nil:
		a = &Ask{done: make(chan struct{})}
		t.next = a
	}
	t.mu.Unlock()
	select {
	case t.asking <- struct{}{}:
	default:
	}
	return a
}

// answerAsks puts the questions until ctx ends.
func (t *Tail) answerAsks(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-t.asking:
		case <-ctx.Done():
		}
		a := t.takeAsk(ctx.Err() != nil)
		if a == nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, t.opts.FreshWait)
		a.at, a.err = t.end(bounded)
		cancel()
		close(a.done)
	}
	if a := t.takeAsk(true); a != nil {
		a.err = ErrStopped
		close(a.done)
	}
}

// takeAsk takes the question that all wait for, nil if nobody does. After the last one nobody may ask.
func (t *Tail) takeAsk(last bool) *Ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.next
	t.next, t.stopped = nil, last
	return a
}

// end is where the topic ends by its leaders.
func (t *Tail) end(ctx context.Context) (*Place, error) {
	at, err := t.endAsKnown(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) { // it was deleted since the client heard of it, which knows that now
		at, err = t.endAsKnown(ctx)
	}
	return at, err
}

// endAsKnown is the end of the topic that the client knows, which may be gone.
func (t *Tail) endAsKnown(ctx context.Context) (*Place, error) {
	topic, err := t.opts.Client.Topic(ctx, t.opts.Topic, client.Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return &Place{}, nil
	}
	if err != nil {
		return nil, err
	}
	ends, err := t.lookUp(ctx, topic, client.Latest)
	if err != nil {
		return nil, err
	}
	return &Place{Topic: topic.ID, Offsets: ends}, nil
}

// Reach waits until all that was written before a question is read.
func (t *Tail) Reach(ctx context.Context, a *Ask) error {
	for {
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.err != nil {
			return a.err
		}
		end := a.at
		at, moved := t.whereabouts()
		for at.Topic == end.Topic && !at.covers(end) && len(at.Offsets) >= len(end.Offsets) {
			select {
			case <-moved:
			case <-ctx.Done():
				return ctx.Err()
			}
			at, moved = t.whereabouts()
		}
		if at.covers(end) && t.Loaded() {
			return nil
		}
		t.kick() // the reader, or the client's metadata, is of another topic
		if err := awaitEither(ctx, moved, retryWait); err != nil {
			return err
		}
		a = t.Ask()
	}
}

// ReachEnd waits until all is read that was written before it was called, and goes on as long as it has time where the
// end cannot be told.
func (t *Tail) ReachEnd(ctx context.Context) error {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		err := t.Reach(ctx, t.Ask())
		if err == nil || errors.Is(err, ErrStopped) || IsRefusal(err) || pause(ctx, wait) != nil {
			return err
		}
	}
}

// AwaitRead waits until all of the topic was read once.
func (t *Tail) AwaitRead(ctx context.Context) error {
	for {
		_, moved := t.whereabouts()
		if t.Loaded() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitOffset waits until the first partition is read up to an offset. It fails when the topic is no longer read.
func (t *Tail) awaitOffset(ctx context.Context, topic [16]byte, offset int64) error {
	for {
		at, moved := t.whereabouts()
		switch {
		case at.Topic != topic:
			return errAnother
		case at.Offset() >= offset:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
