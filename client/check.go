package client

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
)

// maxRecordFaults bounds the records at fault that are listed for one batch, as leaders bound them.
const maxRecordFaults = 1000

// check holds all records against the topic's limits, as their leaders will. If one is at fault nothing is sent;
// otherwise the batches are cut to what the topic takes. It reports false, and does nothing, if the cluster does not
// tell the limits.
func (s *Sender) check(ctx context.Context) bool {
	s.checked = true
	l, ok := s.client.limits(ctx, s.topic)
	if ok && !s.refuse(&l) && !s.one {
		s.cut(min(batchTarget, l.MaxMessageBytes, l.SegmentBytes))
	}
	return ok
}

// refuse gives up all pieces if one cannot be stored.
func (s *Sender) refuse(l *record.Limits) bool {
	refused := false
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.err = s.pieceFault(p, l); p.err != nil {
			refused = true
		}
	}
	for i := range s.pieces {
		if p := &s.pieces[i]; refused {
			p.sent = true
			if p.err == nil {
				p.err = notAttempted(s.topic.Name, p.partition)
			}
		}
	}
	return refused
}

// notAttempted is the fate of what was not sent since something else of the request cannot be stored.
func notAttempted(topic string, partition int32) error {
	return newFault(kerr.OperationNotAttempted, "other records of this request were refused, so none was stored",
		topic, partition)
}

// pieceFault is what a leader would refuse a piece for, nil if nothing.
func (s *Sender) pieceFault(p *piece, l *record.Limits) error {
	var faults []RecordFault
	var code *kerr.Error // of several faults the one with the lowest: size, then time, then key
	refused, size := 0, record.HeaderSize
	for _, i := range s.order[p.lo:p.hi] {
		size += int(s.size[i])
		f := l.CheckRecord(&s.records[i])
		if f == nil {
			continue
		}
		if c := checkCode(f.Err); code == nil || c.Code < code.Code {
			code = c
		}
		if refused++; refused <= maxRecordFaults {
			faults = append(faults, RecordFault{Index: i, Message: f.Message})
		}
	}
	if refused > 0 {
		k := newFault(code, record.RefusedRecords(refused), s.topic.Name, p.partition)
		k.Records = faults
		return k
	}
	if s.one && size > min(l.MaxMessageBytes, l.SegmentBytes) { // by the bound; what it really takes is less
		return checkFault(record.Check(s.build(p), *l), s.topic.Name, p.partition)
	}
	return nil
}

// checkFault is the error that a leader would answer for a batch that fails record.Check.
func checkFault(err error, topic string, partition int32) error {
	var f *record.Fault
	if !errors.As(err, &f) {
		return err
	}
	k := newFault(checkCode(err), f.Message, topic, partition)
	for _, r := range f.Records {
		k.Records = append(k.Records, RecordFault{Index: r.Index, Message: r.Message})
	}
	return k
}

// checkCode is the Kafka code of a failed check.
func checkCode(err error) *kerr.Error {
	switch {
	case errors.Is(err, record.ErrCorrupt):
		return kerr.CorruptMessage
	case errors.Is(err, record.ErrTooLarge):
		return kerr.MessageTooLarge
	case errors.Is(err, record.ErrSegmentTooSmall):
		return kerr.RecordListTooLarge
	case errors.Is(err, record.ErrTimestamp):
		return kerr.InvalidTimestamp
	case errors.Is(err, record.ErrUnsupportedCodec):
		return kerr.UnsupportedCompressionType
	default:
		return kerr.InvalidRecord
	}
}
