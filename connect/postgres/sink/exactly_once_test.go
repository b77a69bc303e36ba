package sink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
)

// proxy stands before the server and cuts connections.
type proxy struct {
	l      net.Listener
	server string
	refuse atomic.Pointer[pgproto3.ErrorResponse] // answers all new connections; nil: they go on to the server
	asked  atomic.Int32                           // connections that were answered so
	wg     sync.WaitGroup

	gone atomic.Bool // all new connections are closed at once

	mu    sync.Mutex
	conns map[net.Conn]bool
	left  [2]int        // bytes until the cut: of the client's, of the server's; -1: none
	late  chan struct{} // the server gets what is behind the next cut of the client's once it is closed; nil: never
}

func newProxy(t *testing.T, d *db) (*proxy, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, server: net.JoinHostPort(d.srv.Host(), d.srv.Port()), conns: map[net.Conn]bool{},
		left: [2]int{-1, -1}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.gone.Load() {
			c.Close()
			continue
		}
		if answer := p.refuse.Load(); answer != nil {
			p.asked.Add(1)
			p.wg.Go(func() { refuse(c, answer) })
			continue
		}
		s, err := net.Dial("tcp", p.server)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(c, s, 0) })
		p.wg.Go(func() { p.pipe(s, c, 1) })
	}
}

// refuse is a server that answers whoever connects by an error.
func refuse(c net.Conn, answer *pgproto3.ErrorResponse) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	for {
		m, err := b.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.SSLRequest); ok {
			if _, err := c.Write([]byte{'N'}); err != nil {
				return
			}
			continue
		}
		b.Send(answer)
		_ = b.Flush()
		return
	}
}

// pipe carries bytes one way until one end goes, or the bytes until the cut are through.
func (p *proxy) pipe(from, to net.Conn, way int) {
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		rest := b[n:n]
		p.mu.Lock()
		cut := false
		var late chan struct{}
		if p.left[way] >= 0 && n > 0 {
			if n >= p.left[way] {
				rest, n, cut = b[p.left[way]:n], p.left[way], true
				p.left[way] = -1
				if late, p.late = p.late, nil; late != nil {
					delete(p.conns, to)
				}
			} else {
				p.left[way] -= n
			}
		}
		p.mu.Unlock()
		_, werr := to.Write(b[:n])
		if cut {
			p.cut()
		}
		if cut && late != nil {
			<-late
			_, _ = to.Write(rest)
			return // the answer ends the other way, and the connection with it
		}
		if cut || err != nil || werr != nil {
			to.Close()
			return
		}
	}
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// cutAfter cuts all connections when so many more bytes went one way.
func (p *proxy) cutAfter(way, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[way] = bytes
}

// count gives how many bytes went one way while f ran.
func (p *proxy) count(way int, f func()) int {
	const much = 1 << 30
	p.cutAfter(way, much)
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := much - p.left[way]
	p.left[way] = -1
	return n
}

const plainTable = "CREATE TABLE t (id bigint, name text, n int)" // without a key: what is written twice is there twice

func insertProps(url string) map[string]string {
	return settings(native, url, "insert.mode", "insert", "pk.mode", "none", "delete.enabled", "false")
}

// exact checks that the rows 0 to n-1 are there, each once, and the ledger at the end.
func exact(t *testing.T, d *db, n int, partitions int) {
	t.Helper()
	require.Equal(t, fmt.Sprintf("%d|%d|%d\n", n, n, n-1), d.text("SELECT count(*), count(DISTINCT id), max(id) FROM t"))
	require.Equal(t, fmt.Sprintf("%d|%d\n", partitions, n), d.text(
		"SELECT count(*), sum(next_offset) FROM connect.sink_offset"))
}

