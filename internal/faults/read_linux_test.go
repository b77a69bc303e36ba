package faults_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/server/servertest/history"
)

const rawBatches = "application/vnd.apache.kafka.recordbatch"

// read notes a read that began at an offset, and gives the next offset.
func (c *client) read(p history.Partition, api string, from int64, invoke time.Duration, values []string,
	offsets []int64) int64 {
	if len(values) == 0 {
		return from
	}
	c.history.Add(&history.Op{
		Kind: history.Read, Client: c.name, Session: c.name, Node: strconv.Itoa(c.node), API: api, Partition: p,
		From: from, Values: values, Offsets: offsets, Outcome: history.OK, Invoke: invoke, Return: c.history.Now(),
	})
	return offsets[len(offsets)-1] + 1
}

// refused notes a read that was not answered, goes elsewhere and waits a moment.
func (c *client) refused(p history.Partition, from int64, code int, text []byte, err error) {
	if err == nil && code < 500 {
		c.t.Errorf("%s: read %v from %d: %d %s", c.name, p, from, code, text)
	}
	c.elsewhere()
	pause(c.ctx, pace)
}

// jsonRecord is a record as JSON.
type jsonRecord struct {
	Partition int32
	Offset    int64
	Value     string
}

// page reads one page of a partition.
func (c *client) page(ctx context.Context, p history.Partition, from int64, more string) (values []string,
	offsets []int64, err error) {
	path := fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d%s", p.Topic, p.Number, from, more)
	code, text, err := c.call(ctx, http.MethodGet, path, "")
	if err != nil || code != http.StatusOK {
		c.refused(p, from, code, text, err)
		return nil, nil, fmt.Errorf("read %v: %d %s: %w", p, code, text, errors.Join(err))
	}
	var page struct{ Records []jsonRecord }
	if err := json.Unmarshal(text, &page); err != nil {
		c.t.Errorf("%s: %v in %s", c.name, err, text)
	}
	for _, r := range page.Records {
		values, offsets = append(values, r.Value), append(offsets, r.Offset)
	}
	return values, offsets, nil
}

// poll follows a partition by long polls.
func (c *client) poll(p history.Partition) {
	for next := int64(0); c.ctx.Err() == nil; {
		invoke := c.history.Now()
		if values, offsets, err := c.page(c.ctx, p, next, "&wait=1s"); err == nil {
			next = c.read(p, "poll", next, invoke, values, offsets)
		}
	}
}

// raw follows a partition by its batches.
func (c *client) raw(p history.Partition) {
	for next := int64(0); c.ctx.Err() == nil; {
		invoke := c.history.Now()
		path := fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&wait=1s", p.Topic, p.Number, next)
		code, body, err := c.call(c.ctx, http.MethodGet, path, "", "Accept", rawBatches)
		if err != nil || code != http.StatusOK {
			c.refused(p, next, code, body, err)
			continue
		}
		values, offsets, err := unpack(body, next)
		if err != nil {
			c.t.Errorf("%s: %v from %d: %v", c.name, p, next, err)
			return
		}
		next = c.read(p, "raw", next, invoke, values, offsets)
	}
}

// unpack gives the records of batches from an offset on.
func unpack(body []byte, from int64) (values []string, offsets []int64, err error) {
	for len(body) > 0 {
		b, rest, err := record.Next(body)
		if err != nil {
			return nil, nil, err
		}
		if err := b.Verify(); err != nil {
			return nil, nil, err
		}
		body = rest
		r := record.NewReader(b, record.DefaultExpandedBytes)
		for rec := (record.Record{}); r.Next(&rec); {
			var value string
			if err := json.Unmarshal(rec.Value, &value); err != nil {
				return nil, nil, fmt.Errorf("offset %d: %w", rec.Offset, err)
			}
			if rec.Offset >= from {
				values, offsets = append(values, value), append(offsets, rec.Offset)
			}
		}
		if r.Err() != nil {
			return nil, nil, r.Err()
		}
		r.Close()
	}
	return values, offsets, nil
}

