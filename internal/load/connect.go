package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Contenders of the rows of Connect, beside own.
const (
	recvlogical = "pg_recvlogical"
	copyMerge   = "COPY and merge"
	noConnector = "own, no connector"
)

// connectRows are the rows of connectors and PostgreSQL, which run on a server of their own.
func (b *bench) connectRows() []*row {
	plain := converters("org.apache.kafka.connect.json.JsonConverter", "schemas.enable", "false")
	schemas := converters("org.apache.kafka.connect.json.JsonConverter", "schemas.enable", "true")
	avro := converters("io.confluent.connect.avro.AvroConverter")
	received := contender{recvlogical, b.receiveBacklog}
	capture := func(id, what string, props map[string]string, judge func(func(string) result) verdict) *row {
		return &row{id: id, what: what, show: showRate, judge: judge, contenders: []contender{
			{own, func(ctx context.Context) (result, error) { return b.captureBacklog(ctx, props) }}, received,
		}}
	}
	single := func(id, what string, show func(result) string, judge func(r result) verdict, f measurement) *row {
		return &row{id: id, what: what, show: show, contenders: []contender{{own, once(f)}},
			judge: func(m func(string) result) verdict { return judge(m(own)) }}
	}
	return []*row{
		capture("K1", "CDC of a backlog, JSON without schemas", plain, floorAnd(30_000, recvlogical, 0.7)),
		capture("K1S", "the same, JSON with schemas", schemas, informs(recvlogical)),
		capture("K1A", "the same, Avro", avro, informs(recvlogical)),
		{id: "K1L", what: "CDC while COPY writes", show: showRate, judge: floorAnd(30_000, recvlogical, 0.7),
			contenders: []contender{
				{own, func(ctx context.Context) (result, error) { return b.captureLive(ctx, plain) }},
				{recvlogical, b.receiveLive},
			}},
		{id: "K2", what: "commit to SSE reader, 1,000 rows/s", show: showLatency, judge: commitWithin,
			contenders: []contender{
				{own, func(ctx context.Context) (result, error) { return b.commitLatency(ctx, plain) }},
			}},
		{id: "K3", what: "upserts from a topic of Avro", show: showRate, judge: floorOr(25_000, copyMerge, 0.6),
			contenders: []contender{{own, b.upsert(avro)}, {copyMerge, b.copyAndMerge}}},
		{id: "K3J", what: "the same, JSON with schemas", show: showRate, judge: informs(copyMerge),
			contenders: []contender{{own, b.upsert(schemas)}, {copyMerge, b.copyAndMerge}}},
		single("K4", "one transaction of 1.5 M rows", showLarge, largeWithin, b.largeTransaction),
		single("K5", "hand-over after kill -9 of the task's node, 20 times", showTook, tookLess(5), b.handOver),
		{id: "K6", what: "polling source, JSON without schemas", show: showRate, judge: informs(""), contenders: []contender{
			{own, func(ctx context.Context) (result, error) { return b.pollRows(ctx, plain) }},
		}},
		{id: "K7", what: "three nodes, three connectors, nothing to do", show: showWakes, judge: informs(""),
			contenders: []contender{
				{own, once(func(ctx context.Context) (result, error) { return b.idleConnectors(ctx, plain) })},
				{noConnector, once(func(ctx context.Context) (result, error) { return b.idleConnectors(ctx, nil) })},
			}},
	}
}

type measurement = func(ctx context.Context) (result, error)

// once measures in the first round only what takes long.
func once(f measurement) measurement {
	var first *result
	return func(ctx context.Context) (result, error) {
		if first != nil {
			return *first, nil
		}
		r, err := f(ctx)
		if err == nil {
			first = &r
		}
		return r, err
	}
}