// A connection that breaks at any byte of a transaction, in either direction: each record is written once.
func TestConnectionCutAtAnyByte(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	ts := newTopics()
	n := 0
	add := func() {
		for range 3 {
			ts.add("t", 0, record(int64(n), "name", nil))
			n++
		}
	}
	r := newRunner(t, ts, insertProps(u))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	for range 2 { // the second one has nothing to prepare
		add()
		require.NoError(t, r.drain(t.Context()))
	}
	for way := range 2 {
		add()
		total := p.count(way, func() { require.NoError(t, r.drain(t.Context())) })
		require.Greater(t, total, 50)
		for at := 1; at <= total; at += 1 + at/(12**rounds) {
			add()
			p.cutAfter(way, at)
			require.NoError(t, r.drain(t.Context()), "cut after %d of %d bytes", at, total)
			p.cutAfter(way, -1)
		}
		for at := total - 24; at <= total; at++ { // about the end of COMMIT, byte by byte
			add()
			p.cutAfter(way, at)
			require.NoError(t, r.drain(t.Context()), "cut after %d of %d bytes", at, total)
			p.cutAfter(way, -1)
		}
	}
	exact(t, d, n, 1)
	require.Empty(t, r.reported)
}

// Backends that are killed and connections that are cut at random, and tasks that are restarted: each record is written
// once.
func TestKilledAtRandom(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	ts := newTopics()
	const partitions = 3
	rows := 600 * *rounds
	for i := range rows {
		ts.add("t", int32(i%partitions), record(int64(i), "name", nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var kills atomic.Int32
	killer := d.srv.Connect(t, d.srv.URL())
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 2))
		for ctx.Err() == nil {
			// It lets go after a while, so that there is an end however slow the machine is.
			wait(ctx, time.Duration(rnd.IntN(8000))*time.Microsecond*time.Duration(1+kills.Load()/100))
			if rnd.IntN(2) == 0 {
				p.cutAfter(rnd.IntN(2), rnd.IntN(2000))
				kills.Add(1)
				continue
			}
			tag, _ := killer.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 "+
				"AND state <> 'idle' AND application_name = 'millrace'", strings.TrimPrefix(pathOf(d.url), "/"))
			kills.Add(int32(tag.RowsAffected()))
		}
	})
	rnd := rand.New(rand.NewPCG(3, 4))
	r := newRunner(t, ts, insertProps(u))
	r.most = 10
	all := []client.TopicPartition{tp("t", 0), tp("t", 1), tp("t", 2)}
	running, starts, end := false, 0, time.Now().Add(5*time.Minute*time.Duration(*rounds))
	for done := false; !done || starts <= 3 || kills.Load() <= 20; {
		if done { // not enough has happened yet
			require.True(t, time.Now().Before(end), "%d starts, %d kills", starts, kills.Load())
			for range partitions {
				ts.add("t", int32(rows%partitions), record(int64(rows), "name", nil))
				rows++
			}
		}
		if !running {
			starts++
			if err := r.start(t.Context(), all...); err != nil {
				require.NotContains(t, err.Error(), "restored", "start %d", starts)
				_ = r.task.Stop(t.Context())
				continue
			}
			running = true
		}
		var err error
		done, err = r.put(t.Context())
		if err != nil || rnd.IntN(60) == 0 {
			if err != nil {
				require.NotContains(t, err.Error(), "ledger", "a loss of the connection is no loss of partitions")
			}
			_ = r.task.Stop(t.Context())
			running = false
			done = false
		}
	}
	cancel()
	wg.Wait()
	p.cutAfter(0, -1)
	p.cutAfter(1, -1)
	r.stop()
	exact(t, d, rows, partitions)
}

func pathOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return u.Path
}

// A task that has lost its partition without knowing writes nothing more, and says who has it.
func TestZombieIsFenced(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	for i := range 10 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	old, heir := newRunner(t, ts, insertProps(d.url)), newRunner(t, ts, insertProps(d.url))
	old.most = 5
	require.NoError(t, old.start(t.Context(), tp("t", 0)))
	defer old.stop()
	_, err := old.put(t.Context())
	require.NoError(t, err)
	require.NoError(t, heir.start(t.Context(), tp("t", 0)))
	defer heir.stop()
	require.EqualValues(t, 5, heir.at[tp("t", 0)])

	_, err = old.put(t.Context())
	require.ErrorContains(t, err, `partition t-0 of sink "s" was taken over in the offset ledger by task 0 of connector s`)
	require.False(t, plugin.IsRetriable(err))
	require.NoError(t, heir.drain(t.Context()))
	exact(t, d, 10, 1)
	_, err = old.put(t.Context())
	require.Error(t, err)
	exact(t, d, 10, 1)
}

