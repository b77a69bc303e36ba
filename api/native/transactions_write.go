package native

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// txnRequest is what a produce request says of its transaction.
type txnRequest struct {
	id    string
	epoch int16
	given bool // the epoch
	once  bool // the transaction is the request's own
}

// ownTopics says whether each record names its own topic.
func (q *produceRequest) ownTopics() bool { return q.txn != nil && q.topic == "" }

// setTxnParameter reads what only a produce in a transaction has.
func (q *produceRequest) setTxnParameter(name, value string) (err error) {
	switch name {
	case "topic":
		q.topic = value
		return client.CheckTopicName(value)
	case "epoch":
		q.txn.given = true
		q.txn.epoch, err = epochOf(value)
		return err
	}
	return api.Refuse(api.InvalidParameter,
		"unknown parameter %q; known are topic, epoch, key, partition, acks and timestamp", name)
}

// parseTxnProducer reads which request of its transaction this one is.
func (q *produceRequest) parseTxnProducer() error {
	switch {
	case q.idempotencyKey != "":
		return api.Refuse(api.InvalidParameter, "Idempotency-Key does not go with records of a transaction: Producer-Seq "+
			"makes their requests safe to repeat")
	case q.producerID != nil || q.producerEpoch != nil:
		return api.Refuse(api.InvalidParameter, "Producer-Id and Producer-Epoch do not go with a transaction: its id and "+
			"epoch stand for them; Producer-Seq counts its requests")
	case q.producerSeq == nil:
		return nil
	}
	q.producer, q.hasProducer = client.NamedProducer{Name: q.txn.id, Epoch: q.txn.epoch, Once: true}, true
	return q.parseSeq()
}

// checkTxn checks what goes together in a transaction.
func (q *produceRequest) checkTxn() error {
	switch {
	case !q.txn.given && !q.txn.once:
		return api.Refuse(api.InvalidParameter, "parameter epoch is missing: it is what the begin has answered")
	case q.acks != client.AcksAll:
		return api.Refuse(api.InvalidParameter, "in a transaction acks is all")
	case q.expected != nil:
		return api.Refuse(api.InvalidParameter, "Expected-Offset does not go with a transaction")
	case q.form == bodyBatches:
		return api.Refuse(api.UnsupportedMediaType,
			"record batches have producers of their own: into a transaction send records")
	case q.topic == "" && q.form != bodyRecords && q.form != bodyRecordLines:
		return api.Refuse(api.InvalidParameter, "parameter topic is missing; without it send full records, as "+
			"application/vnd.millrace.records+json, each with its topic")
	}
	return nil
}

// records writes records in a transaction.
func (t *transactions) records(w http.ResponseWriter, r *http.Request) error {
	id, err := clientID(r)
	if err != nil {
		return err
	}
	j := &produceJob{}
	j.txn = &txnRequest{id: id}
	if err := j.produceRequest.parse(r, t.edge.Now); err != nil {
		return err
	}
	j.producer.Epoch = j.txn.epoch
	j.whole, err = t.edge.ReadBody(w, r, 0)
	defer j.whole.Free()
	if err != nil {
		return err
	}
	j.intake.begin(t.edge, &j.produceRequest, &j.whole)
	if err := j.intake.read(); err != nil {
		return err
	}
	if err := j.intake.encode(r.Context(), t.producer.serde); err != nil {
		return err
	}
	parts, err := t.prepare(r.Context(), j)
	if err != nil {
		return err
	}
	err = t.as(r.Context(), id, j.txn.epoch, func(p client.TxnProducer) error {
		return t.write(r.Context(), j, parts, p)
	})
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonHeader
	_, _ = w.Write(j.text)
	return nil
}

// txnPart is what a request writes to one topic.
type txnPart struct {
	topic   *client.Topic
	records []int32 // their places in the request
	batches []client.BatchResult
	err     error // nothing was sent
}

