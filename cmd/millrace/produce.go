package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// produceFlags is what `millrace produce` is told.
type produceFlags struct {
	file, format, keySep, key, acks string
	headers                         []string
	partition                       int
	batchRecords                    int
	ignorePartition                 bool
	retryFor                        time.Duration
}

// maxBatchBytes keeps what a request holds within one record batch of the default max.message.bytes, which it has to
// fit in because the producer is named. A longer record goes alone: a topic may allow it.
const maxBatchBytes = 1<<20 - 4096

// linger is how long a batch waits for more input once it has a record. Typed lines go out at once to the eye.
const linger = 5 * time.Millisecond

func newProduce(c *cli) *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write records from standard input or a file",
		Long: `Write records from standard input or a file to a topic, one record a line, in batches.

A batch that got no answer is sent again under the same producer name and sequence, so a retry never stores a record
twice. The topic is made when it does not exist, unless the server's auto.create.topics.enable is false.

Formats:
  lines    the line is the value; with --key-separator, KEY SEPARATOR VALUE
  json     each line is a JSON value, checked before it is sent
  records  each line is a whole record, as 'millrace consume -o json' prints it:
           {"key":...,"value":...,"headers":[{"name":...,"value":...}],"partition":0}
           It goes to the partition it names; with --ignore-partition it is placed anew, by its key`,
		Example: `  echo hello | millrace produce greetings
  millrace produce orders --file orders.ndjson --format json
  printf 'k1=v1\nk2=v2\n' | millrace produce pairs --key-separator =
  millrace consume orders --to-end -o json | millrace produce copy --format records --ignore-partition`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.produce(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "file", "f", "-", "read this file; - is standard input")
	fl.StringVar(&f.format, "format", "lines", "lines, json or records")
	fl.StringVar(&f.keySep, "key-separator", "", "lines: what stands between key and value")
	fl.StringVarP(&f.key, "key", "k", "", "the key of every record")
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "a header of every record, NAME:VALUE; may be repeated")
	fl.IntVarP(&f.partition, "partition", "p", -1, "the partition of every record (default: by key, else by producer)")
	fl.BoolVar(&f.ignorePartition, "ignore-partition", false, "records: place each record anew, wherever it was")
	fl.StringVar(&f.acks, "acks", "all", "all: on disk before it is acknowledged; 1: written; 0: no wait")
	fl.IntVar(&f.batchRecords, "batch", 500, "most records of a request")
	fl.DurationVar(&f.retryFor, "retry-for", 30*time.Second, "how long a batch is tried again")
	c.clientFlags(cmd)
	return cmd
}

// source opens the input and says how to read it; size is -1 when it is not known beforehand.
func (c *cli) source(f produceFlags) (in *input, size int64, done func(), err error) {
	in = &input{format: f.format, keySep: f.keySep, anywhere: f.ignorePartition}
	switch {
	case f.format != "lines" && f.format != "json" && f.format != "records":
		return nil, 0, nil, usagef("--format %s: want lines, json or records", f.format)
	case f.keySep != "" && (f.format != "lines" || f.key != ""):
		return nil, 0, nil, usagef("--key-separator goes with --format lines and without --key")
	case f.ignorePartition && f.format != "records":
		return nil, 0, nil, usagef("--ignore-partition goes with --format records: other input names no partition")
	case f.format == "records" && (f.key != "" || len(f.headers) > 0):
		return nil, 0, nil, usagef("--format records: each record has its own key and headers; leave out --key and --header")
	}
	if f.key != "" {
		in.key = &f.key
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, 0, nil, usagef("--header %s: want NAME:VALUE", h)
		}
		in.headers = append(in.headers, header{name, strings.TrimSpace(value)})
	}
	if f.file == "-" {
		in.r = bufio.NewReaderSize(c.in, 64<<10)
		return in, -1, func() {}, nil
	}
	file, err := os.Open(f.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil, &failure{exitNotFound, err}
	} else if err != nil {
		return nil, 0, nil, err
	}
	size = -1
	if st, err := file.Stat(); err == nil && st.Mode().IsRegular() {
		size = st.Size()
	}
	in.r = bufio.NewReaderSize(file, 64<<10)
	return in, size, func() { file.Close() }, nil
}

