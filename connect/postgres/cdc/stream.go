package cdc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"millrace/connect/postgres"
)

// stream is a replication connection on which changes come. One goroutine reads, so that memory is bounded by the queue
// of blocks; another tells the server how far things are, however long the first one has to wait.
type stream struct {
	conn   net.Conn
	in     *bufio.Reader
	every  time.Duration // between statuses
	spill  *spill
	blocks chan *block
	free   chan *block // used ones
	max    struct{ bytes, rows int }
	cancel context.CancelFunc
	wg     sync.WaitGroup
	err    error         // why blocks is closed; set before that
	asked  chan struct{} // the server wants a status now
	ask    atomic.Bool   // the next status asks for a keepalive

	confirmed atomic.Uint64 // what the server may forget
	received  atomic.Uint64
	spilled   atomic.Int64 // bytes in files
	pending   atomic.Int64 // transactions in files

	current *block
	body    []byte // of the message that is read
}

// streamOptions say what to stream.
type streamOptions struct {
	slot, publication string
	from              lsn
	version           int // of the server
	more              string
	every             time.Duration
	manual            bool // the server is told of no place that is safe
	queueBytes        int
	queueRows         int
	dir               func() (string, error)
	captured          func(tableName) bool
}

// command is what starts the stream.
func (o *streamOptions) command() string {
	options := []string{"publication_names " + postgres.QuoteLiteral(postgres.Quote(o.publication))}
	if o.version >= 140000 {
		options = append(options, "proto_version '2'", "streaming 'on'", "messages 'true'")
	} else {
		options = append(options, "proto_version '1'")
	}
	for p := range strings.SplitSeq(o.more, ";") {
		name, value, found := strings.Cut(strings.TrimSpace(p), "=")
		if found {
			options = append(options, postgres.Quote(name)+" "+postgres.QuoteLiteral(value))
		}
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (%s)", postgres.Quote(o.slot), o.from,
		strings.Join(options, ", "))
}

// openStream starts to stream on a connection, which it takes over and closes.
func openStream(ctx context.Context, c *pgconn.PgConn, o streamOptions) (*stream, error) {
	every, err := often(ctx, c, o.every)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	h, err := c.Hijack()
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	s := &stream{conn: h.Conn, in: bufio.NewReaderSize(h.Conn, 256<<10), every: every,
		spill: newSpill(o.dir, o.captured), asked: make(chan struct{}, 1)}
	const blocks = 8
	s.max.bytes, s.max.rows = max(o.queueBytes/blocks, 1), max(o.queueRows/blocks, 1)
	s.blocks, s.free = make(chan *block, blocks-2), make(chan *block, blocks)
	if !o.manual {
		s.confirmed.Store(uint64(o.from))
	}
	if err := s.begin(ctx, o.command()); err != nil {
		s.conn.Close()
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.wg.Go(func() { s.read(life) })
	s.wg.Go(func() { s.report(life) })
	return s, nil
}

// often is how often the server is told how far things are: as the settings say, and well within the time after which
// it gives up a reader of which it hears nothing. Its own requests for a status are not enough: they stand behind what
// is not read yet, for as long as the queue is full.
func often(ctx context.Context, c *pgconn.PgConn, every time.Duration) (time.Duration, error) {
	rows, err := command(ctx, c, "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 {
		return every, err
	}
	limit, err := strconv.Atoi(string(rows[0][0]))
	if err == nil && limit > 0 {
		every = min(every, max(time.Duration(limit)*time.Millisecond/4, time.Millisecond))
	}
	return every, err
}

// begin sends the command and waits for the server's consent.
func (s *stream) begin(ctx context.Context, command string) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	query, err := (&pgproto3.Query{String: command}).Encode(nil)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(query); err != nil {
		return err
	}
	for {
		kind, body, err := s.message()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		switch kind {
		case 'W':
			return nil
		case 'E':
			return serverError(body)
		}
	}
}

func serverError(body []byte) error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return err
	}
	return pgconn.ErrorResponseToPgError(&e)
}

// maxMessage bounds one message: the server's own rows cannot be larger.
const maxMessage = 1<<30 + 1<<20

