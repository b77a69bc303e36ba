package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// manySchemas is how many schemas the registry's rows have, each in a subject of its own.
const manySchemas = 100_000

const (
	bare         = "bare"
	registryType = "application/vnd.schemaregistry.v1+json"
	megabytes    = 400 // of memory that the registry may take with all of them
)

// registryRows are the rows about the schema registry.
func (b *bench) registryRows() []*row {
	memory := func(gate float64) func(m func(string) result) verdict {
		return func(m func(string) result) verdict {
			rss := m(own).RSSMiB
			return verdict{text: fmt.Sprintf("%.0f MiB, gate %.0f", rss, gate), met: rss > 0 && rss < gate}
		}
	}
	return []*row{
		rate("G1", "a schema by its id, of 100,000, 16 conns", bare, 0.5,
			contender{own, b.readSchemas}, contender{bare, b.readBare}),
		{id: "G2", what: "register a version, of 100,000 schemas, synced", show: showLatency,
			judge: func(m func(string) result) verdict {
				r := m(own)
				text := fmt.Sprintf("p99 %.1f ms, gate 20 + %s", r.P99/1000, r.Note)
				return verdict{text: text, met: r.P99 > 0 && r.P99 < 20e3+r.MBPerS}
			}, contenders: []contender{{own, b.registerVersions}}},
		{id: "G3", what: "start with 100,000 schemas", show: showTook, judge: tookWithin(5),
			contenders: []contender{{own, b.startSchemas}}},
		{id: "G4", what: "memory with 100,000 schemas, after lists and look-ups", show: showRSS, judge: memory(megabytes),
			contenders: []contender{{own, b.listSchemas}}},
		{id: "G5", what: "G1 while 50 clients send hostile schemas", show: func(r result) string {
			return showLatency(r) + ", " + showRSS(r)
		}, judge: memory(1.5 * megabytes), contenders: []contender{{own, b.hostileSchemas}}},
	}
}

func orderSchema(i int) string {
	return fmt.Sprintf(`{"type":"record","name":"Order","namespace":"com.example.orders","fields":[`+
		`{"name":"id","type":"long"},{"name":"customer","type":["null","string"],"default":null},`+
		`{"name":"amount","type":"double"},{"name":"field%d","type":["null","string"],"default":null},`+
		`{"name":"created","type":{"type":"long","logicalType":"timestamp-millis"}}]}`, i)
}

// withSchemas starts our server on data with all the schemas, which are registered the first time.
func (b *bench) withSchemas(ctx context.Context) (*server, float64, error) {
	if b.schemas == "" {
		s, err := b.own(ctx, "never")
		if err != nil {
			return nil, 0, err
		}
		for from := 0; from < manySchemas && err == nil; from += 1000 {
			var body strings.Builder
			for i := from; i < from+1000; i++ {
				fmt.Fprintf(&body, `,{"subject":"topic-%d-value","schema":%q}`, i, orderSchema(i))
			}
			_, err = s.call("POST", "/v1/schemas:batch", "application/json", `{"schemas":[`+body.String()[1:]+`]}`)
		}
		s.stop(syscall.SIGTERM)
		if err != nil {
			return nil, 0, err
		}
		b.schemas = s.dir
	}
	return b.restart(ctx, b.schemas, "ack")
}

// onSchemas does something with a server that has all the schemas.
func (b *bench) onSchemas(ctx context.Context, do func(s *server) (result, error)) (result, error) {
	s, took, err := b.withSchemas(ctx)
	if s != nil {
		defer s.stop(syscall.SIGTERM)
	}
	if err != nil {
		return result{}, err
	}
	r, err := do(s)
	r.Took, r.RSSMiB = took, float64(peakKiB(s.cmd.Process.Pid))/1024
	return r, err
}

func (b *bench) startSchemas(ctx context.Context) (result, error) {
	return b.onSchemas(ctx, func(*server) (result, error) { return result{}, nil })
}

// peakKiB is the most memory that a process has had.
func peakKiB(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(after, &kib)
	return kib
}

func (b *bench) readSchemas(ctx context.Context) (result, error) {
	return b.onSchemas(ctx, func(s *server) (result, error) { return b.readIDs(ctx, s, 16) })
}

// readBare reads the same answers from a server of net/http that does nothing else: this program, started again.
func (b *bench) readBare(ctx context.Context) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	s, err := b.start(ctx, self, "-bare", "{addr}")
	if err != nil {
		return result{}, err
	}
	defer s.end()
	if err := s.ready(ctx); err != nil {
		return result{}, err
	}
	return b.readIDs(ctx, s, 16)
}

// serveBare answers every request as the registry answers to one for an id.
func serveBare(addr string) error {
	answer := fmt.Appendf(nil, `{"guid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","schemaType":"AVRO","schema":%q}`,
		orderSchema(10_000))
	length := strconv.Itoa(len(answer))
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", registryType)
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(answer) // who has gone needs none
		})}
	return server.ListenAndServe()
}