// prepare finds the topics, of which none is made unless all can be.
func (t *transactions) prepare(ctx context.Context, j *produceJob) ([]*txnPart, error) {
	byName := make(map[string]*txnPart)
	var parts []*txnPart
	for i := range j.intake.records {
		name := j.topic
		if name == "" {
			name = j.topics[i]
		}
		p := byName[name]
		if p == nil {
			p = &txnPart{}
			topic, err := t.topic(ctx, name)
			if err != nil {
				return nil, j.place(i, err)
			}
			p.topic = topic
			byName[name], parts = p, append(parts, p)
		}
		if at := j.partitions[i]; at != client.AnyPartition {
			if err := p.topic.Has(at); err != nil {
				return nil, j.place(i, err)
			}
		}
		p.records = append(p.records, int32(i))
	}
	for _, p := range parts {
		topic, err := t.client.Topic(ctx, p.topic.Name, client.Create)
		if err != nil {
			return nil, err
		}
		p.topic = topic
	}
	return parts, nil
}

// topic is a topic that is there, or as it would be made.
func (t *transactions) topic(ctx context.Context, name string) (*client.Topic, error) {
	topic, err := t.client.Topic(ctx, name, client.Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		topic, err = t.client.PlannedTopic(ctx, name)
	}
	if errors.Is(err, kerr.TopicAlreadyExists) { // it was made a moment ago, and this node is to hear of it yet
		topic, err = t.client.Topic(ctx, name, client.Create)
	}
	return topic, err
}

// maxTopicsAtOnce bounds the topics that one request writes to at a time.
const maxTopicsAtOnce = 16

// write writes the records of a request as a producer's, and the answer into j.text.
func (t *transactions) write(ctx context.Context, j *produceJob, parts []*txnPart, p client.TxnProducer) error {
	for some := range slices.Chunk(parts, maxTopicsAtOnce) {
		var wg sync.WaitGroup
		for _, part := range some[1:] {
			wg.Go(func() { t.writePart(ctx, j, part, p) })
		}
		t.writePart(ctx, j, some[0], p)
		wg.Wait()
	}
	return j.tellParts(parts)
}

func (t *transactions) writePart(ctx context.Context, j *produceJob, part *txnPart, p client.TxnProducer) {
	o := client.SendOptions{Acks: client.AcksAll, Timeout: t.producer.timeout, CheckAll: true, Txn: &p}
	if j.txn.once {
		o.Timeout = min(o.Timeout, onceProduce)
	}
	if j.hasProducer && p.ByRequest() {
		np := j.producer
		np.Txn = &p
		o.Producer = &np
	}
	size := 0
	for _, i := range part.records {
		size += len(j.intake.records[i].Value)
	}
	s := t.client.NewSender(part.topic, nil, size, o)
	defer s.Release()
	for _, i := range part.records {
		if part.err = s.Add(j.intake.records[i], j.partitions[i]); part.err != nil {
			part.err = j.place(int(i), part.err)
			return
		}
	}
	if part.err = s.Send(ctx); part.err == nil {
		part.batches = slices.Clone(s.Batches())
	}
	for k := range part.batches { // records at fault are told by their places in the request
		var f *client.KafkaError
		if errors.As(part.batches[k].Err, &f) {
			for n := range f.Records {
				f.Records[n].Index = part.records[f.Records[n].Index]
			}
		}
	}
}

// tellParts writes the answer for what became of the batches of all topics.
func (j *produceJob) tellParts(parts []*txnPart) error {
	var all []client.BatchResult
	j.fateTopics = nil
	failed := false
	for _, part := range parts {
		if part.err != nil {
			return part.err
		}
		for i := range part.batches {
			failed = failed || part.batches[i].Err != nil
			all, j.fateTopics = append(all, part.batches[i]), append(j.fateTopics, part.topic.Name)
		}
	}
	for i := range all {
		if err := all[i].Err; isFenced(err) || errors.Is(err, kerr.InvalidProducerIDMapping) {
			return err // of the transaction as a whole
		}
	}
	if failed {
		return j.failure(all)
	}
	dst := append(j.text[:0], `{"offsets":[`...)
	dst = j.appendParts(dst, all)
	j.text = append(dst, "]}\n"...)
	return nil
}