// stream follows a topic as Server-Sent Events, and goes on at another node behind the last event it saw.
func (c *client) stream(topic string) {
	next, last := make([]int64, partitions), ""
	for c.ctx.Err() == nil {
		invoke := c.history.Now()
		values, offsets := make([][]string, partitions), make([][]int64, partitions)
		last = c.follow(topic, last, func(r jsonRecord) {
			values[r.Partition] = append(values[r.Partition], r.Value)
			offsets[r.Partition] = append(offsets[r.Partition], r.Offset)
		})
		for p := range int32(partitions) {
			next[p] = c.read(history.Partition{Topic: topic, Number: p}, "sse", next[p], invoke, values[p], offsets[p])
		}
		c.elsewhere()
		pause(c.ctx, pace)
	}
}

// quiet is how long a stream may say nothing until its reader goes elsewhere.
const quiet = 3 * time.Second

// follow reads one stream until it ends, falls silent, or has been read for a while, and gives the last id.
func (c *client) follow(topic, last string, take func(jsonRecord)) string {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	alarm := time.AfterFunc(quiet, cancel)
	defer alarm.Stop()
	url := c.cluster.nodes[c.node].url() + "/v1/topics/" + topic + "/records"
	if last == "" {
		url += "?offset=earliest"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(c.t, err)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return last
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode < 500 {
			c.t.Errorf("%s: stream from %q: %d", c.name, last, resp.StatusCode)
		}
		return last
	}
	var event, id, data string
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		alarm.Reset(quiet)
		name, value, _ := strings.Cut(s.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if r, ok := c.event(event, data); ok {
				take(r)
			}
			if id != "" {
				last = id
			}
			event, id, data = "", "", ""
		}
	}
	return last
}

// event reads the record of an event, if it is one.
func (c *client) event(event, data string) (r jsonRecord, ok bool) {
	if event != "" || data == "" {
		return r, false
	}
	if err := json.Unmarshal([]byte(data), &r); err != nil {
		c.t.Errorf("%s: event %s: %v", c.name, data, err)
		return r, false
	}
	c.events.Add(1)
	return r, true
}

// check ends the clients, reads everything back from every node and from every node's files, and holds all that was
// said to it.
func (l *load) check() {
	l.t.Helper()
	l.stop()
	l.awaitLate()
	began := time.Now()
	l.cluster.awaitHealth()
	for id := 1; id <= nodes; id++ {
		l.readBack(id)
	}
	read := time.Now()
	l.stopNodes()
	l.t.Logf("read back in %v, all stopped in %v", read.Sub(began).Round(time.Millisecond),
		time.Since(read).Round(time.Millisecond))
	for id := 1; id <= nodes; id++ {
		l.readFiles(id)
	}
	ops := l.history.Ops()
	for _, v := range history.Check(ops, history.Rules{}) {
		l.t.Errorf("%v", v)
	}
	sends := map[history.Outcome]int{}
	why, records := map[string]int{}, 0
	for _, o := range ops {
		switch {
		case o.Kind == history.Send:
			sends[o.Outcome]++
			if o.Outcome != history.OK {
				why[o.Outcome.String()+" "+reason(o.Note)]++
			}
		case o.Final:
			records += len(o.Values)
		}
	}
	l.t.Logf("%d requests acknowledged, %d unknown, %d refused; %d records stored; %d events streamed", sends[history.OK],
		sends[history.Info], sends[history.Fail], records/(2*nodes), l.events.Load())
	for _, r := range slices.Sorted(maps.Keys(why)) {
		l.t.Logf("%5d %s", why[r], r)
	}
	if l.t.Failed() {
		l.faults(ops)
	}
}

// reason is what a note tells of why a send failed: the name of the problem, or the last words of the error.
func reason(note string) string {
	if _, rest, ok := strings.Cut(note, "/v1/errors#"); ok {
		name, _, _ := strings.Cut(rest, "\"")
		return name
	}
	return note[strings.LastIndex(note, ": ")+1:]
}

// faults logs what was done, for whoever reads a failure.
func (l *load) faults(ops []*history.Op) {
	for _, o := range ops {
		if o.Kind == history.Fault {
			l.t.Logf("%.6f node %s: %s", o.Invoke.Seconds(), o.Node, o.Note)
		}
	}
}

// everything calls f with all partitions of the load.
func everything(f func(history.Partition)) {
	for _, topic := range []string{sequenced, plain, probes} {
		for p := range int32(partitions) {
			f(history.Partition{Topic: topic, Number: p})
		}
	}
}