// readIDs asks for schemas by their ids, on so many connections.
func (b *bench) readIDs(ctx context.Context, s *server, conns int) (result, error) {
	run := func(d time.Duration) (int, []time.Duration, error) {
		var mu sync.Mutex
		var took []time.Duration
		var failed error
		var wg sync.WaitGroup
		end := time.Now().Add(d)
		for i := range conns {
			wg.Go(func() {
				mine, err := askIDs(ctx, s.addr, i*997, end)
				mu.Lock()
				defer mu.Unlock()
				took, failed = append(took, mine...), errors.Join(failed, err)
			})
		}
		wg.Wait()
		return len(took), took, failed
	}
	if _, _, err := run(b.warm); err != nil {
		return result{}, err
	}
	cpu := cpuSeconds(s.cmd.Process.Pid)
	count, took, err := run(b.length)
	if err != nil || count == 0 {
		return result{}, fmt.Errorf("%d answers: %w", count, err)
	}
	cpu = cpuSeconds(s.cmd.Process.Pid) - cpu
	slices.Sort(took)
	return result{
		RecPerS: float64(count) / b.length.Seconds(), P50: micros(took, 0.5), P99: micros(took, 0.99),
		ServerCPUPerMRec: cpu / float64(count) * 1e6,
	}, nil
}

func micros(sorted []time.Duration, q float64) float64 {
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Microseconds())
}

// askIDs asks on one connection, with no client that would cost more than the server.
func askIDs(ctx context.Context, addr string, id int, end time.Time) (took []time.Duration, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	var request []byte
	for began := time.Now(); began.Before(end); {
		id = (id+7919)%manySchemas + 1
		request = fmt.Appendf(request[:0], "GET /schemas/ids/%d HTTP/1.1\r\nHost: h\r\nAccept: %s\r\n\r\n", id,
			registryType)
		if _, err := conn.Write(request); err != nil {
			return took, err
		}
		if err := readAnswer(r); err != nil {
			return took, err
		}
		now := time.Now()
		took, began = append(took, now.Sub(began)), now
	}
	return took, nil
}

// readAnswer reads an answer of status 200.
func readAnswer(r *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch {
		case first && !strings.HasPrefix(string(line), "HTTP/1.1 200"):
			return fmt.Errorf("answered %s", line)
		case len(line) <= 2:
			_, err := r.Discard(length)
			return err
		case len(line) > 16 && strings.EqualFold(string(line[:15]), "Content-Length:"):
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[15:]))); err != nil {
				return err
			}
		}
	}
}

// registerVersions makes one new version after the other. The gate is 20 ms beyond what the disk takes to sync, of
// which MBPerS holds the microseconds.
func (b *bench) registerVersions(ctx context.Context) (result, error) {
	return b.onSchemas(ctx, func(s *server) (r result, err error) {
		client := &http.Client{}
		defer client.CloseIdleConnections()
		var took []time.Duration
		end := time.Now().Add(2 * b.length)
		for i := int(time.Now().UnixNano() % 1e9); time.Now().Before(end); i++ {
			body := fmt.Sprintf(`{"schema":%q}`, orderSchema(1_000_000_000+i))
			began := time.Now()
			if err := post(ctx, client, s.addr, fmt.Sprintf("topic-%d-value", i%manySchemas), body); err != nil {
				return r, err
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		disk, err := b.syncTimes()
		if err != nil {
			return r, err
		}
		r.P50, r.P99, r.RecPerS = micros(took, 0.5), micros(took, 0.99), float64(len(took))/(2*b.length.Seconds())
		r.MBPerS = micros(disk, 0.99)
		r.Note = fmt.Sprintf("a sync's p99 of %.1f ms", r.MBPerS/1000)
		return r, nil
	})
}

func post(ctx context.Context, c *http.Client, addr, subject, body string) error {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/subjects/"+subject+"/versions",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", registryType)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("register: %s: %.300s", resp.Status, text)
	}
	return err
}

// syncTimes is what it takes to append a little to a file and sync it, sorted.
func (b *bench) syncTimes() (took []time.Duration, err error) {
	f, err := os.Create(filepath.Join(b.work, "sync"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for range 300 {
		began := time.Now()
		if _, err := f.WriteString(orderSchema(0)); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

// listSchemas lists all schemas several times, looks some up, and reads many.
func (b *bench) listSchemas(ctx context.Context) (result, error) {
	return b.onSchemas(ctx, func(s *server) (r result, err error) {
		for range 3 {
			for offset := 0; offset < manySchemas; offset += 1000 {
				if _, err = s.call("GET", fmt.Sprint("/schemas?offset=", offset), "", ""); err != nil {
					return r, err
				}
			}
			if _, err = s.call("GET", "/subjects", "", ""); err != nil {
				return r, err
			}
		}
		for i := range 3000 {
			body := fmt.Sprintf(`{"schema":%q}`, orderSchema(i*31%manySchemas))
			path := fmt.Sprintf("/subjects/topic-%d-value", i*31%manySchemas)
			if _, err = s.call("POST", path, "application/json", body); err != nil {
				return r, err
			}
		}
		return b.readIDs(ctx, s, 16)
	})
}
