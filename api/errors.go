package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api/rawjson"
	"millrace/client"
)

// Error is a request's refusal as a caller of the HTTP API will read it.
type Error struct {
	Fault  *Fault
	Detail string   // what happened, without advice
	Extra  []Member // further members of a problem, such as the bounds of a log
	Allow  string   // value of the Allow header, if any
	Cause  error    // what it was made from, nil if nothing
}

// Member is an extra member of a problem. Value is marshalled by encoding/json, or is raw if it is a
// json.RawMessage.
type Member struct {
	Name  string
	Value any
}

// Refuse makes an Error of the given fault.
func Refuse(f *Fault, format string, args ...any) *Error {
	return &Error{Fault: f, Detail: fmt.Sprintf(format, args...)}
}

// With adds an extra member to the problem.
func (e *Error) With(name string, value any) *Error {
	e.Extra = append(e.Extra, Member{name, value})
	return e
}

func (e *Error) Error() string { return e.Fault.Name + ": " + e.Detail }

func (e *Error) Unwrap() error { return e.Cause }

// FromError is the one translation of any error into what the HTTP edge tells.
func FromError(err error) *Error {
	var (
		edge   *Error
		moved  *client.OffsetMovedError
		kafka  *client.KafkaError
		code   *kerr.Error
		syntax *rawjson.SyntaxError
		kind   *rawjson.TypeError
		large  *http.MaxBytesError
	)
	switch {
	case errors.As(err, &edge):
		return edge
	case errors.As(err, &moved):
		return fromMoved(moved)
	case errors.As(err, &kafka):
		return fromKafka(kafka)
	case errors.As(err, &code):
		return &Error{Fault: KafkaFault(code), Detail: code.Description, Cause: err}
	case errors.As(err, &syntax):
		return &Error{Fault: MalformedBody, Detail: syntax.Error(), Cause: err}
	case errors.As(err, &kind):
		return &Error{Fault: MalformedBody, Detail: kind.Error(), Cause: err}
	case errors.As(err, &large):
		return &Error{Fault: BodyTooLarge, Detail: large.Error(), Cause: err}
	case errors.Is(err, client.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{Fault: NoAnswer, Detail: err.Error(), Cause: err}
	default:
		return &Error{Fault: Internal, Detail: err.Error(), Cause: err}
	}
}

// ForRead is FromError for what was only read.
func ForRead(err error) *Error {
	e := FromError(err)
	f := e.Fault.forRead()
	if f == e.Fault {
		return e
	}
	told := *e
	told.Fault = f
	return &told
}

// ErrorFor is FromError for the answer to r.
func ErrorFor(r *http.Request, err error) *Error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ForRead(err)
	}
	return FromError(err)
}

func fromMoved(m *client.OffsetMovedError) *Error {
	e := &Error{Fault: OffsetMoved, Detail: m.Error(), Cause: m}
	e.With("topic", m.Topic).With("partition", m.Partition)
	if m.Committed >= 0 {
		e.With("committed_offset", m.Committed)
	}
	return e
}

func fromKafka(k *client.KafkaError) *Error {
	e := &Error{Fault: KafkaFault(k.Err), Detail: k.Detail(), Cause: k}
	if k.NotWritten && e.Fault.Outcome != Failed { // the code alone leaves it open
		e.Fault = NotStored
	}
	if k.Topic != "" {
		e.With("topic", k.Topic)
	}
	if k.Partition >= 0 {
		e.With("partition", k.Partition)
	}
	if k.ExpectedSequence >= 0 {
		e.Detail = "expected Producer-Seq " + strconv.Itoa(int(k.ExpectedSequence))
		e.With("expected_seq", k.ExpectedSequence)
	}
	if k.CurrentEpoch >= 0 {
		e.Detail = "the current Producer-Epoch is " + strconv.Itoa(int(k.CurrentEpoch))
		e.With("current_epoch", k.CurrentEpoch)
	}
	if k.ActualOffset >= 0 {
		e.Detail = "the log end offset is " + strconv.FormatInt(k.ActualOffset, 10)
		e.With("actual_offset", k.ActualOffset)
	}
	return e
}
