package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"millrace/api/rawjson"
)

// ProblemType is the media type of errors on /v1.
const ProblemType = "application/problem+json"

// WriteProblem answers with err as an RFC 9457 problem: the form of errors on /v1.
func WriteProblem(w http.ResponseWriter, err error) {
	e := FromError(err)
	writeError(w, e, ProblemType, e.Fault.Status, append(AppendProblem(nil, e), '\n'))
}

// WriteCompat answers with err in the form of the compatible APIs, {"error_code","message"}, as the given
// media type.
func WriteCompat(w http.ResponseWriter, err error, mediaType string) {
	e := FromError(err)
	Judge(w, e.Fault.Outcome, e.Fault.Retryable || e.Fault.Code == 50003)
	writeError(w, e, mediaType, CompatStatus(e.Fault.Code), AppendCompat(nil, e))
}

func writeError(w http.ResponseWriter, e *Error, mediaType string, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Del("Content-Encoding")
	h.Set("Cache-Control", "no-store")
	if e.Allow != "" {
		h.Set("Allow", e.Allow)
	}
	switch e.Fault {
	case UnsupportedEncoding:
		h.Set("Accept-Encoding", "gzip, zstd")
	case SlowBody, BodyTooLarge:
		h.Set("Connection", "close") // what is left of the body must not be read as the next request
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || e.Fault == KeyInUse {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// AppendProblem appends e as a JSON problem.
func AppendProblem(dst []byte, e *Error) []byte {
	f := e.Fault
	dst = append(dst, `{"type":"/v1/errors#`...)
	dst = append(dst, f.Name...)
	dst = append(dst, `","title":`...)
	dst = rawjson.AppendString(dst, f.Title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(f.Status), 10)
	dst = append(dst, `,"detail":`...)
	dst = rawjson.AppendString(dst, e.Text())
	dst = append(dst, `,"error_code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	dst = append(dst, `,"retryable":`...)
	dst = strconv.AppendBool(dst, f.Retryable)
	dst = append(dst, `,"outcome":"`...)
	dst = append(dst, e.outcome()...)
	dst = append(dst, '"')
	for _, m := range e.Extra {
		if m.Name == outcomeMember {
			continue
		}
		v, err := json.Marshal(m.Value)
		if err != nil {
			continue // an extra that cannot be told is left out; the problem stands without it
		}
		dst = append(dst, ',')
		dst = rawjson.AppendString(dst, m.Name)
		dst = append(dst, ':')
		dst = append(dst, v...)
	}
	return append(dst, '}')
}

// outcomeMember is the extra by which an Error overrules its fault's outcome.
const outcomeMember = "outcome"

// Overrule sets another outcome than the fault's own, as when only a part of a request failed.
func (e *Error) Overrule(o Outcome) *Error { return e.With(outcomeMember, o) }

func (e *Error) outcome() Outcome {
	for _, m := range e.Extra {
		if o, ok := m.Value.(Outcome); ok && m.Name == outcomeMember {
			return o
		}
	}
	return e.Fault.Outcome
}

// AppendCompat appends e as {"error_code","message"}.
func AppendCompat(dst []byte, e *Error) []byte {
	dst = append(dst, `{"error_code":`...)
	dst = strconv.AppendInt(dst, int64(e.Fault.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = rawjson.AppendString(dst, e.Text())
	return append(dst, '}')
}

// Text is the detail followed by the advice: what happened, and what to do next.
func (e *Error) Text() string {
	if e.Detail == "" {
		return e.Fault.Advice
	}
	if e.Fault.Advice == "" {
		return e.Detail
	}
	detail := e.Detail
	if first, _, _ := strings.Cut(detail, " "); !strings.ContainsAny(strings.TrimRight(first, ".,:"), "._") {
		detail = strings.ToUpper(detail[:1]) + detail[1:] // but a parameter or setting keeps its spelling
	}
	if !strings.HasSuffix(detail, ".") {
		detail += "."
	}
	return detail + " " + e.Fault.Advice
}

// Fail answers with err as a problem, and logs it when the fault is the server's own.
func (e *Edge) Fail(w http.ResponseWriter, r *http.Request, err error) {
	e.LogFault(r.Context(), err)
	WriteProblem(w, ErrorFor(r, err))
}
