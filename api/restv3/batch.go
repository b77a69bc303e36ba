package restv3

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"millrace/api"
	"millrace/api/rawjson"
)

// maxEntryID bounds a batch entry's id.
const maxEntryID = 80

// batchAnswer is the body of an answer to a batch.
type batchAnswer []byte

// VisitProduceKafkaRecordsBatchResponse writes the answer: 207, whatever became of the entries.
func (b batchAnswer) VisitProduceKafkaRecordsBatchResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusMultiStatus)
	_, err := w.Write(b)
	return err
}

func (a *API) ProduceKafkaRecordsBatch(ctx context.Context, r ProduceKafkaRecordsBatchRequestObject) (
	ProduceKafkaRecordsBatchResponseObject, error) {
	c := ctx.Value(callKey{}).(*call)
	if err := isJSON(r.ContentType); err != nil {
		return nil, err
	}
	body, err := a.edge.ReadBody(c.w, c.r, 0)
	defer body.Free()
	if err != nil {
		return nil, err
	}
	entries, err := batchRequest(body.Bytes, a.opts.BatchEntries)
	if err != nil {
		return nil, err
	}
	a.store(ctx, r.TopicName, entries, 0, body.Arena(), len(body.Bytes))
	var rs receipts
	rs.set(r.ClusterId, r.TopicName)
	return batchResponse(&rs, entries), nil
}

// batchRequest reads the entries of a batch. An error refuses the batch as a whole.
func batchRequest(data []byte, maxEntries int) ([]entry, error) {
	p := parser{cursor: rawjson.Cursor{Data: data}, ids: true}
	c := &p.cursor
	if rawjson.IsEmpty(data) {
		return nil, api.RefuseCompat(codeBatch, "Request body is empty. Data is required.")
	}
	if err := c.Begin('{'); err != nil {
		return nil, malformed(err)
	}
	var entries []entry
	found := false
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return nil, malformed(err)
		}
		if !more {
			break
		}
		switch {
		case string(name) != "entries":
			return nil, unknownField(string(name))
		case found:
			return nil, badRequest("Duplicate field: entries")
		}
		found = true
		if entries, err = p.entries(); err != nil {
			return nil, err
		}
	}
	if err := c.End(); err != nil {
		return nil, malformed(err)
	}
	return entries, checkBatch(entries, maxEntries)
}

var errTooManyEntries = api.RefuseCompat(codeBatch, "Too many entries in batch.")

// mostEntries is how many entries of a batch are read, be it to find what is wrong with them first: an entry takes far
// more memory than its text.
const mostEntries = 1000

// entries reads the array of entries.
func (p *parser) entries() ([]entry, error) {
	if err := p.cursor.Begin('['); err != nil {
		return nil, malformed(rawjson.InField(err, "entries"))
	}
	var out []entry
	for first := true; ; first = false {
		more, err := p.cursor.More(']', first)
		if err != nil {
			return nil, malformed(err)
		}
		if !more {
			return out, nil
		}
		if len(out) == mostEntries {
			return nil, errTooManyEntries
		}
		out = append(out, entry{})
		e := &out[len(out)-1]
		if err := p.next(e); err != nil {
			return nil, malformed(err)
		}
		if e.misshapen != nil {
			return nil, e.misshapen
		}
	}
}

// checkBatch makes the checks of a batch in the proxy's order.
func checkBatch(entries []entry, maxEntries int) error {
	seen := make(map[string]bool, len(entries))
	for i := range entries {
		id := entries[i].id
		if !isEntryID(id) {
			return api.RefuseCompat(codeBatch, "Batch entry identifier is not a valid string.")
		}
		if seen[string(id)] {
			return api.RefuseCompat(codeBatch, "Batch entry IDs are not distinct.")
		}
		seen[string(id)] = true
	}
	switch {
	case len(entries) == 0:
		return api.RefuseCompat(codeBatch, "Empty batch.")
	case len(entries) > maxEntries:
		return errTooManyEntries
	}
	return nil
}

func isEntryID(id []byte) bool {
	if len(id) == 0 || len(id) > maxEntryID {
		return false
	}
	return !slices.ContainsFunc(id, func(c byte) bool {
		return (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_'
	})
}

// batchResponse lists what became of the entries, in their order.
func batchResponse(rs *receipts, entries []entry) batchAnswer {
	out := append([]byte(nil), `{"successes":[`...)
	for i := range entries {
		if e := &entries[i]; e.fault == nil {
			out = append(rs.stored(appendID(out, e), e), '}')
		}
	}
	out = append(out, `],"failures":[`...)
	for i := range entries {
		if e := &entries[i]; e.fault != nil {
			out = append(refused(appendID(out, e), e.fault), '}')
		}
	}
	return append(out, "]}"...)
}

// appendID begins the object of an entry in a list.
func appendID(dst []byte, e *entry) []byte {
	if dst[len(dst)-1] != '[' {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, e.id)
	return append(dst, ',')
}
