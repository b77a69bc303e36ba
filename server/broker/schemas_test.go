package broker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// A topic that enforces schemas takes what its check lets pass, and a repeat of what was written although the check
// would refuse it by now: then the outcome of the first try is what counts.
func TestSchemasAreEnforced(t *testing.T) {
	var verdict error
	var asked []string
	n := newNode(t, options{recoded: true, schemas: func(_ context.Context, topic string, rules metadata.SchemaRules,
		b record.Batch) error {
		asked = append(asked, fmt.Sprintf("%s key=%s value=%s of %d", topic, rules.Key, rules.Value, b.Count()))
		return verdict
	}})
	n.create("free", 1)
	n.create("strict", 1, "value.schema.validation", "true", "key.schema.validation", "true",
		"key.subject.name.strategy", "RECORD_NAME")

	verdict = errors.New("never to be heard")
	require.Equal(t, int64(0), n.produce("free", 0, plain("a")))
	require.Empty(t, asked)

	verdict = nil
	first := batch(7000, 0, 0, "a", "b")
	require.Equal(t, int64(0), n.produce("strict", 0, append(record.Batch(nil), first...)))
	require.Equal(t, []string{"strict key=RECORD_NAME value=TOPIC_NAME of 2"}, asked)

	verdict = &record.Fault{
		Err: record.ErrInvalid, Message: "1 record was refused", Records: []record.RecordFault{{Index: 1, Message: "why"}},
	}
	p := n.send(n.produceRequest("strict", 0, append(record.Batch(nil), first...)))
	require.Zero(t, p.ErrorCode, "a repeat is answered as one")
	require.True(t, ktag.Duplicate(&p.UnknownTags))

	p = n.send(n.produceRequest("strict", 0, batch(7000, 0, 2, "c", "d")))
	require.Equal(t, kerr.InvalidRecord.Code, p.ErrorCode)
	require.Len(t, p.ErrorRecords, 1)
	require.Equal(t, int32(1), p.ErrorRecords[0].RelativeOffset)
	require.Equal(t, "why", *p.ErrorRecords[0].ErrorMessage)

	verdict = fmt.Errorf("%w: the registry is not read yet", partition.ErrUnjudged)
	p = n.send(n.produceRequest("strict", 0, plain("e")))
	require.Equal(t, kerr.LeaderNotAvailable.Code, p.ErrorCode)
	require.True(t, ktag.NotWritten(&p.UnknownTags))

	verdict = nil
	require.Equal(t, int64(2), n.produce("strict", 0, plain("f")))
}
