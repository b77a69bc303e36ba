package faults_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/history"
)

// last is the value of the last record of each partition of the output. It is of no transaction: who reads committed
// records reads it when no transaction before it is open any more.
const last = "last"

// sight is a record as a reader saw it.
type sight struct {
	offset int64
	sum    uint64 // of the value
}

func sightOf(value string, offset int64) sight {
	h := fnv.New64a()
	_, _ = h.Write([]byte(value)) // cannot fail
	return sight{offset, h.Sum64()}
}

// follower is a reader of committed records, of one partition or of all.
type follower struct {
	name string
	seen [lanes][]sight
	over [lanes]bool
	left atomic.Int32 // partitions whose last record it has not seen
}

// take takes in a record.
func (f *follower) take(c *client, p int32, offset int64, value string) {
	if n := len(f.seen[p]); n > 0 && offset <= f.seen[p][n-1].offset {
		c.t.Errorf("%s: partition %d: offset %d comes after %d", f.name, p, offset, f.seen[p][n-1].offset)
	}
	f.seen[p] = append(f.seen[p], sightOf(value, offset))
	if value == last {
		f.over[p] = true
		f.left.Add(-1)
	}
}

// follow starts the readers: one of each partition by pages, and one of all as a stream.
func (j *copying) follow() {
	for p := range int32(lanes) {
		f := &follower{name: fmt.Sprint("reader-", p)}
		f.left.Store(1)
		j.readers = append(j.readers, f)
		j.run(f.name, func(c *client) { f.poll(c, c.ctx, p) })
	}
	all := &follower{name: "stream reader"}
	all.left.Store(lanes)
	j.readers = append(j.readers, all)
	j.run(all.name, func(c *client) {
		for id := ""; c.ctx.Err() == nil && all.left.Load() > 0; pause(c.ctx, pace) {
			id = c.follow(output, id, func(r jsonRecord) { all.take(c, r.Partition, r.Offset, r.Value) })
			c.elsewhere()
		}
	})
}

// poll follows a partition by long polls until its last record.
func (f *follower) poll(c *client, ctx context.Context, p int32) {
	for next := int64(0); ctx.Err() == nil && !f.over[p]; {
		values, offsets, err := c.page(ctx, history.Partition{Topic: output, Number: p}, next,
			"&max_records=2000&wait=1s&isolation=read_committed")
		if err != nil {
			continue
		}
		for i := range values {
			f.take(c, p, offsets[i], values[i])
			next = offsets[i] + 1
		}
	}
}

// check holds what is there in the end to what was there to copy, and to what readers saw on the way.
func (j *copying) check() {
	for p := range lanes {
		c := j.client(fmt.Sprint("last-writer-", p))
		c.insist(fmt.Sprintf("/v1/topics/%s/records?partition=%d", output, p), "application/json", strconv.Quote(last), 0)
		c.http.CloseIdleConnections()
	}
	start := time.Now()
	for _, f := range j.readers {
		for ; f.left.Load() > 0; pause(j.ctx, 10*time.Millisecond) {
			require.Less(j.t, time.Since(start), patience, "%s has not come to the end of %d partitions", f.name, f.left.Load())
		}
	}
	j.t.Logf("all readers at the end %v after the last transaction", time.Since(start).Round(time.Millisecond))
	j.stop()
	j.checkOffsets()
	j.checkOpen()
	copies := j.readCopy(1)
	for id := 2; id <= nodes; id++ {
		require.Equal(j.t, copies, j.readCopy(id), "nodes 1 and %d differ", id)
	}
	j.checkReaders(copies)
	j.checkCopy(copies)
	j.stopNodes()
}

// found is a record of the copy.
type found struct {
	offset int64
	value  string
}

// readCopy reads the committed records of the output through a node.
func (j *copying) readCopy(id int) (out [lanes][]found) {
	var wg sync.WaitGroup
	for p := range int32(lanes) {
		wg.Go(func() {
			c := j.client(fmt.Sprintf("last reader %d of partition %d", id, p))
			defer c.http.CloseIdleConnections()
			c.node = id
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for next := int64(0); ctx.Err() == nil; {
				values, offsets, err := c.page(ctx, history.Partition{Topic: output, Number: p}, next,
					"&max_records=5000&wait=1s&isolation=read_committed")
				if err != nil {
					c.node = id
					continue
				}
				for i := range values {
					if values[i] == last {
						return
					}
					out[p] = append(out[p], found{offsets[i], values[i]})
					next = offsets[i] + 1
				}
			}
			j.t.Errorf("node %d does not give all of partition %d", id, p)
		})
	}
	wg.Wait()
	return out
}

