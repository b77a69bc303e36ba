package native

import (
	"encoding/json"
	"net/http"
	"strconv"

	"millrace/api/rawjson"
	members "millrace/consumer"
)

// workEncoder writes records of several topics as JSON objects: as jsonEncoder, with the topic first.
type workEncoder struct {
	json  jsonEncoder
	topic string
}

func (e *workEncoder) append(dst []byte, r *members.Record) []byte {
	dst = append(dst, `{"topic":"`...)
	dst = append(dst, r.Topic...) // a topic name needs no escapes
	dst = append(dst, '"')
	at := len(dst)
	dst = e.json.append(dst, r.Partition, &r.Record)
	dst[at] = ','
	return dst
}

// page answers a read by a member with a page of records.
func (g *workers) page(w http.ResponseWriter, r *http.Request, q *workQuery, form string) error {
	ctx := r.Context()
	m, err := g.member(ctx, q)
	if err != nil {
		return workFault(err, q.config.Group, q.config.ID)
	}
	p, err := m.Poll(ctx, members.PollRequest{
		MaxRecords: q.maxRecords, MaxBytes: q.maxBytes, Wait: q.wait, Seen: q.seen, SaysSeen: q.saysSeen,
	})
	if err != nil {
		return workFault(err, q.config.Group, m.ID())
	}
	out := output{arena: g.edge.Arena()}
	defer out.arena.Free()
	e := workEncoder{json: jsonEncoder{key: q.key, value: q.value, lines: form == typeLines}}
	out.reserve(minOutputBuffer)
	if form == typeJSON {
		out.buf = append(out.buf, `{"records":[`...)
	}
	for i := range p.Records {
		rec := &p.Records[i]
		out.reserve(2*payloadSize(&rec.Record) + 512)
		if i > 0 && form == typeJSON {
			out.buf = append(out.buf, ',')
		}
		if out.buf = e.append(out.buf, rec); form == typeLines {
			out.buf = append(out.buf, '\n')
		}
	}
	p.Free()
	next := nextRead(r, m.ID(), p.Delivery)
	if form == typeJSON {
		if out.buf, err = g.appendWorkEnd(out.buf, r, m, p, next); err != nil {
			return err
		}
	}
	h := w.Header()
	vary(h)
	h["Cache-Control"] = []string{"no-store"}
	h["Member"] = []string{headerValue(m.ID())}
	h["Delivery"] = []string{strconv.FormatInt(p.Delivery, 10)}
	if len(next) <= longNext {
		h["Link"] = []string{"<" + next + `>; rel="next"`}
	}
	return g.writeBody(w, form, out.buf)
}

// appendWorkEnd closes a page of JSON, with what the client needs next.
func (g *workers) appendWorkEnd(b []byte, r *http.Request, m *members.Member, p *members.Polled, next string) (
	[]byte, error,
) {
	assignment, err := m.Assignment(r.Context())
	if err != nil {
		assignment = nil // the records are the client's all the same
	}
	list, err := json.Marshal(assignedTopics(assignment))
	if err != nil {
		return nil, err
	}
	b = append(b, `],"group":`...)
	b = rawjson.AppendString(b, m.Group())
	b = append(b, `,"member":`...)
	b = rawjson.AppendString(b, m.ID())
	b = append(b, `,"delivery":`...)
	b = strconv.AppendInt(b, p.Delivery, 10)
	b = append(b, `,"assignment":`...)
	b = append(b, list...)
	b = append(b, `,"next":`...)
	b = rawjson.AppendString(b, next)
	return append(b, '}', '\n'), nil
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
