package native

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// failedBatch is one partition's fate in the problem for a request that failed, wholly or in part.
type failedBatch struct {
	Topic      string      `json:"topic,omitempty"` // only where there may be several
	Partition  int32       `json:"partition"`
	BaseOffset *int64      `json:"base_offset,omitempty"`
	Count      *int        `json:"count"` // null for a duplicate whose first count is forgotten
	Error      *batchError `json:"error,omitempty"`
}

type batchError struct {
	Type      string      `json:"type"`
	ErrorCode int         `json:"error_code"`
	Detail    string      `json:"detail"`
	Retryable bool        `json:"retryable"`
	Outcome   api.Outcome `json:"outcome"`
	Records   []badRecord `json:"records,omitempty"`
}

// badRecord is a record at fault, by its place in the request.
type badRecord struct {
	Index  int32  `json:"index"`
	Line   int32  `json:"line,omitempty"` // in a body of lines, from 1
	Detail string `json:"detail"`
}

// fates adds up what became of a request's batches.
type fates struct {
	told      []failedBatch
	all, lost int   // records
	stored    bool  // a batch is
	cause     error // the first failure; rather one that others followed from; rather one with an unknown outcome
	weight    int   // of cause
}

// failure tells which partitions took their records and which did not. The problem is the one of the failure that
// says most. Its outcome is unknown if that of a batch is; else partial if a batch is stored, so that nobody takes it
// for a request that did nothing; else failed, as it is where all is a transaction of its own.
func (j *produceJob) failure(batches []client.BatchResult) error {
	f := fates{told: make([]failedBatch, len(batches))}
	for i := range batches {
		f.all += max(batches[i].Count, 0)
	}
	for i := range batches {
		f.told[i] = j.fate(&f, &batches[i])
		if i < len(j.fateTopics) {
			f.told[i].Topic = j.fateTopics[i]
		}
	}
	e := j.batchFault(f.cause, f.all)
	together := j.txn != nil && j.txn.once // nothing is kept of a part
	if len(batches) > 1 {
		none := ""
		if together {
			none = ", so that none is kept"
		}
		e.Detail = fmt.Sprintf("%d of %d records %s%s, see offsets: %s", f.lost, f.all, f.verb(), none, e.Detail)
	}
	if f.stored && e.Fault.Outcome == api.Failed && !together {
		e.Overrule(api.Partial)
		if !j.hasProducer {
			e.Fault = onlyTheRest(e.Fault)
		}
	}
	return e.With("offsets", f.told)
}

// onlyTheRest is a fault of a part of a request that nothing keeps from being stored twice when it is sent again.
func onlyTheRest(f *api.Fault) *api.Fault {
	told := *f
	told.Retryable, told.Advice = false, "Send again only the records that offsets tell were not stored."
	return &told
}

func (f *fates) verb() string {
	verb := "were not "
	if f.lost == 1 {
		verb = "was not "
	}
	if f.weight == weightUnknown {
		return verb + "acknowledged"
	}
	return verb + "stored"
}

// How much a failure says about a request.
const (
	weightFollowed = iota + 1 // it was not tried since another failed
	weightFailed
	weightUnknown
)

// fate is that of one batch.
func (j *produceJob) fate(f *fates, b *client.BatchResult) failedBatch {
	out := failedBatch{Partition: b.Partition}
	if count := b.Count; count >= 0 { // a copy: the batches are the Sender's
		out.Count = &count
	}
	if b.Err == nil {
		f.stored = true
		if offset := b.BaseOffset; offset >= 0 {
			out.BaseOffset = &offset
		}
		return out
	}
	f.lost += b.Count
	e := j.batchFault(b.Err, f.all)
	weight := weightFailed
	switch {
	case e.Fault.Outcome == api.Unknown:
		weight = weightUnknown
	case errors.Is(b.Err, kerr.OperationNotAttempted):
		weight = weightFollowed
	}
	if weight > f.weight {
		f.cause, f.weight = b.Err, weight
	}
	out.Error = &batchError{
		Type: "/v1/errors#" + e.Fault.Name, ErrorCode: e.Fault.Code, Detail: e.Detail,
		Retryable: e.Fault.Retryable, Outcome: e.Fault.Outcome, Records: j.badRecords(b.Err),
	}
	return out
}

// batchFault is why a batch was not stored. The detail names the first record at fault, by its place among all.
func (j *produceJob) batchFault(err error, all int) *api.Error {
	e := *api.FromError(err)
	e.Cause = err
	records := j.badRecords(err)
	switch {
	case len(records) > 0 && all > 1:
		e.Detail += "; " + j.where(records[0].Index) + ": " + records[0].Detail
	case len(records) > 0:
		e.Detail += ": " + records[0].Detail
	case j.oneBatch() && (errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)):
		e.Detail += "; with " + oneBatchHeaders + " all records of a partition go in one batch"
	}
	return &e
}

// badRecords are the records at fault in a batch.
func (j *produceJob) badRecords(err error) []badRecord {
	var k *client.KafkaError
	if !errors.As(err, &k) {
		return nil
	}
	var out []badRecord
	for _, r := range k.Records {
		bad := badRecord{Index: r.Index, Detail: r.Message}
		if int(r.Index) < len(j.lines) {
			bad.Line = j.lines[r.Index]
		}
		out = append(out, bad)
	}
	return out
}

// where is the place of record i in the body.
func (in *intake) where(i int32) string {
	if int(i) < len(in.lines) {
		return "line " + strconv.Itoa(int(in.lines[i]))
	}
	return "record " + strconv.Itoa(int(i))
}
