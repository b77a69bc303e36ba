package native

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// The representations of a value that are not a record's JSON.
const (
	typeBytes = "application/octet-stream"
	typeText  = "text/plain"
)

// keyLimit bounds a read by key. An index that is not done by then goes on with the next request.
const keyLimit = 10 * time.Second

// goneTries is how often a record may be gone when it is fetched, since newer ones took its place; roomTries how often
// a read waits for others to be done with the memory for indexes.
const (
	goneTries = 16
	roomTries = 250
)

// keyed serves reads and deletions by key, of compacted topics. It is safe for concurrent use.
type keyed struct {
	edge     *api.Edge
	client   *client.Client
	consumer *consumer
	table    *keyTable
	timeout  time.Duration // of a deletion
	limit    time.Duration // of a read
	reading  chan struct{} // has an element for each index that reads much
}

func newKeyed(o Options, k *consumer) *keyed {
	return &keyed{
		edge: o.Edge, client: o.Client, consumer: k, table: newKeyTable(o.KeyIndexBytes), timeout: o.ProduceTimeout,
		limit: keyLimit, reading: make(chan struct{}, keyReaders),
	}
}

// routes adds the operations to a router.
func (k *keyed) routes(r chi.Router) {
	const path = "/v1/topics/{topic}/keys/{key}"
	r.Get(path, func(w http.ResponseWriter, r *http.Request) {
		if err := k.get(w, r); err != nil {
			k.edge.Fail(w, r, err)
		}
	})
	r.Delete(path, func(w http.ResponseWriter, r *http.Request) {
		if err := k.remove(w, r); err != nil {
			k.edge.Fail(w, r, err)
		}
	})
}

// keyRequest is which record a request is about, and how to show it.
type keyRequest struct {
	topic     *client.Topic
	key       []byte
	partition int32
	media     string // the representation
	shown     jsonEncoder
}

// parse reads a request; known are its parameters.
func (k *keyed) parse(r *http.Request, known ...string) (*keyRequest, error) {
	if err := checkQuery(r.URL.RawQuery, known); err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, api.BadEscape(r.URL.RawQuery)
	}
	q := &keyRequest{partition: client.AnyPartition}
	if q.key, err = keyOf(api.PathParam(r, "key"), query); err != nil {
		return nil, err
	}
	if v := query["partition"]; v != nil {
		n, err := parseDecimal(v[0])
		if err != nil || n > math.MaxInt32 {
			return nil, api.BadParameter("partition", v[0], "a whole number from 0")
		}
		q.partition = int32(n)
	}
	for name, to := range map[string]*form{"format": &q.shown.value, "key_format": &q.shown.key} {
		if v := query[name]; v != nil {
			if *to, err = parseForm(name, v[0]); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

// keyOf is the key that a path names.
func keyOf(text string, query url.Values) ([]byte, error) {
	encoding := query["key_encoding"]
	switch {
	case encoding == nil || encoding[0] == "text":
		if !utf8.ValidString(text) {
			return nil, api.Refuse(api.InvalidParameter,
				"the key is not valid UTF-8; send such a key in base64, with key_encoding=base64")
		}
		return []byte(text), nil
	case encoding[0] != "base64":
		return nil, api.BadParameter("key_encoding", encoding[0], "text or base64")
	}
	plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	key, err := base64.RawStdEncoding.Strict().DecodeString(plain)
	if err != nil {
		return nil, api.Refuse(api.InvalidParameter, "the key %.60q is not valid base64", text)
	}
	return key, nil
}

// find finds the topic and the partition of the key.
func (k *keyed) find(ctx context.Context, name string, q *keyRequest) (err error) {
	if q.topic, err = k.client.Topic(ctx, name, client.Refuse); err != nil {
		return err
	}
	compacted, known := k.client.Compacted(ctx, q.topic)
	if known && !compacted {
		return api.Refuse(api.NotCompacted, "cleanup.policy of topic %s is not compact", name).With("topic", name)
	}
	if q.partition == client.AnyPartition {
		if len(q.topic.Partitions) == 0 {
			return q.topic.Has(0)
		}
		q.partition = record.KeyPartition(q.key, int32(len(q.topic.Partitions)))
	}
	return q.topic.Has(q.partition)
}

// get answers with the latest record of a key.
func (k *keyed) get(w http.ResponseWriter, r *http.Request) error {
	media := api.Negotiate(r.Header, typeJSON, typeBytes, typeText)
	if media == "" {
		return api.Refuse(api.NotAcceptable, "a value comes as %s, %s or %s", typeJSON, typeBytes, typeText)
	}
	q, err := k.parse(r, "partition", "key_encoding", "format", "key_format")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), k.limit)
	defer cancel()
	name := api.PathParam(r, "topic")
	if err := k.find(ctx, name, q); err != nil {
		return err
	}
	q.media = media
	a, err := k.read(ctx, q)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) { // made anew
		k.client.Forget(name)
		if err = k.find(ctx, name, q); err == nil {
			a, err = k.read(ctx, q)
		}
	}
	if err != nil {
		return err
	}
	return k.show(w, r, q, a)
}

