package native

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry/serde"
)

// producer serves produce. It is safe for concurrent use.
type producer struct {
	edge    *api.Edge
	client  *client.Client
	timeout time.Duration
	keys    *idempotency
	serde   *serde.Serde // nil: there is no schema registry
	jobs    sync.Pool    // of *produceJob
}

func newProducer(o Options) *producer {
	return &producer{edge: o.Edge, client: o.Client, timeout: o.ProduceTimeout, serde: o.Serde}
}

// produceJob is the work on one request. It is used again for others.
type produceJob struct {
	produceRequest
	intake
	whole api.Body
	text  []byte // the answer
	// fateTopics are the topics of the batches that an answer tells of, where there may be several.
	fateTopics []string
	clock      clock
}

// routed answers POST /v1/topics/{topic}/records.
func (p *producer) routed(w http.ResponseWriter, r *http.Request) {
	p.serve(w, r, api.PathParam(r, "topic"))
}

// serve is routed for a topic that is known already.
func (p *producer) serve(w http.ResponseWriter, r *http.Request, topic string) {
	if p.keys.store != nil && attemptOf(r.Context()) == nil {
		if _, keyed := r.Header[keyHeader]; keyed && len(r.Header["Producer-Id"]) == 0 {
			p.keys.wrap(again, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, topic) })(w, r)
			return
		}
	}
	j, _ := p.jobs.Get().(*produceJob)
	if j == nil {
		j = &produceJob{}
	}
	j.topic = topic
	err := p.produce(w, r, j)
	if err != nil {
		p.edge.Fail(w, r, err)
	}
	j.produceRequest.reset()
	j.fateTopics = nil
	if j.intake.reset() {
		p.jobs.Put(j)
	}
}

// jsonHeader is the preset value of Content-Type; nobody changes it.
var jsonHeader = []string{"application/json"}

func (p *producer) produce(w http.ResponseWriter, r *http.Request, j *produceJob) error {
	if err := j.produceRequest.parse(r, p.edge.Now); err != nil {
		return err
	}
	var err error
	j.whole, err = p.edge.ReadBody(w, r, 0)
	defer j.whole.Free()
	if err != nil {
		return err
	}
	if j.form == bodyBatches {
		err = p.storeBatches(r.Context(), j, &j.whole)
	} else {
		err = p.storeRecords(r.Context(), j, &j.whole)
	}
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonHeader
	_, _ = w.Write(j.text) // a client that has gone needs no answer
	return nil
}

// storeRecords reads the body into records and, when all of it is good, stores them.
func (p *producer) storeRecords(ctx context.Context, j *produceJob, body *api.Body) error {
	j.intake.begin(p.edge, &j.produceRequest, body)
	if err := j.intake.read(); err != nil {
		return err
	}
	if err := j.intake.encode(ctx, p.serde); err != nil {
		return err
	}
	topic, err := p.topic(ctx, j)
	if err != nil {
		return err
	}
	s := p.client.NewSender(topic, body.Arena(), len(body.Bytes), j.sendOptions(p.timeout))
	defer s.Release()
	if err := j.fill(s, topic); err != nil {
		return err
	}
	if err := s.Send(ctx); err != nil {
		return err
	}
	return j.tell(s.Batches())
}

// fill gives the records to s, and checks where they are to go.
func (j *produceJob) fill(s *client.Sender, topic *client.Topic) error {
	for i := range j.records {
		anywhere := j.partitions[i] == client.AnyPartition && j.records[i].Key == nil && len(topic.Partitions) > 1
		if anywhere && j.expected != nil {
			return j.place(i, api.Refuse(api.InvalidParameter, "Expected-Offset is about one partition, and topic %s has %d: "+
				"name the partition with ?partition=", topic.Name, len(topic.Partitions)))
		}
		if err := s.Add(j.records[i], j.partitions[i]); err != nil {
			return j.place(i, err)
		}
	}
	if j.expected != nil && s.Partitions() > 1 {
		return api.Refuse(api.InvalidParameter,
			"Expected-Offset is about one partition, but the records go to several: name the partition with ?partition=")
	}
	return nil
}