// converters are the settings of a converter for keys and values.
func converters(class string, props ...string) map[string]string {
	out := map[string]string{"key.converter": class, "value.converter": class}
	for i := 0; i < len(props); i += 2 {
		out["key.converter."+props[i]], out["value.converter."+props[i]] = props[i+1], props[i+1]
	}
	return out
}

// The gates.

func floorAnd(floor float64, base string, gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		v := ratio(m(own).RecPerS, m(base).RecPerS, base, gate)
		v.text += fmt.Sprintf("; gate %.0f k/s", floor/1000)
		v.met = v.met && m(own).RecPerS >= floor
		return v
	}
}

func floorOr(floor float64, base string, gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		v := ratio(m(own).RecPerS, m(base).RecPerS, base, gate)
		v.text += fmt.Sprintf(" or %.0f k/s", floor/1000)
		v.met = v.met || m(own).RecPerS >= floor
		return v
	}
}

// informs is a row without a gate.
func informs(base string) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		if base == "" || m(base).RecPerS == 0 {
			return verdict{text: "no gate", met: true}
		}
		return verdict{text: fmt.Sprintf("%.2f of %s, no gate", m(own).RecPerS/m(base).RecPerS, base), met: true}
	}
}

func commitWithin(m func(string) result) verdict {
	r := m(own)
	return verdict{text: fmt.Sprintf("gates p50 20 ms, p99 100 ms, at %.0f rows/s", r.RecPerS),
		met: r.RecPerS > 950 && r.P50 < 20e3 && r.P99 < 100e3}
}

func largeWithin(r result) verdict {
	return verdict{text: fmt.Sprintf("gate 300 MB, keep-alives within 5 s; %s", r.Note),
		met: r.RSSMiB > 0 && r.RSSMiB*1.048576 < 300 && r.P99 < 5e6}
}

func tookLess(gate float64) func(result) verdict {
	return func(r result) verdict {
		return verdict{text: fmt.Sprintf("gate %.1f s; %s", gate, r.Note), met: r.Took > 0 && r.Took <= gate}
	}
}

func showLarge(r result) string {
	return fmt.Sprintf("%.0f MB, %.1f s, %s", r.RSSMiB*1.048576, r.Took, showRate(r))
}

func showWakes(r result) string {
	return fmt.Sprintf("%.2f %% of a core, %.0f wakes/s", 100*r.ServerCores, r.OpsPerS)
}

// connector creates a connector and waits until its first task runs.
func (s *server) connector(ctx context.Context, name string, props ...map[string]string) error {
	all := map[string]string{"tasks.max": "1"}
	for _, p := range props {
		maps.Copy(all, p)
	}
	body, err := json.Marshal(map[string]any{"name": name, "config": all})
	if err != nil {
		return err
	}
	if _, err := s.call("POST", "/connectors", "application/json", string(body)); err != nil {
		return err
	}
	return s.await(ctx, func() error {
		_, err := s.running(name)
		return err
	})
}

