package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The parts of the registry's test, in their short form.
const (
	duels = 200 // schemas that two nodes register at once
	cuts  = 4   // leaders that are killed in the midst of a request
)

// place is where an acknowledged schema is.
type place struct {
	subject     string
	id, version int
}

// registrars are clients of the schema registry, and what they were told.
type registrars struct {
	t       *testing.T
	cluster *cluster

	mu   sync.Mutex
	told map[string]map[place]bool // by schema; guarded by mu
}

// Three processes give each schema one id and each id one schema, and lose none that was acknowledged, whatever is done
// to one of them.
func TestRegistry(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes half a minute")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	build(t)
	r := &registrars{t: t, cluster: startCluster(t), told: map[string]map[place]bool{}}
	rng := rand.New(rand.NewPCG(*seed, 3))
	r.set("NONE")
	r.duel(rng)
	r.interrupt(rng)
	r.suffer(rng)
	r.check()
}

func text(name string) string {
	return fmt.Sprintf(`{"type":"enum","name":"E","symbols":["%s"]}`, name)
}

// ask sends a request to a node, and says whether it was done.
func (r *registrars) ask(ctx context.Context, id int, method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.cluster.nodes[id].url()+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	code, answer, err := do(r.cluster.http, req)
	switch {
	case err != nil:
		return err
	case code != http.StatusOK:
		return &refusal{code, fmt.Sprintf("node %d: %s %s: %d %.200s", id, method, path, code, answer)}
	}
	return json.Unmarshal(answer, into)
}

// refusal is an answer other than 200.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// again asks one node, until it answers otherwise than that it cannot now: only for what may be asked twice.
func (r *registrars) again(id int, method, path, body string, into any) error {
	for start := time.Now(); ; pause(r.t.Context(), 20*time.Millisecond) {
		err := r.ask(r.t.Context(), id, method, path, body, into)
		var no *refusal
		if err == nil || errors.As(err, &no) && no.code < 500 || time.Since(start) > patience {
			return err
		}
	}
}

func (r *registrars) set(level string) {
	var got struct{ Compatibility string }
	require.NoError(r.t, r.again(1, http.MethodPut, "/config", `{"compatibility":"`+level+`"}`, &got))
}

// register registers a schema once, and takes down where it was told to be.
func (r *registrars) register(ctx context.Context, id int, subject, name string) (p place, err error) {
	var got struct{ ID, Version int }
	body := fmt.Sprintf(`{"schema":%q}`, text(name))
	if err := r.ask(ctx, id, http.MethodPost, "/subjects/"+subject+"/versions", body, &got); err != nil {
		return p, err
	}
	p = place{subject, got.ID, got.Version}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[name] == nil {
		r.told[name] = map[place]bool{}
	}
	r.told[name][p] = true
	return p, nil
}

// insist registers a schema through one node after the other until it is done.
func (r *registrars) insist(first int, subject, name string) place {
	p, err := r.try(first, subject, name)
	require.NoError(r.t, err)
	return p
}

func (r *registrars) try(first int, subject, name string) (p place, err error) {
	start := time.Now()
	for id := first; ; id = id%nodes + 1 {
		if p, err = r.register(r.t.Context(), id, subject, name); err == nil || time.Since(start) > patience {
			return p, err
		}
		pause(r.t.Context(), 20*time.Millisecond)
	}
}

// duel has two nodes register the same new schema at once, again and again.
func (r *registrars) duel(rng *rand.Rand) {
	start := time.Now()
	for round := range duels {
		name := fmt.Sprint("duel", round)
		first := 1 + rng.IntN(nodes)
		var places [2]place
		var errs [2]error
		var wg sync.WaitGroup
		for i := range places {
			wg.Go(func() {
				places[i], errs[i] = r.try((first+i)%nodes+1, fmt.Sprint("duel-", i), name)
			})
		}
		wg.Wait()
		for i := range places {
			require.NoError(r.t, errs[i])
			require.Equal(r.t, places[0].id, places[i].id, "ids of %s", name)
		}
	}
	r.t.Logf("%d schemas registered by two nodes at once: %v each", duels,
		(time.Since(start) / duels).Round(time.Microsecond))
}

// leader is the node that leads the registry's log.
func (r *registrars) leader() int {
	for start := time.Now(); ; pause(r.t.Context(), 20*time.Millisecond) {
		for id := 1; id <= nodes; id++ {
			if leaders, err := r.cluster.leaders(id, "_schemas"); err == nil && leaders[0] > 0 {
				return leaders[0]
			}
		}
		require.Less(r.t, time.Since(start), patience)
	}
}