// checkReaders holds what readers saw on the way to what is there in the end.
func (j *copying) checkReaders(copies [lanes][]found) {
	for _, f := range j.readers {
		for p := range copies {
			if !f.over[p] {
				continue
			}
			seen := f.seen[p][:len(f.seen[p])-1]
			for i := range min(len(seen), len(copies[p])) {
				c := copies[p][i]
				require.Equal(j.t, sightOf(c.value, c.offset), seen[i], "%s saw another record %d of partition %d", f.name, i, p)
			}
			require.Len(j.t, seen, len(copies[p]), "%s, partition %d", f.name, p)
		}
	}
}

// checkCopy holds the copy to the input, record by record and transaction by transaction.
func (j *copying) checkCopy(copies [lanes][]found) {
	next := make([]int, keys) // of each key
	homes := make(map[int]int)
	type txn struct{ size, count int }
	txns := make(map[string]*txn)
	total := 0
	for p := range copies {
		for _, c := range copies[p] {
			f := strings.Split(c.value, "|")
			size, err := strconv.Atoi(f[1])
			require.NoError(j.t, err)
			var key, number int
			_, err = fmt.Sscanf(f[3], "%d-%d", &key, &number)
			require.NoError(j.t, err)
			if home, ok := homes[key]; ok {
				require.Equal(j.t, home, p, "key %d is in two partitions", key)
			}
			homes[key] = p
			if number != next[key] {
				j.t.Errorf("partition %d, offset %d: record %d of key %d (%s), where %d comes next", p, c.offset, number, key,
					c.value, next[key])
			}
			next[key] = number + 1
			if txns[f[0]] == nil {
				txns[f[0]] = &txn{size: size}
			}
			txns[f[0]].count++
			total++
		}
	}
	for name, x := range txns {
		if x.size != x.count {
			j.t.Errorf("transaction %s shows %d of its %d records", name, x.count, x.size)
		}
		if j.fates[name] == aborted {
			j.t.Errorf("transaction %s is there, but was said to have failed", name)
		}
	}
	for name, f := range j.fates {
		if f == committed && txns[name] == nil {
			j.t.Errorf("transaction %s is not there, but was said to be committed", name)
		}
	}
	require.Equal(j.t, j.records, total, "records in the copy")
	j.t.Logf("%d transactions in the copy; workers were told of %d committed, %d aborted, %d without a word", len(txns),
		j.fatesOf(committed), j.fatesOf(aborted), j.fatesOf(unknownFate))
	j.t.Logf("%d requests sent again, %d memberships, %d crashes of workers", j.resent.Load(), j.lives.Load(),
		j.crashes.Load())
}

// checkOffsets holds the group's offsets to the ends of the input.
func (j *copying) checkOffsets() {
	c := j.client("last look")
	defer c.http.CloseIdleConnections()
	start := time.Now()
	committed := j.offsets()
	for committed == nil {
		require.Less(j.t, time.Since(start), patience, "nobody tells the group's offsets")
		pause(context.Background(), 50*time.Millisecond)
		committed = j.offsets()
	}
	for p, offset := range committed {
		in := history.Partition{Topic: input, Number: int32(p)}
		values, _, err := c.page(context.Background(), in, offset, "")
		for err != nil && time.Since(start) < patience {
			pause(context.Background(), 50*time.Millisecond)
			values, _, err = c.page(context.Background(), in, offset, "")
		}
		require.NoError(j.t, err)
		require.Empty(j.t, values, "partition %d of the input goes on behind %d", p, offset)
	}
}

// checkOpen looks for transactions that nobody has ended.
func (j *copying) checkOpen() {
	c := j.client("last look at transactions")
	defer c.http.CloseIdleConnections()
	for start := time.Now(); ; pause(context.Background(), 100*time.Millisecond) {
		code, text, err := c.call(context.Background(), http.MethodGet, "/v1/transactions?state=open", "")
		if err == nil && code == http.StatusOK && strings.Contains(string(text), `"items":[]`) {
			return
		}
		require.Less(j.t, time.Since(start), patience, "%d %s", code, text)
	}
}
