package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// consumeFlags is what `millrace consume` is told.
type consumeFlags struct {
	from, format  string
	fromSet       bool // from is given
	group, member string
	partition     int
	count         int64
	counted       bool // count is given
	toEnd         bool
	retryFor      time.Duration
}

func newConsume(c *cli) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic",
		Long: `Print the records of a topic, and go on with new ones as they come until it is interrupted.

--from says where to start: earliest, latest, an offset (with --partition), or a time: RFC 3339, a date, epoch
milliseconds after an @, or a duration back from now such as 15m.

--format prints each record by a template and a newline. In it stand {value}, {key}, {headers}, {partition}, {offset},
{timestamp}, and \t and \n. Keys and values are printed byte for byte; an absent one prints as nothing.

--group reads as a member of a consumer group: the members share the partitions, of several topics by commas too, and it
goes on where it is; --from, earliest or latest, counts where it has never been. Records are committed after they are
printed, so that some may be printed twice when something fails, and none is lost. An interrupt leaves the group, and
its other members go on with the partitions.

-o json prints each record as a JSON object on one line, which 'millrace produce --format records' takes back; with
its --ignore-partition also into a topic with other partitions.`,
		Example: `  millrace consume orders
  millrace consume orders --to-end --format '{partition}/{offset}\t{key}\t{value}'
  millrace consume orders --from 15m --count 10 -o json
  millrace consume orders --partition 0 --from 4200
  millrace consume orders,payments --group billing
  millrace consume orders --group billing --member till-4 --from earliest -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.counted = cmd.Flags().Changed("count"); f.counted && f.count < 0 {
				return usagef("--count %d: want 0 or more", f.count)
			}
			f.fromSet = cmd.Flags().Changed("from")
			if err := f.checkGroup(); err != nil {
				return err
			}
			return c.consume(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "earliest", "earliest, latest, an offset or a time")
	fl.StringVarP(&f.group, "group", "g", "", "read as a member of this consumer group")
	fl.StringVar(&f.member, "member", "", "the member's id in the group (default: drawn)")
	fl.IntVarP(&f.partition, "partition", "p", -1, "read one partition (default: all)")
	fl.Int64VarP(&f.count, "count", "n", 0, "stop after so many records")
	fl.BoolVarP(&f.toEnd, "to-end", "e", false, "stop at the end the topic has when the command starts")
	fl.StringVar(&f.format, "format", "{value}", "template of a record's line")
	fl.DurationVar(&f.retryFor, "retry-for", 30*time.Second, "how long to try again when the node stops answering")
	c.clientFlags(cmd)
	return cmd
}

// consumer reads a topic by long polls and prints what comes.
type consumer struct {
	r       *remote
	path    string
	query   url.Values
	f       consumeFlags
	out     *bufio.Writer
	print   func(w *bufio.Writer, raw json.RawMessage) error
	printed int64
	end     map[int32]int64 // with --to-end: where each partition not read to its end yet ended at first sight
	reached bool
}

func (c *cli) consume(ctx context.Context, topic string, f consumeFlags) error {
	asJSON, err := c.asJSON()
	if err != nil {
		return err
	}
	r, err := c.remote()
	if err != nil {
		return err
	}
	k := &consumer{r: r, f: f, out: bufio.NewWriterSize(c.out, 64<<10), query: url.Values{}}
	if f.group == "" {
		k.path = "/v1/topics/" + url.PathEscape(topic)
		if f.partition >= 0 {
			k.path += "/partitions/" + strconv.Itoa(f.partition)
		}
		k.path += "/records"
		if err := k.startAt(f.from, time.Now()); err != nil {
			return err
		}
	}
	if asJSON {
		k.print = printJSON
	} else {
		k.query.Set("format", "base64") // keys and values come through byte for byte
		k.query.Set("key_format", "base64")
		t, err := parseTemplate(f.format)
		if err != nil {
			return err
		}
		k.print = t.print
	}
	if f.counted && f.count == 0 {
		return nil
	}
	if f.group != "" {
		err = (&groupConsumer{consumer: k, cli: c, group: f.group}).run(ctx, topic)
	} else {
		err = k.run(ctx)
	}
	if flushed := k.out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("write the output: %w", flushed)
	}
	if codeOf(err) == exitInterrupted && !f.toEnd && f.count == 0 {
		return nil // following ends no other way
	}
	return err
}

// startAt turns --from into the first request's query.
func (k *consumer) startAt(from string, now time.Time) error {
	if from == "earliest" || from == "latest" {
		k.query.Set("offset", from)
		return nil
	}
	if _, err := strconv.ParseUint(from, 10, 63); err == nil {
		if k.f.partition < 0 {
			return usagef("--from %s: an offset belongs to one partition; add --partition", from)
		}
		k.query.Set("offset", from)
		return nil
	}
	t, err := parseTime(from, now)
	if err != nil {
		return err
	}
	k.query.Set("timestamp", t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	return nil
}

// parseTime reads a point in time: @1700000000000, RFC 3339, a date, or a duration back from now.
func parseTime(s string, now time.Time) (time.Time, error) {
	if ms, ok := strings.CutPrefix(s, "@"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			return time.UnixMilli(n), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if d, err := time.ParseDuration(strings.TrimPrefix(s, "-")); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, usagef("--from %s: want earliest, latest, an offset, or a time such as 2026-01-31, "+
		"2026-01-31T12:00:00Z, @1700000000000 or 15m", s)
}

// page is one answer to a read.
type page struct {
	Records        []json.RawMessage `json:"records"`
	Next           string            `json:"next"`
	HighWatermarks map[string]int64  `json:"high_watermarks"`
}

// run polls until the count or the end is reached. What was printed is flushed before each wait.
func (k *consumer) run(ctx context.Context) error {
	wait := "20s"
	if k.f.toEnd {
		wait = "0s"
	}
	k.query.Set("wait", wait)
	for {
		p, err := k.poll(ctx)
		if err != nil {
			return err
		}
		done, err := k.take(p)
		if err != nil || done {
			return err
		}
		if err := k.out.Flush(); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		k.query.Del("offset")
		k.query.Del("timestamp")
		k.query.Set("from", p.Next)
	}
}

// poll asks once, and again while the node, which has answered before, does not.
func (k *consumer) poll(ctx context.Context) (*page, error) {
	deadline := time.Now().Add(k.f.retryFor)
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		if n := k.f.count - k.printed; k.f.count > 0 {
			k.query.Set("max_records", strconv.FormatInt(min(n, 1000), 10))
		}
		var p page
		err := k.r.do(ctx, call{
			method: http.MethodGet, path: k.path, query: k.query, header: http.Header{"Accept": {"application/json"}},
		}, &p)
		if err == nil {
			k.reached = true
			return &p, nil
		}
		if !k.reached || !retryable(err) || time.Now().Add(delay).After(deadline) {
			return nil, err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, &failure{exitInterrupted, context.Canceled}
		}
	}
}

// take prints a page and reports whether it was the last one wanted.
func (k *consumer) take(p *page) (done bool, err error) {
	if k.f.toEnd {
		if k.end == nil {
			k.end = endOf(p)
		}
		if len(p.Records) == 0 {
			return true, nil
		}
	}
	for _, raw := range p.Records {
		if k.f.toEnd {
			late, err := k.late(raw)
			if err != nil {
				return false, err
			}
			if late {
				continue
			}
		}
		if err := k.print(k.out, raw); err != nil {
			return false, err
		}
		k.printed++
		if k.f.count > 0 && k.printed >= k.f.count {
			return true, nil
		}
	}
	return k.f.toEnd && len(k.end) == 0, nil
}

// endOf notes where each partition ends that holds anything.
func endOf(p *page) map[int32]int64 {
	end := map[int32]int64{}
	for partition, hw := range p.HighWatermarks {
		if n, err := strconv.ParseInt(partition, 10, 32); err == nil && hw > 0 {
			end[int32(n)] = hw
		}
	}
	return end
}

// late reports whether a record was written after the command started, and crosses off the partitions that are read to
// their end.
func (k *consumer) late(raw json.RawMessage) (bool, error) {
	var at struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}
	if err := json.Unmarshal(raw, &at); err != nil {
		return false, fmt.Errorf("the server's record: %w", err)
	}
	end, open := k.end[at.Partition]
	if open && at.Offset >= end-1 {
		delete(k.end, at.Partition)
	}
	return !open || at.Offset >= end, nil
}
