package schemaregistry

import (
	"context"
	"errors"
	"slices"

	"millrace/client"
	"millrace/client/statetopic"
)

// proposal is what a decision would write.
type proposal struct {
	records []outRecord
	more    bool   // decide again afterwards: this is a part
	written func() // called when the records are in the log; may be nil
}

// outRecord is a record to write. A nil value is a null.
type outRecord struct {
	key   key
	value any
}

// write has a decision made against the state at the end of the log, and carries it out. Where the log has moved on
// meanwhile the decision is made anew. An error of the decision counts only if it was made at the end, too.
func (r *Registry) write(ctx context.Context, decide func(context.Context) (proposal, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return &Error{Code: CodeStoreFailed, Message: "other writes take too long; nothing was written", Cause: ctx.Err()}
	}
	for begun := false; ; {
		p, done, err := r.writeOne(ctx, decide)
		switch {
		case err != nil && begun:
			return inPart(err)
		case err != nil || done && !p.more:
			return err
		}
		begun = begun || done
	}
}

// writeOne makes a decision and carries it out. done is false where it has to be made anew.
func (r *Registry) writeOne(ctx context.Context, decide func(context.Context) (proposal, error)) (
	p proposal, done bool, err error,
) {
	if err := r.tail.ReachEnd(ctx); err != nil {
		return p, false, &Error{
			Code: CodeStoreFailed, Message: "the end of " + r.cfg.Topic + " cannot be read: nothing was written", Cause: err,
		}
	}
	at := r.place()
	p, err = decide(ctx)
	if r.place() != at {
		return p, false, nil
	}
	if err != nil || len(p.records) == 0 {
		return proposal{}, true, err
	}
	if done, err = r.append(ctx, at, r.withMarks(p.records)); done && err == nil && p.written != nil {
		p.written()
	}
	return p, done, err
}

// inPart is the error of a write of which a part is in the log.
func inPart(err error) error {
	e := *AsError(err)
	if e.Code == CodeStoreFailed || e.Code == CodeStoreTimeout {
		e.Code, e.Unknown = CodeStoreTimeout, true
		e.Message = "a part of the change is written, perhaps not all; send the same request again"
	}
	return &e
}

// withMarks adds marks to records for contexts whose greatest id the log would forget once it is compacted: another
// registry has deleted its schema.
func (r *Registry) withMarks(records []outRecord) []outRecord {
	if r.cfg.Flaws.ForgetMark {
		return slices.DeleteFunc(records, func(o outRecord) bool { return o.key.kind == kindIDs })
	}
	marked := map[string]bool{}
	for i := range records {
		if k := records[i].key; k.kind == kindIDs {
			marked[k.subject.Context] = true
		}
	}
	var marks []outRecord
	r.read(func(s *state) {
		for i := range records {
			name := records[i].key.subject.Context
			if c := s.contexts[name]; c != nil && !marked[name] && c.unmarked() {
				marked[name] = true
				marks = append(marks, outRecord{idsKey(name), idsValue{name, c.maxID}})
			}
		}
	})
	return append(marks, records...)
}

// encodeBatch makes one batch of records, and of tombstones for other spellings of their keys.
func (r *Registry) encodeBatch(records []outRecord) (*statetopic.Batch, error) {
	b := r.tail.NewBatch(r.cfg.Now())
	add := func(key, value []byte) error {
		if n := len(key) + len(value); n > r.cfg.Limits.RecordBytes {
			return refuse(CodeTooLarge, "the schema makes a record of %d bytes; %d are allowed", n, r.cfg.Limits.RecordBytes)
		}
		b.Add(key, value)
		return nil
	}
	for i := range records {
		rec := &records[i]
		for _, other := range r.otherSpellings(rec.key) {
			if err := add([]byte(other), nil); err != nil {
				return nil, err
			}
		}
		var value []byte
		if rec.value != nil {
			value = encode(rec.value)
		}
		if err := add(rec.key.append(nil), value); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (r *Registry) otherSpellings(k key) (out []string) {
	r.read(func(s *state) { out = append(out, s.spellings[k]...) })
	return out
}

// append appends records if the log still ends where the state does, and waits until they are read back. done is false
// when the log ends elsewhere: then nothing was written.
func (r *Registry) append(ctx context.Context, at *statetopic.Place, records []outRecord) (done bool, err error) {
	if !at.Exists() {
		if err := r.tail.Make(ctx, 1, 0); err != nil {
			return false, &Error{
				Code: CodeStoreFailed, Message: "topic " + r.cfg.Topic + " cannot be created: " + told(err), Cause: err,
			}
		}
		return false, nil
	}
	if r.tail.Forgets(ctx) {
		return false, &Error{
			Code:    CodeStoreFailed,
			Message: "topic " + r.cfg.Topic + " would forget schemas: set its cleanup.policy to compact alone",
		}
	}
	b, err := r.encodeBatch(records)
	if err != nil {
		return false, err
	}
	done, err = r.tail.Append(ctx, at, b)
	var fault *statetopic.Error
	if errors.As(err, &fault) {
		return done, r.failure(fault)
	}
	return done, err
}

// failure is the error of a write that came to nothing, or perhaps not.
func (r *Registry) failure(fault *statetopic.Error) error {
	switch {
	case fault.Unknown:
		return &Error{
			Code: CodeStoreTimeout, Unknown: true, Cause: fault.Cause,
			Message: "it is not known whether " + r.cfg.Topic + " has taken the change in; send the same request again",
		}
	case fault.TooLarge():
		return &Error{Code: CodeTooLarge, Message: "the schema is larger than " + r.cfg.Topic + " takes", Cause: fault.Cause}
	}
	text := "nothing was written to " + r.cfg.Topic
	if fault.Cause != nil {
		text += ": " + told(fault.Cause)
	}
	return &Error{Code: CodeStoreFailed, Message: text, Cause: fault.Cause}
}

// told is what a client is told of why the log cannot be written: what the cluster said, but not what lies between.
func told(err error) string {
	var said *client.KafkaError
	if errors.As(err, &said) {
		return said.Error()
	}
	return client.ErrNoAnswer.Error()
}