// keyAnswer is what was found of a key.
type keyAnswer struct {
	found, deleted bool // a value, a tombstone; else nothing
	offset         int64
	timestamp      int64
	tag            string
	headers        http.Header // the record's
	body           []byte
	fault          error // the value has not the form asked for
}

// read looks a key up, and takes its record.
func (k *keyed) read(ctx context.Context, q *keyRequest) (a keyAnswer, err error) {
	id := keyIndexID{topic: q.topic.ID, name: q.topic.Name, partition: q.partition}
	gone, crowded := int64(-1), 0
	for tries := 0; tries < goneTries; tries++ {
		x := k.table.open(id)
		offset, err := k.readIn(ctx, x, q, &a)
		if offset >= 0 && offset == gone {
			x.forget(q.key, gone) // a tombstone that was kept long enough
			k.table.close(x)
			return keyAnswer{}, nil
		}
		if err != nil && ctx.Err() != nil {
			err = x.behind()
		}
		k.table.close(x)
		switch {
		case errors.Is(err, errManyKeys), errors.Is(err, errOtherKey):
			id.single, id.key = true, string(q.key)
		case errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.UnknownLeaderEpoch):
			x.leave()
		case errors.Is(err, errNoRoom):
			if crowded++; crowded > roomTries || !pause(ctx, keyPause) {
				return a, api.Refuse(api.Overloaded, "%v", err)
			}
			tries--
		case err != nil || offset < 0:
			return a, err
		default:
			gone = offset
		}
	}
	return a, api.Refuse(api.KafkaFault(kerr.LeaderNotAvailable), "the record was replaced or its leader moved each of "+
		"the %d times that it was looked up", goneTries)
}

// errNoRoom says that others have the memory that an index takes.
var errNoRoom = errors.New("the indexes of keys that are in use take all memory there is for them")

// errOtherKey says that two keys have one digest.
var errOtherKey = errors.New("the record has another key")

// readIn reads a key's record by an index, once. gone is the offset of a record that is not there any more, -1 if a
// holds what is known.
func (k *keyed) readIn(ctx context.Context, x *keyIndex, q *keyRequest, a *keyAnswer) (gone int64, err error) {
	if err := x.readOn(ctx, k, q.topic); err != nil {
		return -1, err
	}
	at, ok := x.look(q.key)
	if !ok {
		return -1, nil
	}
	arena := k.edge.Arena()
	defer arena.Free()
	f, err := k.fetch(record.WithArena(ctx, arena), q.topic, client.FetchPartition{
		Partition: q.partition, Offset: at.offset, InEpoch: &at.epoch, MaxBytes: 1, // the batch comes whole
	})
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return at.offset, nil
	}
	if err != nil {
		return -1, err
	}
	s := k.consumer.takeScratch()
	defer k.consumer.keepScratch(s)
	gone, q.shown.decoder = at.offset, s.decoder.begin(ctx, q.topic.Name)
	of := segment{batches: f.Batches, from: at.offset, before: at.offset + 1, aborted: f.Aborted}
	_, err = s.scanner.scan(of, func(rec *record.Record) bool {
		gone = -1
		if !bytes.Equal(rec.Key, q.key) {
			gone, a.fault = -1, errOtherKey
			return false
		}
		a.take(rec, q)
		return false
	})
	if err != nil {
		place := place{partition: q.partition, next: at.offset}
		return -1, unreadable(q.topic, place, err, place.position(q.topic))
	}
	if a.fault != nil {
		err, a.fault = a.fault, nil
	}
	return gone, err
}

