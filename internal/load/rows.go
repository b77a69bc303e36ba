package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Names of contenders. own is the binary under test.
const (
	own      = "own"
	echo     = "echo"
	roofline = "roofline"
	nats     = "nats"
	few      = "own, few"
)

// What the server is told and what requests say, once.
const (
	jsonV2   = "application/vnd.kafka.json.v2+json"
	rawBatch = "application/vnd.apache.kafka.recordbatch"
	ndjson   = "application/x-ndjson"
	v2Path   = "/topics/bench"
	v1Path   = "/v1/topics/bench/records"
)

// rows is the table of what is measured. Ids are those of docs/performance.md.
func (b *bench) rows() []*row {
	rows := b.produceRows()
	rows = append(rows, b.consumeRows()...)
	rows = append(rows, b.streamRows()...)
	rows = append(rows, b.clusterRows()...)
	rows = append(rows, b.registryRows()...)
	rows = append(rows, b.connectRows()...)
	return append(rows, b.startRows()...)
}

// at starts our server with a sync policy and, when partitions is not 0, a topic of that many.
func (b *bench) at(sync string, partitions int) func(context.Context) (*server, error) {
	return func(ctx context.Context) (*server, error) {
		s, err := b.own(ctx, sync)
		if err == nil && partitions > 0 {
			err = s.createTopic("bench", partitions)
		}
		return s, err
	}
}

func (b *bench) atRoof(sync string) func(context.Context) (*server, error) {
	return func(ctx context.Context) (*server, error) { return b.roof(ctx, sync) }
}

// createTopic makes a topic through the public API.
func (s *server) createTopic(name string, partitions int) error {
	body := fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, partitions)
	_, err := s.call("POST", "/v1/topics", "application/json", body)
	return err
}

// body are the harness's flags for a produce request.
func body(path, kind, ctype string, batch, conns, size int) []string {
	return []string{
		"-produce", path, "-body", kind, "-ctype", ctype,
		"-batch", strconv.Itoa(batch), "-c", strconv.Itoa(conns), "-size", strconv.Itoa(size),
	}
}

// rate is a row whose gate is a ratio of records a second.
func rate(id, what, base string, gate float64, cs ...contender) *row {
	return &row{id: id, what: what, contenders: cs, show: showRate, judge: func(m func(string) result) verdict {
		return ratio(m(own).RecPerS, m(base).RecPerS, base, gate)
	}}
}

func ratio(mine, theirs float64, base string, gate float64) verdict {
	if theirs == 0 {
		return verdict{text: base + " is missing", open: true}
	}
	return verdict{text: fmt.Sprintf("%.2f of %s, gate %.2f", mine/theirs, base, gate), met: mine/theirs >= gate}
}

