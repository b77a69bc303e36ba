package group

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicParts is how many partitions the members of a churn share.
const classicParts = 12

// classicChurn is a group whose members come and go, lose answers, pause and die, while its coordinator moves from node
// to node, and what they were told.
type classicChurn struct {
	t    *testing.T
	lab  *lab
	calm atomic.Bool // no more accidents

	mu    sync.Mutex
	told  []told           // guarded by mu
	holds map[string]*told // guarded by mu: what each member was told last, if it goes by that
	stats map[string]int   // guarded by mu
}

// told is an answer that let a member go on in a generation.
type told struct {
	what         string
	owner, id    string
	generation   int32
	began, ended time.Time
	partitions   []byte // of a sync
}

// TestClassicChurn holds a churn to what groups promise:
//
//   - in one generation a partition has one owner, and a member is told one thing;
//   - generations grow: who goes on in one, by a sync, a heartbeat or a commit, has not been overtaken when he asks;
//   - of two under one instance name the former is fenced;
//   - when it is calm again, all who are there share all partitions, and the next coordinator knows the same.
func TestClassicChurn(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inLab(t, labOptions{nodes: 3}, func(t *testing.T, l *lab) { runChurn(t, l, seed) })
		})
	}
}

func runChurn(t *testing.T, l *lab, seed uint64) {
	w := &classicChurn{t: t, lab: l, holds: make(map[string]*told), stats: make(map[string]int)}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var members sync.WaitGroup
	for i := range 6 {
		c := &classicChurner{classicChurn: w, name: fmt.Sprint("c", i), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		if i%3 == 0 {
			c.instance = ptr(c.name)
		}
		members.Go(func() { c.run(ctx) })
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		to := 1 + rng.Int32N(3)
		if rng.IntN(4) == 0 { // what it does not have then is lost
			l.node(to).setCut(true)
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
		l.lead(0, to)
		l.node(to).setCut(false)
	}
	w.calm.Store(true)
	time.Sleep(time.Minute)
	synctest.Wait()
	w.settled()
	cancel()
	members.Wait()
	w.check()
	require.Greater(t, w.stats["sync"], 30)
	require.Greater(t, w.stats["heartbeat"], 200)
	require.Greater(t, w.stats["commit"], 30)
	require.NotZero(t, w.stats["fenced"])
}

// settled is the state after some calm.
func (w *classicChurn) settled() {
	w.mu.Lock()
	var (
		owners  [classicParts]int
		members = len(w.holds)
		reached = make(map[int32]bool)
	)
	for _, h := range w.holds {
		reached[h.generation] = true
		for _, p := range h.partitions {
			owners[p]++
		}
	}
	w.mu.Unlock()
	require.Len(w.t, reached, 1, "all are in one generation")
	require.Equal(w.t, 6, members)
	for p, n := range owners {
		require.Equal(w.t, 1, n, "owners of partition %d", p)
	}
	describe := func() (out string) {
		w.lab.inspect("g", func(s *shard) {
			c := s.classicOf("g")
			require.Equal(w.t, stateStable, c.phase)
			require.Equal(w.t, s.arrivals, 0)
			for _, m := range c.sorted() {
				out += fmt.Sprintln(m.id, m.session, m.rebalance, m.metadata(c.protocol), m.assignment, c.leader, c.generation)
			}
		})
		return out
	}
	before := describe()
	w.lab.again()
	require.Equal(w.t, before, describe())
}

// check holds what was told to the promises.
func (w *classicChurn) check() {
	type owned struct {
		generation int32
		partition  byte
	}
	owner, same := make(map[owned]string), make(map[string]string)
	for _, a := range w.told {
		if a.what != "sync" {
			continue
		}
		for _, p := range a.partitions {
			at := owned{a.generation, p}
			if other, ok := owner[at]; ok {
				require.Equal(w.t, other, a.owner, "partition %d in generation %d", p, a.generation)
			}
			owner[at] = a.owner
		}
		key := fmt.Sprint(a.owner, a.generation)
		if before, ok := same[key]; ok {
			require.Equal(w.t, before, string(a.partitions), "%s in generation %d", a.owner, a.generation)
		}
		same[key] = string(a.partitions)
	}
	byEnd := slices.DeleteFunc(slices.Clone(w.told), func(a told) bool { return a.what != "sync" })
	slices.SortStableFunc(byEnd, func(a, b told) int { return a.ended.Compare(b.ended) })
	slices.SortStableFunc(w.told, func(a, b told) int { return a.began.Compare(b.began) })
	next, newest := 0, int32(0)
	for _, a := range w.told {
		for next < len(byEnd) && byEnd[next].ended.Before(a.began) {
			newest = max(newest, byEnd[next].generation)
			next++
		}
		require.GreaterOrEqual(w.t, a.generation, newest, "%s of %s at %v", a.what, a.id, a.began)
	}
}

// classicChurner is one member, over all its lives.
type classicChurner struct {
	*classicChurn
	name     string
	instance *string
	rng      *rand.Rand

	id         string
	former     string // the id of the life before
	generation int32
	version    byte // of what it says to the others
}

func (c *classicChurner) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.former, c.id, c.generation = c.id, "", -1
		c.live(ctx)
		c.lost()
		c.pause(ctx, 15*time.Second)
	}
}

// lost notes that the member goes by nothing any more.
func (c *classicChurner) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, c.name)
}