// message reads one message of the connection. The body is good until the next one.
func (s *stream) message() (kind byte, body []byte, err error) {
	var h [5]byte
	if _, err := io.ReadFull(s.in, h[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(h[1:])) - 4
	if n < 0 || n > maxMessage {
		return 0, nil, fmt.Errorf("the server sent a message of %d bytes", n)
	}
	if cap(s.body) > 1<<20 && n < 64<<10 {
		s.body = nil // one large message does not stay for ever
	}
	s.body = slices.Grow(s.body[:0], n)[:n]
	_, err = io.ReadFull(s.in, s.body)
	return h[0], s.body, err
}

// read is the goroutine that reads.
func (s *stream) read(ctx context.Context) {
	defer close(s.blocks)
	defer s.conn.Close()
	defer s.cancel()
	s.current = s.fresh()
	s.err = errors.Join(s.readAll(ctx), s.spill.close())
}

func (s *stream) readAll(ctx context.Context) error {
	for {
		if s.in.Buffered() == 0 && len(s.current.buf) > 0 {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		kind, body, err := s.message()
		if err != nil {
			return err
		}
		switch kind {
		case 'd':
			err = s.copyData(ctx, body)
		case 'E':
			err = serverError(body)
		case 'c', 'C', 'Z':
			err = io.ErrUnexpectedEOF // the server ends the stream in order: it shuts down
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) copyData(ctx context.Context, b []byte) error {
	r := reader{b: b}
	switch r.uint8() {
	case 'w':
		at := lsn(r.uint64())
		r.uint64()
		r.uint64()
		if r.err != nil {
			return r.err
		}
		s.noteReceived(at)
		return s.change(ctx, at, r.b)
	case 'k':
		end := lsn(r.uint64())
		r.uint64()
		reply := r.uint8() == 1
		if r.err != nil {
			return r.err
		}
		s.noteReceived(end)
		s.current.keep(end)
		if reply {
			s.tell()
		}
	}
	return nil
}

func (s *stream) noteReceived(at lsn) {
	if uint64(at) > s.received.Load() {
		s.received.Store(uint64(at))
	}
}

// tell has a status sent now.
func (s *stream) tell() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// probe has the server say how far it has come.
func (s *stream) probe() {
	s.ask.Store(true)
	s.tell()
}

// change takes one message of pgoutput: what is of a transaction that may yet be undone goes to a file.
func (s *stream) change(ctx context.Context, at lsn, b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	var m message
	switch b[0] {
	case msgStreamStart, msgStreamStop, msgStreamCommit, msgStreamAbort:
		if err := m.decode(b); err != nil {
			return err
		}
	}
	var err error
	switch b[0] {
	case msgStreamStart:
		err = s.spill.start(m.xid)
	case msgStreamStop:
		err = s.spill.stop()
	case msgStreamAbort:
		err = s.spill.abort(m.xid, m.subid)
	case msgStreamCommit:
		return s.commit(ctx, at, &m)
	default:
		if s.spill.now == nil {
			return s.put(ctx, at, b[:1], b[1:])
		}
		if b[0] == msgOrigin {
			return s.spill.add(s.spill.now.xid, at, b[0], b[1:])
		}
		if len(b) < 5 {
			return errShort
		}
		return s.spill.add(binary.BigEndian.Uint32(b[1:]), at, b[0], b[5:])
	}
	s.spilled.Store(s.spill.bytes)
	s.pending.Store(int64(len(s.spill.open)))
	return err
}

// commit passes on a transaction that came in parts.
func (s *stream) commit(ctx context.Context, at lsn, m *message) error {
	if err := s.put(ctx, at, beginMessage(m.lsn, m.time, m.xid), nil); err != nil {
		return err
	}
	err := s.spill.replay(m.xid, func(at lsn, b []byte) error { return s.put(ctx, at, b[:1], b[1:]) })
	if err != nil {
		return err
	}
	s.spilled.Store(s.spill.bytes)
	s.pending.Store(int64(len(s.spill.open)))
	return s.put(ctx, at, commitMessage(m.lsn, m.end, m.time), nil)
}

// put passes a message on, and waits while there is no room.
func (s *stream) put(ctx context.Context, at lsn, head, body []byte) error {
	s.current.add(at, head, body)
	if len(s.current.buf) >= s.max.bytes || s.current.rows >= s.max.rows {
		return s.flush(ctx)
	}
	return nil
}

func (s *stream) flush(ctx context.Context) error {
	select {
	case s.blocks <- s.current:
		s.current = s.fresh()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stream) fresh() *block {
	select {
	case b := <-s.free:
		b.reset()
		return b
	default:
		b := new(block)
		b.reset()
		return b
	}
}

// used gives a block back. A large one is let go.
func (s *stream) used(b *block) {
	if cap(b.buf) > 4*s.max.bytes {
		return
	}
	select {
	case s.free <- b:
	default:
	}
}

// confirm says that all before a place is stored. The server hears of it with the next status: each costs it work, and
// what it sends again after a crash is known by its place.
func (s *stream) confirm(at lsn) {
	if uint64(at) > s.confirmed.Load() {
		s.confirmed.Store(uint64(at))
	}
}

// report is the goroutine that tells the server how far things are.
func (s *stream) report(ctx context.Context) {
	defer s.conn.Close()
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.asked:
		case <-tick.C:
		}
		if s.status() != nil {
			s.cancel()
			return
		}
		pause := time.NewTimer(min(s.every, 10*time.Millisecond))
		select {
		case <-ctx.Done():
			pause.Stop()
			s.status() // the last one, if it can still be sent
			return
		case <-pause.C:
		}
	}
}

// status writes what has been received and what is stored.
func (s *stream) status() error {
	confirmed, received := s.confirmed.Load(), s.received.Load()
	b := make([]byte, 0, 39)
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, 38)
	b = append(b, 'r')
	b = binary.BigEndian.AppendUint64(b, max(received, confirmed))
	b = binary.BigEndian.AppendUint64(b, confirmed)
	b = binary.BigEndian.AppendUint64(b, confirmed)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Since(time.UnixMicro(epochMicros)).Microseconds()))
	reply := byte(0)
	if s.ask.Swap(false) {
		reply = 1
	}
	b = append(b, reply)
	if err := s.conn.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// close ends the connection and waits for its goroutines. What is confirmed is said once more.
func (s *stream) close() {
	if s.status() == nil {
		_, _ = s.conn.Write([]byte{'X', 0, 0, 0, 4}) // so that the slot is free at once
	}
	s.cancel()
	s.conn.Close()
	s.wg.Wait()
	for range s.blocks {
	}
}
