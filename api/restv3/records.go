package restv3

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/api"
	"millrace/api/rawjson"
)

const (
	// wholeBytes is up to which length a body is read whole before its records are stored: they then go
	// out in one batch a partition, and the receipts in one write.
	wholeBytes = 1 << 20
	// Sizes of a stream's buffer: it starts small, grows while reads fill it, and past the second only
	// for a record that does not fit.
	minBuffer = 16 << 10
	maxBuffer = 512 << 10
	// receiptBytes is how many bytes of receipts are written at once.
	receiptBytes = 256 << 10
	// What is kept between requests: the memory of so many streams with so many entries each.
	idleStreams = 64
	keptEntries = 2048
	// writeTimeout is how long a client may take to read what was written.
	writeTimeout = 30 * time.Second
	// What is still read of a body after a fault that ends the stream, to keep the connection.
	drainBytes = 256 << 10
	drainTime  = 100 * time.Millisecond
	// lingerTime is how long a client that is hung up on has to read its last receipts.
	lingerTime = time.Second
)

// produceRecords answers POST .../records: record objects one behind the other come in, a receipt for
// each goes out, in order, as soon as it is stored.
func (a *API) produceRecords(w http.ResponseWriter, r *http.Request) {
	s := a.newStream(w, r)
	defer a.release(s)
	var err error
	s.latin1, err = checkRecords(r)
	switch {
	case err != nil:
	case r.ContentLength >= 0 && r.ContentLength <= wholeBytes || r.Header.Get("Content-Encoding") != "":
		err = s.whole(r)
	default:
		err = s.duplex(r)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// checkRecords refuses what cannot be answered with receipts, and tells whether the body is Latin-1.
func checkRecords(r *http.Request) (latin1 bool, err error) {
	if err := acceptsJSON(r); err != nil {
		return false, err
	}
	contentType := r.Header.Get("Content-Type")
	if err := isJSON(contentType); err != nil {
		return false, err
	}
	if r.ContentLength == 0 {
		return false, errEmptyBody
	}
	if len(contentType) == len(jsonType) {
		return false, nil
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false, badRequest("Content-Type cannot be read: %v.", err)
	}
	switch charset := strings.ToLower(params["charset"]); charset {
	case "", "utf-8", "utf8", "us-ascii":
		return false, nil
	case "iso-8859-1", "latin1":
		return true, nil
	default:
		return false, badRequest("charset %q is not supported; use UTF-8 or ISO-8859-1.", charset)
	}
}

// stream is one request for records being answered. It is used by one goroutine.
//
// Invariant: buf[start:end] are the bytes that were read and not parsed yet; the entries' slices are
// parts of buf[:start], so buf moves only when there are no entries.
type stream struct {
	api      *API
	w        http.ResponseWriter
	rc       *http.ResponseController
	topic    string
	receipts receipts

	latin1     bool      // the body is ISO-8859-1
	body       io.Reader // what is to come; nil once it has ended
	lent       api.Body  // the memory of buf
	buf        []byte
	start, end int
	filled     bool // the last read filled buf
	seeker     seeker
	parser     parser
	entries    []entry
	count      int // of records so far

	until time.Time // when the stream has lasted too long
	began bool      // the answer's header is written
	out   []byte    // receipts to write
}

// whole reads the body before it stores anything and answers in one write, unless there are very many
// receipts.
func (s *stream) whole(r *http.Request) error {
	body, err := s.api.edge.ReadBody(s.w, r, 0)
	defer body.Free()
	if err != nil {
		return err
	}
	s.buf = body.Bytes
	if s.latin1 {
		s.buf = appendLatin1(body.Arena().Alloc(2 * len(body.Bytes))[:0], body.Bytes)
	}
	s.end = len(s.buf)
	if rawjson.IsEmpty(s.buf) {
		return errEmptyBody
	}
	s.run(r.Context())
	if !s.began {
		h := s.w.Header()
		h["Content-Type"] = []string{jsonType}
		h["Content-Length"] = []string{strconv.Itoa(len(s.out))}
	}
	_, _ = s.w.Write(s.out) // a client that has gone needs no receipts
	return nil
}

// duplex answers while the body is still coming.
func (s *stream) duplex(r *http.Request) error {
	done, err := s.api.edge.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	if s.lent, err = s.api.edge.Lend(minBuffer); err != nil {
		return err
	}
	defer func() { s.lent.Free() }()
	if err := s.rc.EnableFullDuplex(); err != nil {
		return err
	}
	if r.Header.Get("Expect") != "" {
		s.w.WriteHeader(http.StatusContinue) // it would not be sent any more once the answer has begun
	}
	s.until = time.Now().Add(s.api.opts.StreamDuration)
	_ = s.rc.SetReadDeadline(s.until) // where there are no deadlines it may last
	defer s.unblock(r.Context())()
	s.buf, s.body = s.lent.Bytes, r.Body
	if s.latin1 {
		s.body = &latin1Reader{from: r.Body}
	}
	s.begin()
	if s.flush() != nil {
		return nil
	}
	s.run(r.Context())
	if s.flush() == nil && s.body != nil && r.ProtoMajor == 1 && !s.drain() {
		s.hangUp(r)
	}
	return nil
}

// drain reads what is left of the body, if that is little and on its way already, and says whether it did: then the
// connection is good for another request, which a client that has sent its body may be sending on it.
func (s *stream) drain() bool {
	_ = s.rc.SetReadDeadline(time.Now().Add(drainTime))
	_, err := io.CopyN(io.Discard, s.body, drainBytes)
	return err == io.EOF
}

// hangUp ends the answer to a body that has not ended, and the connection: what still comes must not be
// read as the next request. It stays a moment, since closing at once would drop receipts on their way.
// HTTP/2 needs none of this: it ends one stream by itself.
func (s *stream) hangUp(r *http.Request) {
	conn, _, err := s.rc.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lingerTime))
	if r.ProtoAtLeast(1, 1) {
		_, _ = io.WriteString(conn, "0\r\n\r\n") // the last chunk
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

// unblock lets a read return once ctx ends. The caller calls what it returns when no read will follow.
func (s *stream) unblock(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = s.rc.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !unhook() {
			<-done
		}
	}
}

// newStream makes a stream, in the memory of an earlier one if there is one.
func (a *API) newStream(w http.ResponseWriter, r *http.Request) *stream {
	var s *stream
	select {
	case s = <-a.idle:
	default:
		s = &stream{api: a}
	}
	s.w, s.rc = w, http.NewResponseController(w)
	s.topic = api.PathParam(r, "topic_name")
	s.receipts.set(api.PathParam(r, "cluster_id"), s.topic)
	return s
}

// release keeps the memory of a stream, unless it is very much, and nothing of its request.
func (a *API) release(s *stream) {
	if cap(s.entries) > keptEntries || cap(s.out) > 2*receiptBytes {
		return
	}
	clear(s.entries[:cap(s.entries)])
	*s = stream{
		api: a, receipts: s.receipts, entries: s.entries[:0], out: s.out[:0], parser: parser{names: s.parser.names},
	}
	select {
	case a.idle <- s:
	default:
	}
}

func (s *stream) begin() {
	s.w.Header()["Content-Type"] = []string{jsonType}
	s.w.WriteHeader(http.StatusOK)
	s.began = true
}

// flush sends the receipts. An error means that the client has gone.
func (s *stream) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if len(s.out) > 0 {
		_, err := s.w.Write(s.out)
		s.out = s.out[:0]
		if err != nil {
			return err
		}
	}
	return s.rc.Flush()
}

