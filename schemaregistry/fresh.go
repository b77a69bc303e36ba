package schemaregistry

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// ask is a question for the end of the log that is yet to be put. All who wait for it came before it was.
type ask struct {
	done chan struct{}
	at   position
	err  error
}

var errStopped = errors.New("the registry has stopped")

// Fresh waits until all that was written before is read. Where the log's end cannot be told in time it returns all the
// same: what is read may be old then. It is an error that nothing was read yet.
func (r *Registry) Fresh(ctx context.Context) error {
	_, err := r.fresh(ctx)
	return err
}

// fresh is Fresh, and tells why what is read may be old; nil if it is not.
func (r *Registry) fresh(ctx context.Context) (doubt, err error) {
	if r.cfg.Flaws.SkipFresh && r.isLoaded() {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.Limits.FreshWait)
	defer cancel()
	if _, doubt = r.reachEnd(bounded); doubt == nil || r.isLoaded() {
		return doubt, nil
	}
	bounded, cancel = context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	if err := r.AwaitRead(bounded); err != nil {
		return doubt, &Error{
			Code: CodeStoreFailed, Message: "the registry is still reading " + r.cfg.Topic + "; ask again", Cause: err,
		}
	}
	return doubt, nil
}

// notFound is the answer for a schema that is not in memory: an id that was given to somebody is never said not to be
// there only because this node has not read of it.
func (r *Registry) notFound(doubt error, format string, args ...any) *Error {
	e := refuse(CodeSchemaNotFound, format, args...)
	if doubt != nil {
		e = refuse(CodeStoreFailed, format+" that this node has read of, and the leader of "+r.cfg.Topic+
			" does not tell what it has not read; ask again", args...)
		e.Cause = doubt
	}
	return e
}

// catchUp waits until all that was written before is read, and tells where that is.
func (r *Registry) catchUp(ctx context.Context) (position, error) {
	for {
		end, err := r.askEnd(ctx)
		if err != nil {
			return position{}, err
		}
		at, moved := r.whereabouts()
		for at.topic == end.topic && at.offset < end.offset {
			select {
			case <-moved:
			case <-ctx.Done():
				return position{}, ctx.Err()
			}
			at, moved = r.whereabouts()
		}
		if at.topic == end.topic && r.isLoaded() {
			return at, nil
		}
		r.kick() // the reader, or the client's metadata, is of another topic
		if err := awaitEither(ctx, moved, retryWait); err != nil {
			return position{}, err
		}
	}
}

func (r *Registry) whereabouts() (at position, moved <-chan struct{}) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at, r.moved
}

// awaitEither waits for a channel, but no longer than d.
func awaitEither(ctx context.Context, moved <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-moved:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitRead waits until all of the log was read once.
func (r *Registry) AwaitRead(ctx context.Context) error {
	for {
		_, moved := r.whereabouts()
		if r.isLoaded() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitOffset waits until the topic is read up to an offset. It fails when the topic is no longer read.
func (r *Registry) awaitOffset(ctx context.Context, until position) error {
	for {
		at, moved := r.whereabouts()
		switch {
		case at.topic != until.topic:
			return errors.New("the topic is another one now")
		case at.offset >= until.offset:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askEnd asks for the end of the log, later than it was called, and together with all others who ask.
func (r *Registry) askEnd(ctx context.Context) (position, error) {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return position{}, errStopped
	}
	a := r.next
	if a == nil {
		a = &ask{done: make(chan struct{})}
		r.next = a
	}
	r.mu.Unlock()
	select {
	case r.asking <- struct{}{}:
	default:
	}
	select {
	case <-a.done:
		return a.at, a.err
	case <-ctx.Done():
		return position{}, ctx.Err()
	}
}

// answerAsks puts the questions of askEnd until ctx ends.
func (r *Registry) answerAsks(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-r.asking:
		case <-ctx.Done():
		}
		a := r.takeAsk(ctx.Err() != nil)
		if a == nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.Limits.FreshWait)
		a.at, a.err = r.logEnd(bounded)
		cancel()
		close(a.done)
	}
	if a := r.takeAsk(true); a != nil {
		a.err = errStopped
		close(a.done)
	}
}

// takeAsk takes the question that all wait for, nil if nobody does. After the last one nobody may ask.
func (r *Registry) takeAsk(last bool) *ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.next
	r.next, r.stopped = nil, last
	return a
}

// logEnd is the end of the log by its leader.
func (r *Registry) logEnd(ctx context.Context) (position, error) {
	topic, err := r.client.Topic(ctx, r.cfg.Topic, client.Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return position{}, nil
	}
	if err != nil {
		return position{}, err
	}
	queries := []client.OffsetQuery{{Partition: 0, Timestamp: client.Latest}}
	found, err := r.client.ListOffsets(ctx, topic, queries, client.ReadUncommitted)
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return position{}, err
	}
	return position{topic.ID, found[0].Offset}, nil
}
