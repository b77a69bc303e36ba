package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// problem is what an answer other than 200 tells.
type problem struct {
	Outcome   string
	Retryable bool
	code      int
	text      []byte
	err       error
}

func (p *problem) String() string { return fmt.Sprintf("%d %s %v", p.code, p.text, p.err) }

// post sends a request to whatever node and reads its answer into v, or tells the problem. Without an answer the
// outcome is unknown, or failed where nothing was sent.
func (w *worker) post(path, body string, v any, header ...string) *problem {
	code, text, err := w.call(context.Background(), http.MethodPost, path, body, header...)
	p := &problem{code: code, text: text, err: err, Outcome: "unknown"}
	var dial *net.OpError
	switch {
	case err != nil:
		if errors.As(err, &dial) && dial.Op == "dial" {
			p.Outcome, p.Retryable = "failed", true
		}
	case code < 300:
		if v != nil {
			if err := json.Unmarshal(text, v); err != nil {
				w.t.Errorf("%s: %v in %s", w.member, err, text)
			}
		}
		return nil
	case json.Unmarshal(text, p) != nil:
		w.t.Errorf("%s: %s: %v", w.member, path, p)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		w.t.Errorf("%s: %s: %v", w.member, path, p)
	}
	w.elsewhere()
	pause(context.Background(), pace)
	return p
}

// txnName gives the next transaction its name, which all its records carry with their number.
func (w *worker) txnName() string {
	w.txns++
	return fmt.Sprintf("%s.%d", w.member, w.txns)
}

// copy copies records, and says whether that was done for certain.
func (w *worker) copy(records []jsonRecord) bool {
	if w.way == long {
		for range 5 {
			if done, again := w.copyLong(w.txnName(), records); done || !again {
				return done
			}
		}
		return false
	}
	return w.copyOnce(w.txnName(), records)
}

// transformed writes the records of a transaction, one a line.
func transformed(txn string, records []jsonRecord, between string) string {
	var b strings.Builder
	for i, r := range records {
		if i > 0 {
			b.WriteString(between)
		}
		key, _, _ := strings.Cut(r.Value, "-")
		fmt.Fprintf(&b, `{"topic":%q,"key_text":"copy-%s","value":"%s|%d|%d|%s"}`, output, key, txn, len(records), i, r.Value)
	}
	return b.String()
}

// consumed writes the offsets behind records.
func (w *worker) consumed(records []jsonRecord) string {
	next := make(map[int32]int64)
	for _, r := range records {
		next[r.Partition] = r.Offset + 1
	}
	var list []string
	for p, offset := range next {
		list = append(list, fmt.Sprintf(`{"group":%q,"member":%q,"topic":%q,"partition":%d,"offset":%d}`,
			copiers, w.member, input, p, offset))
	}
	return strings.Join(list, ",")
}

// copyOnce copies in one request. Without a key the worker gives up where the outcome is unknown.
func (w *worker) copyOnce(txn string, records []jsonRecord) bool {
	body := `{"records":[` + transformed(txn, records, ",") + `],"offsets":[` + w.consumed(records) + `]}`
	header := []string{"Content-Type", "application/json"}
	if w.way == keyed {
		header = append(header, "Idempotency-Key", txn)
	}
	for start := time.Now(); ; w.job.resent.Add(1) {
		p := w.post("/v1/transactions", body, nil, header...)
		switch {
		case p == nil:
			w.job.tell(txn, committed)
			return true
		case p.Outcome == "failed" && !p.Retryable:
			w.job.tell(txn, aborted)
			return false
		case p.Outcome != "failed" && w.way != keyed, time.Since(start) > 2*patience:
			w.job.tell(txn, unknownFate)
			return false
		case p.code == http.StatusConflict: // the first try is under way, or died
			pause(context.Background(), 250*time.Millisecond)
		}
	}
}

// copyLong copies step by step: not done, but again, says that the transaction was aborted for certain.
func (w *worker) copyLong(txn string, records []jsonRecord) (done, again bool) {
	path := fmt.Sprintf("/v1/transactions/long-%d", w.id)
	if w.epoch < 0 && !w.next(path+"?timeout=20s") {
		return false, true // nothing was begun
	}
	step := func(what string) string { return fmt.Sprintf("%s/%s?epoch=%d", path, what, w.epoch) }
	p := w.post(step("records"), transformed(txn, records, "\n"), nil,
		"Content-Type", "application/vnd.millrace.records+ndjson", "Producer-Seq", "0")
	if p == nil && w.rand.IntN(100) == 0 { // it crashes, and begins anew as another one
		w.epoch = -1
		w.job.tell(txn, aborted)
		return false, false
	}
	whim := w.rand.IntN(20) == 0
	if p == nil && !whim {
		p = w.post(step("offsets"), `{"offsets":[`+w.consumed(records)+`]}`, nil, "Content-Type", "application/json")
	}
	if p != nil || whim {
		if !w.next(step("abort")) {
			w.job.tell(txn, unknownFate)
			return false, false
		}
		w.job.tell(txn, aborted)
		return false, p == nil || p.Retryable
	}
	if w.next(step("commit")) {
		w.job.tell(txn, committed)
		return true, false
	}
	w.job.tell(txn, unknownFate)
	return false, false
}

// next sends a request that is safe to send again until it is answered, and takes the epoch that the answer gives.
func (w *worker) next(path string) bool {
	for range 10 {
		var answer struct{ Epoch int }
		p := w.post(path, "", &answer)
		if p == nil {
			w.epoch = answer.Epoch
			return true
		}
		if p.Outcome == "failed" && !p.Retryable {
			break
		}
		w.job.resent.Add(1)
	}
	w.epoch = -1
	return false
}