// run stores records until the stream ends, by its own end or by a fault that is told as a receipt.
func (s *stream) run(ctx context.Context) {
	for {
		fault := s.parse()
		n := len(s.entries)
		if n > 0 && !s.settle(ctx) {
			return
		}
		if fault == nil && n < s.api.edge.Limits().Records {
			if s.body == nil {
				break
			}
			fault = s.fill(ctx)
		}
		if fault == errEnded {
			return
		}
		if fault != nil {
			s.refuse(fault)
			return
		}
	}
	if s.count == 0 {
		s.refuse(errEmptyStream)
	}
}

// parse reads the whole records that are there, up to the limit on unsettled ones. A fault ends the
// stream behind them.
func (s *stream) parse() *api.Error {
	c := &s.parser.cursor
	*c = rawjson.Cursor{Data: s.buf[:s.end], Pos: s.start}
	for len(s.entries) < s.api.edge.Limits().Records {
		b := c.Peek()
		if s.start = c.Pos; s.start == s.end {
			return nil
		}
		if b != '{' {
			return malformed(c.Errorf("a record must be an object, with no comma between records"))
		}
		if s.seeker.seeking && !s.seeker.find(s.buf[s.start:s.end]) && s.body != nil {
			return nil
		}
		s.entries = slices.Grow(s.entries, 1)[:len(s.entries)+1]
		if err := s.parser.next(&s.entries[len(s.entries)-1]); err != nil {
			s.entries = s.entries[:len(s.entries)-1]
			if s.body != nil && s.cut(err) {
				return nil
			}
			return malformed(err)
		}
		s.start, s.seeker = c.Pos, seeker{}
	}
	return nil
}

