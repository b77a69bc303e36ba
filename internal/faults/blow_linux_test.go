package faults_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/postgres/pgtest"
)

// blow is something that is done to what carries rows: to a node, to the database, to the network between them, or by
// people. It has undone itself when it returns, but for what the others have to get over.
type blow struct {
	name string
	do   func(f *flows)
}

// connectors are what blows are dealt to.
const (
	sourceName = "source"
	sinkName   = "sink"
)

func nodeBlows() []blow {
	return []blow{
		{"kill -9 of the source's node", func(f *flows) { f.killNode(f.owner(sourceName)) }},
		{"kill -9 of the sink's node", func(f *flows) { f.killNode(f.owner(sinkName)) }},
		{"kill -9 of a node", func(f *flows) { f.killNode(0) }},
		{"freeze of a node", (*flows).freezeNode},
	}
}

func backendBlows() []blow {
	return []blow{
		{"end of the walsender", func(f *flows) { f.terminate("backend_type = 'walsender'") }},
		{"end of all backends of the source", func(f *flows) {
			f.terminate(fmt.Sprintf("datname = '%s'", databaseOf(f.t, f.from)))
		}},
		{"end of all backends of the target", func(f *flows) {
			f.terminate(fmt.Sprintf("datname = '%s'", databaseOf(f.t, f.to)))
		}},
	}
}

func networkBlows() []blow {
	cut := func(name string, p func(f *flows) *pipe) []blow {
		return []blow{
			{"connections to the " + name + " reset", func(f *flows) { p(f).breakAll() }},
			{"network to the " + name + " cut", func(f *flows) {
				p(f).sever()
				f.pauseUpTo(3 * time.Second)
				p(f).mend()
			}},
			{"network to the " + name + " stalled", func(f *flows) {
				p(f).stall()
				f.pauseUpTo(3 * time.Second)
				p(f).mend()
			}},
		}
	}
	return append(cut("source", func(f *flows) *pipe { return f.toSource }),
		cut("target", func(f *flows) *pipe { return f.sink })...)
}

func peopleBlows() []blow {
	return []blow{
		{"restart of a task", func(f *flows) {
			f.insist(http.MethodPost, "/connectors/"+f.any()+"/tasks/0/restart", nil)
		}},
		{"restart of a connector", func(f *flows) {
			f.insist(http.MethodPost, "/connectors/"+f.any()+"/restart?includeTasks=true", nil)
		}},
		{"pause and resume", func(f *flows) { f.interlude("pause") }},
		{"stop and resume", func(f *flows) { f.interlude("stop") }},
	}
}

func serverBlows() []blow {
	return []blow{
		{"restart of the server", func(f *flows) { f.server.Restart(f.t, pgtest.Fast) }},
		{"crash of the server", func(f *flows) { f.server.Restart(f.t, pgtest.Immediate) }},
	}
}

func (f *flows) any() string { return []string{sourceName, sinkName}[f.rand.IntN(2)] }

func (f *flows) pauseUpTo(d time.Duration) {
	pause(f.t.Context(), time.Duration(f.rand.Int64N(int64(d))))
}

// interlude pauses or stops a connector for a while.
func (f *flows) interlude(how string) {
	name := f.any()
	f.insist(http.MethodPut, "/connectors/"+name+"/"+how, nil)
	f.pauseUpTo(time.Second)
	f.insist(http.MethodPut, "/connectors/"+name+"/resume", nil)
}

// killNode kills a node, any if it is 0, and starts it again a while after.
func (f *flows) killNode(id int) {
	if id == 0 {
		id = 1 + f.rand.IntN(nodes)
	}
	f.kill(id)
	f.pauseUpTo(2 * time.Second)
	f.start(id)
	f.awaitHealth()
}

func (f *flows) freezeNode() {
	id := 1 + f.rand.IntN(nodes)
	f.signal(id, syscall.SIGSTOP)
	f.pauseUpTo(2 * sessionTimeout)
	f.signal(id, syscall.SIGCONT)
	f.awaitHealth()
}

// terminate ends backends.
func (f *flows) terminate(which string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, f.server.URL())
	if err != nil {
		return // of a server that starts, all are ended
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "+which)
	if err != nil {
		f.t.Errorf("terminate: %v", err)
	}
}

// strike deals one of the blows. Every fourth comes before all has got over the last.
func (f *flows) strike(blows []blow) {
	b := blows[f.rand.IntN(len(blows))]
	f.t.Logf("%s", b.name)
	b.do(f)
	f.done[b.name]++
	if f.rand.IntN(4) > 0 {
		f.awaitRunning(sourceName, sinkName)
	}
	f.pauseUpTo(time.Second)
}

// report logs what was dealt.
func (f *flows) report(took time.Duration) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(f.done)) {
		f.t.Logf("%4d × %s", f.done[name], name)
		total += f.done[name]
	}
	f.t.Logf("%d blows in %v", total, took.Round(time.Second))
}
