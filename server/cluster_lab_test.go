package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/quorum"
	"millrace/server/servertest/memnet"
	"millrace/storage/storagetest"
)

// labSecret is the secret of the clusters in labs. It must show nowhere.
const labSecret = "the-marker-of-a-secret"

// lab is some machines in fake time, with a network and disks in memory. Nodes run on them with voters 1 to 3.
type lab struct {
	t      *testing.T
	net    *memnet.Net
	boxes  map[int32]*box
	client *http.Client
	voters []quorum.Voter
	// change is called with the config of each node before each of its starts.
	change func(c *server.Config)
}

// box is one machine. What is at a name in the network need not be what the others take it for.
type box struct {
	lab    *lab
	key    uint64 // of the machine
	id     int32
	name   string
	host   *memnet.Host
	disk   *storagetest.FS
	skew   time.Duration // of the clock
	fault  atomic.Pointer[storagetest.Fault]
	change func(c *server.Config)
	node   *server.Node // nil while it does not run
	lives  uint64
	logs   journal
	fatal  chan error
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String is all that was written.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// inLab runs a test with machines 1 to n, on which nothing runs yet.
func inLab(t *testing.T, n int, do func(l *lab)) {
	t.Helper()
	scratch := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, net: memnet.New(1, memnet.Link{Latency: time.Millisecond}), boxes: map[int32]*box{}}
		host := l.net.Boot("client")
		l.client = &http.Client{Transport: &http.Transport{DialContext: host.Dial}, Timeout: time.Minute}
		l.change = func(c *server.Config) { c.DataDir = scratch }
		defer l.end()
		for id := int32(1); id <= int32(n); id++ {
			l.add(id)
			if id <= 3 && (n != 2 || id == 1) {
				l.voters = append(l.voters, quorum.Voter{ID: id, Address: l.boxes[id].url()})
			}
		}
		do(l)
	})
}

// running runs a test in a cluster of three that has a topic t with three replicas.
func running(t *testing.T, do func(l *lab)) {
	t.Helper()
	inLab(t, 3, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		l.create("t", `{}`)
		do(l)
	})
}

func (l *lab) add(id int32) *box {
	b := &box{lab: l, key: uint64(id), id: id, name: fmt.Sprint("n", id), disk: storagetest.New()}
	l.boxes[id] = b
	return b
}

// another adds a machine beside those that are there, for a node that says that it is id.
func (l *lab) another(key, id int32) *box {
	b := l.add(key)
	b.id = id
	return b
}

func (l *lab) end() {
	l.net.Heal()
	for _, b := range l.boxes {
		b.fault.Store(nil)
		b.kill(storagetest.KeepAll)
	}
	l.client.CloseIdleConnections()
	l.net.Close()
	if l.t.Failed() {
		for key, b := range l.boxes {
			l.t.Logf("log of machine %d:\n%s", key, b.logs.String())
		}
	}
}

func (b *box) url() string { return "http://" + b.name + ":8082" }

// open starts a node.
func (b *box) open() error {
	b.host = b.lab.net.Boot(b.name)
	b.lives++
	listener, err := b.host.Listen(8082)
	require.NoError(b.lab.t, err)
	fatal := make(chan error, 1)
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.FS, cfg.Listener, cfg.Dial = b.id, b.disk, listener, b.host.Dial
	cfg.Voters, cfg.ClusterSecret = slices.Clone(b.lab.voters), []byte(labSecret)
	cfg.Broker = map[string]string{}
	cfg.Now = func() time.Time { return time.Now().Add(b.skew) }
	cfg.Rand = rand.New(rand.NewPCG(b.key, b.lives))
	cfg.Logger = slog.New(slog.NewTextHandler(&b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Fatal = func(err error) { fatal <- err }
	b.fatal = fatal
	b.lab.change(&cfg)
	if b.change != nil {
		b.change(&cfg)
	}
	b.disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if f := b.fault.Load(); f != nil {
			return (*f)(op, name)
		}
		return 0, nil
	})
	node, err := server.Open(cfg)
	if err != nil {
		b.host.Kill()
		return err
	}
	b.node = node
	return nil
}