// appendParts appends the entries of offsets.
func (j *produceJob) appendParts(dst []byte, all []client.BatchResult) []byte {
	for i := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		at := len(dst)
		dst = j.appendBatchResult(dst, &all[i])
		dst = slices.Insert(dst, at+1, []byte(`"topic":"`+j.fateTopics[i]+`",`)...) // a name that needs no escapes
		dst = append(dst, '}')
	}
	return dst
}

// txnOffset is an offset that goes with a transaction.
type txnOffset struct {
	Group     *string `json:"group"`
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
	Offset    *int64  `json:"offset"`
	Metadata  *string `json:"metadata"`
	Member    *string `json:"member"`
	Epoch     *int32  `json:"epoch"`
	From      *int64  `json:"from"`
}

// who is the group and the member of an offset.
type who struct {
	group, member string
	epoch         int32
}

// commitsOf makes one commit for each group and member.
func commitsOf(offsets []txnOffset) ([]client.GroupCommit, error) {
	if len(offsets) > maxCommitOffsets {
		return nil, api.Refuse(api.MalformedBody, "at most %d offsets can be committed at once", maxCommitOffsets)
	}
	places := make(map[who]int)
	type at struct {
		group string
		client.TopicPartition
	}
	seen := make(map[at]bool)
	var out []client.GroupCommit
	for i := range offsets {
		o := &offsets[i]
		if err := o.check(); err != nil {
			return nil, err
		}
		w := who{group: *o.Group, epoch: -1}
		if o.Member != nil {
			w.member = *o.Member
		}
		if o.Epoch != nil {
			w.epoch = *o.Epoch
		}
		tp := client.TopicPartition{Topic: *o.Topic, Partition: *o.Partition}
		if seen[at{w.group, tp}] {
			return nil, api.Refuse(api.MalformedBody, "%v of group %q is there twice", tp, w.group)
		}
		seen[at{w.group, tp}] = true
		n, ok := places[w]
		if !ok {
			n = len(out)
			places[w], out = n, append(out, client.GroupCommit{
				Group: w.group, Member: w.member, Epoch: w.epoch, Held: w.member != "",
			})
		}
		c := client.CommittedOffset{TopicPartition: tp, Offset: *o.Offset, LeaderEpoch: -1, From: o.From}
		if o.Metadata != nil {
			c.Metadata = *o.Metadata
		}
		out[n].Offsets = append(out[n].Offsets, c)
	}
	return out, nil
}

func (o *txnOffset) check() error {
	switch {
	case o.Group == nil:
		return api.Required("offsets.group")
	case o.Topic == nil:
		return api.Required("offsets.topic")
	case o.Partition == nil:
		return api.Required("offsets.partition")
	case o.Offset == nil:
		return api.Required("offsets.offset")
	case *o.Partition < 0 || *o.Offset < 0:
		return api.Refuse(api.MalformedBody, "partition and offset are 0 or more")
	case o.From != nil && *o.From < -1:
		return errBadFrom
	case o.Epoch != nil && o.Member == nil:
		return api.Refuse(api.MalformedBody, "an epoch is of a member: give member too")
	case o.Epoch != nil && *o.Epoch < 0:
		return api.Refuse(api.MalformedBody, "epoch is 0 or more")
	case o.Member != nil && (*o.Member == "" || len(*o.Member) > maxNameBytes):
		return api.Refuse(api.MalformedBody, "member has 1 to %d bytes", maxNameBytes)
	case *o.Group == "" || len(*o.Group) > maxNameBytes:
		return api.Refuse(api.MalformedBody, "group has 1 to %d bytes", maxNameBytes)
	}
	return client.CheckTopicName(*o.Topic)
}

