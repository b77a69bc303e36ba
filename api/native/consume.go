package native

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry/serde"
)

// The representations of a read.
const (
	typeJSON       = "application/json"
	typeLines      = "application/x-ndjson"
	typeEvents     = "text/event-stream"
	typeCloudBatch = "application/cloudevents-batch+json"
	typeBatches    = "application/vnd.apache.kafka.recordbatch"
)

// Bounds of how answers are written.
const (
	writeTimeout  = 10 * time.Second
	leastRate     = 64 << 10  // bytes a second that a reader must take of a long answer, beyond writeTimeout
	unguardedSize = 4 << 10   // what fits any socket buffer needs no deadline
	answerBytes   = 256 << 20 // of all answers that are being written; more are refused
	idleScratches = 64
	keptExpanded  = 2 << 20 // a scratch whose buffers grew beyond these is not kept
	keptHeaders   = 4096
	longNext      = 4 << 10 // many clients read no more than 16 KiB of headers
	startTries    = 4       // of a read whose start keeps being removed
)

// consumer serves reads of topics: pages in several forms, and live streams. It owns the live streams; close ends
// them. It is safe for concurrent use.
type consumer struct {
	edge   *api.Edge
	client *client.Client
	tails  *tails
	codecs *record.Codecs
	plain  *plainBatches
	serde  *serde.Serde // nil: there is no schema registry

	expanding chan struct{} // of all scanners

	writing atomic.Int64 // bytes of answers that are being written

	// scratches is a free list: explicit, so that the memory stays warm, and bounded by its capacity.
	scratches chan *scratch
}

// scratch is what one read works with.
type scratch struct {
	scanner scanner
	json    jsonEncoder
	decoder decoder
	events  eventEncoder
	text    []byte
}

// newConsumer makes a consumer. It does no I/O.
func newConsumer(edge *api.Edge, c *client.Client, s *serde.Serde) *consumer {
	k := &consumer{
		edge: edge, client: c, serde: s, codecs: record.NewCodecs(expanders), plain: newPlainBatches(),
		expanding: make(chan struct{}, expanders), scratches: make(chan *scratch, idleScratches),
	}
	k.tails = newTails(k)
	return k
}

// routes adds the operations to a router.
func (k *consumer) routes(r chi.Router) {
	r.Get("/v1/topics/{topic}/records", k.readTopic)
	r.Get("/v1/topics/{topic}/partitions/{partition}/records", k.readPartition)
}

// close ends all live streams and returns when nothing of them runs any more. Reads in progress are not its concern:
// they end with their requests.
func (k *consumer) close() { k.tails.close() }

func (k *consumer) readTopic(w http.ResponseWriter, r *http.Request) {
	k.serve(w, r, allPartitions, nil)
}

func (k *consumer) readPartition(w http.ResponseWriter, r *http.Request) {
	v := api.PathParam(r, "partition")
	n, err := parseDecimal(v)
	if err != nil || n > math.MaxInt32 {
		k.serve(w, r, 0, api.Refuse(api.InvalidParameter, "partition %.20q: want a number from 0", v))
		return
	}
	k.serve(w, r, int32(n), nil)
}

func (k *consumer) serve(w http.ResponseWriter, r *http.Request, partition int32, err error) {
	if err == nil {
		err = k.read(w, r, partition)
	}
	if err != nil {
		k.edge.Fail(w, r, err)
	}
}

// read answers one read. An error means that nothing was written yet.
func (k *consumer) read(w http.ResponseWriter, r *http.Request, partition int32) error {
	form := api.Negotiate(r.Header, typeJSON, typeLines, typeEvents, typeCloudBatch, typeBatches)
	if form == "" {
		return api.Refuse(api.NotAcceptable, "records come as %s, %s, %s, %s or %s", typeJSON, typeLines, typeEvents,
			typeCloudBatch, typeBatches)
	}
	q, err := parseReadQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		p, err := parsePosition(id)
		if err != nil {
			return api.Refuse(api.InvalidParameter, "Last-Event-ID: %v", err)
		}
		q.origin = origin{kind: originPosition, position: p}
	}
	topic, err := topicToRead(r.Context(), k.client, api.PathParam(r, "topic"), partition, &q)
	if err != nil {
		return err
	}
	if partition != allPartitions {
		if err := topic.Has(partition); err != nil {
			return err
		}
	}
	if api.IsHead(r) {
		q.wait = 0
	}
	if form != typeEvents {
		vary(w.Header())
	}
	if q.wait > 0 && form != typeEvents {
		done, err := k.edge.OpenStream()
		if err != nil {
			return err
		}
		defer done()
	}
	for range startTries - 1 {
		if err := k.answer(w, r, target{topic, partition, form}, &q); !q.startMoved(err) {
			return err
		}
	}
	return k.answer(w, r, target{topic, partition, form}, &q)
}