// topic finds the request's topic, or creates it when nothing about the places of its records is wrong.
func (p *producer) topic(ctx context.Context, j *produceJob) (*client.Topic, error) {
	topic, err := p.client.Topic(ctx, j.topic, client.Refuse)
	if err == nil || !errors.Is(err, kerr.UnknownTopicOrPartition) || j.expected != nil && *j.expected > 0 {
		return topic, err
	}
	planned, err := p.client.PlannedTopic(ctx, j.topic)
	switch {
	case errors.Is(err, kerr.InvalidTopicException):
		return nil, err
	case err != nil: // what follows says it, or that topics are not created for being used
	case j.form == bodyBatches:
		err = planned.Has(j.partition)
	default:
		s := p.client.NewSender(planned, nil, 0, j.sendOptions(p.timeout))
		defer s.Release()
		err = j.fill(s, planned)
	}
	if err != nil && planned != nil {
		return nil, err
	}
	return p.client.Topic(ctx, j.topic, client.Create)
}

// tell writes the answer for what became of the batches.
func (j *produceJob) tell(batches []client.BatchResult) error {
	for i := range batches {
		if batches[i].Err != nil {
			return j.failure(batches)
		}
	}
	dst := append(j.text[:0], `{"offsets":[`...)
	for i := range batches {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = j.appendBatchResult(dst, &batches[i])
		dst = append(dst, '}')
	}
	j.text = append(dst, "]}\n"...)
	return nil
}

// appendBatchResult appends one entry of offsets without its closing brace.
func (j *produceJob) appendBatchResult(dst []byte, b *client.BatchResult) []byte {
	dst = append(dst, `{"partition":`...)
	dst = strconv.AppendInt(dst, int64(b.Partition), 10)
	dst = append(dst, `,"base_offset":`...)
	if b.BaseOffset < 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, b.BaseOffset, 10)
	}
	dst = append(dst, `,"count":`...)
	if b.Count < 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, int64(b.Count), 10)
	}
	dst = append(dst, `,"timestamp":`...)
	if b.Timestamp == -1 { // forgotten, or of records that have none
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '"')
		dst = j.clock.append(dst, min(max(b.Timestamp, minInstant), maxInstant))
		dst = append(dst, '"')
	}
	if b.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	return dst
}

// storeBatches stores the record batches of the body as they are.
func (p *producer) storeBatches(ctx context.Context, j *produceJob, body *api.Body) error {
	batches, err := splitBatches(p.edge, body.Bytes)
	if err != nil {
		return err
	}
	opts := j.sendOptions(p.timeout)
	if j.oneBatch() && len(batches) > 1 {
		return api.Refuse(api.InvalidParameter,
			"the body holds %d batches, but with %s there may be one", len(batches), oneBatchHeaders)
	}
	topic, err := p.topic(ctx, j)
	if err != nil {
		return err
	}
	if err := topic.Has(j.partition); err != nil {
		return err
	}
	results, err := p.client.SendBatches(ctx, topic, j.partition, batches, opts)
	if err != nil {
		return err
	}
	return j.tell(results)
}

// splitBatches finds the batches of a body. What was read from a log has offsets, which the new leader gives anew, and
// may have a producer, whose sequence means nothing here: kept, it would make another's batch a duplicate. A single
// batch that stays as it is is checked by the leader alone.
func splitBatches(e *api.Edge, body []byte) ([]record.Batch, error) {
	if len(body) == 0 {
		return nil, api.Refuse(api.MalformedBody, "the body is empty, but a record batch is wanted")
	}
	var out []record.Batch
	count := 0
	for rest := body; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err == nil && (len(b) < len(body) || b.ProducerID() >= 0) {
			err = b.Verify()
		}
		if err != nil {
			return nil, api.Refuse(api.MalformedBody, "batch %d, at byte %d: %v", len(out)+1, len(body)-len(rest)+1, err)
		}
		if b.IsTransactional() {
			return nil, api.Refuse(api.UnprocessableBody,
				"batch %d belongs to a transaction, of which this batch alone says nothing: send its records, to "+
					"/v1/transactions if they are to be written in one", len(out)+1)
		}
		if count += max(int(b.Count()), 0); count > e.Limits().Records {
			return nil, tooManyRecords(e)
		}
		b.SetBaseOffset(0)
		if b.ProducerID() >= 0 {
			b.SetProducer(-1, -1, -1)
		}
		out = append(out, b)
		rest = next
	}
	return out, nil
}