// fail makes the disk answer calls of some kinds with an error, on files whose names contain a text.
func (b *box) fail(where string, failure error, ops ...storagetest.Op) {
	var fault storagetest.Fault = func(op storagetest.Op, name string) (time.Duration, error) {
		for _, o := range ops {
			if o == op && (strings.Contains(name, where) || op == storagetest.OpSyncAll) {
				return 0, failure
			}
		}
		return 0, nil
	}
	b.fault.Store(&fault)
}

// failSyncs makes each sync of files whose names contain a text fail.
func (b *box) failSyncs(where string) {
	b.fail(where, syscall.EIO, storagetest.OpSync, storagetest.OpSyncAll)
}

// stop stops a node as SIGTERM does.
func (b *box) stop() {
	if b.node != nil {
		_ = b.node.Close() // a node with a bad disk cannot say that all is well
		b.node = nil
		b.host.Kill()
	}
}

// kill ends a node at once.
func (b *box) kill(mode storagetest.Mode) {
	if b.node == nil {
		return
	}
	disk := b.disk.Crash(mode, rand.New(rand.NewPCG(1, b.lives)))
	b.host.Kill()
	_ = b.node.Kill() // nothing of it works any more
	b.node, b.disk = nil, disk
}

func (l *lab) start(ids ...int32) {
	l.t.Helper()
	for _, id := range ids {
		require.NoError(l.t, l.boxes[id].open(), "node %d", id)
	}
}

func (l *lab) stop(ids ...int32) {
	for _, id := range ids {
		l.boxes[id].stop()
	}
}

func (l *lab) kill(ids ...int32) {
	for _, id := range ids {
		l.boxes[id].kill(storagetest.KeepAll)
	}
}

// ready waits until nodes have joined the cluster.
func (l *lab) ready(ids ...int32) {
	l.t.Helper()
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := l.boxes[id].node.AwaitReady(ctx)
		cancel()
		require.NoError(l.t, err, "node %d", id)
	}
}

// pass lets time go by.
func (l *lab) pass(d time.Duration) { time.Sleep(d) }

// until waits until something is so.
func (l *lab) until(what string, is func() bool) {
	l.t.Helper()
	for began := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		require.Less(l.t, time.Since(began), 2*time.Minute, "waited too long until %s", what)
	}
}

// do sends a request to a node. Without an answer the status is 0 and the text is why.
func (l *lab) do(id int32, method, path, body string) (int, string) {
	l.t.Helper()
	req, err := http.NewRequest(method, l.boxes[id].url()+path, strings.NewReader(body))
	require.NoError(l.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return l.answer(req)
}

func (l *lab) answer(req *http.Request) (int, string) {
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// create makes a topic with one partition and a replica on each of three nodes.
func (l *lab) create(name, configs string) {
	l.t.Helper()
	status, text := l.do(1, http.MethodPost, "/v1/topics",
		fmt.Sprintf(`{"name":%q,"partitions":1,"replication_factor":3,"configs":%s}`, name, configs))
	require.Equal(l.t, http.StatusCreated, status, text)
}

// send produces a value with acks=all, once however often it is called. False: nobody promised to keep it.
func (l *lab) send(id int32, topic string, value int) (string, bool) {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodPost, l.boxes[id].url()+"/v1/topics/"+topic+"/records?acks=all",
		strings.NewReader(fmt.Sprint(value)))
	require.NoError(l.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Producer-Id", "lab of "+topic)
	req.Header.Set("Producer-Seq", fmt.Sprint(value))
	status, text := l.answer(req)
	return text, status == http.StatusOK
}

// fill produces count values with acks=all, beginning with one, over a node; each has to be taken.
func (l *lab) fill(id int32, topic string, from, count int) {
	l.t.Helper()
	for i := from; i < from+count; i++ {
		text, ok := l.send(id, topic, i)
		require.True(l.t, ok, "%d: %s", i, text)
	}
}

// read reads a topic over a node from the start.
func (l *lab) read(id int32, topic string) (values []int) {
	l.t.Helper()
	for next := "offset=earliest"; ; {
		var status int
		var text string
		l.until("there is a leader to read from", func() bool {
			status, text = l.do(id, http.MethodGet, "/v1/topics/"+topic+"/records?max_records=500&"+next, "")
			return !passing(status)
		})
		require.Equal(l.t, http.StatusOK, status, text)
		var p struct {
			Records []struct{ Value int }
			Next    string
		}
		require.NoError(l.t, json.Unmarshal([]byte(text), &p), text)
		if len(p.Records) == 0 {
			return values
		}
		for _, r := range p.Records {
			values = append(values, r.Value)
		}
		next = "from=" + p.Next
	}
}

// keep has values taken until all up to one are, over a node. What goes wrong is tried again.
func (l *lab) keep(id int32, topic string, from, to int) {
	l.t.Helper()
	for i := from; i <= to; i++ {
		var text string
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			var ok bool
			if text, ok = l.send(id, topic, i); ok {
				break
			}
			require.Less(l.t, time.Since(began), 2*time.Minute, "%d: %s", i, text)
		}
	}
}

// holds requires that a topic has the values 0 to count-1 in order, and nothing else, whichever node is asked. What a
// new leader does not know to be committed shows a little later.
func (l *lab) holds(topic string, count int, nodes ...int32) {
	l.t.Helper()
	for _, id := range nodes {
		got := l.read(id, topic)
		for began := time.Now(); len(got) < count && time.Since(began) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
			got = l.read(id, topic)
		}
		require.Len(l.t, got, count, "over node %d", id)
		for i, v := range got {
			require.Equal(l.t, i, v, "over node %d", id)
		}
	}
}

