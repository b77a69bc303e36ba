package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// groupPage is one answer to a read by a member of a group.
type groupPage struct {
	Records  []json.RawMessage `json:"records"`
	Member   string            `json:"member"`
	Delivery json.Number       `json:"delivery"`
}

// committed is an offset of a commit.
type committed struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// groupConsumer reads topics as a member of a group: it prints a page, commits it, and asks for the next.
type groupConsumer struct {
	*consumer
	cli    *cli
	group  string
	member string
}

// checkGroup refuses flags that do not go with --group.
func (f *consumeFlags) checkGroup() error {
	switch {
	case f.group == "" && f.member != "":
		return usagef("--member goes with --group")
	case f.group == "":
		return nil
	case f.partition >= 0:
		return usagef("--partition does not go with --group: the group gives the partitions")
	case f.toEnd:
		return usagef("--to-end does not go with --group: others read too")
	case f.fromSet && f.from != "earliest" && f.from != "latest":
		return usagef("--from %s: a group starts at earliest or latest, and goes on where it is; see 'millrace group reset'",
			f.from)
	}
	return nil
}

// run prints records as a member of a group until it is interrupted, and then leaves the group.
func (k *groupConsumer) run(ctx context.Context, topics string) error {
	k.path = "/v1/groups/" + url.PathEscape(k.group) + "/records"
	k.query.Set("topics", topics)
	k.query.Set("commit", "manual")
	k.query.Set("wait", "20s")
	k.query.Set("auto_offset_reset", k.f.from)
	if k.f.member != "" {
		k.query.Set("member", k.f.member)
	}
	err := k.pages(ctx)
	if k.member != "" {
		k.leave()
	}
	return err
}

// pages reads, prints and commits until there is enough.
func (k *groupConsumer) pages(ctx context.Context) error {
	for {
		p, err := k.poll(ctx)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		k.member = p.Member
		k.query.Set("member", p.Member)
		k.query.Set("ack", p.Delivery.String())
		done, offsets, err := k.take(p)
		if err != nil {
			return err
		}
		if err := k.out.Flush(); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		if err := k.commit(ctx, offsets); err != nil || done {
			return err
		}
	}
}

// take prints a page and lists where it ends in each partition; done says that there is enough.
func (k *groupConsumer) take(p *groupPage) (done bool, offsets []committed, err error) {
	places := map[string]int{}
	for _, raw := range p.Records {
		var at committed
		if err := json.Unmarshal(raw, &at); err != nil {
			return false, nil, fmt.Errorf("the server's record: %w", err)
		}
		if err := k.print(k.out, raw); err != nil {
			return false, nil, err
		}
		at.Offset++
		key := at.Topic + "/" + strconv.Itoa(int(at.Partition))
		i, ok := places[key]
		if !ok {
			i = len(offsets)
			places[key] = i
			offsets = append(offsets, committed{})
		}
		offsets[i] = at
		k.printed++
		if k.f.count > 0 && k.printed >= k.f.count {
			return true, offsets, nil
		}
	}
	return false, offsets, nil
}

// poll asks for a page; nil when the group went on without this member, which joins again with the next.
func (k *groupConsumer) poll(ctx context.Context) (*groupPage, error) {
	if n := k.f.count - k.printed; k.f.count > 0 {
		k.query.Set("max_records", strconv.FormatInt(min(n, 1000), 10))
	}
	var p groupPage
	err := k.try(ctx, func() error {
		return k.r.do(ctx, call{
			method: http.MethodGet, path: k.path, query: k.query, header: http.Header{"Accept": {"application/json"}},
		}, &p)
	})
	if fenced(err) {
		k.lost()
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k.reached = true
	return &p, nil
}

// commit commits what was printed. That the group went on without this member is not the end: another prints it again.
func (k *groupConsumer) commit(ctx context.Context, offsets []committed) error {
	if len(offsets) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"member": k.member, "offsets": offsets})
	if err != nil {
		return err
	}
	// What is printed is committed also when the interrupt came in between.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.f.retryFor+time.Second)
	defer cancel()
	err = k.try(ctx, func() error {
		return k.r.do(ctx, call{
			method: http.MethodPost, path: "/v1/groups/" + url.PathEscape(k.group) + "/offsets", body: body,
			header: http.Header{"Content-Type": {"application/json"}},
		}, nil)
	})
	if fenced(err) {
		k.lost()
		return nil
	}
	return err
}

// try makes a call again while the node, which has answered before, does not.
func (k *groupConsumer) try(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(k.f.retryFor)
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := do()
		if err == nil || !k.reached || !retryable(err) || time.Now().Add(delay).After(deadline) {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return &failure{exitInterrupted, context.Canceled}
		}
	}
}

// fenced says that the group went on without the member, or gave a partition to another one meanwhile.
func fenced(err error) bool {
	var p *problem
	if !errors.As(err, &p) || p.Status != http.StatusConflict {
		return false
	}
	_, name, _ := strings.Cut(p.Type, "#")
	return name == "FENCED_MEMBER_EPOCH" || name == "UNKNOWN_MEMBER_ID" ||
		name == "MEMBER_CONFLICT" && strings.Contains(p.Detail, "does not have the partition")
}

// lost tells that what was printed last may be printed again, by this command or by another member.
func (k *groupConsumer) lost() {
	k.query.Del("ack")
	fmt.Fprintf(k.cli.err, "millrace: group %s went on without this member; some records may come again\n", k.group)
}

// leave leaves the group, also after an interrupt.
func (k *groupConsumer) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	path := "/v1/groups/" + url.PathEscape(k.group) + "/members/" + url.PathEscape(k.member)
	_ = k.r.do(ctx, call{method: http.MethodDelete, path: path}, nil) // its session ends it otherwise
}
