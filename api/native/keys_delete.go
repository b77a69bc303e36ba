package native

import (
	"net/http"
	"strconv"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// remove writes a tombstone for a key, and answers when all replicas in sync have it.
func (k *keyed) remove(w http.ResponseWriter, r *http.Request) error {
	q, err := k.parse(r, "partition", "key_encoding")
	if err != nil {
		return err
	}
	if err := k.find(r.Context(), api.PathParam(r, "topic"), q); err != nil {
		return err
	}
	arena := k.edge.Arena()
	defer arena.Free()
	s := k.client.NewSender(q.topic, arena, len(q.key), client.SendOptions{Acks: client.AcksAll, Timeout: k.timeout})
	defer s.Release()
	tombstone := record.Record{Key: q.key, Timestamp: k.edge.Now().UnixMilli()}
	if err := s.Add(tombstone, q.partition); err != nil {
		return err
	}
	if err := s.Send(r.Context()); err != nil {
		return err
	}
	stored := s.Record(0)
	if stored.Err != nil {
		return stored.Err
	}
	body := append([]byte(`{"partition":`), strconv.Itoa(int(stored.Partition))...)
	body = append(body, `,"offset":`...)
	body = strconv.AppendInt(body, stored.Offset, 10)
	body = append(body, `,"timestamp":"`...)
	body = append(body, instant(min(max(stored.Timestamp, minInstant), maxInstant))...)
	return k.consumer.writeBody(w, typeJSON, append(body, "\"}\n"...))
}