// target is what is read, and in which form.
type target struct {
	topic     *client.Topic
	partition int32 // or allPartitions
	form      string
}

// answer looks up where the read starts, and answers it from there.
func (k *consumer) answer(w http.ResponseWriter, r *http.Request, t target, q *readQuery) error {
	if t.form == typeEvents {
		return k.tail(w, r, t.topic, t.partition, q)
	}
	if t.form == typeBatches {
		return k.readBatches(w, r, t.topic, t.partition, q)
	}
	return k.readPage(w, r, &page{
		topic: t.topic, partition: t.partition, query: q, form: t.form, arena: k.edge.Arena,
	})
}

// startMoved says that a read failed because its start was removed after it had been looked up. Who asks for the start
// of a log, or for a time, never asked for an offset that is not there.
func (q *readQuery) startMoved(err error) bool {
	return err != nil && q.origin.kind != originOffset && q.origin.kind != originPosition &&
		errors.Is(err, kerr.OffsetOutOfRange)
}

// vary tells caches that the form of an answer depends on what was asked for.
func vary(h http.Header) { h["Vary"] = append(h["Vary"], "Accept") }

// readPage answers with one page of records in a form of JSON.
func (k *consumer) readPage(w http.ResponseWriter, r *http.Request, p *page) (err error) {
	if p.places, err = start(r.Context(), k.client, p.topic, p.partition, p.query); err != nil {
		return err
	}
	p.out.arena = k.edge.Arena()
	defer p.out.arena.Free()
	if err := k.fillPage(r, p); err != nil {
		return err
	}
	return k.writePage(w, r, p)
}

// fillPage reads and encodes what the page holds.
func (k *consumer) fillPage(r *http.Request, p *page) error {
	s := k.takeScratch()
	defer k.keepScratch(s)
	s.json.decoder = s.decoder.begin(r.Context(), p.topic.Name)
	p.begin(s)
	if p.form != typeCloudBatch {
		p.watch = plainWatch{known: k.plain, topic: p.topic, encoder: &s.json}
	}
	if err := p.read(r.Context(), k.client, &s.scanner); err != nil {
		return err
	}
	p.end(s)
	return nil
}

func (k *consumer) takeScratch() *scratch {
	select {
	case s := <-k.scratches:
		return s
	default:
		return &scratch{
			scanner: scanner{reader: record.Reader{Codecs: k.codecs}, expanding: k.expanding},
			decoder: decoder{serde: k.serde},
		}
	}
}

// keepScratch takes back a scratch.
func (k *consumer) keepScratch(s *scratch) {
	if s.scanner.reader.Kept() > keptExpanded || cap(s.scanner.record.Headers) > keptHeaders {
		return
	}
	s.decoder.ctx = nil
	select {
	case k.scratches <- s:
	default:
	}
}

// begin sets the page up for its form.
func (p *page) begin(s *scratch) {
	switch p.form {
	case typeCloudBatch:
		s.events.topic = p.topic.Name
		p.append, p.between = s.events.append, ","
		p.out.reserve(1)
		p.out.buf = append(p.out.buf, '[')
	case typeLines:
		s.json.key, s.json.value, s.json.lines = p.query.key, p.query.value, true
		p.append, p.decoder, p.after = s.json.append, s.json.decoder, "\n"
	default:
		s.json.key, s.json.value, s.json.lines = p.query.key, p.query.value, false
		p.append, p.decoder, p.between = s.json.append, s.json.decoder, ","
		p.out.reserve(minOutputBuffer)
		p.out.buf = append(p.out.buf, `{"records":[`...)
	}
}

