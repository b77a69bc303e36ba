package txn

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(text))
	require.NoError(t, err)
	return b
}

// The bytes are put together by hand from Kafka's schema of the record.
var goldenValues = []struct {
	name  string
	bytes string
	value value
}{{
	"empty",
	`0001 0000000000000007 0003 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 01 02 02 0002`,
	value{
		producerID: 7, epoch: 3, previousID: -1, nextID: -1, lastEpoch: -1, timeout: 60000, state: empty,
		updated: 1_700_000_000_000, started: -1, version: 2,
	},
}, {
	"empty, the producer named its epoch",
	`0001 0000000000000007 0003 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 02 02 02 0002 904e 02 0002`,
	value{
		producerID: 7, epoch: 3, previousID: -1, nextID: -1, lastEpoch: 2, timeout: 60000, state: empty,
		updated: 1_700_000_000_000, started: -1, version: 2,
	},
}, {
	"ongoing",
	`0001 0000000000000007 0003 0000ea60 01
	 03 02 74 03 00000000 00000003 00  13 5f5f636f6e73756d65725f6f666673657473 02 00000011 00
	 0000018bcfe56800 0000018bcfe567ff 01 02 02 0002`,
	value{
		producerID: 7, epoch: 3, previousID: -1, nextID: -1, lastEpoch: -1, timeout: 60000, state: ongoing,
		partitions: partitions{{"t", []int32{0, 3}}, {"__consumer_offsets", []int32{17}}},
		updated:    1_700_000_000_000, started: 1_699_999_999_999, version: 2,
	},
}, {
	"decided at the last epoch",
	`0001 0000000000000007 7fff 0000ea60 02 02 02 74 02 00000001 00 0000018bcfe56800 0000018bcfe567ff
	 03 00 08 0000000000000005 01 08 000000000000000b 02 02 0002`,
	value{
		producerID: 7, epoch: math.MaxInt16, previousID: 5, nextID: 11, lastEpoch: lastEpoch, timeout: 60000,
		state: prepareCommit, partitions: partitions{{"t", []int32{1}}},
		updated: 1_700_000_000_000, started: 1_699_999_999_999, version: 2,
	},
}, {
	"done, with another producer id",
	`0001 000000000000000b 0000 0000ea60 05 01 0000018bcfe56800 0000018bcfe567ff 02 00 08 0000000000000007 02 02 0002`,
	value{
		producerID: 11, epoch: 0, previousID: 7, nextID: -1, lastEpoch: lastEpoch, timeout: 60000, state: completeAbort,
		updated: 1_700_000_000_000, started: 1_699_999_999_999, version: 2,
	},
}}

func TestGoldenRecords(t *testing.T) {
	require.Equal(t, unhex(t, "0000 0005 c3a4 2d 31 21"), encodeKey("ä-1!"))
	id, err := decodeKey(unhex(t, "0000 0005 c3a4 2d 31 21"))
	require.NoError(t, err)
	require.Equal(t, "ä-1!", id)
	for _, g := range goldenValues {
		t.Run(g.name, func(t *testing.T) {
			require.Equal(t, hex.EncodeToString(unhex(t, g.bytes)), hex.EncodeToString(encodeValue(&g.value)))
			v, err := decodeValue(unhex(t, g.bytes), lastEpoch)
			require.NoError(t, err)
			require.Equal(t, g.value, *v)
			in := kmsg.NewTxnMetadataValue()
			require.NoError(t, in.ReadFrom(unhex(t, g.bytes)))
		})
	}
}

// Values of version 0, which have no tags, and what is null where Kafka has null.
func TestOldRecords(t *testing.T) {
	v, err := decodeValue(unhex(t, `0000 0000000000000007 0003 0000ea60 01 00000001 0001 74 00000002 00000000 00000003
		0000018bcfe56800 0000018bcfe567ff`), lastEpoch)
	require.NoError(t, err)
	require.Equal(t, value{
		producerID: 7, epoch: 3, previousID: -1, nextID: -1, lastEpoch: -1, timeout: 60000, state: ongoing,
		partitions: partitions{{"t", []int32{0, 3}}}, updated: 1_700_000_000_000, started: 1_699_999_999_999,
	}, *v)
	v, err = decodeValue(unhex(t, `0000 0000000000000007 0003 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff`),
		lastEpoch)
	require.NoError(t, err)
	require.Empty(t, v.partitions)
}

func TestRecordsThatDoNotDecode(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		err   error
	}{
		"nothing":         {"", errBadRecord},
		"a later version": {"0002 00", errUnknownVersion},
		"below version 0": {"ffff", errUnknownVersion},
		"cut off":         {"0001 0000000000000007 0003", errBadRecord},
		"state 6": {
			`0001 0000000000000007 0003 0000ea60 06 00 0000018bcfe56800 ffffffffffffffff 00`, errBadRecord,
		},
	} {
		_, err := decodeValue(unhex(t, c.bytes), lastEpoch)
		require.ErrorIs(t, err, c.err, name)
	}
	for name, c := range map[string]struct {
		bytes string
		err   error
	}{
		"nothing": {"", errBadRecord}, "a later version": {"0001 0001 61", errUnknownVersion},
		"cut off": {"0000 0003 61", errBadRecord}, "too long": {"0000 0001 61 00", errBadRecord},
	} {
		_, err := decodeKey(unhex(t, c.bytes))
		require.ErrorIs(t, err, c.err, name)
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range goldenValues {
		b, _ := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(g.bytes))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeKey(b)
		v, err := decodeValue(b, lastEpoch)
		if err != nil {
			return
		}
		again, err := decodeValue(encodeValue(v), lastEpoch)
		require.NoError(t, err)
		if v.state == empty || v.version < clientVersion {
			again.partitions, again.lastEpoch = v.partitions, v.lastEpoch // which are not written
		}
		require.Equal(t, v, again)
	})
}

func TestPartitions(t *testing.T) {
	var p partitions
	one := p.with("t", 1)
	two := one.with("t", 2)
	three := two.with("u", 0)
	require.Equal(t, partitions{{"t", []int32{1}}}, one, "nothing that was there changes")
	require.Equal(t, partitions{{"t", []int32{1, 2}}, {"u", []int32{0}}}, three)
	require.Equal(t, 3, three.count())
	require.True(t, three.has("t", 2))
	require.False(t, three.has("u", 2))
	require.False(t, three.has("v", 0))
	require.Equal(t, partitions{{"t", []int32{2}}, {"u", []int32{0}}}, three.without("t", 1))
	require.Equal(t, partitions{{"t", []int32{1, 2}}}, three.without("u", 0))
	require.Equal(t, three, three.without("u", 5).without("v", 1))
	require.Equal(t, partitions{{"u", []int32{0}}}, three.minus(two))
	require.Equal(t, partitions{{"t", []int32{1, 2}}, {"u", []int32{0}}}, three)
}
