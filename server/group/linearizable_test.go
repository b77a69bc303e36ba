package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// registers is what clients did to the committed offset of one partition, and saw. One client commits ever higher
// offsets, so the offset is linearizable if it never falls: not for who was told of a commit, and not for who read.
type registers struct {
	t     testing.TB
	epoch time.Time

	mu      sync.Mutex
	ops     []registerOp // guarded by mu
	unknown int          // guarded by mu: commits of which it is not known whether they were done
}

// registerOp is a commit that was answered, or a read.
type registerOp struct {
	began, ended time.Duration
	value        int64
	read         bool
}

func (r *registers) add(o registerOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
}

// check holds the history to that.
func (r *registers) check(attempted int64) {
	byEnd := slices.Clone(r.ops)
	slices.SortFunc(byEnd, func(a, b registerOp) int { return int(a.ended - b.ended) })
	slices.SortFunc(r.ops, func(a, b registerOp) int { return int(a.began - b.began) })
	floor, next := int64(-1), 0
	for _, o := range r.ops {
		for next < len(byEnd) && byEnd[next].ended < o.began {
			floor = max(floor, byEnd[next].value)
			next++
		}
		if o.read {
			require.GreaterOrEqual(r.t, o.value, floor, "read at %v after %d was known", o.began, floor)
			require.LessOrEqual(r.t, o.value, attempted)
		}
	}
}

// TestOffsetsAreLinearizable moves the leaderships of a three-node cluster about, at times to a node that was cut off,
// or from one that was, while clients commit and read.
func TestOffsetsAreLinearizable(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inLab(t, labOptions{nodes: 3, partitions: 2}, func(t *testing.T, l *lab) {
				runRegisters(t, l, rand.New(rand.NewPCG(seed, 1)))
			})
		})
	}
}

func runRegisters(t *testing.T, l *lab, rng *rand.Rand) {
	ctx, cancel := context.WithCancel(l.ctx)
	var (
		clients   sync.WaitGroup
		all       []*registers
		attempted = make([]int64, 4)
	)
	for i := range attempted {
		r := &registers{t: t, epoch: time.Now()}
		all = append(all, r)
		group := fmt.Sprintf("group-%d", i)
		clients.Go(func() { attempted[i] = r.commits(ctx, l, group) })
		for range 2 {
			clients.Go(func() { r.reads(ctx, l, group) })
		}
	}
	for range 60 {
		pause(ctx, time.Duration(rng.IntN(40))*time.Millisecond)
		n := l.nodes[rng.IntN(len(l.nodes))]
		switch rng.IntN(3) {
		case 0:
			n.setCut(true)
		case 1:
			n.setCut(false)
		default:
			l.lead(int32(rng.IntN(2)), n.id)
		}
	}
	for _, n := range l.nodes {
		n.setCut(false)
	}
	pause(ctx, time.Second)
	cancel()
	clients.Wait()
	known, unknown := 0, 0
	for i, r := range all {
		r.check(attempted[i])
		known, unknown = known+len(r.ops), unknown+r.unknown
	}
	require.Greater(t, known, 500, "the clients got through")
	require.NotZero(t, unknown, "leaderships moved under the clients")
}

// commits commits ever higher offsets until ctx ends, and returns the last.
func (r *registers) commits(ctx context.Context, l *lab, group string) (offset int64) {
	for ; ctx.Err() == nil; offset++ {
		began := time.Since(r.epoch)
		resp, err := l.of(group).Request(ctx, commitTo(group, "t", offset))
		code := kerr.UnknownServerError.Code
		if err == nil {
			code = resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		}
		if code == 0 {
			r.add(registerOp{began: began, ended: time.Since(r.epoch), value: offset})
		} else {
			r.mu.Lock()
			r.unknown++
			r.mu.Unlock()
		}
		pause(ctx, time.Millisecond)
	}
	return offset
}

// reads reads until ctx ends, at times at a node that leads no longer.
func (r *registers) reads(ctx context.Context, l *lab, group string) {
	req := kmsg.NewPtrOffsetFetchRequest()
	in := kmsg.NewOffsetFetchRequestGroup()
	in.Group = group
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = "t", []int32{0}
	in.Topics = append(in.Topics, topic)
	req.Groups = append(req.Groups, in)
	for i := 0; ctx.Err() == nil; i++ {
		at := l.of(group)
		if i%4 == 0 {
			at = l.nodes[i/4%len(l.nodes)].coordinator
		}
		began := time.Since(r.epoch)
		resp, err := at.Request(ctx, req)
		if err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("fetch: %v", err)
		}
		if err == nil {
			if got := resp.(*kmsg.OffsetFetchResponse).Groups[0]; got.ErrorCode == 0 {
				r.add(registerOp{
					began: began, ended: time.Since(r.epoch), value: got.Topics[0].Partitions[0].Offset, read: true,
				})
			}
		}
		pause(ctx, time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