// take copies what is shown of a record.
func (a *keyAnswer) take(rec *record.Record, q *keyRequest) {
	a.offset, a.timestamp = rec.Offset, rec.Timestamp
	if a.deleted = rec.Value == nil; a.deleted {
		return
	}
	a.found = true
	a.headers = recordHeaders(rec.Headers)
	if q.media == typeText && !utf8.Valid(rec.Value) {
		a.fault = api.Refuse(api.NotAcceptable, "the value is not UTF-8; it comes as %s or %s", typeBytes, typeJSON)
		return
	}
	if q.media == typeJSON {
		a.body = append(q.shown.append(nil, q.partition, rec), '\n')
	} else {
		a.body = slices.Clone(rec.Value)
	}
	sum := crc32.ChecksumIEEE(rec.Value)
	h := mix(mix(0, uint64(rec.Offset)), uint64(rec.Timestamp))
	h = mix(mix(h, uint64(sum)<<32|uint64(q.partition)), uint64(len(q.media))<<16|uint64(q.shown.key)<<8|
		uint64(q.shown.value))
	for _, half := range [2][]byte{q.topic.ID[:8], q.topic.ID[8:]} {
		h = mix(h, uint64(crc32.ChecksumIEEE(half)))
	}
	if d := q.shown.decoder; d != nil {
		h = mix(h, uint64(d.unsure)) // it is shown otherwise when the schema comes
	}
	a.tag = `"` + strconv.FormatUint(h, 36) + `"`
}

// recordHeaders are a record's headers as those of an answer. What HTTP cannot carry is left out.
func recordHeaders(headers []record.Header) http.Header {
	out := http.Header{}
	for _, h := range headers {
		if h.Value != nil && isToken(h.Key) && isFieldValue(h.Value) {
			out.Add("Record-Header-"+h.Key, string(h.Value))
		}
	}
	return out
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

func isFieldValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return len(b) <= longNext && len(bytes.TrimSpace(b)) == len(b)
}

// show answers with what was found.
func (k *keyed) show(w http.ResponseWriter, r *http.Request, q *keyRequest, a keyAnswer) error {
	if !a.found {
		return missing(q, a)
	}
	h := w.Header()
	vary(h)
	for name, values := range a.headers {
		h[name] = values
	}
	h["Record-Partition"] = []string{strconv.Itoa(int(q.partition))}
	h["Record-Offset"] = []string{strconv.FormatInt(a.offset, 10)}
	if a.timestamp != noTimestamp && isInstant(a.timestamp) {
		h["Record-Timestamp"] = []string{instant(a.timestamp)}
	}
	if sealAnswer(h, r, &readQuery{}, a.tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	media := q.media
	if media == typeText {
		media += "; charset=utf-8"
	}
	h["X-Content-Type-Options"] = []string{"nosniff"} // the value is anybody's
	return k.consumer.writeBody(w, media, a.body)
}

func instant(ms int64) string {
	var c clock
	return string(c.append(nil, ms))
}

// missing says that a key has no value, and why.
func missing(q *keyRequest, a keyAnswer) error {
	var e *api.Error
	if a.deleted {
		e = api.Refuse(api.NoSuchKey, "the key was deleted in %s-%d by the tombstone at offset %d", q.topic.Name, q.partition,
			a.offset)
		if a.timestamp != noTimestamp && isInstant(a.timestamp) {
			at := instant(a.timestamp)
			e.Detail += ", of " + at
			e.With("deleted_at", at)
		}
		e.With("offset", a.offset)
	} else {
		e = api.Refuse(api.NoSuchKey, "there is no record of the key in %s-%d", q.topic.Name, q.partition)
	}
	if len(q.topic.Partitions) > 1 {
		e.Detail += "; the parameter partition names another partition, for records that were not placed by their keys"
	}
	return e.With("topic", q.topic.Name).With("partition", q.partition)
}

// fetch reads one partition, now.
func (k *keyed) fetch(ctx context.Context, t *client.Topic, p client.FetchPartition) (*client.FetchResult, error) {
	results, err := k.client.Fetch(ctx, client.FetchRequest{
		Topic: t, MaxBytes: p.MaxBytes, ReadCommitted: true, Partitions: []client.FetchPartition{p},
	})
	if err != nil {
		return nil, err
	}
	f := &results[0]
	if isDamage(f.Err) {
		place := place{partition: p.Partition, next: p.Offset}
		return nil, unreadable(t, place, f.Err, place.position(t))
	}
	return f, f.Err
}

// renew is the newest metadata of a topic that is still the same one.
func (k *keyed) renew(ctx context.Context, t *client.Topic) (*client.Topic, error) {
	now, err := k.client.Renew(ctx, t.Name)
	if err == nil && now.ID != t.ID {
		err = client.Fault(kerr.UnknownTopicID, "topic %s was deleted and made anew", t.Name)
	}
	return now, err
}
