package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// partition is a partition that the task has.
type partition struct {
	position int64 // of the next record to write, as the ledger has it
	epoch    int64
	// pending is the position that a transaction whose end is not known would set, -1 if there is none. It may happen
	// until another one of the task's has moved the ledger.
	pending int64
	adopted bool // the position is the group's, as the ledger had none
}

// fencedError says that a partition is another task's.
type fencedError struct {
	at     client.TopicPartition
	ledger string
	owner  string
}

func (e *fencedError) Error() string {
	s := fmt.Sprintf("partition %s of sink %q was taken over in the offset ledger", e.at, e.ledger)
	if e.owner != "" {
		s += " by " + e.owner
	}
	return s + ": this task writes nothing more. If no task of this connector runs elsewhere, another sink has the same " +
		"name: set " + keyLedgerName + " for one of the two"
}

// ledger is the offset ledger, as one sink sees it.
type ledger struct {
	table string // quoted
	name  string // of the sink in it
	group string
	owner string // this task, for people
	skip  bool   // what is gone from a topic is passed over
	start string // "earliest" or "latest"
}

// lockWait is how long a claim waits for a transaction of the last owner before it is tried again.
const lockWait = "1s"

// claimed is a partition's row in the ledger.
type claimed struct {
	topic  string
	number int32
	next   int64
	epoch  int64
	id     *[16]byte
	group  string
	owner  string
}

func keysOf(partitions []plugin.OpenPartition) (topics []string, numbers []int32) {
	for i := range partitions {
		topics = append(topics, partitions[i].Topic)
		numbers = append(numbers, partitions[i].Partition)
	}
	return topics, numbers
}