// cut says whether the record at start may be faulty only because its rest has not come yet.
func (s *stream) cut(err error) bool {
	const longest = 6 // bytes of a token that looks wrong when it is cut: an escape
	var syntax *rawjson.SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset+longest < s.end {
		return false
	}
	return !s.seeker.find(s.buf[s.start:s.end])
}

// settle stores the entries and writes their receipts. It reports false when the client has gone.
func (s *stream) settle(ctx context.Context) bool {
	for i := range s.entries {
		if err := s.entries[i].misshapen; err != nil {
			s.entries[i].fault = badRecord(err)
		}
	}
	arena := s.api.edge.Arena()
	s.api.store(ctx, s.topic, s.entries, s.count, arena, s.end)
	arena.Free()
	for i := range s.entries {
		if e := &s.entries[i]; e.fault != nil {
			s.refuse(e.fault)
		} else {
			s.out = append(s.out, `{"error_code":200,`...)
			s.out = s.receipts.stored(s.out, e)
			s.out = append(s.out, "}\r\n"...)
		}
	}
	s.count += len(s.entries)
	s.entries = s.entries[:0]
	if s.body == nil && len(s.out) < receiptBytes {
		return true
	}
	if !s.began {
		s.begin()
	}
	return s.flush() == nil
}

// refuse writes a receipt that says why a record was not stored.
func (s *stream) refuse(err *api.Error) {
	s.out = append(s.out, '{')
	s.out = refused(s.out, err)
	s.out = append(s.out, "}\r\n"...)
}

// fill reads more of the body. A fault ends the stream.
func (s *stream) fill(ctx context.Context) *api.Error {
	s.end = copy(s.buf, s.buf[s.start:s.end])
	s.start = 0
	if s.end+1 >= len(s.buf) || s.filled && len(s.buf) < maxBuffer {
		if err := s.grow(); err != nil {
			return err
		}
	}
	n, err := s.body.Read(s.buf[s.end:])
	s.end += n
	s.filled = s.end == len(s.buf)
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		s.body = nil
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(s.until):
		return errTooLong
	case ctx.Err() != nil: // the server stops, or the client has gone
		return errEnded
	default:
		return badRequest("The body could not be read to its end: %v.", err)
	}
}

// grow doubles the buffer, up to the bound on one record.
func (s *stream) grow() *api.Error {
	if s.end > s.api.opts.RecordBytes {
		return badRequest("A record may have at most %d bytes as sent.", s.api.opts.RecordBytes)
	}
	wider, err := s.api.edge.Lend(2 * len(s.buf))
	if err != nil {
		return api.FromError(err)
	}
	copy(wider.Bytes, s.buf[:s.end])
	s.lent.Free()
	s.lent, s.buf = wider, wider.Bytes
	return nil
}