// produce is the command: a reader fills batches while the batch before is on its way.
func (c *cli) produce(ctx context.Context, topic string, f produceFlags) error {
	asJSON, err := c.asJSON()
	if err != nil {
		return err
	}
	p, err := c.newProducer(topic, f)
	if err != nil {
		return err
	}
	in, size, done, err := c.source(f)
	if err != nil {
		return err
	}
	defer done()
	p.progress = c.newProgress(size)
	if size >= 0 {
		p.linger = 0 // the rest is there
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the reader is not awaited: it may be stuck in a read of the terminal, and the process ends here
	var reader sync.WaitGroup
	lines := make(chan line, 2*f.batchRecords)
	reader.Go(func() { readLines(ctx, in, lines) })
	err = p.run(ctx, lines)
	p.progress.done()
	if err == nil || p.records > 0 {
		p.summary(c, asJSON)
	}
	return err
}

// line is one record of the input, or what ended the input.
type line struct {
	record []byte
	end    int64 // where it ends in the input
	err    error
}

func readLines(ctx context.Context, in *input, to chan<- line) {
	for {
		rec, err := in.next()
		select {
		case to <- line{rec, in.read, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// producer sends batches under one producer name, numbered from 0, and adds up the answers.
type producer struct {
	r            *remote
	topic, name  string
	query        url.Values
	batchRecords int
	retryFor     time.Duration
	linger       time.Duration // 0: until the input ends
	progress     *progress

	held       *line // did not fit in the batch before
	seq        int64
	start      time.Time
	reached    bool // the node has answered at least once
	records    int64
	taken      int64 // bytes of the input that went into batches
	retries    int
	partitions map[int32]*produced
}

// produced is what went to one partition.
type produced struct {
	Partition int32 `json:"partition"`
	First     int64 `json:"first_offset"`
	Last      int64 `json:"last_offset"`
	Count     int64 `json:"count"`
}

func (c *cli) newProducer(topic string, f produceFlags) (*producer, error) {
	r, err := c.remote()
	if err != nil {
		return nil, err
	}
	p := &producer{
		r: r, topic: topic, name: "millrace-cli-" + uuid.NewString(), query: url.Values{},
		batchRecords: f.batchRecords, retryFor: f.retryFor, linger: linger, start: time.Now(),
		partitions: map[int32]*produced{},
	}
	if f.batchRecords < 1 || f.batchRecords > 10_000 {
		return nil, usagef("--batch %d: want 1 to 10000", f.batchRecords)
	}
	switch f.acks {
	case "all", "1", "0":
		p.query.Set("acks", f.acks)
	default:
		return nil, usagef("--acks %s: want all, 1 or 0", f.acks)
	}
	if f.partition >= 0 {
		p.query.Set("partition", strconv.Itoa(f.partition))
	}
	return p, nil
}

// run sends what the lines hold until they end.
func (p *producer) run(ctx context.Context, lines <-chan line) error {
	for {
		body, n, end := p.fill(ctx, lines)
		if n > 0 {
			if err := p.send(ctx, body, n); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return nil
		case end != nil:
			return end
		}
	}
}

// fill takes records until the batch is full, the input pauses or ends.
func (p *producer) fill(ctx context.Context, lines <-chan line) (body []byte, n int, end error) {
	var pause <-chan time.Time
	if p.held != nil {
		body, n, p.taken, p.held = append(p.held.record, '\n'), 1, p.held.end, nil
		pause = p.pause()
	}
	for n < p.batchRecords && len(body) < maxBatchBytes {
		select {
		case l := <-lines:
			if l.err != nil {
				return body, n, l.err
			}
			if n > 0 && len(body)+len(l.record) >= maxBatchBytes {
				p.held = &l
				return body, n, nil
			}
			body = append(append(body, l.record...), '\n')
			p.taken = l.end
			n++
			if pause == nil {
				pause = p.pause()
			}
		case <-pause:
			return body, n, nil
		case <-ctx.Done():
			return body, n, &failure{exitInterrupted, context.Canceled}
		}
	}
	return body, n, nil
}

// pause ends when a batch has waited for more input for long enough. Nil is never.
func (p *producer) pause() <-chan time.Time {
	if p.linger == 0 {
		return nil
	}
	return time.After(p.linger)
}

// stored is the answer to a produce request.
type stored struct {
	Offsets []struct {
		Partition int32 `json:"partition"`
		Base      int64 `json:"base_offset"`
		Count     int64 `json:"count"`
	} `json:"offsets"`
}

// send sends one batch, and sends it again, under the same sequence, while that can help.
func (p *producer) send(ctx context.Context, body []byte, n int) error {
	c := call{
		method: http.MethodPost, path: "/v1/topics/" + url.PathEscape(p.topic) + "/records", query: p.query, body: body,
		header: http.Header{
			"Content-Type":   {"application/vnd.millrace.records+ndjson"},
			"Producer-Id":    {p.name},
			"Producer-Epoch": {"0"},
			"Producer-Seq":   {strconv.FormatInt(p.seq, 10)},
		},
	}
	unknown := false
	deadline := time.Now().Add(p.retryFor)
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		var a stored
		err := p.r.do(ctx, c, &a)
		if err == nil {
			p.count(a, n)
			return nil
		}
		unknown = unknown || codeOf(err) == exitUnknown
		if !retryable(err) || !p.reached && codeOf(err) == exitUnreachable || time.Now().Add(delay).After(deadline) {
			return p.giveUp(err, unknown)
		}
		p.retries++
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return p.giveUp(&failure{exitInterrupted, context.Canceled}, unknown)
		}
	}
}

// giveUp names what is known of the batch that was not acknowledged. Once one try had an unknown outcome, so has the
// batch.
func (p *producer) giveUp(err error, unknown bool) error {
	if unknown {
		return failf(exitUnknown, "%w\nstored so far: %s; the batch after them may be stored, wholly or in part",
			err, plural(int(p.records), "record"))
	}
	return err
}

func (p *producer) count(a stored, n int) {
	p.reached = true
	p.seq++
	p.records += int64(n)
	for _, o := range a.Offsets {
		t, ok := p.partitions[o.Partition]
		if !ok {
			t = &produced{Partition: o.Partition, First: o.Base}
			p.partitions[o.Partition] = t
		}
		t.Last = max(t.Last, o.Base+o.Count-1)
		t.Count += o.Count
	}
	p.progress.show(p.records, p.taken)
}

// summary says what was stored: a line for a person on standard error, or a JSON object on standard output.
func (p *producer) summary(c *cli, asJSON bool) {
	var parts []*produced
	for _, k := range slices.Sorted(maps.Keys(p.partitions)) {
		parts = append(parts, p.partitions[k])
	}
	seconds := time.Since(p.start).Seconds()
	if asJSON {
		_ = json.NewEncoder(c.out).Encode(map[string]any{
			"topic": p.topic, "records": p.records, "seconds": seconds, "retries": p.retries, "partitions": parts,
		})
		return
	}
	where := plural(len(parts), "partition")
	if len(parts) == 1 {
		where = fmt.Sprintf("partition %d, offsets %d to %d", parts[0].Partition, parts[0].First, parts[0].Last)
	}
	fmt.Fprintf(c.err, "stored %s in %s: %s (%.2f s", plural(int(p.records), "record"), p.topic, where, seconds)
	switch {
	case p.retries == 1:
		fmt.Fprint(c.err, ", 1 retry")
	case p.retries > 1:
		fmt.Fprintf(c.err, ", %d retries", p.retries)
	}
	fmt.Fprintln(c.err, ")")
}