// claim takes partitions over, in one transaction: the row's lock is waited for, so that what the last owner had under
// way is over, and the epoch is raised, so that it can begin nothing more.
func (l *ledger) claim(ctx context.Context, s *session, open []plugin.OpenPartition) (
	map[client.TopicPartition]*partition, error) {
	got := map[client.TopicPartition]*partition{}
	err := pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
		clear(got)
		rows, err := l.lock(ctx, tx, open)
		if err != nil {
			return err
		}
		var topics []string
		var numbers []int32
		var nexts []int64
		var ids [][16]byte
		for i := range open {
			p := &open[i]
			row := rows[p.TopicPartition]
			if row == nil {
				return fmt.Errorf("the ledger lost its row of partition %s", p.TopicPartition)
			}
			next, err := l.begin(p, row)
			if err != nil {
				return err
			}
			got[p.TopicPartition] = &partition{
				position: next, epoch: row.epoch + 1, pending: -1, adopted: row.next < 0 && p.Committed > p.Start,
			}
			topics, numbers = append(topics, p.Topic), append(numbers, p.Partition)
			nexts, ids = append(nexts, next), append(ids, p.TopicID)
		}
		_, err = tx.Exec(ctx, `UPDATE `+l.table+` l SET epoch = l.epoch + 1, next_offset = v.next, owner = $5,
			consumer_group = $6, updated_at = now(),
			topic_id = coalesce(nullif(v.id, '00000000-0000-0000-0000-000000000000'), l.topic_id)
			FROM unnest($1::text[], $2::int[], $3::bigint[], $7::text[]::uuid[]) v(topic, number, next, id)
			WHERE l.connector = $4 AND l.topic = v.topic AND l.kpartition = v.number`,
			topics, numbers, nexts, l.name, l.owner, l.group, uuidTexts(ids))
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// lock makes the rows that are missing and locks all, in order.
func (l *ledger) lock(ctx context.Context, tx pgx.Tx, open []plugin.OpenPartition) (
	map[client.TopicPartition]*claimed, error) {
	topics, numbers := keysOf(open)
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockWait+"'"); err != nil {
		return nil, err
	}
	_, err := tx.Exec(ctx, `INSERT INTO `+l.table+` (connector, topic, kpartition, next_offset, epoch)
		SELECT $3, v.topic, v.number, -1, 0 FROM unnest($1::text[], $2::int[]) v(topic, number) ORDER BY 2, 3
		ON CONFLICT DO NOTHING`, topics, numbers, l.name)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT topic, kpartition, next_offset, epoch, topic_id::text, consumer_group, owner
		FROM `+l.table+` WHERE connector = $3
		AND (topic, kpartition) IN (SELECT * FROM unnest($1::text[], $2::int[])) ORDER BY topic, kpartition FOR UPDATE`,
		topics, numbers, l.name)
	if err != nil {
		return nil, err
	}
	out := map[client.TopicPartition]*claimed{}
	var c claimed
	var id *string
	_, err = pgx.ForEachRow(rows, []any{&c.topic, &c.number, &c.next, &c.epoch, &id, &c.group, &c.owner}, func() error {
		row := c
		row.id = nil
		if id != nil {
			parsed, err := parseUUID(*id)
			if err != nil {
				return err
			}
			row.id = &parsed
		}
		out[client.TopicPartition{Topic: c.topic, Partition: c.number}] = &row
		return nil
	})
	return out, err
}

// mark tells commits that say where this ledger was from those that were made by hand or without one.
func (l *ledger) mark() string { return "millrace: as in offset ledger " + l.table + " for " + l.name }

// begin is the offset to begin at, or why not to.
func (l *ledger) begin(p *plugin.OpenPartition, row *claimed) (int64, error) {
	const remedy = "to begin anew, stop the connector and reset or set its offsets (DELETE or PATCH " +
		"/connectors/NAME/offsets)"
	if row.group != "" && row.group != l.group {
		return 0, fmt.Errorf("the offset ledger holds partition %s for a sink named %q of consumer group %s (%s), and this "+
			"one is of group %s: set %s for one of the two; or, if that one is no more, %s",
			p.TopicPartition, l.name, row.group, row.owner, l.group, keyLedgerName, remedy)
	}
	if row.id != nil && p.TopicID != [16]byte{} && *row.id != p.TopicID {
		return 0, fmt.Errorf("topic %s is not the one that the offset ledger knows for sink %q (%s): it was deleted and "+
			"created again, or a sink of the same name in another cluster writes to this database; for the former, %s; for "+
			"the latter, set %s", p.Topic, l.name, row.owner, remedy, keyLedgerName)
	}
	next, fresh := row.next, row.next < 0
	if fresh {
		if next = p.Committed; next < 0 {
			if next = p.Start; l.start == "latest" {
				next = p.End
			}
		}
	}
	switch {
	case fresh && p.Mark == l.mark() && p.Committed > p.Start && p.Committed <= p.End:
		return 0, fmt.Errorf("the offset ledger knows nothing of partition %s, of which this sink had written all below "+
			"offset %d: the database was made anew, restored from before that, or exchanged for another. To write the records "+
			"again, stop the connector and reset its offsets (DELETE /connectors/NAME/offsets); to go on without them, set "+
			"its offsets (PATCH)", p.TopicPartition, p.Committed)
	case next < p.Start && l.skip:
		return p.Start, nil
	case next < p.Start:
		return 0, fmt.Errorf("records %d to %d of partition %s were deleted before they were written: to go on without "+
			"them, set %s=skip", next, p.Start-1, p.TopicPartition, keyLedgerMissing)
	case next > p.End && fresh: // the group's, which may be of a topic that is no more
		return p.Start, nil
	case next > p.End:
		return 0, &beyondError{fmt.Sprintf("the offset ledger is at %d in partition %s, which ends at %d: the topic was "+
			"created again or lost records; %s", next, p.TopicPartition, p.End, remedy)}
	}
	return next, nil
}

// beyondError says that the ledger is beyond the end of a log. A leader that has only just become one may not know
// yet how far its log goes.
type beyondError struct{ text string }

func (e *beyondError) Error() string { return e.text }

// advance moves the ledger on, as the first statement of a transaction: it takes the rows' locks. What a row is not
// moved by is another owner's.
func (l *ledger) advance(ctx context.Context, s *session, parts map[client.TopicPartition]*partition,
	next map[client.TopicPartition]int64) error {
	var topics []string
	var numbers []int32
	var to, from, epochs []int64
	for _, at := range sortedPartitions(next) {
		p := parts[at]
		topics, numbers = append(topics, at.Topic), append(numbers, at.Partition)
		to, from, epochs = append(to, next[at]), append(from, p.position), append(epochs, p.epoch)
	}
	tag, err := s.Exec(ctx, `UPDATE `+l.table+` l SET next_offset = v.next, updated_at = now()
		FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[]) v(topic, number, next, was, epoch)
		WHERE l.connector = $6 AND l.topic = v.topic AND l.kpartition = v.number AND l.epoch = v.epoch
		AND l.next_offset = v.was`, topics, numbers, to, from, epochs, l.name)
	if err != nil {
		return postgres.Explain(err, "advance the offset ledger")
	}
	if int(tag.RowsAffected()) != len(topics) {
		return errBehind
	}
	return nil
}

// errBehind says that the ledger is not as the task left it.
var errBehind = errors.New("the offset ledger was changed by another")

// look reads where the ledger is after the connection was lost: what the last transaction's outcome was, and whether
// the partitions are still this task's.
func (l *ledger) look(ctx context.Context, s *session, parts map[client.TopicPartition]*partition) error {
	if len(parts) == 0 {
		return nil
	}
	rows, err := s.Query(ctx, `SELECT topic, kpartition, next_offset, epoch, owner || ' since ' || updated_at
		FROM `+l.table+` WHERE connector = $1`, l.name)
	if err != nil {
		return postgres.Explain(err, "read the offset ledger")
	}
	found := map[client.TopicPartition]claimed{}
	var c claimed
	_, err = pgx.ForEachRow(rows, []any{&c.topic, &c.number, &c.next, &c.epoch, &c.owner}, func() error {
		found[client.TopicPartition{Topic: c.topic, Partition: c.number}] = c
		return nil
	})
	if err != nil {
		return postgres.Explain(err, "read the offset ledger")
	}
	for at, p := range parts {
		row := found[at]
		switch {
		case row.epoch > p.epoch:
			return &fencedError{at: at, ledger: l.name, owner: row.owner}
		case row.epoch < p.epoch || row.next != p.position && row.next != p.pending:
			return fmt.Errorf("the offset ledger is at %d in partition %s, and was at %d: the database was restored or "+
				"failed over, or the ledger was changed by hand; the task goes on from there when it is restarted",
				row.next, at, p.position)
		}
		if row.next != p.position { // else what is pending may be yet to come: a server that is busy commits late
			p.position, p.pending = row.next, -1
		}
	}
	return nil
}

// alter sets offsets, or forgets them where they are negative. No offsets: all are forgotten. Epochs are raised, so
// that a task which is still about writes nothing more.
func (l *ledger) alter(ctx context.Context, conn *pgx.Conn, offsets map[client.TopicPartition]int64) error {
	if len(offsets) == 0 {
		_, err := conn.Exec(ctx, `UPDATE `+l.table+` SET next_offset = -1, epoch = epoch + 1, topic_id = NULL,
			consumer_group = '', owner = '', updated_at = now() WHERE connector = $1`, l.name)
		return postgres.Explain(err, "reset the offset ledger")
	}
	var topics []string
	var numbers []int32
	var nexts []int64
	for _, at := range sortedPartitions(offsets) {
		topics, numbers, nexts = append(topics, at.Topic), append(numbers, at.Partition), append(nexts, offsets[at])
	}
	_, err := conn.Exec(ctx, `INSERT INTO `+l.table+` AS l (connector, topic, kpartition, next_offset, epoch)
		SELECT $4, v.topic, v.number, v.next, 1 FROM unnest($1::text[], $2::int[], $3::bigint[]) v(topic, number, next)
		ON CONFLICT (connector, topic, kpartition) DO UPDATE SET next_offset = EXCLUDED.next_offset, epoch = l.epoch + 1,
		topic_id = NULL, consumer_group = '', owner = '', updated_at = now()`, topics, numbers, nexts, l.name)
	return postgres.Explain(err, "set the offset ledger")
}

func sortedPartitions[V any](m map[client.TopicPartition]V) []client.TopicPartition {
	out := make([]client.TopicPartition, 0, len(m))
	for at := range m {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b client.TopicPartition) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return out
}

// idleLimit is how long the server keeps a transaction of ours open without hearing from us: a task that hangs must not
// keep its heir waiting for ever.
const idleLimit = 10 * time.Second
