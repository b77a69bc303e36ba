package connect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// nodeCommand as the first argument makes the program of the test a node, so that it can be killed as a process.
const nodeCommand = "node-of-the-test"

// runNode is a node with the connectors of a bench, until SIGTERM.
func runNode(args []string) int {
	p := servertest.Process{
		Args: args, Connectors: emptyBench().classes(), Log: os.Stderr,
		Broker: map[string]string{"default.replication.factor": "3", "min.insync.replicas": "2"},
	}
	return p.Run()
}

// fleet is three nodes that are processes.
type fleet struct {
	t         *testing.T
	dir       string
	addresses []string
	nodes     [3]*process // nil: killed
	client    *http.Client
}

// process is a node that runs, or has ended.
type process struct {
	*os.Process
	ended chan struct{} // closed when it has
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, dir: t.TempDir(), client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}}}
	for range f.nodes {
		f.addresses = append(f.addresses, servertest.HoldPort(t))
	}
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		for i := range f.nodes {
			f.kill(i + 1)
		}
	})
	for i := range f.nodes {
		f.start(i + 1)
	}
	for i := range f.nodes {
		f.awaitReady(i + 1)
	}
	return f
}

func (f *fleet) start(id int) {
	f.t.Helper()
	args := append([]string{nodeCommand, fmt.Sprint(id), filepath.Join(f.dir, fmt.Sprint("node-", id))}, f.addresses...)
	cmd := exec.Command(os.Args[0], args...)
	log, err := os.Create(f.log(id))
	require.NoError(f.t, err)
	cmd.Stderr = log
	require.NoError(f.t, cmd.Start())
	require.NoError(f.t, log.Close())
	p := &process{cmd.Process, make(chan struct{})}
	go func() { // awaited by kill
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	f.nodes[id-1] = p
}

// log is where a node logs, since its last start.
func (f *fleet) log(id int) string { return filepath.Join(f.dir, fmt.Sprint("log-", id)) }

// awaitReady waits until a node is ready.
func (f *fleet) awaitReady(id int) {
	f.t.Helper()
	limit := time.Now().Add(patience)
	for f.get(id, "/health/ready", nil) != nil {
		require.True(f.t, time.Now().Before(limit), "node %d is not ready in time", id)
		select {
		case <-f.nodes[id-1].ended:
			text, err := os.ReadFile(f.log(id))
			require.NoError(f.t, err)
			require.Fail(f.t, "a node has ended", "node %d: %s", id, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill ends a node as kill -9 does.
func (f *fleet) kill(id int) {
	if p := f.nodes[id-1]; p != nil {
		_ = p.Kill() // it may have ended
		<-p.ended
		f.nodes[id-1] = nil
	}
}

// get reads from a node.
func (f *fleet) get(id int, path string, into any) error {
	resp, err := f.client.Get("http://" + f.addresses[id-1] + path)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// status is where a connector and its tasks run, as a node says.
type status struct {
	Connector struct{ State, WorkerID string }
	Tasks     []struct {
		State    string
		WorkerID string `json:"worker_id"`
	}
}

// runsOn says whether all of so many tasks run, and how many on each node.
func (f *fleet) runsOn(id int, name string, tasks int) (on map[string]int, all bool) {
	var s status
	if f.get(id, "/connectors/"+name+"/status", &s) != nil || len(s.Tasks) != tasks {
		return nil, false
	}
	on = make(map[string]int)
	for _, t := range s.Tasks {
		if t.State != "RUNNING" {
			return nil, false
		}
		on[t.WorkerID]++
	}
	return on, true
}

// put makes a connector. As long as it is not known to be there, it is put again.
func (f *fleet) put(id int, name string, config map[string]string) {
	f.t.Helper()
	body, err := json.Marshal(config)
	require.NoError(f.t, err)
	f.await("the connector is made", func() bool {
		req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut,
			"http://"+f.addresses[id-1]+"/connectors/"+name+"/config", bytes.NewReader(body))
		if err != nil {
			return false
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := f.client.Do(req)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && (resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK)
	})
}

// await waits until something holds.
func (f *fleet) await(what string, holds func() bool) {
	f.t.Helper()
	require.Eventually(f.t, holds, patience, 20*time.Millisecond, what)
}

// read reads all that is committed of a topic.
func (f *fleet) read(id int, topic string) (out []string, err error) {
	at := "offset=earliest"
	for {
		var p page
		err := f.get(id, "/v1/topics/"+topic+"/records?isolation=read_committed&max_records=1000&format=text&"+at, &p)
		if err != nil {
			return nil, err
		}
		for i := range p.Records {
			out = append(out, p.Records[i].Text)
		}
		if len(p.Records) == 0 {
			return out, nil
		}
		at = "from=" + urlQuery(p.Next)
	}
}

func (f *fleet) checkOnce(id int, topic string, files, count int) {
	f.t.Helper()
	var want, got []string
	for file := range files {
		for n := range count {
			want = append(want, fmt.Sprintf("f%d %d", file, n))
		}
	}
	f.await("all lines are there", func() bool {
		all, err := f.read(id, topic)
		got = all
		return err == nil && len(got) >= len(want)
	})
	require.ElementsMatch(f.t, want, got)
}

const fleetFiles = 6

// TestProcessesThatAreKilledOrFrozen: whatever happens to the process that runs a task, the task runs elsewhere
// soon, and each line is in the topic once in the end.
func TestProcessesThatAreKilledOrFrozen(t *testing.T) {
	f := newFleet(t)
	l := &lab{t: t, dir: t.TempDir()}
	dir := l.lines("in", fleetFiles, 0)
	writer := l.write(dir, fleetFiles)
	f.put(1, "c", source(dir, "out", fleetFiles))
	spread := func(on map[string]int, nodes int) bool { return balanced(on, nodes, fleetFiles) }
	f.await("all runs", func() bool {
		on, all := f.runsOn(1, "c", fleetFiles)
		return all && spread(on, 3)
	})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for round := range 6 {
		victim := r.IntN(3) + 1
		other := victim%3 + 1
		frozen := round%3 == 2
		began := time.Now()
		if frozen {
			require.NoError(t, f.nodes[victim-1].Signal(syscall.SIGSTOP))
		} else {
			f.kill(victim)
		}
		f.await("all runs elsewhere", func() bool {
			on, all := f.runsOn(other, "c", fleetFiles)
			return all && on[f.addresses[victim-1]] == 0 && spread(on, 2)
		})
		t.Logf("node %d is gone (frozen: %v): all runs elsewhere after %s", victim, frozen, time.Since(began))
		if frozen {
			require.NoError(t, f.nodes[victim-1].Signal(syscall.SIGCONT))
		} else {
			f.start(victim)
		}
		f.awaitReady(victim)
		f.await("the node has its part again", func() bool {
			on, all := f.runsOn(other, "c", fleetFiles)
			return all && spread(on, 3)
		})
	}
	f.checkOnce(1, "out", fleetFiles, writer.stop())
}
