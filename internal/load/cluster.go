package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// one names the contender that runs on one node, beside three.
const one = "own, one node"

// clusterNodes is the size of every cluster measured: three nodes on one machine, clients included.
const clusterNodes = 3

// clusterRows are the rows of replication. Without a sync the records are as durable as with NATS's defaults; the rows
// with S in their names have every replica synced before the answer, against one synced node.
func (b *bench) clusterRows() []*row {
	batch := body(v2Path, "restv2", jsonV2, 100, 16, 1024)
	single := body(v2Path, "restv2", jsonV2, 1, 64, 200)
	alone := body(v2Path, "restv2", jsonV2, 1, 1, 200)
	leader := body(v1Path+"?acks=1", "plain", "text/plain", 1, 64, 200)
	natsBody := func(batch, conns, size int) []string {
		return []string{
			"-target", "nats", "-replicas", strconv.Itoa(clusterNodes),
			"-batch", strconv.Itoa(batch), "-c", strconv.Itoa(conns), "-size", strconv.Itoa(size),
		}
	}
	p50 := func(r result) float64 { return r.P50 }
	return []*row{
		rate("R1", "3 nodes, acks=all, JSON, 100 x 1 KiB, 16 conns, against NATS R3", nats, 2,
			b.once(own, b.atCluster("never"), batch...), b.once(nats, b.natsCluster, natsBody(100, 16, 1024)...)),
		rate("R2", "3 nodes, acks=all, JSON, 1 x 200 B, 64 conns, against NATS R3", nats, 1,
			b.once(own, b.atCluster("never"), single...), b.once(nats, b.natsCluster, natsBody(1, 64, 200)...)),
		{id: "R3", what: "3 nodes, acks=all, JSON, 1 x 200 B, 1 conn: p50", show: showLatency, judge: latencyWithin(p50, 1.2),
			contenders: []contender{
				b.once(own, b.atCluster("never"), alone...), b.once(nats, b.natsCluster, natsBody(1, 1, 200)...),
			}},
		rate("R4", "3 nodes, acks=all, JSON, 100 x 1 KiB, against one node", one, 0.25,
			b.once(own, b.atCluster("never"), batch...), b.once(one, b.at("never", 1), batch...)),
		rate("R4S", "3 nodes, all synced, JSON, 100 x 1 KiB, against one synced node", one, 0.25,
			b.once(own, b.atCluster("ack"), batch...), b.once(one, b.at("ack", 1), batch...)),
		{id: "R5", what: "3 nodes, acks=1, JSON, 1 x 200 B: CPU a record of all three, against one node", show: showCPU,
			judge: cpuAgainst(one, 2.4), contenders: []contender{
				b.once(own, b.atCluster("never"), leader...), b.once(one, b.at("never", 1), leader...),
			}},
	}
}

// latencyWithin is a gate of latency against NATS alone.
func latencyWithin(q func(result) float64, gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		mine, theirs := q(m(own)), q(m(nats))
		if theirs == 0 {
			return verdict{text: "nats is missing", open: true}
		}
		return verdict{text: fmt.Sprintf("%.2f of nats, gate %.1f", mine/theirs, gate), met: mine/theirs <= gate}
	}
}

// cpuAgainst is a gate of CPU a record.
func cpuAgainst(base string, gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		mine, theirs := m(own).ServerCPUPerMRec, m(base).ServerCPUPerMRec
		if theirs == 0 {
			return verdict{text: base + " is missing", open: true}
		}
		return verdict{text: fmt.Sprintf("%.2f of %s's CPU, gate %.1f", mine/theirs, base, gate), met: mine/theirs <= gate}
	}
}

