package cdc

import (
	"context"
	"time"

	"millrace/connect/postgres"
)

// beatPrefix marks the logical messages that the connector writes itself.
const beatPrefix = "millrace.heartbeat"

// beats are the times at which things were last done that are due now and then.
type beats struct {
	between   time.Time // any of these was looked at
	noted     time.Time // a place was given
	record    time.Time // a heartbeat
	looked    time.Time // at the slot
	message   time.Time // a logical message was written
	refused   bool      // the server takes no logical messages
	at        lsn       // the place at the last look
	alarmed   time.Time
	members   time.Time // the publication was looked at
	admit     time.Time // before this, new tables are not looked after
	chunk     time.Time // before this, no chunk is read
	chunkRows int       // how large chunks may be, if rows are large; 0: as the settings say
}

// lookEvery is how often the slot is looked at.
const lookEvery = 10 * time.Second

// admitEvery is how often it is seen whether new tables can be read.
const admitEvery = 500 * time.Millisecond

// beat does what is due: heartbeats, a look at the slot, and a message that lets the slot go on.
func (t *task) beat(ctx context.Context) error {
	now := t.now()
	b := &t.beats
	if every := t.s.Millis("heartbeat.interval.ms"); every > 0 && now.Sub(b.record) >= every {
		b.record = now
		t.events.heartbeat()
		t.reading.boundary = len(t.events.out)
		if sql := t.s.String("heartbeat.action.query"); sql != "" {
			if _, err := t.session.sql.Exec(ctx, sql); err != nil {
				if postgres.FaultOf(err).Transient() {
					return err
				}
				t.logger.Error("heartbeat.action.query fails", "err", postgres.Explain(err, ""))
			}
		}
	}
	if every := t.s.Millis("millrace.publication.check.ms"); every > 0 && now.Sub(b.members) >= every {
		b.members = now
		if err := t.widen(ctx); err != nil {
			return err
		}
		if err := t.notice(ctx); err != nil {
			return err
		}
	}
	if now.Sub(b.looked) < lookEvery {
		return nil
	}
	b.looked = now
	x, err := loadSlot(ctx, t.session.sql, t.session.server, t.s.slot)
	if err != nil {
		return err
	}
	t.metrics.look(x)
	t.alarm(x)
	stuck := x.lag > 0 && b.at == t.at.commit && t.window == nil
	b.at = t.at.commit
	return t.nudge(ctx, stuck)
}

// nudge writes a logical message where the server has log that the stream does not get past.
func (t *task) nudge(ctx context.Context, stuck bool) error {
	if !stuck || t.now().Sub(t.beats.message) < t.s.Millis("millrace.heartbeat.message.ms") {
		return nil
	}
	t.beats.message = t.now()
	return t.writeMessage(ctx)
}

// writeMessage writes a logical message, unless the settings or the server forbid it. Its commit has the server flush,
// and so stream, all that is before it in the log.
func (t *task) writeMessage(ctx context.Context) error {
	n := t.session
	if t.beats.refused || t.s.readOnly || n.server.standby || t.s.Millis("millrace.heartbeat.message.ms") == 0 {
		return nil
	}
	_, err := n.sql.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, '')`, beatPrefix)
	switch f := postgres.FaultOf(err); {
	case err == nil:
		return nil
	case f.Transient():
		return err
	}
	t.beats.refused = true
	t.logger.Warn("no heartbeat can be written, and none is tried again; read.only=true says that it is meant so", "err",
		postgres.Explain(err, ""))
	return nil
}

// alarm warns, at most every few minutes, of a slot that holds back more log than it should, or is about to be lost.
func (t *task) alarm(x slot) {
	limit := t.s.Int64("millrace.wal.alarm.bytes")
	bad := limit > 0 && x.retained > limit || x.status == "unreserved" || x.status == "lost"
	if !bad || t.now().Sub(t.beats.alarmed) < 5*time.Minute {
		return
	}
	t.beats.alarmed = t.now()
	t.logger.Warn("the replication slot holds back the server's log", "retained_bytes", x.retained, "lag_bytes", x.lag,
		"status", x.status)
}
