package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Sizes of the rows of capture.
const (
	backlogRows = 1_000_000
	backlogEach = 1000 // rows of one transaction
	liveRows    = 400_000
	largeRows   = 1_500_000
)

// captureBacklog measures how fast a connector takes what was written before it started.
func (b *bench) captureBacklog(ctx context.Context, props map[string]string) (result, error) {
	return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
		if err := t.insert(ctx, backlogRows, backlogEach); err != nil {
			return r, err
		}
		if err := s.connector(ctx, t.name, t.capturing(props)); err != nil {
			return r, err
		}
		w := watch(s.cmd.Process.Pid)
		p, err := follow(ctx, backlogRows, s.written)
		w.tell(&r, backlogRows)
		r.RecPerS, r.RSSMiB = p.rate(), float64(peakKiB(s.cmd.Process.Pid))/1024
		return r, err
	})
}

// receiveBacklog measures how fast the server's own client takes the same rows and throws them away.
func (b *bench) receiveBacklog(ctx context.Context) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		if err := t.insert(ctx, backlogRows, backlogEach); err != nil {
			return r, err
		}
		end, err := t.end(ctx)
		if err != nil {
			return r, err
		}
		cmd := t.receiver(ctx, end)
		began := time.Now()
		w := watch(0)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return r, fmt.Errorf("pg_recvlogical: %w: %s", err, out)
		}
		r.RecPerS = backlogRows / time.Since(began).Seconds()
		w.tell(&r, 0)
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		r.ServerCPUPerMRec = used.Seconds() / backlogRows * 1e6
		return r, nil
	})
}

// receiver takes what is in the slot up to a place, with the options that our connectors use.
func (t *table) receiver(ctx context.Context, end string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(t.bin, "pg_recvlogical"), "-d", t.url(), "-S", t.name, "--start",
		"-f", "/dev/null", "-F", "0", "-s", "10", "--no-loop", "--endpos", end, "-o", "proto_version=2", "-o", "streaming=on",
		"-o", "messages=true", "-o", "publication_names="+t.name)
}

// copyLive writes rows by COPY, in transactions of so many, as fast as it can.
func (t *table) copyLive(ctx context.Context, rows, each int) error {
	c, err := t.database.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var text bytes.Buffer
	note := bytes.Repeat([]byte("twenty bytes of text"), 8)[:150]
	for t.rows < rows {
		text.Reset()
		for range each {
			t.rows++
			fmt.Fprintf(&text, "%d\t%d\t%d.42\t2026-01-02 03:04:05.678901+00\tt\t%s\n", t.rows, t.rows%10000,
				t.rows%1000, note)
		}
		if _, err := c.PgConn().CopyFrom(ctx, &text, "COPY "+t.name+" FROM STDIN"); err != nil {
			return err
		}
	}
	return nil
}

// captureLive measures from the first row that is written to the last one in the topic.
func (b *bench) captureLive(ctx context.Context, props map[string]string) (result, error) {
	return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
		if err := s.connector(ctx, t.name, t.capturing(props)); err != nil {
			return r, err
		}
		if err := t.flowing(ctx, s); err != nil {
			return r, err
		}
		w := watch(s.cmd.Process.Pid)
		began := time.Now()
		if err := t.copyLive(ctx, liveRows, 500); err != nil {
			return r, err
		}
		_, err = follow(ctx, liveRows, s.written)
		r.RecPerS = liveRows / time.Since(began).Seconds()
		w.tell(&r, liveRows)
		return r, err
	})
}

// flowing waits until a first row is in the topic.
func (t *table) flowing(ctx context.Context, s *server) error {
	if err := t.insert(ctx, 1, 1); err != nil {
		return err
	}
	_, err := follow(ctx, 1, s.written)
	return err
}

// receiveLive has the server's own client do the same. It does not say how far it is, so the server is asked.
func (b *bench) receiveLive(ctx context.Context) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		life, end := context.WithCancel(ctx)
		defer end()
		cmd := t.receiver(life, "FFFFFFFF/FFFFFFFF")
		if err := cmd.Start(); err != nil {
			return r, err
		}
		defer func() {
			end()
			_ = cmd.Wait() // it was killed
		}()
		if err := t.insert(ctx, 1, 1); err != nil {
			return r, err
		}
		if err := t.sent(ctx); err != nil {
			return r, err
		}
		w := watch(cmd.Process.Pid)
		began := time.Now()
		if err := t.copyLive(ctx, liveRows, 500); err != nil {
			return r, err
		}
		if err := t.sent(ctx); err != nil {
			return r, err
		}
		r.RecPerS = liveRows / time.Since(began).Seconds()
		w.tell(&r, liveRows)
		return r, nil
	})
}