// interrupt kills the log's leader while it registers a schema: before, in or after the write. Sent again, the request
// is answered with the one id that the schema has.
func (r *registrars) interrupt(rng *rand.Rand) {
	answered := 0
	for round := range cuts {
		name, id := fmt.Sprint("cut", round), r.leader()
		var p place
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { p, err = r.register(r.t.Context(), id, "cut", name) })
		pause(r.t.Context(), time.Duration(rng.IntN(8000))*time.Microsecond)
		r.cluster.kill(id)
		wg.Wait()
		again := r.insist(id%nodes+1, "cut", name)
		if err == nil {
			answered++
			require.Equal(r.t, p, again)
		}
		r.cluster.start(id)
		r.cluster.awaitHealth()
		require.Equal(r.t, again, r.insist(id, "cut", name))
	}
	r.t.Logf("%d leaders killed while they registered, %d of which had answered", cuts, answered)
}

// suffer has clients register through all nodes while those are killed and frozen.
func (r *registrars) suffer(rng *rand.Rand) {
	length := max(*timeEach, 4*shortTime)
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	for i := range 2 * nodes {
		wg.Go(func() {
			id := i%nodes + 1
			for n := 0; ctx.Err() == nil; n++ {
				// Everybody registers some of the same schemas, and some that nobody else does.
				name, subject := fmt.Sprintf("own%d_%d", i, n), fmt.Sprint("s", i%4)
				if n%2 == 0 {
					name = fmt.Sprint("common", n)
				}
				if _, err := r.register(ctx, id, subject, name); err != nil {
					id = id%nodes + 1
					pause(ctx, 50*time.Millisecond)
				}
				pause(ctx, pace)
			}
		})
	}
	faults := 0
	for start := time.Now(); time.Since(start) < length; faults++ {
		id := 1 + rng.IntN(nodes)
		if rng.IntN(3) > 0 {
			id = r.leader()
		}
		if rng.IntN(2) == 0 {
			r.cluster.kill(id)
			pause(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
			r.cluster.start(id)
		} else {
			r.cluster.signal(id, syscall.SIGSTOP)
			pause(ctx, 100*time.Millisecond+time.Duration(rng.Int64N(int64(2*sessionTimeout))))
			r.cluster.signal(id, syscall.SIGCONT)
		}
		r.cluster.awaitHealth()
	}
	cancel()
	wg.Wait()
	r.t.Logf("%d nodes killed or frozen in %v", faults, length)
}

// all are the schemas that a node tells.
func (r *registrars) all(id int) map[place]string {
	type version struct {
		Subject     string
		ID, Version int
		Schema      string
	}
	there := map[place]string{}
	for offset := 0; len(there) == offset; offset += 1000 {
		var page []version
		path := fmt.Sprint("/schemas?limit=1000&offset=", offset)
		require.NoError(r.t, r.again(id, http.MethodGet, path, "", &page))
		for _, v := range page {
			there[place{v.Subject, v.ID, v.Version}] = v.Schema
		}
	}
	return there
}

// complete says whether there is something at all places that were told. r.mu is held.
func (r *registrars) complete(there map[place]string) bool {
	for _, places := range r.told {
		for p := range places {
			if there[p] == "" {
				return false
			}
		}
	}
	return true
}

// check looks for everything that was acknowledged at every node.
func (r *registrars) check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[int]string{}
	start, total := time.Now(), 0
	for name, places := range r.told {
		id := 0
		for p := range places {
			total++
			require.True(r.t, id == 0 || id == p.id, "schema %s has several ids: %v", name, places)
			id = p.id
		}
		require.Empty(r.t, ids[id], "id %d is of %s too", id, name)
		ids[id] = name
	}
	for id := 1; id <= nodes; id++ {
		there := r.all(id)
		for start := time.Now(); !r.complete(there) && time.Since(start) < patience; there = r.all(id) {
			pause(r.t.Context(), 100*time.Millisecond) // a node that is not told the log's end in time tells what it has read
		}
		for name, places := range r.told {
			for p := range places {
				require.Equal(r.t, text(name), there[p], "node %d at %+v", id, p)
			}
			var got struct{ Schema string }
			for p := range places {
				require.NoError(r.t, r.again(id, http.MethodGet, fmt.Sprint("/schemas/ids/", p.id), "", &got))
				require.Equal(r.t, text(name), got.Schema, "node %d, id %d", id, p.id)
				break
			}
		}
	}
	r.t.Logf("%d schemas in %d places are at all nodes, looked up in %v", len(ids), total,
		time.Since(start).Round(time.Millisecond))
}
