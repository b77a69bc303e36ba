package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const kills = 20

// handOver kills the node that runs a source's task, again and again, and measures until a row that was committed after
// the kill is in the topic. Took is the longest such time.
func (b *bench) handOver(ctx context.Context) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		first, err := b.cluster(ctx, "ack")
		if first == nil {
			return r, err
		}
		nodes := append([]*server{first}, first.others...)
		first.others = nil
		defer func() {
			for _, s := range nodes {
				endAll(s)
			}
		}()
		if err != nil {
			return r, err
		}
		plain := converters("org.apache.kafka.connect.json.JsonConverter", "schemas.enable", "false")
		err = first.connector(ctx, t.name, t.capturing(plain, map[string]string{
			"topic.creation.default.replication.factor": "3", "topic.creation.default.partitions": "1",
		}))
		if err != nil {
			return r, err
		}
		life, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { _ = t.trickle(life, 1, 100, 10*time.Minute) }) // a row that is missing is seen below
		var took []time.Duration
		for range kills {
			d, err := b.kill(ctx, nodes, t)
			if err != nil {
				return r, fmt.Errorf("kill %d: %w", len(took)+1, err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		r.Took = took[len(took)-1].Seconds()
		r.Note = fmt.Sprintf("median %.1f s of %d", micros(took, 0.5)/1e6, len(took))
		return r, nil
	})
}

// kill kills the node that runs the task once all is well, sees that rows come again, and starts the node again.
func (b *bench) kill(ctx context.Context, nodes []*server, t *table) (time.Duration, error) {
	at, err := runsTask(nodes, t.name)
	if err != nil {
		return 0, err
	}
	victim, reader := nodes[at], nodes[(at+1)%len(nodes)]
	err = reader.await(ctx, func() error { return inSync(reader, t.topic(), len(nodes)) })
	if err != nil {
		return 0, err
	}
	f, err := tail(ctx, reader, t.topic())
	if err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.await(ctx, time.Now()); err != nil { // rows flow before
		return 0, err
	}
	before, err := t.reader(ctx)
	if err != nil {
		return 0, err
	}
	killed := time.Now()
	victim.stop(syscall.SIGKILL)
	err = f.await(ctx, killed)
	took := time.Since(killed)
	if err != nil {
		return took, err
	}
	after, err := t.reader(ctx)
	if err != nil || before == after {
		return took, errors.Join(err, errors.New("the node that was killed did not run the task"))
	}
	args := victim.cmd.Args[1:]
	if nodes[at], err = b.startAt(ctx, victim.dir, victim.addr, b.millrace, args...); err != nil {
		return took, err
	}
	return took, nodes[at].healthy(ctx)
}

// reader is the server's process that sends to whoever reads the slot.
func (t *table) reader(ctx context.Context) (pid int, err error) {
	err = t.conn.QueryRow(ctx, "SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1",
		t.name).Scan(&pid)
	return pid, err
}

// runsTask finds the node that runs a connector's task.
func runsTask(nodes []*server, name string) (at int, err error) {
	err = nodes[0].await(context.Background(), func() error {
		worker, err := nodes[0].running(name)
		if err != nil {
			return err
		}
		if at = slices.IndexFunc(nodes, func(s *server) bool { return s.addr == worker }); at < 0 {
			return fmt.Errorf("no node is worker %s", worker)
		}
		return nil
	})
	return at, err
}

// inSync says whether all replicas of a topic's partition are in sync.
func inSync(s *server, topic string, replicas int) error {
	text, err := s.get("/v1/topics/" + topic)
	if err != nil {
		return err
	}
	_, list, _ := strings.Cut(text, `"isr":[`)
	list, _, _ = strings.Cut(list, "]")
	if n := len(strings.Split(list, ",")); n != replicas {
		return fmt.Errorf("%d replicas are in sync", n)
	}
	return nil
}

// await waits for a row that was committed after a time.
func (f *follower) await(ctx context.Context, after time.Time) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; wait(ctx, 5*time.Millisecond) {
		if len(f.since(after)) > 0 {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("no row has come"))
}

// idleConnectors counts what three nodes use that run a source by log, a source by polling and a sink with nothing to
// do; or none of them, without props.
func (b *bench) idleConnectors(ctx context.Context, props map[string]string) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		first, err := b.cluster(ctx, "ack")
		defer func() { endAll(first) }()
		if err != nil {
			return r, err
		}
		if props != nil {
			if err := t.insert(ctx, 1, 1); err != nil {
				return r, err
			}
			if err := first.connector(ctx, t.name, t.capturing(props)); err != nil {
				return r, err
			}
			if err := first.connector(ctx, "polled", t.polling(), props); err != nil {
				return r, err
			}
			if err := t.idleSink(ctx, first); err != nil {
				return r, err
			}
		}
		wait(ctx, 3*time.Second)
		const length = 5 * time.Second
		nodes := append([]*server{first}, first.others...)
		use := func() (cpu, woken float64) {
			for _, s := range nodes {
				cpu += cpuSeconds(s.cmd.Process.Pid)
				woken += wakes(s.cmd.Process.Pid)
			}
			return cpu, woken
		}
		cpu, woken := use()
		wait(ctx, length)
		cpuAfter, wokenAfter := use()
		r.ServerCores = (cpuAfter - cpu) / length.Seconds()
		r.OpsPerS = (wokenAfter - woken) / length.Seconds()
		return r, nil
	})
}

func (t *table) idleSink(ctx context.Context, s *server) error {
	if err := s.createTopic("nothing", 1); err != nil {
		return err
	}
	schemas := converters("org.apache.kafka.connect.json.JsonConverter", "schemas.enable", "true")
	return s.connector(ctx, "sink", schemas, map[string]string{
		"connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "topics": "nothing",
		"connection.url":      "jdbc:postgresql://127.0.0.1:" + t.port + "/postgres?sslmode=disable",
		"connection.username": "postgres", "connection.password": "none", "insert.mode": "upsert",
		"primary.key.mode": "record_key", "primary.key.fields": "id",
		"schema.evolution": "basic",
	})
}

// wakes is how often the threads of a process have gone to sleep of their own.
func wakes(pid int) (sum float64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(after, "\n")
		n, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}