// running gives the worker that runs a connector's task.
func (s *server) running(name string) (string, error) {
	text, err := s.get("/connectors/" + name + "/status")
	if err != nil {
		return "", err
	}
	var status struct {
		Tasks []struct {
			State    string `json:"state"`
			WorkerID string `json:"worker_id"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return "", err
	}
	if len(status.Tasks) != 1 || status.Tasks[0].State != "RUNNING" {
		return "", fmt.Errorf("it does not run: %.500s", text)
	}
	return status.Tasks[0].WorkerID, nil
}

// capturing are the settings of a source of a table.
func (t *table) capturing(more ...map[string]string) map[string]string {
	out := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"database.hostname": "127.0.0.1", "database.port": t.port, "database.user": "postgres",
		"database.password": "none", "database.dbname": "postgres", "database.sslmode": "disable",
		"topic.prefix": t.name, "slot.name": t.name, "publication.name": t.name, "publication.autocreate.mode": "disabled",
		"snapshot.mode": "no_data", "table.include.list": "public." + t.name,
	}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// topic is where the rows of a table go.
func (t *table) topic() string { return t.name + ".public." + t.name }

// written is how many records sources on this node have written.
func (s *server) written() (int, error) {
	return s.metric("millrace_connect_source_record_write_total")
}

func (s *server) metric(name string) (int, error) {
	text, err := s.get("/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return int(sum), nil
}

// progress is how a count went: from the first that was more than nothing to the last.
type progress struct {
	began, ended time.Time
	first, last  int
}

func (p *progress) rate() float64 {
	if took := p.ended.Sub(p.began).Seconds(); took > 0 {
		return float64(p.last-p.first) / took
	}
	return 0
}

// follow asks for a count until it is as large as it is to be.
func follow(ctx context.Context, to int, count func() (int, error)) (p progress, err error) {
	for deadline := time.Now().Add(2 * time.Minute); ; wait(ctx, 50*time.Millisecond) {
		n, err := count()
		now := time.Now()
		switch {
		case err != nil:
			return p, err
		case ctx.Err() != nil:
			return p, ctx.Err()
		case now.After(deadline):
			return p, fmt.Errorf("%d of %d after two minutes", n, to)
		case n > 0 && p.began.IsZero():
			p.began, p.first = now, n
		}
		if n >= to {
			p.ended, p.last = now, n
			return p, nil
		}
	}
}

// machine is what has been used of the processors since it was made, by whom.
type machine struct {
	at         time.Time
	busy, ours float64
	pid        int
	cpu        float64
}

// watch begins to count for a process.
func watch(pid int) *machine {
	return &machine{at: time.Now(), busy: busySeconds(), ours: treeSeconds(os.Getpid()), pid: pid, cpu: cpuSeconds(pid)}
}

// tell says what was used meanwhile, for so many records.
func (w *machine) tell(r *result, records int) {
	took := time.Since(w.at).Seconds()
	r.ForeignCores = max(0, (busySeconds()-w.busy-(treeSeconds(os.Getpid())-w.ours))/took)
	used := cpuSeconds(w.pid) - w.cpu
	r.ServerCores = used / took
	if records > 0 {
		r.ServerCPUPerMRec = used / float64(records) * 1e6
	}
}

// busySeconds is the time that all processors have worked.
func busySeconds() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(strings.SplitN(string(text), "\n", 2)[0])
	sum := 0.0
	for i := 1; i < len(f) && i <= 8; i++ {
		if v, err := strconv.ParseFloat(f[i], 64); err == nil && i != 4 && i != 5 { // idle, and idle for the disk
			sum += v
		}
	}
	return sum / 100
}

// treeSeconds is the processor time of a process and all below it, those that have ended too.
func treeSeconds(root int) float64 {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	parent, used := map[int]int{}, map[int]float64{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, after, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(after)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(f) < 15 {
			continue
		}
		parent[pid], _ = strconv.Atoi(f[1])
		for _, t := range f[11:15] {
			v, _ := strconv.ParseFloat(t, 64)
			used[pid] += v / 100
		}
	}
	sum := 0.0
	for pid, s := range used {
		for p := pid; p > 1; p = parent[p] {
			if p == root {
				sum += s
				break
			}
		}
	}
	return sum
}

// onNode does something with a node of ours that syncs, and a table.
func (b *bench) onNode(ctx context.Context, do func(s *server, t *table) (result, error)) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		s, err := b.own(ctx, "ack")
		if s != nil {
			defer func() {
				s.stop(syscall.SIGTERM)
				os.RemoveAll(s.dir)
			}()
		}
		if err != nil {
			return r, err
		}
		return do(s, t)
	})
}

func (b *bench) onTable(ctx context.Context, do func(t *table) (result, error)) (r result, err error) {
	t, err := b.table(ctx)
	if err != nil {
		return r, err
	}
	r, err = do(t)
	if e := t.drop(ctx); err == nil {
		err = e
	}
	return r, err
}