func (c *classicChurner) pause(ctx context.Context, most time.Duration) {
	t := time.NewTimer(time.Duration(c.rng.Int64N(int64(most))))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// accident says whether one of n befalls the member.
func (c *classicChurner) accident(n int) bool { return c.rng.IntN(n) == 0 && !c.calm.Load() }

// live is one life, which ends by leaving, by dying, or by being fenced.
func (c *classicChurner) live(ctx context.Context) {
	for ctx.Err() == nil {
		e := c.rebalance(ctx)
		switch e {
		case nil:
		case kerr.FencedInstanceID:
			return
		case kerr.UnknownMemberID:
			c.id, c.generation = "", -1
			continue
		default:
			c.pause(ctx, time.Second)
			continue
		}
		e = c.work(ctx)
		c.lost()
		switch e {
		case nil, kerr.FencedInstanceID:
			return
		case kerr.UnknownMemberID, kerr.IllegalGeneration:
			c.id, c.generation = "", -1
		}
	}
}

// request sends a request; nil when the answer is lost.
func request[R kmsg.Response](ctx context.Context, c *classicChurner, req kmsg.Request) (resp R, ok bool) {
	if c.accident(12) {
		short, cancel := context.WithTimeout(ctx, time.Duration(c.rng.IntN(3000))*time.Millisecond)
		defer cancel()
		ctx = short
	}
	got, err := c.lab.of("g").Request(ctx, req)
	if err != nil || c.accident(20) {
		return resp, false
	}
	return got.(R), true
}

// rebalance joins and syncs.
func (c *classicChurner) rebalance(ctx context.Context) *kerr.Error {
	req := joinOf("g", c.id, func(r *kmsg.JoinGroupRequest) {
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.InstanceID = 6_000, 10_000, c.instance
		r.Protocols[0].Metadata = []byte{c.version}
	})
	joined, ok := request[*kmsg.JoinGroupResponse](ctx, c, req)
	if !ok {
		return kerr.NetworkException
	}
	if joined.ErrorCode == kerr.MemberIDRequired.Code {
		c.id = joined.MemberID
	}
	if joined.ErrorCode != 0 {
		return kerr.TypedErrorForCode(joined.ErrorCode)
	}
	c.id, c.generation = joined.MemberID, joined.Generation
	c.checkFormer(ctx)
	sync := syncOf("g", c.id, c.generation)
	sync.InstanceID = c.instance
	if joined.LeaderID == c.id && !joined.SkipAssignment {
		for i, m := range joined.Members {
			var mine []byte
			for p := range classicParts {
				if (p+int(c.generation))%len(joined.Members) == i {
					mine = append(mine, byte(p))
				}
			}
			sync.GroupAssignment = append(sync.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
				MemberID: m.MemberID, MemberAssignment: binary.BigEndian.AppendUint32(mine, uint32(c.generation))})
		}
	}
	if c.accident(20) {
		c.pause(ctx, 20*time.Second)
	}
	began := time.Now()
	synced, ok := request[*kmsg.SyncGroupResponse](ctx, c, sync)
	switch {
	case !ok:
		return kerr.NetworkException
	case synced.ErrorCode != 0:
		return kerr.TypedErrorForCode(synced.ErrorCode)
	}
	a := synced.MemberAssignment
	if len(a) > 0 {
		of := int32(binary.BigEndian.Uint32(a[len(a)-4:]))
		require.Equal(c.t, c.generation, of, "the assignment is of the generation")
		a = a[:len(a)-4]
	}
	c.note("sync", began, a)
	return nil
}

// checkFormer asks as the static member that this one has replaced.
func (c *classicChurner) checkFormer(ctx context.Context) {
	if c.instance == nil || c.former == "" || c.former == c.id {
		return
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = "g", c.former, c.generation, c.instance
	if resp, ok := request[*kmsg.HeartbeatResponse](ctx, c, req); ok {
		require.NotZero(c.t, resp.ErrorCode, "the former member of instance %s", *c.instance)
		c.mu.Lock()
		c.stats["fenced"]++
		c.mu.Unlock()
	}
}

// note notes an answer that lets the member go on.
func (c *classicChurner) note(what string, began time.Time, partitions []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := told{what, c.name, c.id, c.generation, began, time.Now(), partitions}
	c.told = append(c.told, t)
	c.stats[what]++
	if what == "sync" {
		c.holds[c.name] = &t
	}
}

// work is what a member does in a generation. It ends with the reason to join again, or nil at the end of the life.
func (c *classicChurner) work(ctx context.Context) *kerr.Error {
	for ctx.Err() == nil {
		c.pause(ctx, 2*time.Second)
		switch {
		case c.accident(60):
			return nil // dies
		case c.accident(60) && c.instance == nil:
			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Group, leave.MemberID = "g", c.id
			_, _ = request[*kmsg.LeaveGroupResponse](ctx, c, leave)
			return nil
		case c.accident(60):
			c.version++
			return kerr.RebalanceInProgress
		case c.accident(60):
			c.pause(ctx, 20*time.Second)
		}
		began, code, what := time.Now(), int16(0), "heartbeat"
		if c.rng.IntN(5) == 0 {
			what = "commit"
			req := commitTo("g", "t", 1)
			req.MemberID, req.Generation, req.InstanceID = c.id, c.generation, c.instance
			resp, ok := request[*kmsg.OffsetCommitResponse](ctx, c, req)
			if !ok {
				continue
			}
			code = resp.Topics[0].Partitions[0].ErrorCode
		} else {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation, req.InstanceID = "g", c.id, c.generation, c.instance
			resp, ok := request[*kmsg.HeartbeatResponse](ctx, c, req)
			if !ok {
				continue
			}
			code = resp.ErrorCode
		}
		switch e := kerr.TypedErrorForCode(code); e {
		case nil:
			c.note(what, began, nil)
		case kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		case kerr.RebalanceInProgress:
			if c.rng.IntN(3) > 0 || c.calm.Load() {
				return e
			}
		default:
			return e
		}
	}
	return nil
}
