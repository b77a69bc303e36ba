package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"millrace/record"
)

// Body is a request's whole body, in memory of its own until Free.
type Body struct {
	Bytes []byte

	edge  *Edge
	arena *record.Arena
	taken int64 // of edge.inFlight
}

// Arena is the request's memory; what is taken from it lives until Free.
func (b *Body) Arena() *record.Arena { return b.arena }

// Free gives the body's memory back, and all else that came from its arena. It may be called on a Body
// that was never read.
func (b *Body) Free() {
	if b.edge == nil {
		return
	}
	b.edge.inFlight.Add(-b.taken)
	b.arena.Free()
	*b = Body{}
}

// Lend gives a Body of n bytes for a part of a body that is read as it comes. The caller calls Free.
func (e *Edge) Lend(n int) (Body, error) {
	b := Body{edge: e, arena: e.pool.Arena()}
	if err := b.take(n); err != nil {
		b.Free()
		return b, err
	}
	b.Bytes = b.arena.Alloc(n)
	return b, nil
}

// ReadBody reads r's whole body, decompressed, within the limits; limit lowers the bound on its size as
// sent, 0 leaves it. The caller calls Free, after an error too. Whatever is wrong with the body, also an
// end before its announced length, is an *Error and nothing of the body may be used.
func (e *Edge) ReadBody(w http.ResponseWriter, r *http.Request, limit int) (Body, error) {
	b := Body{edge: e, arena: e.pool.Arena()}
	if limit <= 0 || limit > e.limits.BodyBytes {
		limit = e.limits.BodyBytes
	}
	coding, err := contentCoding(r.Header)
	if err != nil {
		return b, err
	}
	if r.ContentLength > int64(limit) {
		return b, b.tooLarge(limit)
	}
	if r.ContentLength != 0 {
		p := &progress{rc: http.NewResponseController(w), rate: e.limits.BodyRate, window: e.limits.BodyWindow}
		sw, ok := w.(*statusWriter)
		p.alone = !ok || !sw.multiplexed
		err = b.read(r, p, limit)
		p.stop(err)
		if ok {
			sw.bodyDone = true
		}
		if err != nil {
			return b, err
		}
	}
	if coding != identity {
		err = b.expand(coding)
	}
	return b, err
}

func (b *Body) tooLarge(limit int) *Error {
	return b.edge.OverLimit("body_bytes", Refuse(BodyTooLarge, "the body may have at most %d bytes", limit))
}

// take reserves n bytes of the memory for bodies.
func (b *Body) take(n int) error {
	if b.edge.inFlight.Add(int64(n)) > b.edge.limits.InFlightBytes {
		b.edge.inFlight.Add(int64(-n))
		return b.edge.OverLimit("in_flight_bytes",
			Refuse(Overloaded, "the bodies of the requests being served fill the memory set aside for them"))
	}
	b.taken += int64(n)
	return nil
}

// firstBytes is how much of a body is reserved before any of it has come. A longer one takes more as it arrives, so
// that clients who announce much and send little do not use up the memory of all.
const firstBytes = 1 << 20

// read reads the body as sent.
func (b *Body) read(r *http.Request, p *progress, limit int) error {
	size := min(int(r.ContentLength), firstBytes)
	if size < 0 {
		size = 4 << 10
	}
	if err := b.take(size); err != nil {
		return err
	}
	buf := b.arena.Alloc(size)
	n := 0
	for {
		if n == len(buf) {
			if int64(n) == r.ContentLength {
				break
			}
			if n > limit {
				return b.tooLarge(limit)
			}
			size := 2 * len(buf)
			if r.ContentLength >= 0 {
				size = min(size, int(r.ContentLength))
			}
			if err := b.take(size - len(buf)); err != nil {
				return err
			}
			grown := b.arena.Alloc(size)
			copy(grown, buf)
			buf = grown
		}
		k, err := p.read(r.Body, buf[n:])
		n += k
		if n > limit {
			return b.tooLarge(limit)
		}
		if err == io.EOF {
			if int64(n) < r.ContentLength {
				err = io.ErrUnexpectedEOF
			} else {
				break
			}
		}
		if err != nil {
			return b.unread(err, n, r.ContentLength)
		}
	}
	b.Bytes = buf[:n]
	return nil
}

// unread tells why a body could not be read to its end.
func (b *Body) unread(err error, n int, of int64) *Error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		slow := &Error{Fault: SlowBody, Detail: "too few bytes of the body arrived in time", Cause: err}
		return b.edge.OverLimit("body_rate", slow)
	case errors.Is(err, io.ErrUnexpectedEOF) && of >= 0:
		e := Refuse(MalformedBody, "the body ended after %d of %d bytes", n, of)
		e.Cause = err
		return e
	default:
		e := Refuse(MalformedBody, "the body could not be read to its end: %v", err)
		e.Cause = err
		return e
	}
}

// progress reads a body under a deadline that moves on as bytes arrive: at least rate bytes a second,
// averaged over window.
type progress struct {
	rc     *http.ResponseController
	rate   int
	window time.Duration
	since  time.Time // when the deadline was set
	bytes  int       // read since then
	off    bool      // the connection knows no deadlines
	alone  bool      // the connection carries no other request: HTTP/1
}

func (p *progress) read(r io.Reader, buf []byte) (int, error) {
	if p.since.IsZero() && !p.off {
		p.move(time.Now())
	}
	n, err := r.Read(buf)
	p.bytes += n
	if p.off || err != nil || p.bytes < p.rate*int(p.window/time.Second) {
		return n, err
	}
	if now := time.Now(); now.Sub(p.since) >= time.Second {
		p.move(now)
	}
	return n, err
}

func (p *progress) move(now time.Time) {
	p.since, p.bytes = now, 0
	p.off = p.rc.SetReadDeadline(now.Add(p.window)) != nil
}

// stop ends the reading. After a whole body the deadline is lifted: the connection is watched for the client's going
// away from now on. After another one nothing more is read: not even what net/http would discard of it. HTTP/2 discards
// nothing, and would reset the request when more of its body arrived than may be read, ahead of the answer.
func (p *progress) stop(err error) {
	if p.off {
		return
	}
	if err != nil {
		if p.alone {
			p.expire()
		}
		return
	}
	_ = p.rc.SetReadDeadline(time.Time{}) // it could be set before
}

// expire makes every read fail from now on.
func (p *progress) expire() { _ = p.rc.SetReadDeadline(time.Unix(1, 0)) }
