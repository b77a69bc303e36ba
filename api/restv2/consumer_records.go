package restv2

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/consumer"
	"millrace/schemaregistry/serde"
)

// Bounds of reads.
const (
	pollBytes    = 4 << 20 // of keys and values that one poll hands out
	answerBytes  = 256 << 20
	smallAnswer  = 4 << 10 // fits any socket's buffer, so it needs no deadline
	writeTimeout = 10 * time.Second
	leastRate    = 64 << 10 // bytes a second that a reader must take, beyond writeTimeout
)

// read is one read of records being answered.
type read struct {
	*call
	mediaType string
	isJSON    bool
	inline    bool // what is not JSON comes as base64, with a note
	max, min  int64
	deadline  time.Time

	decoder *decoder // of an instance whose format is one of schemas, nil of another

	out  []byte
	size int64                           // of keys and values in out
	from map[client.TopicPartition]int64 // the first offsets in out
	last int64                           // delivery of which something is in out
}

// records hands out records. What cannot be sent is handed out again.
func (c *call) records() error {
	r := &read{call: c, from: make(map[client.TopicPartition]int64)}
	if err := r.parse(); err != nil {
		return err
	}
	if api.IsHead(c.r) { // nothing is handed out to be thrown away
		c.w.Header()["Content-Type"] = []string{r.mediaType}
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	done, err := c.edge.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	r.out = append(r.out, '[')
	err = r.collect()
	switch {
	case len(r.from) > 0: // what is wrong is told when nothing else is left
	case c.r.Context().Err() != nil, isMoving(err) && c.overdue(r):
		// The client has gone, or the node stops, or the instance moves: the next read goes on elsewhere.
	case err != nil:
		return err
	}
	return r.send()
}

// overdue says whether a read has lasted so long that the client is told that there is nothing yet.
func (c *call) overdue(r *read) bool { return c.again && !time.Now().Before(r.deadline) }

// parse reads the query and the Accept header.
func (r *read) parse() (err error) {
	if r.mediaType, err = readType(r.r.Header, r.settings.Format); err != nil {
		return err
	}
	r.isJSON = r.mediaType == jsonType
	if isSchemaFormat(r.settings.Format) {
		if r.opts.Serde == nil {
			return errNoRegistry(r.settings.Format)
		}
		r.decoder = &decoder{serde: r.opts.Serde, readers: map[string]*[2]*serde.Reader{}}
	}
	q, err := url.ParseQuery(r.r.URL.RawQuery)
	if err != nil {
		return badRequest("The query cannot be read: %v.", err)
	}
	timeout, err := readMillis("timeout", q.Get("timeout"))
	if err != nil {
		return err
	}
	r.deadline = r.start.Add(r.settings.wait(timeout))
	if r.max, err = readMillis("max_bytes", q.Get("max_bytes")); err != nil {
		return err
	}
	if limit := r.opts.RequestMaxBytes; r.max <= 0 || r.max > limit {
		r.max = limit
	}
	r.min = max(r.settings.MinBytes, 1)
	switch v := q.Get("undecodable"); v {
	case "", "error":
	case "base64":
		r.inline = true
	default:
		return badRequest("undecodable=%s is neither error nor base64.", rawjson.Excerpt([]byte(v)))
	}
	return nil
}

// errEnough says of a record that it belongs into the next answer.
var errEnough = errors.New("enough")

// undecodable says that a record is not in the format of the instance.
type undecodable struct {
	client.TopicPartition
	offset int64
	what   string
	why    string
}

func (e *undecodable) Error() string {
	return fmt.Sprintf("the %s of the record at offset %d of %v %s", e.what, e.offset, e.TopicPartition, e.why)
}

// collect polls until there is enough, or the time is over.
func (r *read) collect() error {
	for {
		if r.decoder != nil {
			r.decoder.begin()
		}
		p, err := r.member.Poll(r.r.Context(), consumer.PollRequest{
			MaxBytes: int(max(min(r.max-r.size-1, pollBytes), 1)), Wait: max(time.Until(r.deadline), 0), JoinWait: joinWait,
			More: len(r.from) > 0, Check: r.check,
		})
		var bad *undecodable
		switch {
		case errors.As(err, &bad):
			return api.RefuseCompat(codeUndecodable, "Error deserializing: %v. The instance stands before it: seek behind it, "+
				"to offset %d, or read with undecodable=base64.", bad, bad.offset+1)
		case errors.Is(err, errEnough) && len(r.from) == 0 && time.Now().Before(r.deadline):
			continue // it is the turn of a partition that another one left no room for
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		case len(p.Records) == 0:
			return nil
		}
		for i := range p.Records {
			r.append(&p.Records[i])
		}
		r.last = p.Delivery
		p.Free()
		if r.size >= r.min || r.size+1 >= r.max {
			return nil
		}
	}
}

// check refuses a record that the answer cannot take. The first one always fits.
func (r *read) check(rec *consumer.Record) error {
	if len(r.from) > 0 && r.size+int64(len(rec.Key)+len(rec.Value)) >= r.max {
		return errEnough
	}
	if r.decoder != nil {
		return r.checkSchemas(rec)
	}
	if !r.isJSON || r.inline {
		return nil
	}
	var what string
	switch {
	case !isDocument(rec.Value):
		what = "value"
	case !isDocument(rec.Key):
		what = "key"
	default:
		return nil
	}
	return &undecodable{client.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}, rec.Offset, what, "is not JSON"}
}

