package coordinator

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
)

// How a partition is read.
const (
	readBytes     = 1 << 20
	expandedBytes = 64 << 20         // of one compressed batch
	progressEvery = time.Second      // that a load is spoken of
	firstRetry    = time.Second      // after a log that could not be read
	lastRetry     = 15 * time.Second // between tries
)

// load reads the log into a new state; false when the shard ended before, which it does where the node leads no longer.
// A log that cannot be read is tried again: the broker gives a damaged one up where there is another replica.
func (s *Shard) load() bool {
	for pause := firstRetry; s.ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := s.readAll()
		if err == nil {
			s.broken.Store(false)
			return true
		}
		if isOver(err) {
			s.resign(kerr.NotCoordinator)
		}
		if s.ctx.Err() != nil {
			return false
		}
		s.broken.Store(true)
		s.runtime.cfg.Failed(s.leader.Name(), err)
		s.log.Error("the coordinator's log cannot be read", "err", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
		}
	}
	return false
}

// readAll replays the log from its start to its end. Nobody else appends to it in this epoch.
func (s *Shard) readAll() error {
	s.timers, s.timerSeq = nil, 0
	s.state = s.runtime.cfg.New(s)
	var (
		buf      []byte
		records  int
		reader   = record.Reader{Codecs: s.runtime.codecs}
		at       = s.leader.Bounds().LogStart
		start    = time.Now()
		reported = start
	)
	defer reader.Close()
	alloc := func(n int) []byte {
		if n > cap(buf) {
			buf = make([]byte, n)
		}
		return buf[:n]
	}
	for s.ctx.Err() == nil {
		batches, next, err := s.leader.Read(at, readBytes, alloc)
		if err != nil {
			return err
		}
		if len(batches) == 0 && next >= s.leader.Bounds().LogEnd {
			break
		}
		n, err := s.replay(&reader, batches)
		if err != nil {
			return err
		}
		records += n
		if at = next; time.Since(reported) >= progressEvery {
			reported = time.Now()
			s.log.Info("reading the coordinator's log", "offset", at, "end", s.leader.Bounds().LogEnd, "records", records)
		}
	}
	s.end = at
	if took := time.Since(start); took >= progressEvery {
		s.log.Info("the coordinator's log has been read", "offset", at, "records", records, "took", took)
	}
	return s.ctx.Err()
}

// replay gives whole batches to the state.
func (s *Shard) replay(reader *record.Reader, batches []byte) (records int, err error) {
	var rec record.Record
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil {
			return records, err
		}
		batches = rest
		if b.Count() == 0 {
			continue
		}
		r := Record{ProducerID: -1, ProducerEpoch: -1}
		if b.IsTransactional() {
			r.ProducerID, r.ProducerEpoch = b.ProducerID(), b.ProducerEpoch()
		}
		control := b.IsControl()
		for reader.Reset(b, expandedBytes); reader.Next(&rec); records++ {
			if control {
				s.replayControl(b, &rec)
				continue
			}
			r.Offset, r.Timestamp, r.Key, r.Value = rec.Offset, rec.Timestamp, rec.Key, rec.Value
			s.state.Replay(&r)
		}
		if err := reader.Err(); err != nil {
			return records, err
		}
	}
	return records, nil
}

// replayControl takes up a marker. Control records that mean nothing here are skipped.
func (s *Shard) replayControl(b record.Batch, rec *record.Record) {
	c, err := record.ParseControl(rec)
	if err != nil || c.Type != record.ControlCommit && c.Type != record.ControlAbort {
		return
	}
	s.state.Marker(b.ProducerID(), b.ProducerEpoch(), c.Type == record.ControlCommit)
}
