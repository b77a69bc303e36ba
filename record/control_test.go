package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

func TestParseControl(t *testing.T) {
	commit := record.Control{Type: record.ControlCommit, CoordinatorEpoch: 258}
	for _, c := range []struct {
		name       string
		key, value string
		want       record.Control
		ok         bool
	}{
		{"commit", "\x00\x00\x00\x01", "\x00\x00\x00\x00\x01\x02", commit, true},
		{"abort", "\x00\x00\x00\x00", "\x00\x00\xff\xff\xff\xff",
			record.Control{Type: record.ControlAbort, CoordinatorEpoch: -1}, true},
		{"larger versions, more bytes", "\x00\x05\x00\x01more", "\x00\x09\x00\x00\x01\x02more", commit, true},
		{"leader change", "\x00\x00\x00\x02", "anything", record.Control{Type: record.ControlLeaderChange}, true},
		{"unknown type, no value", "\x00\x00\x7f\xff", "", record.Control{Type: 32767}, true},
		{"key cut", "\x00\x00\x00", "\x00\x00\x00\x00\x01\x02", record.Control{}, false},
		{"no key", "", "", record.Control{}, false},
		{"version negative", "\xff\xff\x00\x01", "\x00\x00\x00\x00\x01\x02", record.Control{}, false},
		{"value cut", "\x00\x00\x00\x01", "\x00\x00\x00\x00\x01", record.Control{}, false},
		{"value version negative", "\x00\x00\x00\x01", "\x80\x00\x00\x00\x01\x02", record.Control{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := record.ParseControl(&record.Record{Key: []byte(c.key), Value: []byte(c.value)})
			require.Equal(t, c.want, got)
			if c.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, record.ErrCorrupt)
			}
		})
	}
}

func TestMarkersAgreeWithKmsg(t *testing.T) {
	out := record.AppendEndTxnMarker(nil, record.EndTxnMarker{Type: record.ControlCommit, CoordinatorEpoch: 77})
	marker := readAll(t, record.Batch(out))[0]
	var key kmsg.ControlRecordKey
	require.NoError(t, key.ReadFrom(marker.Key))
	require.Equal(t, kmsg.ControlRecordKeyTypeCommit, key.Type)
	var value kmsg.EndTxnMarker
	require.NoError(t, value.ReadFrom(marker.Value))
	require.EqualValues(t, 77, value.CoordinatorEpoch)
}
