package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

const (
	nodes = 3
	// patience is how long the cluster may take to be well again after a fault: invariant L1.
	patience = 60 * time.Second
	// diskSize is the size of a node's disk, where it has one of its own.
	diskSize = 48 << 20
)

// cluster is three processes, each on a host of its own where this test has namespaces.
type cluster struct {
	t      testing.TB
	dir    string
	voters string
	nodes  [nodes + 1]*node // by id, from 1
	http   *http.Client
}

// node is one of the processes, running or not.
type node struct {
	id      int
	address string
	data    string
	log     string

	mu  sync.Mutex
	cmd *exec.Cmd // guarded by mu; nil while it does not run
}

func (n *node) url() string { return "http://" + n.address }

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), http: &http.Client{Transport: &http.Transport{}}}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "secret"), []byte("what only the nodes of a test know"), 0o600))
	hosts := os.Getenv(inside) != ""
	if hosts {
		c.network()
	}
	var voters []string
	for id := 1; id <= nodes; id++ {
		n := &node{id: id}
		n.data, n.log = filepath.Join(c.dir, fmt.Sprint("data-", id)), filepath.Join(c.dir, fmt.Sprint("log-", id))
		require.NoError(t, os.Mkdir(n.data, 0o700))
		if hosts {
			n.address = fmt.Sprintf("198.18.0.1%d:8082", id)
			c.run("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", diskSize), "none", n.data)
			t.Cleanup(func() { c.run("umount", "-l", n.data) })
		} else {
			n.address = servertest.HoldPort(t)
		}
		voters = append(voters, fmt.Sprintf("%d=%s", id, n.url()))
		c.nodes[id] = n
	}
	c.voters = strings.Join(voters, ",")
	t.Cleanup(c.close)
	for id := 1; id <= nodes; id++ {
		c.start(id)
	}
	c.awaitHealth()
	return c
}

// network makes a bridge, on which the clients are 198.18.0.1, and a host on it for each node. It lies in the network
// namespace of this process and ends with it.
func (c *cluster) network() {
	const made = "/run/millrace-faults" // on a mount of this process's own: the host may have namespaces too
	if _, err := os.Stat(made); err == nil {
		return // the last cluster of this process made it
	}
	for _, line := range []string{
		"mount --make-rprivate /", "mount -t tmpfs none /run", "touch " + made, "mount -t proc proc /proc",
		"ip link set lo up",
		"ip link add br0 type bridge", "ip addr add 198.18.0.1/24 dev br0", "ip link set br0 up",
	} {
		c.run(strings.Fields(line)...)
	}
	for id := 1; id <= nodes; id++ {
		for _, line := range []string{
			"ip netns add n%d", "ip link add p%d type veth peer name eth0 netns n%[1]d", "ip link set p%d master br0 up",
			"ip -n n%d addr add 198.18.0.1%[1]d/24 dev eth0", "ip -n n%d link set lo up", "ip -n n%d link set eth0 up",
		} {
			c.run(strings.Fields(fmt.Sprintf(line, id))...)
		}
	}
}

// run runs a command of the system.
func (c *cluster) run(args ...string) {
	c.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(c.t, err, "%s: %s", args, out)
}

// start starts a node and does not wait for it.
func (c *cluster) start(id int) {
	c.t.Helper()
	n := c.nodes[id]
	args := []string{
		*binary, "serve", "--node-id", fmt.Sprint(id), "--listen", n.address, "--data-dir", n.data, "--insecure",
		"--voters", c.voters, "--cluster-secret-file", filepath.Join(c.dir, "secret"), "--log-format", "json",
		"--set", "default.replication.factor=3", "--set", "min.insync.replicas=2",
		"--set", fmt.Sprint("broker.session.timeout.ms=", sessionTimeout.Milliseconds()),
		"--set", fmt.Sprint("broker.heartbeat.interval.ms=", (sessionTimeout / 8).Milliseconds()),
	}
	if os.Getenv(inside) != "" {
		args = append([]string{"ip", "netns", "exec", fmt.Sprint("n", id)}, args...)
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, cmd.Start())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd = cmd
}

// signal sends a signal to a node that runs.
func (c *cluster) signal(id int, sig syscall.Signal) {
	n := c.nodes[id]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(sig) // it may have ended by itself
	}
}

// wait waits until a node has ended, and gives its exit code; -1 when a signal ended it.
func (c *cluster) wait(id int) int {
	n := c.nodes[id]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	process := n.cmd.Process
	alarm := time.AfterFunc(2*patience, func() { _ = process.Signal(syscall.SIGQUIT) }) // it says where it is stuck
	defer alarm.Stop()
	_ = n.cmd.Wait() // the exit code says it
	code := n.cmd.ProcessState.ExitCode()
	n.cmd = nil
	return code
}

// kill ends a node with SIGKILL.
func (c *cluster) kill(id int) {
	c.signal(id, syscall.SIGKILL)
	c.wait(id)
}

// health asks a node how the cluster is.
func (c *cluster) health(id int) (status, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.nodes[id].url()+"/v1/cluster/health", nil)
	if err != nil {
		return "", err.Error()
	}
	code, body, err := do(c.http, req)
	if err != nil {
		return "", err.Error()
	}
	var h struct{ Status string }
	if code != http.StatusOK || json.Unmarshal(body, &h) != nil {
		return "", string(body)
	}
	return h.Status, string(body)
}

// awaitHealth waits until every node says that all is well.
func (c *cluster) awaitHealth() {
	c.t.Helper()
	start := time.Now()
	for id := 1; id <= nodes; {
		status, text := c.health(id)
		if status == "ok" {
			id++
			continue
		}
		if time.Since(start) > patience {
			c.t.Fatalf("not well %v after the last fault, says node %d: %s", patience, id, text)
		}
		pause(context.Background(), 50*time.Millisecond)
	}
}

// leaders gives the leader of each partition of a topic, as a node sees it; -1 where there is none.
func (c *cluster) leaders(id int, topic string) ([]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.nodes[id].url()+"/v1/topics/"+topic, nil)
	if err != nil {
		return nil, err
	}
	code, body, err := do(c.http, req)
	var t struct{ Partitions []struct{ Leader int } }
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", topic, err)
	}
	if code != http.StatusOK || json.Unmarshal(body, &t) != nil {
		return nil, fmt.Errorf("describe %s: %d %s", topic, code, body)
	}
	var leaders []int
	for _, p := range t.Partitions {
		leaders = append(leaders, p.Leader)
	}
	return leaders, nil
}

// awaitLeaders is leaders, of a node that may know of the topic, or answer at all, a little later.
func (c *cluster) awaitLeaders(id int, topic string) []int {
	c.t.Helper()
	for start := time.Now(); ; pause(context.Background(), 10*time.Millisecond) {
		leaders, err := c.leaders(id, topic)
		if err == nil {
			return leaders
		}
		require.Less(c.t, time.Since(start), patience, "node %d: %v", id, err)
	}
}

// close ends what still runs and shows the logs if the test failed.
func (c *cluster) close() {
	for id := 1; id <= nodes; id++ {
		c.kill(id)
		if text, err := os.ReadFile(c.nodes[id].log); err == nil && c.t.Failed() {
			lines := strings.Split(string(text), "\n")
			c.t.Logf("log of node %d, its end:\n%s", id, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	}
	c.http.CloseIdleConnections()
}

// pause waits for a time or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