// end closes what begin opened.
func (p *page) end(s *scratch) {
	s.text = p.position().append(s.text[:0])
	p.next = string(s.text)
	if d := s.json.decoder; d != nil && d.unsure > 0 {
		p.hash = mix(p.hash, uint64(d.unsure)) // the page changes when the schemas come
	}
	switch p.form {
	case typeCloudBatch:
		p.out.buf = append(p.out.buf, ']', '\n')
	case typeJSON:
		b := append(p.out.buf, `],"next":"`...)
		b = append(b, p.next...)
		b = append(b, `","high_watermarks":{`...)
		for i := range p.places {
			if p.places[i].highWatermark < 0 {
				continue // not known: nothing could be fetched
			}
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(b, '"')
			b = strconv.AppendInt(b, int64(p.places[i].partition), 10)
			b = append(b, `":`...)
			b = strconv.AppendInt(b, p.places[i].highWatermark, 10)
		}
		p.out.buf = append(b, '}', '}', '\n')
	}
}

// writePage sends the page. Once it writes, its error is nil: a client that has gone needs no answer.
func (k *consumer) writePage(w http.ResponseWriter, r *http.Request, p *page) error {
	h := w.Header()
	if p.form != typeJSON || len(p.next) <= longNext { // there it is in the body too
		h["Next"] = []string{p.next}
		h["Link"] = []string{nextLink(r, p.next)}
	}
	if len(p.places) == 1 {
		setPlaceHeaders(h, &p.places[0])
	}
	if p.sealed() {
		tag := `W/"` + strconv.FormatUint(p.hash, 36) + `"`
		if sealAnswer(h, r, p.query, tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	} else {
		h["Cache-Control"] = []string{"no-store"}
	}
	return k.writeBody(w, p.form, p.out.buf)
}

// setPlaceHeaders tells where a read of one partition ended, for forms whose body has no room for it.
func setPlaceHeaders(h http.Header, at *place) {
	h["Next-Offset"] = []string{strconv.FormatInt(at.next, 10)}
	if at.highWatermark >= 0 {
		h["High-Watermark"] = []string{strconv.FormatInt(at.highWatermark, 10)}
	}
}

// nextLink is the address of the page after the one that r asked for, as a Link header.
func nextLink(r *http.Request, next string) string {
	link := make([]byte, 0, len(r.URL.Path)+len(r.URL.RawQuery)+len(next)+32)
	link = append(link, '<')
	link = append(link, r.URL.EscapedPath()...)
	link = append(link, "?from="...)
	link = append(link, next...)
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "", "offset", "timestamp", "from":
		default:
			link = append(link, '&')
			link = append(link, pair...)
		}
	}
	return string(append(link, `>; rel="next"`...))
}

// sealAnswer sets the headers of an answer that will be the same again, and says whether the client has it already.
// What begins at a fixed place may be used without asking for a while; elsewhere the place must be looked up anew.
func sealAnswer(h http.Header, r *http.Request, q *readQuery, tag string) (known bool) {
	h["Etag"] = []string{tag}
	if q.origin.kind == originOffset || q.origin.kind == originPosition {
		h["Cache-Control"] = []string{"private, max-age=60"}
	} else {
		h["Cache-Control"] = []string{"private, no-cache"}
	}
	for _, v := range r.Header["If-None-Match"] {
		for one := range strings.SplitSeq(v, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}

// writeBody sends a whole body in one write.
func (k *consumer) writeBody(w http.ResponseWriter, mediaType string, body []byte) error {
	return k.guardBody(w, mediaType, body, func() { _, _ = w.Write(body) })
}

// guardBody has a whole body sent under a deadline that a reader of some pace meets. When readers are so many or so
// slow that what waits for them is too much, it refuses, and nothing is sent.
func (k *consumer) guardBody(w http.ResponseWriter, mediaType string, body []byte, send func()) error {
	size := int64(len(body))
	defer k.writing.Add(-size)
	if sum := k.writing.Add(size); sum > answerBytes && sum > size {
		return k.edge.OverLimit("answer_bytes", api.Refuse(api.Overloaded,
			"answers of %d MiB are being read at the moment, which is the limit", answerBytes>>20))
	}
	h := w.Header()
	h["Content-Type"] = []string{mediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	if len(body) <= unguardedSize {
		send()
		return nil
	}
	rc := http.NewResponseController(w)
	allowed := writeTimeout + time.Duration(len(body)/leastRate)*time.Second
	_ = rc.SetWriteDeadline(time.Now().Add(allowed)) // a writer without deadlines is one in a test
	send()
	_ = rc.SetWriteDeadline(time.Time{}) // the next request on the connection has its own
	return nil
}