// enroll finds the epochs of members that are named without one: a worker over HTTP does not see its own.
func (t *transactions) enroll(ctx context.Context, commits []client.GroupCommit) error {
	for i := range commits {
		c := &commits[i]
		if c.Member == "" || c.Epoch >= 0 {
			continue
		}
		g, err := t.client.DescribeGroup(ctx, c.Group)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(g.Members, func(m client.GroupMember) bool { return m.ID == c.Member })
		if at < 0 {
			return api.Refuse(api.KafkaFault(kerr.UnknownMemberID), "group %q has no member %q: it left, its session ended, "+
				"or it never joined", c.Group, c.Member)
		}
		if c.Epoch = g.Members[at].Epoch; c.Epoch < 0 {
			return api.Refuse(api.MalformedBody,
				"member %q of group %q speaks the classic protocol: give its generation as epoch", c.Member, c.Group)
		}
	}
	return nil
}

// commitOffsets puts offsets into a transaction. The error is the first one.
func (t *transactions) commitOffsets(ctx context.Context, commits []client.GroupCommit, p client.TxnProducer) error {
	for i := range commits {
		if err := t.commitGroup(ctx, &commits[i], p); err != nil {
			return err
		}
	}
	return nil
}

// commitGroup puts the offsets of one group into a transaction, again while the producer's last one is ending, or
// another one that has committed for the same partitions.
func (t *transactions) commitGroup(ctx context.Context, c *client.GroupCommit, p client.TxnProducer) error {
	for try := 1; ; try++ {
		errs, err := t.client.CommitTxnOffsets(ctx, p, *c)
		if err != nil {
			return err
		}
		if err = firstOf(errs); err == nil {
			return nil
		}
		ending := errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.UnstableOffsetCommit)
		if !ending || try == concurrentTries {
			return t.ofGroup(err, c)
		}
		if err := pauseFor(ctx, concurrentPause); err != nil {
			return err
		}
	}
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ofGroup says which group has refused its offsets.
func (t *transactions) ofGroup(err error, c *client.GroupCommit) error {
	if isFenced(err) || errors.Is(err, kerr.InvalidProducerIDMapping) {
		return err
	}
	e := *api.FromError(err)
	e.Cause = err
	switch {
	case c.Member == "" && errors.Is(err, kerr.UnknownMemberID):
		e.Detail = "the group has members: name the one whose offsets these are"
	case c.Member != "" && errors.Is(err, kerr.FencedMemberEpoch):
		fault := *e.Fault
		fault.Advice = "Drop what was made of its records: whoever has the partition gets them again. " +
			"Read on as a new member."
		e.Fault = &fault
		e.Detail = "member " + strconv.Quote(c.Member) + " does not have " + partitionOf(err) + ", or not any more"
	}
	e.Detail = "group " + c.Group + ": " + e.Detail
	return e.With("group", c.Group)
}

// partitionOf names the partition that an error is about.
func partitionOf(err error) string {
	var k *client.KafkaError
	if errors.As(err, &k) && k.Topic != "" {
		return client.TopicPartition{Topic: k.Topic, Partition: k.Partition}.String()
	}
	return "a partition"
}

// offsets has offsets of groups be committed with a transaction.
func (t *transactions) offsets(w http.ResponseWriter, r *http.Request) error {
	id, err := clientID(r)
	if err != nil {
		return err
	}
	query, err := onlyParameters(r, "epoch")
	if err != nil {
		return err
	}
	epoch, err := epochOf(query.Get("epoch"))
	if err != nil {
		return err
	}
	if err := jsonBody(r); err != nil {
		return err
	}
	var in struct {
		Offsets []txnOffset `json:"offsets"`
	}
	body, err := t.edge.ReadBody(w, r, 0)
	defer body.Free()
	if err == nil {
		err = api.Decode(body.Bytes, &in)
	}
	if err != nil {
		return err
	}
	commits, err := commitsOf(in.Offsets)
	switch {
	case err != nil:
		return err
	case len(commits) == 0:
		return api.Required("offsets")
	}
	if err := t.enroll(r.Context(), commits); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	err = t.as(ctx, id, epoch, func(p client.TxnProducer) error { return t.commitOffsets(ctx, commits, p) })
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
