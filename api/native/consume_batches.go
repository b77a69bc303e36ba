package native

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

// readBatches answers with stored batches as they are, from the one that holds the offset asked for. They go from the
// fetched memory to the connection.
func (k *consumer) readBatches(w http.ResponseWriter, r *http.Request, topic *client.Topic, partition int32,
	q *readQuery) error {
	if partition == allPartitions {
		if len(topic.Partitions) != 1 {
			return badQuery("topic %s has %d partitions, and batches do not say of which they are: read "+
				"/v1/topics/%s/partitions/{partition}/records", topic.Name, len(topic.Partitions), topic.Name)
		}
		partition = 0
	}
	places, err := start(r.Context(), k.client, topic, partition, q)
	if err != nil {
		return err
	}
	arena := k.edge.Arena()
	defer arena.Free()
	at := &places[0]
	batches, err := k.fetchBatches(record.WithArena(r.Context(), arena), topic, at, q)
	if err != nil {
		return err
	}
	from := at.next
	if batches, at.next, err = wholeBatches(batches, from, q.maxRecords); err != nil {
		return unreadable(topic, *at, err, at.position(topic))
	}
	h := w.Header()
	next := at.position(topic)(at.next).String()
	h["Next"] = []string{next}
	h["Link"] = []string{nextLink(r, next)}
	setPlaceHeaders(h, at)
	if at.hasMore() && len(batches) > 0 {
		hash := mix(mix(hashBatches(0, batches, at.next), uint64(from)), uint64(partition))
		if sealAnswer(h, r, q, `"`+strconv.FormatUint(hash, 36)+`"`) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	} else {
		h["Cache-Control"] = []string{"no-store"}
	}
	return k.writeBody(w, typeBatches, batches)
}

// position gives written positions in the one partition.
func (p *place) position(t *client.Topic) func(offset int64) position {
	return func(offset int64) position {
		return position{partition: p.partition, offsets: []int64{offset}, tag: topicTag(t.ID)}
	}
}

// fetchBatches fetches once, or waits until there is something, the wait is over or the server stops.
func (k *consumer) fetchBatches(ctx context.Context, topic *client.Topic, at *place, q *readQuery) ([]byte, error) {
	deadline := time.Now().Add(q.wait)
	for range maxPageFetches {
		wait := untilDeadline(deadline)
		results, err := k.client.Fetch(ctx, client.FetchRequest{
			Topic: topic, MaxWait: wait, MinBytes: 1, MaxBytes: q.maxBytes,
			ReadCommitted: q.isolation == client.ReadCommitted, Rack: q.rack,
			Partitions: []client.FetchPartition{{Partition: at.partition, Offset: at.next}},
		})
		if err != nil && ctx.Err() != nil && q.wait > 0 {
			return nil, nil
		}
		if err == nil {
			err = results[0].Err
		}
		if err != nil && wait > firstRetry && mayPass(err) && pause(ctx, firstRetry) {
			continue
		}
		if err != nil && len(results) == 0 {
			return nil, err
		}
		f := &results[0]
		if errors.Is(f.Err, kerr.OffsetOutOfRange) {
			return nil, fetchedOutOfRange(ctx, k.client, topic, *at, f)
		}
		if isDamage(f.Err) {
			return nil, unreadable(topic, *at, f.Err, at.position(topic))
		}
		if f.Err != nil {
			return nil, f.Err
		}
		at.saw(f, q.isolation)
		if len(f.Batches) > 0 || wait == 0 {
			return f.Batches, nil
		}
	}
	return nil, nil
}

// wholeBatches cuts off what no longer is a whole batch, and batches after so many records; the first batch stays
// however many it has. next is the offset after the last. The error tells of a first batch that is none.
func wholeBatches(fetched []byte, from int64, maxRecords int) (batches []byte, next int64, err error) {
	next = from
	size, records := 0, 0
	for {
		b, rest, err := record.Next(fetched[size:])
		if size == 0 && errors.Is(err, record.ErrCorrupt) {
			return nil, from, err
		}
		if err != nil || (size > 0 && records+int(b.Count()) > maxRecords) {
			return fetched[:size], next, nil
		}
		size = len(fetched) - len(rest)
		records += int(b.Count())
		next = max(next, b.NextOffset())
	}
}