// final notes what is there at the end.
func (l *load) final(from string, p history.Partition, values []string, offsets []int64) {
	now := l.history.Now()
	l.history.Add(&history.Op{
		Kind: history.Read, Client: from, Session: from, Partition: p, Values: values, Offsets: offsets,
		Outcome: history.OK, Final: true, Invoke: now, Return: now,
	})
}

// awaitLate waits until nothing that clients have given up can be stored any more: a node looks for a leader for longer
// than they wait.
func (l *load) awaitLate() {
	const late = 20 * time.Second
	until := time.Duration(0)
	for _, o := range l.history.Ops() {
		if o.Kind == history.Send && o.Outcome == history.Info && o.Return-o.Invoke >= attention {
			until = max(until, o.Invoke+late)
		}
	}
	pause(context.Background(), until-l.history.Now())
}

// ends are the offsets behind all that anybody was told to be there.
func (l *load) ends() map[history.Partition]int64 {
	ends := make(map[history.Partition]int64)
	for _, o := range l.history.Ops() {
		switch {
		case o.Outcome != history.OK:
		case o.Kind == history.Send && o.Base >= 0:
			ends[o.Partition] = max(ends[o.Partition], o.Base+int64(len(o.Values)))
		case o.Kind == history.Read && len(o.Offsets) > 0:
			ends[o.Partition] = max(ends[o.Partition], o.Offsets[len(o.Offsets)-1]+1)
		}
	}
	return ends
}

// readBack reads all there is through a node.
func (l *load) readBack(id int) {
	ends := l.ends()
	var wg sync.WaitGroup
	everything(func(p history.Partition) { wg.Go(func() { l.readPartition(id, p, ends[p]) }) })
	wg.Wait()
}

// readPartition reads a partition through a node until nothing more comes. A leader that has just begun may know a
// little later that what is there to an end is committed.
func (l *load) readPartition(id int, p history.Partition, end int64) {
	c := l.client(fmt.Sprint("last reader at node ", id))
	defer c.http.CloseIdleConnections()
	var values []string
	var offsets []int64
	for start := time.Now(); ; {
		c.node = id
		next := int64(len(values))
		v, o, err := c.page(context.Background(), p, next, "&max_records=5000&wait=300ms")
		switch {
		case err != nil && time.Since(start) > patience:
			l.t.Errorf("%s: %v", c.name, err)
			return
		case err == nil && len(v) == 0 && (next >= end || time.Since(start) > patience):
			l.final(c.name, p, values, offsets)
			return
		}
		values, offsets = append(values, v...), append(offsets, o...)
	}
}

// stopNodes stops all nodes in order, and has their files verified.
func (l *load) stopNodes() {
	var wg sync.WaitGroup
	for id := 1; id <= nodes; id++ {
		l.cluster.signal(id, syscall.SIGTERM)
	}
	for id := 1; id <= nodes; id++ {
		wg.Go(func() {
			if code := l.cluster.wait(id); code != 0 {
				l.t.Errorf("node %d exits with %d after SIGTERM", id, code)
			}
		})
	}
	wg.Wait()
	for id := 1; id <= nodes; id++ {
		out, err := exec.Command(*binary, "log", "verify", l.cluster.nodes[id].data).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("no damage")) {
			l.t.Errorf("files of node %d: %v\n%s", id, err, out)
		}
	}
}

// readFiles reads the replicas that a node has on its disk.
func (l *load) readFiles(id int) {
	everything(func(p history.Partition) {
		pattern := filepath.Join(l.cluster.nodes[id].data, fmt.Sprintf("%s-%d", p.Topic, p.Number), "*.log")
		names, err := filepath.Glob(pattern)
		require.NoError(l.t, err)
		slices.Sort(names)
		var values []string
		var offsets []int64
		for _, name := range names {
			body, err := os.ReadFile(name)
			require.NoError(l.t, err)
			v, o, err := unpack(body, 0)
			require.NoError(l.t, err, name)
			values, offsets = append(values, v...), append(offsets, o...)
		}
		l.final(fmt.Sprint("files of node ", id), p, values, offsets)
	})
}