// frozen starts a task that hangs within its transaction, behind the ledger's step, until it is let go.
func frozen(t *testing.T, ts *topics, props map[string]string) (r *runner, thaw func() error) {
	bad := record(-1, "x", nil)
	bad.ValueSchema, bad.Value = schema(data.Boolean), true // nothing that could be a row: it is reported
	ts.add("t", 0, bad)
	r = newRunner(t, ts, props)
	inside, let := make(chan struct{}), make(chan struct{})
	r.reporting = func() {
		close(inside)
		<-let
	}
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := r.put(context.Background())
		result <- err
	})
	open := sync.OnceFunc(func() { close(let) })
	t.Cleanup(func() { open(); wg.Wait(); r.stop() })
	select {
	case <-inside:
	case err := <-result:
		require.Fail(t, "nothing was reported", "%v", err)
	}
	return r, func() error {
		open()
		return <-result
	}
}

// An owner that hangs in its transaction is waited for; what it commits after all counts.
func TestHeirWaitsForTransaction(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	for i := range 5 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	_, thaw := frozen(t, ts, insertProps(d.url))
	heir := newRunner(t, ts, insertProps(d.url))
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { result <- heir.start(context.Background(), tp("t", 0)) })
	defer wg.Wait()
	awaitLock(t, d)
	require.NoError(t, thaw())
	require.NoError(t, <-result)
	defer heir.stop()
	require.EqualValues(t, 6, heir.at[tp("t", 0)])
	require.NoError(t, heir.drain(t.Context()))
	require.Equal(t, "5\n", d.text("SELECT count(*) FROM t"))
}

// awaitLock waits until somebody waits for a lock.
func awaitLock(t *testing.T, d *db) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if d.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
			"AND wait_event_type = 'Lock'") != "0\n" {
			return
		}
		wait(ctx, 5*time.Millisecond)
	}
	require.Fail(t, "nobody waits")
}

// An owner whose transaction was ended for it writes nothing when it thaws.
func TestThawedOwnerIsFenced(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	for i := range 5 {
		ts.add("t", 0, record(int64(i), "a", nil))
	}
	_, thaw := frozen(t, ts, insertProps(d.url))
	d.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() " +
		"AND state LIKE 'idle in%'")
	heir := newRunner(t, ts, insertProps(d.url))
	require.NoError(t, heir.start(t.Context(), tp("t", 0)))
	defer heir.stop()
	require.EqualValues(t, 0, heir.at[tp("t", 0)])
	require.NoError(t, heir.drain(t.Context()))
	err := thaw()
	require.ErrorContains(t, err, "was taken over")
	require.Equal(t, "5\n", d.text("SELECT count(*) FROM t"))
	require.Equal(t, "t|0|6\n", d.ledger())
}

// A server that hears nothing of an owner ends its transaction by itself, so that an heir gets on.
func TestSilentOwnerIsTimedOut(t *testing.T) {
	t.Parallel()
	d := newDB(t, plainTable)
	ts := newTopics()
	ts.add("t", 0, record(0, "a", nil))
	_, thaw := frozen(t, ts, insertProps(d.url))
	heir := newRunner(t, ts, insertProps(d.url))
	require.NoError(t, heir.start(t.Context(), tp("t", 0))) // it asks for three times as long as an owner may be silent
	defer heir.stop()
	require.NoError(t, heir.drain(t.Context()))
	require.ErrorContains(t, thaw(), "was taken over")
	require.Equal(t, "1\n", d.text("SELECT count(*) FROM t"))
	require.Equal(t, "t|0|2\n", d.ledger())
}

