package restv2

import (
	"errors"

	"millrace/api"
	"millrace/client"
	"millrace/consumer"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// decodedBytes bounds the JSON of an answer that was decoded by schemas: it may be much longer than what it was decoded
// from. One record always fits.
const decodedBytes = 16 << 20

// decoder decodes keys and values by their schemas while a poll asks which records it may hand out, so that each is
// decoded once.
type decoder struct {
	serde   *serde.Serde
	readers map[string]*[2]*serde.Reader // by topic and part

	text []byte          // the JSON of records
	done []decodedRecord // what of text is whose
}

// decodedRecord is a record that a poll may hand out.
type decodedRecord struct {
	of         client.TopicPartition
	offset     int64
	key, value decodedPart
}

// decodedPart is a key or value: text from start to end, or why it is none.
type decodedPart struct {
	start, end int
	fault      error
}

// reader is what reads a part of a topic's records.
func (d *decoder) reader(topic string, part serde.Part) *serde.Reader {
	pair := d.readers[topic]
	if pair == nil {
		pair = &[2]*serde.Reader{}
		for _, p := range []serde.Part{serde.Value, serde.Key} {
			pair[p] = d.serde.NewReader(topic, p)
		}
		d.readers[topic] = pair
	}
	return pair[part]
}

// decode takes a record in. What is wrong with its key or value is noted with it; an error says that the registry
// cannot tell.
func (r *read) decode(rec *consumer.Record) (*decodedRecord, error) {
	d := r.decoder
	out := decodedRecord{of: client.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}, offset: rec.Offset}
	for _, p := range []struct {
		part serde.Part
		data []byte
		to   *decodedPart
	}{{serde.Value, rec.Value, &out.value}, {serde.Key, rec.Key, &out.key}} {
		p.to.start = len(d.text)
		if p.data == nil {
			d.text = append(d.text, "null"...)
		} else {
			d.text, _, p.to.fault = d.reader(rec.Topic, p.part).Append(r.r.Context(), d.text, p.data, rec.Headers)
		}
		p.to.end = len(d.text)
		if p.to.fault != nil && !isBadData(p.to.fault) {
			return nil, p.to.fault
		}
	}
	d.done = append(d.done, out)
	return &d.done[len(d.done)-1], nil
}

// isBadData says of an error that a part of a record is no value of a known schema.
func isBadData(err error) bool {
	var unknown *serde.UnknownSchemaError
	return errors.Is(err, serde.ErrUnframed) || errors.Is(err, schema.ErrMismatch) || errors.As(err, &unknown)
}

// checkSchemas refuses a record that cannot be decoded, and one for which there is no room.
func (r *read) checkSchemas(rec *consumer.Record) error {
	d := r.decoder
	if len(r.from)+len(d.done) > 0 && len(r.out)+len(d.text) >= decodedBytes {
		return errEnough
	}
	got, err := r.decode(rec)
	switch {
	case err != nil:
		return api.RefuseCompat(codeUndecodable, "The schema registry cannot be asked: %v. The instance stands where it "+
			"stood: send the request again a little later.", err)
	case r.inline:
		return nil
	case got.value.fault != nil:
		return &undecodable{got.of, got.offset, "value", "cannot be decoded: " + got.value.fault.Error()}
	case got.key.fault != nil:
		return &undecodable{got.of, got.offset, "key", "cannot be decoded: " + got.key.fault.Error()}
	}
	return nil
}

// take is what a record that was handed out was decoded to. Records are handed out in the order in which they were
// decoded, but some may have been left out.
func (d *decoder) take(rec *consumer.Record) *decodedRecord {
	for i := range d.done {
		got := &d.done[i]
		if got.offset == rec.Offset && got.of.Partition == rec.Partition && got.of.Topic == rec.Topic {
			d.done = d.done[i+1:]
			return got
		}
	}
	return nil
}

// begin forgets what was decoded for a poll before.
func (d *decoder) begin() {
	d.text, d.done = d.text[:0], d.done[:0]
	for _, pair := range d.readers {
		for _, r := range pair {
			r.Begin()
		}
	}
}

// appendDecoded appends the key and value of a record as they were decoded, and says what could not be.
func (r *read) appendDecoded(b []byte, rec *consumer.Record) (out []byte, bad string) {
	got := r.decoder.take(rec)
	for _, p := range []struct {
		name string
		data []byte
		part *decodedPart
	}{{"key", rec.Key, &got.key}, {"value", rec.Value, &got.value}} {
		if p.name == "value" {
			b = append(b, `,"value":`...)
		}
		if p.part.fault == nil {
			b = append(b, r.decoder.text[p.part.start:p.part.end]...)
			continue
		}
		b = appendBase64(b, p.data)
		if bad != "" {
			bad += "; "
		}
		bad += p.name + ": " + p.part.fault.Error()
	}
	return b, bad
}