// state is what a partition's metadata say, by the first running node.
func (l *lab) state(topic string) (leader int32, isr []int32) {
	l.t.Helper()
	for id := int32(1); id <= int32(len(l.boxes)); id++ {
		if b := l.boxes[id]; b != nil && b.node != nil {
			p := b.node.Probe().Image.Topic(topic).Partitions[0]
			return p.Leader, p.ISR
		}
	}
	return -1, nil
}

// leader waits for a partition's leader.
func (l *lab) leader(topic string) (id int32) {
	l.t.Helper()
	l.until("the partition has a leader", func() bool {
		id, _ = l.state(topic)
		return id > 0
	})
	return id
}

// lead has a node lead a partition whose replicas are all three.
func (l *lab) lead(topic string, id int32) {
	l.t.Helper()
	order, err := json.Marshal(append([]int32{id}, others(id)...))
	require.NoError(l.t, err)
	l.until("the partition has the leader that is wanted", func() bool {
		l.do(1, http.MethodPost, "/v1/cluster/reassignments",
			fmt.Sprintf(`{"reassignments":[{"topic":%q,"partition":0,"replicas":%s}]}`, topic, order))
		l.do(1, http.MethodPost, "/v1/cluster/leader-elections", `{}`)
		leader, _ := l.state(topic)
		return leader == id
	})
}

// controller is the node that leads the metadata quorum.
func (l *lab) controller() int32 {
	l.t.Helper()
	status, text := l.do(1, http.MethodGet, "/v1/cluster", "")
	require.Equal(l.t, http.StatusOK, status, text)
	var c struct {
		Controller int32 `json:"controller"`
	}
	require.NoError(l.t, json.Unmarshal([]byte(text), &c), text)
	require.Positive(l.t, c.Controller, text)
	return c.Controller
}

// inSync waits until so many replicas are in sync.
func (l *lab) inSync(topic string, count int) {
	l.t.Helper()
	l.until(fmt.Sprintf("%d replicas of %s are in sync", count, topic), func() bool {
		_, isr := l.state(topic)
		return len(isr) == count
	})
}

// waiting waits until a node says that it waits for something.
func (l *lab) waiting(id int32, parts ...string) {
	l.t.Helper()
	var text string
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var status int
		status, text = l.do(id, http.MethodGet, "/health/ready", "")
		if status == http.StatusServiceUnavailable && containsAll(text, parts) {
			return
		}
		require.Less(l.t, time.Since(began), 2*time.Minute, "node %d says %s, not %q", id, text, parts)
	}
}

// dies waits until a node says that it cannot go on, and ends it.
func (l *lab) dies(id int32, parts ...string) {
	l.t.Helper()
	b := l.boxes[id]
	select {
	case err := <-b.fatal:
		require.True(l.t, containsAll(err.Error(), parts), "node %d says %v, not %q", id, err, parts)
		b.kill(storagetest.KeepAll)
	case <-time.After(2 * time.Minute):
		l.t.Fatalf("node %d goes on; it should have said %q", id, parts)
	}
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
