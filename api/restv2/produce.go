package restv2

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/record"
)

// What is kept between requests: the memory of so many of them with so many records each.
const (
	idleProduces = 64
	keptRecords  = 2048
)

// produce is one produce request being answered, in memory that the next one uses again. What it learns
// of the body are parts of the body; each record's bytes are copied once, into the batch.
type produce struct {
	inputs []input
	sent   []int32 // the place of inputs[i] among the records sent, -1 if it was not
	faults []error // of inputs[i]; shorter if none has any
	out    []byte

	schemas schemas // that the request names
	writers writers // with which its records are written
	encoded []byte  // the keys and values that they wrote
}

func (a *API) newProduce() *produce {
	select {
	case p := <-a.idle:
		return p
	default:
		return &produce{}
	}
}

// release keeps the memory of a request, unless it is very much, and nothing of what it held.
func (a *API) release(p *produce) {
	if cap(p.inputs) > keptRecords {
		return
	}
	clear(p.inputs)
	clear(p.faults)
	p.inputs, p.sent, p.faults, p.out = p.inputs[:0], p.sent[:0], p.faults[:0], p.out[:0]
	p.schemas, p.writers, p.encoded = schemas{}, writers{}, nil
	select {
	case a.idle <- p:
	default:
	}
}

func (a *API) produceToTopic(w http.ResponseWriter, r *http.Request) {
	a.produce(w, r, destination{api.PathParam(r, "topic"), client.AnyPartition})
}

func (a *API) produceToPartition(w http.ResponseWriter, r *http.Request) {
	text := api.PathParam(r, "partition")
	partition, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err != nil:
		a.fail(w, r, errNotANumber("partition", text))
	case partition < 0:
		a.fail(w, r, errPartitionNotFound)
	default:
		a.produce(w, r, destination{api.PathParam(r, "topic"), int32(partition)})
	}
}

// produce answers a produce request; to's partition takes the records that name none.
func (a *API) produce(w http.ResponseWriter, r *http.Request, to destination) {
	if _, keyed := r.Header[api.IdempotencyKey]; keyed && a.opts.Keyed != nil {
		once := func(w http.ResponseWriter, r *http.Request) { a.produceOnce(w, r, to) }
		a.opts.Keyed(api.KeyedRoute{Fail: a.fail}, once)(w, r)
		return
	}
	a.produceOnce(w, r, to)
}

// produceOnce is produce whatever key the request has.
func (a *API) produceOnce(w http.ResponseWriter, r *http.Request, to destination) {
	f, err := formatOf(r.Header.Get("Content-Type"))
	if err == nil {
		err = acceptable(r)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := a.edge.ReadBody(w, r, 0)
	defer body.Free()
	p := a.newProduce()
	defer a.release(p)
	if err == nil {
		p.inputs, err = parse(p.inputs, &p.schemas, body.Bytes, a.edge.Limits().Records)
	}
	switch {
	case err != nil:
	case f.hasSchema():
		err = a.encode(r.Context(), p, to.topic, f)
	default:
		err = decode(p.inputs, f)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	st := a.store(r.Context(), p, to, &body)
	st.judge(w)
	h := w.Header()
	h["Content-Type"] = a.contentType
	if len(p.out) > 1024 { // below, net/http counts by itself
		h["Content-Length"] = []string{strconv.Itoa(len(p.out))}
	}
	if st.code != http.StatusOK {
		w.WriteHeader(st.code)
	}
	_, _ = w.Write(p.out) // a client that has gone needs no answer
}

// destination is where the request's path leads.
type destination struct {
	topic     string
	partition int32
}

// store stores the request's records and composes the answer, whose status it returns.
func (a *API) store(ctx context.Context, p *produce, to destination, body *api.Body) status {
	topic, err := a.client.Topic(ctx, to.topic, client.Create)
	if err != nil {
		return p.refuse(err)
	}
	s := a.client.NewSender(topic, body.Arena(), len(body.Bytes), client.SendOptions{
		Acks: client.AcksAll, Timeout: a.opts.AckTimeout,
	})
	defer s.Release()
	now := a.edge.Now().UnixMilli()
	for i := range p.inputs {
		in := &p.inputs[i]
		partition := in.partition
		if partition < 0 {
			partition = to.partition
		}
		r := record.Record{Timestamp: now, Key: in.key, Value: in.value}
		if err := s.Add(r, partition); err != nil {
			p.fault(i, err)
			p.sent = append(p.sent, -1)
			continue
		}
		p.sent = append(p.sent, int32(s.Len()-1))
	}
	if s.Len() > 0 {
		if err := s.Send(ctx); err != nil {
			return p.refuse(err)
		}
	}
	return p.answer(s)
}

// fault notes why record i is not stored.
func (p *produce) fault(i int, err error) {
	for len(p.faults) <= i {
		p.faults = append(p.faults, nil)
	}
	p.faults[i] = err
}

// refuse composes the answer for records none of which is stored.
func (p *produce) refuse(err error) status {
	st := status{code: http.StatusOK}
	p.out = append(p.out, `{"offsets":[`...)
	for i := range p.inputs {
		if i > 0 {
			p.out = append(p.out, ',')
		}
		p.out = appendFault(p.out, err, &st)
	}
	p.appendSchemas()
	return st
}

// place is that in the request of a record by its place among those sent.
func (p *produce) place(sent int32) int { return slices.Index(p.sent, sent) }

// answer composes the answer from what became of the records.
func (p *produce) answer(s *client.Sender) status {
	st := status{code: http.StatusOK}
	p.out = append(p.out, `{"offsets":[`...)
	for i, k := range p.sent {
		if i > 0 {
			p.out = append(p.out, ',')
		}
		if k < 0 {
			p.out = appendFault(p.out, p.faults[i], &st)
			continue
		}
		at := s.Record(int(k))
		if at.Err != nil {
			p.out = appendFault(p.out, api.ErrorOfRecord(at.Err, p.place), &st)
			continue
		}
		st.stored = true
		p.out = append(p.out, `{"partition":`...)
		p.out = strconv.AppendInt(p.out, int64(at.Partition), 10)
		p.out = append(p.out, `,"offset":`...)
		p.out = strconv.AppendInt(p.out, at.Offset, 10)
		p.out = append(p.out, `,"error_code":null,"error":null}`...)
	}
	p.appendSchemas()
	return st
}

// status is an answer's HTTP status: 200, unless a record met a lack of rights; the first such decides. With it
// goes what the answer says of all records together.
type status struct {
	code                       int
	stored, unknown, retryable bool // of any of them
}

// judge tells whoever keeps the answer whether the request may be sent again: not where a record is stored, or may be.
func (s *status) judge(w http.ResponseWriter) {
	if s.unknown {
		api.Judge(w, api.Unknown, false)
		return
	}
	api.Judge(w, api.Failed, s.retryable && !s.stored)
}

func appendFault(dst []byte, err error, st *status) []byte {
	code := recordCode(err)
	fault := api.FromError(err).Fault
	st.unknown, st.retryable = st.unknown || fault.Outcome == api.Unknown, st.retryable || fault.Retryable
	if s := api.CompatStatus(code); st.code == http.StatusOK &&
		(s == http.StatusUnauthorized || s == http.StatusForbidden) {
		st.code = s
	}
	dst = append(dst, `{"partition":null,"offset":null,"error_code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"error":`...)
	dst = rawjson.AppendString(dst, api.FromError(err).Text())
	return append(dst, '}')
}