// isDocument says whether a key or value is JSON, or null.
func isDocument(b []byte) bool {
	if b == nil {
		return true
	}
	_, _, err := rawjson.Document(b, rawjson.MaxDepth)
	return err == nil
}

// append appends a record to the answer.
func (r *read) append(rec *consumer.Record) {
	if len(r.from) > 0 {
		r.out = append(r.out, ',')
	}
	tp := client.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
	if _, ok := r.from[tp]; !ok {
		r.from[tp] = rec.Offset
	}
	r.size += int64(len(rec.Key) + len(rec.Value))
	b := rawjson.AppendString(append(r.out, `{"topic":`...), rec.Topic)
	var bad string
	b = append(b, `,"key":`...)
	if r.decoder != nil {
		b, bad = r.appendDecoded(b, rec)
	} else {
		b, bad = r.appendData(b, rec.Key, bad, "key")
		b, bad = r.appendData(append(b, `,"value":`...), rec.Value, bad, "value")
	}
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(rec.Partition), 10)
	b = strconv.AppendInt(append(b, `,"offset":`...), rec.Offset, 10)
	switch {
	case bad == "":
	case r.decoder != nil:
		b = rawjson.AppendString(append(b, `,"decode_error":`...), "not decoded, and so in base64: "+bad)
	default:
		b = rawjson.AppendString(append(b, `,"decode_error":`...), "not JSON, and so in base64: "+bad)
	}
	r.out = append(b, '}')
}

// appendData appends a key or value, and its name to those that are not in the format of the instance.
func (r *read) appendData(b, data []byte, bad, name string) ([]byte, string) {
	switch {
	case data == nil:
		return append(b, "null"...), bad
	case r.isJSON && (!r.inline || isDocument(data)):
		return append(b, data...), bad
	case r.isJSON && bad != "":
		bad += ", " + name
	case r.isJSON:
		bad = name
	}
	return appendBase64(b, data), bad
}

func appendBase64(b, data []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// send sends the answer, under a deadline that a reader of some pace meets. An answer is lost when the client had gone
// before it, or the connection did not take it. What becomes of the connection afterwards says nothing: a client that
// has all may close it at once.
func (r *read) send() error {
	r.out = append(r.out, ']')
	size := int64(len(r.out))
	defer r.writing.Add(-size)
	if sum := r.writing.Add(size); sum > answerBytes && sum > size {
		r.lost()
		return r.edge.OverLimit("answer_bytes", api.Refuse(api.Overloaded,
			"answers of %d MiB are being read at the moment, which is the limit", answerBytes>>20))
	}
	h := r.w.Header()
	h["Content-Type"] = []string{r.mediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(r.out))}
	rc := http.NewResponseController(r.w)
	if size > smallAnswer {
		allowed := writeTimeout + time.Duration(size/leastRate)*time.Second
		_ = rc.SetWriteDeadline(time.Now().Add(allowed)) // a writer without deadlines is one in a test
		defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	}
	gone := r.r.Context().Err() != nil
	_, err := r.w.Write(r.out)
	if err == nil {
		err = rc.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	if gone || err != nil {
		r.lost()
	}
	return nil
}

// lost takes note that the answer did not arrive.
func (r *read) lost() {
	var from []consumer.Offset
	for tp, offset := range r.from {
		from = append(from, consumer.Offset{TopicPartition: tp, Offset: offset})
	}
	r.member.Lost(r.last, from...)
}