func (b *bench) produceRows() []*row {
	single := body(v2Path, "restv2", jsonV2, 1, 64, 1024)
	many := body(v2Path, "restv2", jsonV2, 1, 1000, 1024)
	batch := body(v2Path, "restv2", jsonV2, 100, 16, 1024)
	raw := body(v1Path+"?partition=0", "raw", rawBatch, 100, 16, 1024)
	lines := body(v1Path, "ndjson", ndjson, 100, 16, 1024)
	roofSingle := body("/append/json", "restv2", jsonV2, 1, 64, 1024)
	roofMany := body("/append/json", "restv2", jsonV2, 1, 1000, 1024)
	roofBatch := body("/append/json", "restv2", jsonV2, 100, 16, 1024)
	roofRaw := body("/append/raw", "raw", "application/octet-stream", 100, 16, 1024)
	toEcho := body("/echo", "restv2", jsonV2, 1, 64, 1024)
	return []*row{
		rate("P1", "JSON, 1 x 1 KiB, 64 conns, no sync", echo, 0.65,
			b.once(own, b.at("never", 1), single...), b.once(echo, b.atRoof("none"), toEcho...),
			b.once(roofline, b.atRoof("none"), roofSingle...)),
		rate("P3", "JSON, 1 x 1 KiB, 64 conns, synced", echo, 0.35,
			b.once(own, b.at("ack", 1), single...), b.once(echo, b.atRoof("none"), toEcho...),
			b.once(roofline, b.atRoof("group"), roofSingle...)),
		rate("P5", "JSON, 100 x 1 KiB, 16 conns, no sync", roofline, 0.6,
			b.once(own, b.at("never", 1), batch...), b.once(roofline, b.atRoof("none"), roofBatch...)),
		rate("P7", "JSON, 100 x 1 KiB, 16 conns, synced", roofline, 0.6,
			b.once(own, b.at("ack", 1), batch...), b.once(roofline, b.atRoof("group"), roofBatch...)),
		rate("P8", "raw batches, 100 x 1 KiB, 16 conns, no sync", roofline, 0.65,
			b.once(own, b.at("never", 1), raw...), b.once(roofline, b.atRoof("none"), roofRaw...)),
		rate("P9", "raw batches, 100 x 1 KiB, 16 conns, synced", roofline, 0.65,
			b.once(own, b.at("ack", 1), raw...), b.once(roofline, b.atRoof("group"), roofRaw...)),
		rate("P11", "NDJSON, 100 x 1 KiB, 16 conns, no sync", roofline, 0.6,
			b.once(own, b.at("never", 1), lines...), b.once(roofline, b.atRoof("none"), roofBatch...)),
		rate("P11V3", "v3 streamed JSON, 100 x 1 KiB, 16 conns, no sync", roofline, 0.6,
			b.v3Produce(), b.once(roofline, b.atRoof("none"), roofBatch...)),
		rate("P12", "P1 with 1,000 conns", roofline, 0.6,
			b.once(own, b.at("never", 1), many...), b.once(few, b.at("never", 1), single...),
			b.once(roofline, b.atRoof("none"), roofMany...)),
		rate("S4", "P1 over 10,000 partitions, against 1", few, 0.6,
			b.once(own, b.at("never", 10_000), single...), b.once(few, b.at("never", 1), single...)),
		rate("S5", "P3 over 1,000 partitions, against 1", few, 0.3,
			b.once(own, b.at("ack", 1000), single...), b.once(few, b.at("ack", 1), single...)),
	}
}

// v3Produce streams JSON records to the REST Proxy's version 3, whose path holds the cluster's id.
func (b *bench) v3Produce() contender {
	return contender{own, func(ctx context.Context) (result, error) {
		s, err := b.at("never", 1)(ctx)
		if s != nil {
			defer s.end()
		}
		if err != nil {
			return result{}, err
		}
		text, err := s.get("/v3/clusters")
		if err != nil {
			return result{}, err
		}
		_, after, _ := strings.Cut(text, `"cluster_id":"`)
		id, _, ok := strings.Cut(after, `"`)
		if !ok {
			return result{}, fmt.Errorf("no cluster id in %.200s", text)
		}
		path := "/v3/clusters/" + id + "/topics/bench/records"
		return b.drive(ctx, s, body(path, "restv3", "application/json", 100, 16, 1024)...)
	}}
}

func (b *bench) consumeRows() []*row {
	read := "/v1/topics/bench/partitions/0/records?offset={offset}&max_records=10000&max_bytes="
	ours := func(accept string, fill, size int) contender {
		args := append(body(v2Path, "restv2", jsonV2, 100, 4, size), "-w", "consume", "-fill", strconv.Itoa(fill),
			"-consume", read+strconv.Itoa(1<<20), "-next", "Next-Offset", "-accept", accept)
		return b.once(own, b.at("never", 1), args...)
	}
	roof := func(path string, fill, size int) contender {
		args := append(body("/append/json", "restv2", jsonV2, 100, 4, size), "-w", "consume", "-fill", strconv.Itoa(fill),
			"-consume", path+"?offset={offset}&max="+strconv.Itoa(1<<20), "-next", "Next-Offset")
		return b.once(roofline, b.atRoof("none"), args...)
	}
	return []*row{
		rate("C1", "consume JSON, 1 KiB, 4 conns, 1 MiB a response", roofline, 0.6,
			ours("application/json", 200_000, 1024), roof("/fetch/json", 200_000, 1024)),
		rate("C2", "consume JSON, 100 B, 4 conns, 1 MiB a response", roofline, 0.6,
			ours("application/json", 500_000, 100), roof("/fetch/json", 500_000, 100)),
		rate("C3", "consume raw batches, 1 KiB, 4 conns, 1 MiB", roofline, 0.6,
			ours(rawBatch, 200_000, 1024), roof("/fetch/raw", 200_000, 1024)),
	}
}