// atCluster starts three nodes and a topic with three replicas. Requests go to the leader of its partition.
func (b *bench) atCluster(sync string) func(context.Context) (*server, error) {
	return func(ctx context.Context) (*server, error) {
		s, err := b.cluster(ctx, sync)
		if err != nil {
			return s, err
		}
		create := `{"name":"bench","partitions":1,"replication_factor":3}`
		if _, err := s.call("POST", "/v1/topics", "application/json", create); err != nil {
			return s, err
		}
		text, err := s.get("/v1/topics/bench")
		if err != nil {
			return s, err
		}
		var topic struct {
			Partitions []struct {
				Leader int `json:"leader"`
			} `json:"partitions"`
		}
		if err := json.Unmarshal([]byte(text), &topic); err != nil || len(topic.Partitions) != 1 {
			return s, fmt.Errorf("no partition in %.300s", text)
		}
		nodes, leader := append([]*server{s}, s.others...), topic.Partitions[0].Leader
		if leader < 1 || leader > len(nodes) {
			return s, fmt.Errorf("no leader in %.300s", text)
		}
		s.addr = nodes[leader-1].addr
		return s, nil
	}
}

// cluster starts three of our nodes. The first stands for all of them.
func (b *bench) cluster(ctx context.Context, sync string) (*server, error) {
	var voters []string
	addrs := make([]string, clusterNodes)
	for i := range addrs {
		var err error
		if addrs[i], err = freeAddr(); err != nil {
			return nil, err
		}
		voters = append(voters, fmt.Sprintf("%d=http://%s", i+1, addrs[i]))
	}
	var first *server
	for i, addr := range addrs {
		dir, err := os.MkdirTemp(b.work, "data-")
		if err != nil {
			return first, err
		}
		args := ownArgs(sync, "--node-id", strconv.Itoa(i+1), "--voters", strings.Join(voters, ","))
		s, err := b.startAt(ctx, dir, addr, b.millrace, args...)
		if err != nil {
			return first, err
		}
		first = first.with(s)
	}
	for _, s := range append([]*server{first}, first.others...) {
		if err := s.healthy(ctx); err != nil {
			return first, err
		}
	}
	return first, nil
}

// with adds a further process of the same cluster.
func (s *server) with(other *server) *server {
	if s == nil {
		return other
	}
	s.others = append(s.others, other)
	return s
}

// natsCluster starts three nats-servers with JetStream on file stores and routes between them.
func (b *bench) natsCluster(ctx context.Context) (*server, error) {
	if b.nats == "" {
		return nil, fmt.Errorf("no nats-server")
	}
	routes := make([]string, clusterNodes)
	for i := range routes {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		routes[i] = addr
	}
	var first *server
	for i, route := range routes {
		dir, err := os.MkdirTemp(b.work, "data-")
		if err != nil {
			return first, err
		}
		conf := fmt.Sprintf("server_name: n%d\njetstream {store_dir: %q}\n"+
			"cluster {name: bench, listen: %q, routes: [\"nats://%s\"]}\n", i+1, dir, route, strings.Join(routes, `","nats://`))
		file := filepath.Join(dir, "nats.conf")
		if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
			return first, err
		}
		s, err := b.startIn(ctx, dir, b.nats, "-a", "127.0.0.1", "-p", "{port}", "-c", file)
		if err != nil {
			return first, err
		}
		first = first.with(s)
		if err := s.ready(ctx); err != nil {
			return first, err
		}
	}
	return first, first.await(ctx, first.takesStreams)
}

// takesStreams reports whether a NATS cluster has agreed on who leads it: a stream with three replicas can be made.
func (s *server) takesStreams() error {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	request := `{"name":"probe","subjects":["probe"],"storage":"file","num_replicas":3}`
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false}\r\nSUB reply 1\r\n"+
		"PUB $JS.API.STREAM.CREATE.probe reply %d\r\n%s\r\nPING\r\n", len(request), request)
	if err != nil {
		return err
	}
	var got strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		got.Write(buf[:n])
		if strings.Contains(got.String(), `"did_create":true`) || strings.Contains(got.String(), "already in use") {
			return nil
		}
		if err != nil || strings.Contains(got.String(), `"error"`) {
			return fmt.Errorf("no stream yet: %.200s %w", got.String(), errOr(err))
		}
	}
}

func errOr(err error) error {
	if err == nil {
		return syscall.EAGAIN
	}
	return err
}