// The outcome of a COMMIT whose answer was lost is looked up: it is not written again.
func TestLostAnswerToCommit(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	ts := newTopics()
	r := newRunner(t, ts, insertProps(u))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	ts.add("t", 0, record(0, "a", nil))
	require.NoError(t, r.drain(t.Context()))
	ts.add("t", 0, record(1, "a", nil))
	b := r.batch()
	// The server's answers pass but for the last bytes, which are those to COMMIT.
	total := p.count(1, func() { require.NoError(t, r.task.Put(t.Context(), b)) })
	r.at[tp("t", 0)] = 2
	ts.add("t", 0, record(2, "a", nil))
	p.cutAfter(1, total-1)
	require.NoError(t, r.drain(t.Context()))
	exact(t, d, 3, 1)
}

// A server that is busy may commit after the task is connected again and has looked: that is no loss, and nothing is
// written again.
func TestLateCommit(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	ts := newTopics()
	r := newRunner(t, ts, insertProps(u))
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	for i := range 2 { // the second one has nothing to prepare
		ts.add("t", 0, record(int64(i), "a", nil))
		require.NoError(t, r.drain(t.Context()))
	}
	ts.add("t", 0, record(2, "a", nil))
	total := p.count(0, func() { require.NoError(t, r.drain(t.Context())) })
	ts.add("t", 0, record(3, "a", nil))
	late := make(chan struct{})
	commit := sync.OnceFunc(func() { close(late) })
	t.Cleanup(commit)
	p.mu.Lock()
	p.late, p.left[0] = late, total-1 // the last byte is of COMMIT
	p.mu.Unlock()
	drained := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { drained <- r.drain(t.Context()) })
	awaitLock(t, d)
	commit()
	require.NoError(t, <-drained)
	wg.Wait()
	exact(t, d, 4, 1)
}

// Tasks that write the same rows in different orders wait for each other in a circle; none of it is a record's fault.
func TestDeadlocks(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, name text, n int)")
	ts := newTopics()
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range 3000 {
		ts.add("t", int32(i%3), record(int64(rnd.IntN(40)), "a", int32(i)))
	}
	var wg sync.WaitGroup
	runners := make([]*runner, 3)
	errs := make([]error, 3)
	for i := range runners {
		r := newRunner(t, ts, settings(native, d.url))
		r.most = 50
		runners[i] = r
		wg.Go(func() {
			if errs[i] = r.start(t.Context(), tp("t", int32(i))); errs[i] == nil {
				errs[i] = r.drain(t.Context())
			}
			r.stop()
		})
	}
	wg.Wait()
	for i, r := range runners {
		require.NoError(t, errs[i])
		require.Empty(t, r.reported)
	}
	require.Equal(t, "40\n", d.text("SELECT count(*) FROM t"))
	require.Equal(t, "3|3000\n", d.text("SELECT count(*), sum(next_offset) FROM connect.sink_offset"))
}

// A server that crashes, and one that takes back what it had not made durable: each record is written once.
func TestServerCrashes(t *testing.T) {
	srv := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_writer_delay": "10s"}})
	for _, sync := range []string{"default", "off"} {
		d := &db{t: t, srv: srv, url: srv.Database(t)}
		srv.Exec(t, d.url, plainTable)
		ts := newTopics()
		props := insertProps(d.url)
		props["synchronous.commit"] = sync
		r := newRunner(t, ts, props)
		require.NoError(t, r.start(t.Context(), tp("t", 0)))
		const n = 400
		back := 0
		for i := range n {
			ts.add("t", 0, record(int64(i), "a", nil))
			if i%100 == 50 {
				srv.Restart(t, pgtest.Immediate)
			}
			for err := r.drain(t.Context()); err != nil; err = r.drain(t.Context()) {
				require.ErrorContains(t, err, "was restored or failed over")
				back++
				r.stop()
				require.NoError(t, r.start(t.Context(), tp("t", 0)))
			}
		}
		r.stop()
		d.conn = srv.Connect(t, d.url)
		exact(t, d, n, 1)
		require.Equal(t, sync == "off", back > 0, "%d", back)
	}
}

