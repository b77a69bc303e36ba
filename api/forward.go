package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Forward serves a request on the node that a target is at home on, and reports whether it did. An error is one that
// was not answered yet. What it reads of the body and writes to w is bounded in time already.
type Forward func(w http.ResponseWriter, r *http.Request, to Target) (done bool, err error)

// Target is what a request is served beside: a group, where that has a name, or else a partition.
type Target struct {
	Group     string // on the node of its coordinator
	Topic     string // on the node that leads the partition
	Partition int32
}

// forwardWrite is how long a client may leave what was forwarded to it untaken.
const forwardWrite = 30 * time.Second

// ForwardGroup serves r on the node of the group's coordinator and reports true, or reports false when that is this
// node, when nobody knows better, or when r was forwarded already: then the caller serves it. It comes before the body
// is read and anything is written. A coordinator that is moving is waited for.
func (e *Edge) ForwardGroup(w http.ResponseWriter, r *http.Request, group string) bool {
	return e.forward(w, r, Target{Group: group})
}

// ForwardPartition does for the leader of a partition what ForwardGroup does for a coordinator. A partition that is not
// there, or has no leader, leaves the request to the caller.
func (e *Edge) ForwardPartition(w http.ResponseWriter, r *http.Request, topic string, partition int32) bool {
	return e.forward(w, r, Target{Topic: topic, Partition: partition})
}

func (e *Edge) forward(w http.ResponseWriter, r *http.Request, to Target) bool {
	if e.opts.Forward == nil {
		return false
	}
	closeStream, err := e.OpenStream()
	if err != nil {
		writeByFamily(w, r, err)
		return true
	}
	defer closeStream()
	out := &forwardedAnswer{ResponseWriter: w, rc: http.NewResponseController(w)}
	passed := *r
	if IsHead(r) {
		passed.Method = http.MethodHead // which the router has made a GET
	}
	var body *forwardedBody
	if r.Body != nil && r.Body != http.NoBody {
		body = e.forwardedBody(w, r)
		passed.Body = body
	}
	done, err := e.opts.Forward(out, &passed, to)
	if err != nil {
		if body != nil && body.fault != nil {
			err = body.fault
		}
		writeByFamily(w, r, err)
		return true
	}
	if !done {
		r.Body = passed.Body // of which some may have been read to be sent on
	}
	return done
}

// forwardedBody is the body of a request as it is sent on: no longer than a body may be, and no slower.
type forwardedBody struct {
	edge     *Edge
	body     io.Reader
	progress progress
	writer   *statusWriter // nil in a test's writer
	left     int64
	fault    *Error
}

func (e *Edge) forwardedBody(w http.ResponseWriter, r *http.Request) *forwardedBody {
	b := &forwardedBody{edge: e, body: r.Body, left: int64(e.limits.BodyBytes)}
	b.progress = progress{rc: http.NewResponseController(w), rate: e.limits.BodyRate, window: e.limits.BodyWindow}
	b.writer, _ = w.(*statusWriter)
	b.progress.alone = b.writer == nil || !b.writer.multiplexed
	return b
}

func (b *forwardedBody) Read(p []byte) (int, error) {
	if b.fault != nil {
		return 0, b.fault
	}
	n, err := b.progress.read(b.body, p)
	switch b.left -= int64(n); {
	case b.left < 0:
		b.fault = b.edge.OverLimit("body_bytes",
			Refuse(BodyTooLarge, "the body may have at most %d bytes", b.edge.limits.BodyBytes))
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.fault = b.edge.OverLimit("body_rate",
			&Error{Fault: SlowBody, Detail: "too few bytes of the body arrived in time", Cause: err})
	case err == io.EOF:
		b.progress.stop(nil)
		b.end()
		return n, err
	case err != nil:
		b.fault = Refuse(MalformedBody, "the body could not be read to its end: %v", err)
	default:
		return n, nil
	}
	b.progress.stop(b.fault)
	b.end()
	return 0, b.fault
}

// end notes that nothing of the body is left to be discarded.
func (b *forwardedBody) end() {
	if b.writer != nil {
		b.writer.bodyDone = true
	}
}

// Close leaves the body to the server, which closes it: a request that did not reach one node is sent to another.
func (b *forwardedBody) Close() error { return nil }

// forwardedAnswer is where the answer of another node goes: each part of it must be taken in time.
type forwardedAnswer struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (a *forwardedAnswer) Write(p []byte) (int, error) {
	_ = a.rc.SetWriteDeadline(time.Now().Add(forwardWrite)) // a writer without deadlines is one in a test
	n, err := a.ResponseWriter.Write(p)
	if err == nil {
		_ = a.rc.SetWriteDeadline(time.Time{})
	}
	return n, err
}

// FlushError sends what has been written. http.ResponseController calls it.
func (a *forwardedAnswer) FlushError() error {
	_ = a.rc.SetWriteDeadline(time.Now().Add(forwardWrite))
	err := a.rc.Flush()
	if err == nil {
		_ = a.rc.SetWriteDeadline(time.Time{})
	}
	return err
}

// Unwrap gives the writer below to http.ResponseController.
func (a *forwardedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
