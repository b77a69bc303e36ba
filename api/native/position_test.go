package native

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionText(t *testing.T) {
	tag := topicTag([16]byte{0xfb, 0xff, 0xfe, 1})
	require.Equal(t, "-__-", tag)
	require.Empty(t, topicTag([16]byte{}))
	for text, p := range map[string]position{
		"0":                   {partition: allPartitions, offsets: []int64{0}},
		"1200,880":            {partition: allPartitions, offsets: []int64{1200, 880}},
		"1200,880~-__-":       {partition: allPartitions, offsets: []int64{1200, 880}, tag: tag},
		"3:7~-__-":            {partition: 3, offsets: []int64{7}, tag: tag},
		"0:0":                 {partition: 0, offsets: []int64{0}},
		"9223372036854775807": {partition: allPartitions, offsets: []int64{math.MaxInt64}},
		"2147483647:9":        {partition: math.MaxInt32, offsets: []int64{9}},
		".A":                  {partition: allPartitions, offsets: []int64{0}, packed: true},
		".fgBiB~-__-":         {partition: allPartitions, offsets: []int64{31, 32, 34}, tag: tag, packed: true},
		".____________H":      {partition: allPartitions, offsets: []int64{math.MaxInt64}, packed: true},
	} {
		require.Equal(t, text, p.String())
		got, err := parsePosition(text)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
}

func TestPositionRefused(t *testing.T) {
	for _, text := range []string{
		"", "x", "-1", "+1", "01", "1,", ",1", "1,,2", "1 ", " 1", "1.0", "1e3", "9223372036854775808", "1:", ":1",
		"1:2,3", "1:2:3", "-1:2", "2147483648:1", "01:1", "1~", "1~abc", "1~abcde", "1~ab+/", "1~AAA\n", "1~AAA=", "~AAAA",
		"1~AAAA~AAAA", ".", ".~AAAA", ".,", ".1,2", "1:.A", ".gA", ".AgA",
		".______________", ".____________I", "..A", ".A=", ".g", "." + strings.Repeat("A", maxPositionPartitions+1),
		"0x1", "１", strings.Repeat("1,", maxPositionPartitions) + "1", strings.Repeat("9", maxPositionBytes+1),
	} {
		_, err := parsePosition(text)
		require.ErrorIs(t, err, errPosition, "%.40q", text)
	}
	_, err := parsePosition(strings.Repeat("1,", maxPositionPartitions-1) + "1")
	require.NoError(t, err)
}

// The positions of topics with very many partitions are short enough to be sent back.
func TestPositionOfManyPartitions(t *testing.T) {
	for n, most := range map[int]int{100: 1104, 101: 712, 1000: 7006, maxPositionPartitions: 60_006} {
		p := position{partition: allPartitions, tag: "AAAA"}
		for i := range n {
			p.offsets = append(p.offsets, 1<<30-1-int64(i))
		}
		text := p.String()
		require.LessOrEqual(t, len(text), most, "%d partitions", n)
		got, err := parsePosition(text)
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	byHand := strings.Repeat("7,", 500) + "7"
	p, err := parsePosition(byHand)
	require.NoError(t, err)
	require.Len(t, p.offsets, 501)
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{
		".fgBiB~-__-", strings.Repeat("1,", 101) + "1", "0", "1200,880~-__-", "3:7~AAAA", "1,,2", "~",
		"9223372036854775808",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePosition(s)
		if err != nil {
			return
		}
		require.Equal(t, s, p.String())
		require.LessOrEqual(t, len(p.offsets), maxPositionPartitions)
		for _, o := range p.offsets {
			require.GreaterOrEqual(t, o, int64(0))
		}
	})
}

func FuzzReadQuery(f *testing.F) {
	for _, s := range []string{
		"offset=1", "from=1,2&wait=5s", "timestamp=2026-01-31T12:00:00+02:00&max_bytes=1", "%", "a&b=c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := parseReadQuery(s)
		if err != nil {
			return
		}
		require.True(t, q.maxRecords >= 1 && q.maxRecords <= maxMaxRecords)
		require.True(t, q.maxBytes >= 1 && q.maxBytes <= maxMaxBytes)
		require.True(t, q.wait >= 0 && q.wait <= maxWait)
	})
}

func TestParseTimestamp(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1700000000000": 1700000000000,
		"2023-11-14T22:13:20Z":               1700000000000,
		"2023-11-15T00:13:20+02:00":          1700000000000,
		"2023-11-15T00:13:20 02:00":          1700000000000,
		"2023-11-14T22:13:20.0000001Z":       1700000000001,
		"2023-11-14T22:13:20.001Z":           1700000000001,
		"1969-12-31T23:59:59Z":               0,
		strconv.FormatInt(math.MaxInt64, 10): math.MaxInt64,
	} {
		got, err := parseTimestamp(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "now", "-5", "2023-11-14", "2023-11-14T22:13:20", "2023-11-14 22:13:20Z", "1e9"} {
		_, err := parseTimestamp(text)
		require.Error(t, err, text)
	}
}