// sent waits until the server has sent all that there is now.
func (t *table) sent(ctx context.Context) error {
	at, err := t.end(ctx)
	if err != nil {
		return err
	}
	_, err = follow(ctx, 1, func() (n int, err error) {
		err = t.conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication r JOIN pg_replication_slots s
			ON s.active_pid = r.pid WHERE s.slot_name = $1 AND r.sent_lsn >= $2::text::pg_lsn`, t.name, at).Scan(&n)
		return n, err
	})
	return err
}

// commitLatency measures from a transaction's commit, as the server's log has it, to its row's arrival at a reader.
func (b *bench) commitLatency(ctx context.Context, props map[string]string) (result, error) {
	return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
		if err := s.connector(ctx, t.name, t.capturing(props)); err != nil {
			return r, err
		}
		if err := t.flowing(ctx, s); err != nil {
			return r, err
		}
		reader, err := tail(ctx, s, t.topic())
		if err != nil {
			return r, err
		}
		defer reader.close()
		const writers = 4
		length := 4 * b.length
		w := watch(s.cmd.Process.Pid)
		began := time.Now()
		if err := t.trickle(ctx, writers, 1000/writers, b.warm+length); err != nil {
			return r, err
		}
		wait(ctx, 300*time.Millisecond)
		took := reader.since(began.Add(b.warm))
		w.tell(&r, len(took))
		if len(took) == 0 {
			return r, errors.New("no row arrived")
		}
		slices.Sort(took)
		r.P50, r.P99, r.RecPerS = micros(took, 0.5), micros(took, 0.99), float64(len(took))/length.Seconds()
		return r, nil
	})
}

// trickle writes single rows from several connections, each at a rate.
func (t *table) trickle(ctx context.Context, writers, rate int, d time.Duration) error {
	var wg sync.WaitGroup
	errs := make([]error, writers)
	began := time.Now()
	for i := range writers {
		wg.Go(func() {
			c, err := t.database.connect(ctx)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close(context.WithoutCancel(ctx))
			sql := "INSERT INTO " + t.name + " SELECT " + rowValues + " FROM (SELECT $1::int AS g) x"
			for n := 0; ; n++ {
				at := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
				if at.Sub(began) > d || ctx.Err() != nil {
					return
				}
				wait(ctx, time.Until(at))
				if _, err := c.Exec(ctx, sql, (i+1)*10_000_000+n); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// arrival is a row that a reader has got.
type arrival struct{ committed, at time.Time }

// follower is a live reader of a topic.
type follower struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	rows []arrival // guarded by mu
}

// tail reads a topic as events, from its end.
func tail(ctx context.Context, s *server, topic string) (*follower, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/v1/topics/"+topic+"/records", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("read %s: %s", topic, resp.Status), resp.Body.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	f := &follower{cancel: cancel}
	f.wg.Go(func() {
		defer resp.Body.Close()
		f.read(resp.Body)
	})
	return f, nil
}

// read takes lines until there are none: a reader whose node is killed has what it has.
func (f *follower) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if at, ok := committed(line); ok {
			now := time.Now()
			f.mu.Lock()
			f.rows = append(f.rows, arrival{at, now})
			f.mu.Unlock()
		}
	}
}

// committed is when the row of an event was committed, by its source.
func committed(line []byte) (time.Time, bool) {
	_, source, ok := bytes.Cut(line, []byte(`"source":{`))
	if !ok {
		return time.Time{}, false
	}
	_, text, ok := bytes.Cut(source, []byte(`"ts_us":`))
	if !ok {
		return time.Time{}, false
	}
	end := bytes.IndexAny(text, ",}")
	if end < 0 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(text[:end]), 10, 64)
	return time.UnixMicro(n), err == nil
}

// since gives how long rows took that were committed after a time.
func (f *follower) since(from time.Time) (took []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.rows {
		if a.committed.After(from) {
			took = append(took, a.at.Sub(a.committed))
		}
	}
	return took
}

func (f *follower) close() {
	f.cancel()
	f.wg.Wait()
}

// largeTransaction measures the memory and time that one transaction takes, and how long the server hears nothing
// meanwhile, which P99 holds, in microseconds.
func (b *bench) largeTransaction(ctx context.Context) (result, error) {
	return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
		plain := converters("org.apache.kafka.connect.json.JsonConverter", "schemas.enable", "false")
		if err := s.connector(ctx, t.name, t.capturing(plain)); err != nil {
			return r, err
		}
		if err := t.flowing(ctx, s); err != nil {
			return r, err
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		var heard heard
		wg.Go(func() { heard.watch(life, t) })
		w := watch(s.cmd.Process.Pid)
		began := time.Now()
		if err := t.insert(ctx, largeRows, largeRows); err != nil {
			return r, err
		}
		inserted := time.Since(began)
		p, err := follow(ctx, 1+largeRows, s.written)
		if err != nil {
			return r, err
		}
		cancel()
		wg.Wait()
		w.tell(&r, largeRows)
		r.Took = p.ended.Sub(began).Seconds() - inserted.Seconds()
		r.RecPerS, r.RSSMiB = largeRows/r.Took, float64(peakKiB(s.cmd.Process.Pid))/1024
		r.P99 = float64(heard.longest.Microseconds())
		r.Note = fmt.Sprintf("silent for %.1f s at most, %d connections", heard.longest.Seconds(), len(heard.pids))
		if heard.err != nil || len(heard.pids) != 1 {
			return r, errors.Join(heard.err, fmt.Errorf("the stream was lost: %s", r.Note))
		}
		return r, nil
	})
}

// heard is how a server heard of the reader of a slot.
type heard struct {
	longest time.Duration
	pids    map[int]bool
	err     error
}

func (h *heard) watch(ctx context.Context, t *table) {
	h.pids = map[int]bool{}
	c, err := t.database.connect(ctx)
	if err != nil {
		h.err = err
		return
	}
	defer c.Close(context.WithoutCancel(ctx))
	for ; ctx.Err() == nil; wait(ctx, 100*time.Millisecond) {
		var pid int
		var silent float64
		err := c.QueryRow(ctx, `SELECT r.pid, coalesce(extract(epoch FROM clock_timestamp() - r.reply_time), 0)
			FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_name = $1`,
			t.name).Scan(&pid, &silent)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			h.err = err
			return
		}
		h.pids[pid] = true
		h.longest = max(h.longest, time.Duration(silent*float64(time.Second)))
	}
}