// A database that is gone for good fails the task when its tries are used up, and before that has the batch come again.
func TestRetriesEnd(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	ts := newTopics()
	ts.add("t", 0, record(0, "a", nil))
	props := insertProps(u)
	props["max.retries"] = "2"
	r := newRunner(t, ts, props)
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	p.gone.Store(true)
	p.cut()
	b := r.batch()
	for range 2 {
		err := r.task.Put(t.Context(), b)
		require.True(t, plugin.IsRetriable(err), "%v", err)
	}
	err := r.task.Put(t.Context(), b)
	require.False(t, plugin.IsRetriable(err))
	require.ErrorContains(t, err, "given up after 3 tries: connect: ")
	require.Empty(t, r.reported)

	heir := newRunner(t, ts, props)
	require.NoError(t, heir.start(t.Context()))
	defer heir.stop()
	for range 2 {
		require.True(t, plugin.IsRetriable(heir.open(t.Context(), tp("t", 0))))
	}
	err = heir.open(t.Context(), tp("t", 0))
	require.False(t, plugin.IsRetriable(err))
	require.ErrorContains(t, err, "given up after 3 tries: prepare the offset ledger in schema connect: ")
}

// A server that is starting or stopping is waited for, from the start of the sink on, and nobody is told that rights
// are missing.
func TestServerThatIsStarting(t *testing.T) {
	for _, ledger := range []string{"on", "off"} {
		for code, text := range map[string]string{
			"57P03": "the database system is not yet accepting connections",
			"57P01": "terminating connection due to administrator command", "53300": "sorry, too many clients already",
		} {
			d := newDB(t, plainTable)
			p, u := newProxy(t, d)
			answer := &pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: text}
			p.refuse.Store(answer)
			ts := newTopics()
			ts.add("t", 0, record(0, "a", nil))
			props := insertProps(u)
			props["offset.ledger"] = ledger
			r := newRunner(t, ts, props)
			require.NoError(t, r.start(t.Context()))
			err := r.open(t.Context(), tp("t", 0))
			if ledger == "off" {
				require.NoError(t, err)
				err = r.task.Put(t.Context(), r.batch())
			}
			require.Less(t, p.asked.Load(), int32(30), "partitions that another task has are asked for a hundred times")
			require.True(t, plugin.IsRetriable(err), "%v", err)
			require.ErrorContains(t, err, text+" (SQLSTATE "+code+")")
			require.NotContains(t, err.Error(), "the role needs")
			p.refuse.Store(nil)
			require.NoError(t, r.open(t.Context(), tp("t", 0)))
			require.NoError(t, r.drain(t.Context()))
			require.Equal(t, "1\n", d.text("SELECT count(*) FROM t"))
			p.refuse.Store(answer)
			p.cut()
			p.refuse.Store(nil)
			require.NoError(t, r.open(t.Context(), tp("t", 1)), "a connection that was lost while idle")
			r.stop()
		}
	}
}

// What is wrong with the settings fails the sink when it starts, and not as a matter of rights.
func TestStartWithWrongSettings(t *testing.T) {
	d := newDB(t, plainTable)
	p, u := newProxy(t, d)
	for code, text := range map[string]string{
		"28P01": "password authentication failed for user", "3D000": "database does not exist",
	} {
		p.refuse.Store(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: text})
		r := newRunner(t, newTopics(), insertProps(u))
		err := r.start(t.Context())
		require.ErrorContains(t, err, "prepare the offset ledger in schema connect: "+text)
		require.NotContains(t, err.Error(), "the role needs")
		r.stop()
	}
}

// Without the ledger a batch is written at least once, and offsets are the group's.
func TestWithoutLedger(t *testing.T) {
	d := newDB(t, plainTable)
	ts := newTopics()
	ts.add("t", 0, record(0, "a", nil))
	props := insertProps(d.url)
	props["offset.ledger"] = "off"
	r := newRunner(t, ts, props)
	require.NoError(t, r.start(t.Context(), tp("t", 0)))
	defer r.stop()
	require.NoError(t, r.drain(t.Context()))
	got, err := r.task.PreCommit(t.Context(), map[client.TopicPartition]int64{tp("t", 0): 1})
	require.NoError(t, err)
	require.Equal(t, map[client.TopicPartition]int64{tp("t", 0): 1}, got)
	require.Equal(t, "<null>\n", d.text("SELECT to_regclass('connect.sink_offset')"))
}
