package serde

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"millrace/record"
	"millrace/schemaregistry/schema"
)

// maxFaults bounds the records that a Fault lists.
const maxFaults = 1000

// Rules say what a topic enforces: nil is nothing.
type Rules struct {
	Topic      string
	Key, Value *Strategy
}

// CheckBatch finds the records of a batch whose key or value is not a framed value of a schema of the topic's subject.
// It returns a *record.Fault that lists them, or the error for which that cannot be told. A batch that cannot be read
// passes: whoever stores it refuses it. maxBytes bounds what a compressed one expands to.
func (s *Serde) CheckBatch(ctx context.Context, rules Rules, batch record.Batch, maxBytes int) error {
	c := batchCheck{rules: &rules}
	c.key.Reader = s.NewReader(rules.Topic, Key)
	c.value.Reader = s.NewReader(rules.Topic, Value)
	records := record.NewReader(batch, maxBytes)
	defer records.Close()
	var (
		rec   record.Record
		fault = record.Fault{Err: record.ErrInvalid}
		bad   int
	)
	for i := int32(0); records.Next(&rec); i++ {
		reason, err := c.record(ctx, &rec)
		switch {
		case err != nil:
			return err
		case reason == "":
		default:
			if bad++; len(fault.Records) < maxFaults {
				fault.Records = append(fault.Records, record.RecordFault{Index: i, Message: reason})
			}
		}
	}
	if bad == 0 || records.Err() != nil {
		return nil
	}
	fault.Message = fmt.Sprintf("%s by the schemas that topic %s enforces", record.RefusedRecords(bad), rules.Topic)
	return &fault
}

// batchCheck is the check of one batch.
type batchCheck struct {
	rules      *Rules
	key, value subjectCheck
}

// subjectCheck reads one part, and remembers of each schema whether its subject is the topic's.
type subjectCheck struct {
	*Reader
	strangers map[described]string // why a schema is none of the topic's; "" if it is one
	last      described            // what was asked about last
	verdict   string               // of last
}

// described is a schema, and the message of it that a value is.
type described struct {
	id      int
	guid    [16]byte
	message string
}

// record says why a record is refused, "" if it is not.
func (c *batchCheck) record(ctx context.Context, rec *record.Record) (string, error) {
	if c.rules.Key != nil {
		reason, err := c.part(ctx, &c.key, *c.rules.Key, rec.Key, rec.Headers)
		if reason != "" || err != nil {
			return reason, err
		}
	}
	if c.rules.Value != nil && rec.Value != nil { // a null value is the mark of a deleted key
		return c.part(ctx, &c.value, *c.rules.Value, rec.Value, rec.Headers)
	}
	return "", nil
}

func (c *batchCheck) part(ctx context.Context, p *subjectCheck, strategy Strategy, b []byte, headers []record.Header) (
	string, error,
) {
	read, err := p.Check(ctx, b, headers)
	var unknown *UnknownSchemaError
	switch {
	case errors.Is(err, ErrUnframed), errors.Is(err, schema.ErrMismatch), errors.As(err, &unknown):
		return fmt.Sprintf("its %s is refused: %v", p.part, err), nil
	case err != nil:
		return "", err
	}
	if of := (described{read.ID, read.GUID, read.Message}); of != p.last {
		verdict, ok := p.strangers[of]
		if !ok {
			if verdict, err = p.stranger(ctx, c.rules.Topic, strategy, read); err != nil {
				return "", err
			}
			if p.strangers == nil {
				p.strangers = map[described]string{}
			}
			p.strangers[of] = verdict
		}
		p.last, p.verdict = of, verdict
	}
	if p.verdict == "" {
		return "", nil
	}
	return fmt.Sprintf("its %s is refused: %s", p.part, p.verdict), nil
}

// stranger says why a schema is not of the subject that a topic's have. It waits for the end of the registry's log once
// at most, and not at all where the Reader has.
func (p *subjectCheck) stranger(ctx context.Context, topic string, strategy Strategy, read *Read) (string, error) {
	subject, err := strategy.Subject(topic, p.part, cmp.Or(read.Message, read.parsed.Name()))
	if err != nil {
		return err.Error(), nil
	}
	for {
		if p.serde.registry.GlanceHeldAs(read.ID, subject) != 0 {
			return "", nil
		}
		if p.asked {
			return fmt.Sprintf("schema id %d is not registered under subject %s", read.ID, subject), nil
		}
		if err := p.serde.fresh(ctx); err != nil {
			return "", err
		}
		p.asked = true
	}
}
