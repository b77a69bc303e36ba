package main

import (
	"context"
	"fmt"
	"strconv"
)

// streamRows are the rows of live readers: end-to-end latency, fan-out, idle connections.
func (b *bench) streamRows() []*row {
	tail := []string{"-tail", v1Path, "-accept", "text/event-stream"}
	one := append(body(v2Path, "restv2", jsonV2, 1, 1, 200), tail...)
	roofOne := append(body("/append/json", "restv2", jsonV2, 1, 1, 200), "-tail", "/sse")
	latency := []string{"-w", "latency", "-rate", "1000"}
	p50 := func(r result) float64 { return r.P50 }
	p99 := func(r result) float64 { return r.P99 }
	l := func(id, what, sync, roofSync string, gate float64, q func(result) float64) *row {
		return &row{id: id, what: what, show: showLatency, judge: nearest(q, gate), contenders: []contender{
			b.once(own, b.at(sync, 1), append(latency, one...)...),
			b.once(nats, b.atNATS(sync == "ack"), "-w", "latency", "-rate", "1000", "-size", "200", "-target", "nats"),
			b.once(roofline, b.atRoof(roofSync), append(latency, roofOne...)...),
		}}
	}
	fan := func(name string, start func(context.Context) (*server, error), args []string) contender {
		return b.once(name, start, append([]string{"-w", "fanout", "-rate", "100", "-c", "1000"}, args...)...)
	}
	return []*row{
		l("L1", "end to end p50, 1,000/s, one SSE reader", "never", "none", 1.3, p50),
		l("L2", "end to end p99, 1,000/s, one SSE reader", "never", "none", 1.5, p99),
		l("L3", "end to end p50, 1,000/s, one SSE reader, synced", "ack", "group", 1.3, p50),
		{id: "F1", what: "SSE, 1,000 readers x 100/s: CPU a delivery", show: showCPU, judge: cpuWithin(1.3),
			contenders: []contender{
				fan(own, b.at("never", 1), append(body(v2Path, "restv2", jsonV2, 1, 1000, 200), tail...)),
				fan(roofline, b.atRoof("none"), append(body("/append/json", "restv2", jsonV2, 1, 1000, 200), "-tail", "/sse")),
			}},
		{id: "F4", what: "10,000 idle SSE readers: memory each, CPU", show: showIdle, judge: idleWithin(32, 0.1),
			contenders: []contender{
				b.idle(own, b.at("never", 1), v1Path, "text/event-stream"),
				b.idle(roofline, b.atRoof("none"), "/sse", ""),
			}},
	}
}

func (b *bench) atNATS(syncAlways bool) func(context.Context) (*server, error) {
	return func(ctx context.Context) (*server, error) { return b.natsd(ctx, syncAlways) }
}

// idle opens 10,000 readers of a topic to which nothing is written.
func (b *bench) idle(name string, start func(context.Context) (*server, error), path, accept string) contender {
	return contender{name, func(ctx context.Context) (result, error) {
		s, err := start(ctx)
		if s != nil {
			defer s.end()
		}
		if err != nil {
			return result{}, err
		}
		r, err := b.drive(ctx, s, "-w", "idle", "-c", "10000", "-tail", path, "-accept", accept)
		if err != nil {
			return r, err
		}
		// RSS 31.0 -> 310.2 MiB: 28.6 KiB a connection; ...
		_, err = fmt.Sscanf(r.Note, "RSS %f -> %f MiB: %f KiB", new(float64), new(float64), &r.KiBEach)
		return r, err
	}}
}

// nearest is the gate of latencies: within a factor of NATS, or one millisecond of roofline.
func nearest(q func(result) float64, gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		mine, theirs, roof := q(m(own)), q(m(nats)), q(m(roofline))
		v := verdict{met: roof > 0 && mine-roof <= 1000}
		if theirs > 0 {
			v.met = v.met || mine/theirs <= gate
			v.text = fmt.Sprintf("%.2f of nats, gate %.1f; ", mine/theirs, gate)
		}
		v.text += fmt.Sprintf("roofline %+.2f ms, gate +1", (mine-roof)/1000)
		return v
	}
}

// cpuWithin is the gate of CPU a record, or a delivery, against roofline's.
func cpuWithin(gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		mine, roof := m(own).ServerCPUPerMRec, m(roofline).ServerCPUPerMRec
		if roof == 0 {
			return verdict{text: "roofline is missing", open: true}
		}
		return verdict{text: fmt.Sprintf("%.2f of roofline's CPU, gate %.2f", mine/roof, gate), met: mine/roof <= gate}
	}
}

// idleWithin is the gate of memory each and of all CPU while nothing happens.
func idleWithin(kib, cores float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		r := m(own)
		return verdict{
			text: fmt.Sprintf("%.1f KiB each, gate %s; %.4f cores, gate %s", r.KiBEach, trim(kib), r.ServerCores, trim(cores)),
			met:  r.KiBEach <= kib && r.ServerCores <= cores,
		}
	}
}

func trim(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
