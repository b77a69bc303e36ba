package store

import (
	"context"
	"errors"
	"fmt"

	"millrace/client/statetopic"
)

// Update has a change decided against all configs that were acknowledged, and appends it as one batch if nobody has
// written meanwhile; else it is decided anew. An error of decide ends it, as does a decision to change nothing. It
// returns the configs with the change in them.
func (s *Store) Update(ctx context.Context, decide func(*Configs) ([]Change, error)) (*Configs, error) {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return nil, &Error{Message: "other changes take too long; nothing was changed", Cause: ctx.Err()}
	}
	for {
		if err := s.configs.ReachEnd(ctx); err != nil {
			text := "the end of topic " + s.configs.Topic() + " cannot be read; nothing was changed"
			return nil, &Error{Message: text, Cause: err}
		}
		now := s.Configs()
		changes, err := decide(now)
		if err != nil || len(changes) == 0 {
			return now, err
		}
		done, err := s.append(ctx, now, now.records(changes))
		if err != nil {
			return nil, err
		}
		if done {
			return s.Configs(), nil
		}
		s.metrics.conflicts.Inc()
	}
}

// append appends records if the topic still ends where the configs do, and waits until they are read back. done is
// false when it ends elsewhere: then nothing was written.
func (s *Store) append(ctx context.Context, at *Configs, records []outRecord) (done bool, err error) {
	if !at.place.Exists() {
		return false, s.makeTopic(ctx, s.configs)
	}
	if err := s.checkTopic(ctx, s.configs); err != nil {
		return false, err
	}
	b := s.configs.NewBatch(s.opts.Now())
	for i := range records {
		r := &records[i]
		if n := len(r.key) + len(r.value); n > maxRecordBytes {
			text := fmt.Sprintf("%.300q makes a record of %d bytes; %d are allowed", r.key, n, maxRecordBytes)
			return false, &Error{Message: text, Refused: true}
		}
		b.Add([]byte(r.key), r.value)
	}
	done, err = s.configs.Append(ctx, at.place, b)
	var fault *statetopic.Error
	if errors.As(err, &fault) {
		return done, s.failure(fault)
	}
	return done, err
}

// failure is the error of a change that came to nothing, or perhaps not.
func (s *Store) failure(fault *statetopic.Error) error {
	topic := s.configs.Topic()
	if fault.Unknown {
		return &Error{
			Unknown: true, Cause: fault.Cause,
			Message: "it is not known whether topic " + topic + " has taken the change in; send the same request again",
		}
	}
	return &Error{Message: "nothing was written to topic " + topic, Cause: fault.Cause, Refused: fault.TooLarge()}
}
