package native

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"millrace/api/rawjson"
	"millrace/client"
	members "millrace/consumer"
)

// workEncoder writes records of several topics as JSON objects: as jsonEncoder, with the topic first.
type workEncoder struct{ json jsonEncoder }

func (e *workEncoder) append(dst []byte, r *members.Record) []byte {
	dst = append(dst, `{"topic":"`...)
	dst = append(dst, r.Topic...) // a topic name needs no escapes
	dst = append(dst, '"')
	at := len(dst)
	if e.json.decoder != nil {
		e.json.decoder.of(r.Topic)
	}
	dst = e.json.append(dst, r.Partition, &r.Record)
	dst[at] = ','
	return dst
}

// page answers a read by a member with a page of records.
func (g *workers) page(w http.ResponseWriter, r *http.Request, q *workQuery, form string) error {
	m, p, err := g.poll(r.Context(), q)
	moved := errors.Is(err, members.ErrMoved)
	switch {
	case moved && g.edge.ForwardGroup(w, r, q.config.Group):
		return nil
	case err != nil && (moved || r.Context().Err() != nil) && q.config.ID != "":
		// Nothing came of the wait; the next call finds the member.
		p, err = &members.Polled{Delivery: q.seen}, nil
	case err != nil:
		return workFault(err, q.config.Group, q.config.ID)
	}
	taken, err := g.writeWork(w, r, &workPage{p, q, form, m})
	if !taken && m != nil {
		m.Lost(p.Delivery, firstOffsets(p)...)
	}
	return err
}

// poll reads as a member, which joins or is found.
func (g *workers) poll(ctx context.Context, q *workQuery) (*members.Member, *members.Polled, error) {
	m, err := g.member(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	q.config.ID = m.ID()
	p, err := m.Poll(ctx, members.PollRequest{
		MaxRecords: q.maxRecords, MaxBytes: q.maxBytes, Wait: q.wait, Seen: q.seen, SaysSeen: q.saysSeen,
	})
	return m, p, err
}

// firstOffsets is where the records of a page begin in each partition.
func firstOffsets(p *members.Polled) (out []members.Offset) {
	seen := map[client.TopicPartition]bool{}
	for i := range p.Records {
		r := &p.Records[i]
		tp := client.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if !seen[tp] {
			seen[tp] = true
			out = append(out, members.Offset{TopicPartition: tp, Offset: r.Offset})
		}
	}
	return out
}

// workPage is a page for a member.
type workPage struct {
	*members.Polled
	query  *workQuery
	form   string
	member *members.Member // nil when it is not here any more
}

// writeWork encodes a page and sends it. It is taken when the client was there and the connection took all of it; a
// client that closes the connection afterwards has it nevertheless. An error means that nothing was written.
func (g *workers) writeWork(w http.ResponseWriter, r *http.Request, p *workPage) (taken bool, err error) {
	out := output{arena: g.edge.Arena()}
	defer out.arena.Free()
	s := g.takeScratch()
	defer g.keepScratch(s)
	e := workEncoder{json: jsonEncoder{
		key: p.query.key, value: p.query.value, lines: p.form == typeLines, decoder: s.decoder.begin(r.Context(), ""),
	}}
	out.reserve(minOutputBuffer)
	if p.form == typeJSON {
		out.buf = append(out.buf, `{"records":[`...)
	}
	for i := range p.Records {
		rec := &p.Records[i]
		out.reserve(2*payloadSize(&rec.Record) + 512)
		if i > 0 && p.form == typeJSON {
			out.buf = append(out.buf, ',')
		}
		if out.buf = e.append(out.buf, rec); p.form == typeLines {
			out.buf = append(out.buf, '\n')
		}
	}
	p.Free()
	next := nextRead(r, p.query.config.ID, p.Delivery)
	if p.form == typeJSON {
		if out.buf, err = p.appendEnd(out.buf, next); err != nil {
			return false, err
		}
	}
	h := w.Header()
	vary(h)
	h["Cache-Control"] = []string{"no-store"}
	h["Member"] = []string{headerValue(p.query.config.ID)}
	h["Delivery"] = []string{strconv.FormatInt(p.Delivery, 10)}
	if len(next) <= longNext {
		h["Link"] = []string{"<" + next + `>; rel="next"`}
	}
	gone := r.Context().Err() != nil
	err = g.guardBody(w, p.form, out.buf, func() {
		_, fault := w.Write(out.buf)
		if fault == nil {
			fault = http.NewResponseController(w).Flush()
		}
		taken = !gone && (fault == nil || errors.Is(fault, http.ErrNotSupported))
	})
	return taken, err
}

// appendEnd closes a page of JSON, with what the client needs next.
func (p *workPage) appendEnd(b []byte, next string) ([]byte, error) {
	var assignment []client.TopicPartition
	if p.member != nil {
		assignment = p.member.Assigned()
	}
	list, err := json.Marshal(assignedTopics(assignment))
	if err != nil {
		return nil, err
	}
	b = append(b, `],"group":`...)
	b = rawjson.AppendString(b, p.query.config.Group)
	b = append(b, `,"member":`...)
	b = rawjson.AppendString(b, p.query.config.ID)
	b = append(b, `,"delivery":`...)
	b = strconv.AppendInt(b, p.Delivery, 10)
	b = append(b, `,"assignment":`...)
	b = append(b, list...)
	b = append(b, `,"offsets":[`...)
	for i := range p.Offsets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDelivered(b, &p.Offsets[i])
	}
	b = append(b, ']')
	b = append(b, `,"next":`...)
	b = rawjson.AppendString(b, next)
	return append(b, '}', '\n'), nil
}

// appendDelivered appends an offset as a commit takes it.
func appendDelivered(b []byte, o *members.Offset) []byte {
	b = append(b, `{"topic":"`...)
	b = append(b, o.Topic...) // a topic name needs no escapes
	b = append(b, `","partition":`...)
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, o.Offset, 10)
	if o.From != nil {
		b = append(b, `,"from":`...)
		b = strconv.AppendInt(b, *o.From, 10)
	}
	return append(b, '}')
}

// headerValue is a text as the value of a header: in percent-encoding where it is not plain.
func headerValue(s string) string {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return escapeQuery(s)
		}
	}
	return s
}
