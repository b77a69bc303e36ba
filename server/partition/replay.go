package partition

import (
	"errors"
	"fmt"

	"millrace/record"
)

// errReplayed ends a scan that has seen enough.
var errReplayed = errors.New("replayed")

// loadProducers reads the producers' state unless that is done: the newest snapshot that can be
// read, then the headers of the batches after it. Batches that this leader appended without the
// state carry no sequences, so the replay ends where the log ended at open. The slot is held.
func (l *Leader) loadProducers() error {
	if l.producers != nil {
		return nil
	}
	now := l.store.now().UnixMilli()
	p, from, err := l.readSnapshot(now)
	if err != nil {
		return fmt.Errorf("load producer state: %w", err)
	}
	if from < l.replayTo {
		err = l.log.Scan(max(from, l.log.StartOffset()), func(b record.Batch) error {
			if b.BaseOffset() >= l.replayTo {
				return errReplayed
			}
			p.apply(stampOf(b), now)
			return nil
		})
	}
	if err != nil && !errors.Is(err, errReplayed) {
		return fmt.Errorf("replay producer state from offset %d: %w", from, err)
	}
	l.producers = p
	return nil
}

// readSnapshot finds the newest usable snapshot and the offset it covers up to. Snapshots beyond the
// log's end and damaged ones are deleted; without any the replay starts at the first batch.
func (l *Leader) readSnapshot(now int64) (*producers, int64, error) {
	for {
		offset, payload, ok, err := l.log.LoadProducerSnapshot()
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			start := l.log.StartOffset()
			return &producers{cut: start > 0}, start, nil
		}
		if offset <= l.replayTo {
			p, err := decodeProducers(payload, now)
			if err == nil {
				return p, offset, nil
			}
			l.logger().Warn("producer snapshot dropped", "offset", offset, "err", err)
		}
		if err := l.log.DropProducerSnapshotsAfter(offset - 1); err != nil {
			return nil, 0, err
		}
	}
}

// saveProducers writes a snapshot of the state before offset. A failure costs a longer replay at the
// next start.
func (l *Leader) saveProducers(offset int64) {
	if err := l.log.SaveProducerSnapshot(offset, l.producers.encode()); err != nil {
		l.logger().Warn("producer state not saved", "offset", offset, "err", err)
		return
	}
	l.snapshotAt = offset
}

// ProducerState is what the partition knows of one producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 when no batch is remembered
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnFirstOffset   int64 // -1 when no transaction is open
}

// Producers lists the partition's producers by id, or only one of them when id is not -1.
func (l *Leader) Producers(id int64) ([]ProducerState, error) {
	l.slot.hold()
	defer l.slot.release()
	if l.closed {
		return nil, l.whyGone()
	}
	if err := l.loadProducers(); err != nil {
		return nil, err
	}
	ids := []int64{id}
	if id == none {
		ids = l.producers.ids()
	}
	states := make([]ProducerState, 0, len(ids))
	for _, id := range ids {
		if e := l.producers.entries[id]; e != nil {
			states = append(states, e.state(id))
		}
	}
	return states, nil
}

func (e *producer) state(id int64) ProducerState {
	s := ProducerState{
		ID: id, Epoch: e.epoch, LastSequence: none, LastTimestamp: e.lastTimestamp,
		CoordinatorEpoch: e.coordinatorEpoch, TxnFirstOffset: e.txnFirstOffset,
	}
	if e.count > 0 {
		s.LastSequence = e.newest().lastSequence
	}
	return s
}
