package quorum

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// golden compares bytes with those that a version once wrote. UPDATE_GOLDEN=1 in the environment writes new ones.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, got, 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, got, name)
}

func someEntries() []*raft.Log {
	return []*raft.Log{
		{Index: 7, Term: 2, Type: raft.LogConfiguration, Data: []byte("members"), AppendedAt: time.Unix(1700000000, 5)},
		{Index: 8, Term: 2, Type: raft.LogCommand, Data: []byte(`{"type":"CreateTopics"}`), Extensions: []byte("ext")},
		{Index: 9, Term: 3, Type: raft.LogNoop, Data: []byte{}},
	}
}

func TestSegmentFormat(t *testing.T) {
	b := appendSegmentHeader(nil, 7)
	for i, l := range someEntries() {
		b = appendEntry(b, l, uint32(i))
	}
	golden(t, "segment.v1", b)
	s, err := scanSegment(b, 7)
	require.NoError(t, err)
	require.False(t, s.torn)
	require.EqualValues(t, len(b), s.end)
	require.Len(t, s.starts, 3)
	for i, want := range someEntries() {
		var got raft.Log
		batch, _, err := readEntry(b[s.starts[i]:], &got)
		require.NoError(t, err)
		require.EqualValues(t, 7, batch)
		require.True(t, want.AppendedAt.Equal(got.AppendedAt))
		got.AppendedAt = want.AppendedAt
		require.Equal(t, *want, got)
	}
}

func TestBallotFormat(t *testing.T) {
	v := ballot{term: 9, voteTerm: 8, candidate: "http://a:8082"}
	golden(t, "vote.v1", bytes.TrimRight(v.encode(3), "\x00"))
	got, number, err := decodeBallot(v.encode(3))
	require.NoError(t, err)
	require.Equal(t, v, got)
	require.EqualValues(t, 3, number)
}

func TestOneCopyOfTheVoteIsEnough(t *testing.T) {
	older, old, now := ballot{term: 1}.encode(1), ballot{term: 1}.encode(2), ballot{term: 2}.encode(3)
	bad := bytes.Clone(now)
	bad[20] ^= 1
	cases := []struct {
		name  string
		bytes []byte
		term  uint64
		err   error
	}{
		{"whole", slices.Concat(now, now, old, old), 2, nil},
		{"a copy rots", slices.Concat(bad, now, old, old), 2, nil},
		{"the other copy rots", slices.Concat(now, bad, old, old), 2, nil},
		{"torn", slices.Concat(now, older, old, old), 2, nil},
		{"torn early", slices.Concat(bad, older, old, old), 1, nil},
		{"only the first change", slices.Concat(now, now), 2, nil},
		{"cut short", now[:60], 2, nil},
		{"all rot", slices.Concat(bad, bad, bad, bad), 0, errDamaged},
		{"nothing", nil, 0, nil},
		{"the first ever is torn", bad, 0, nil},
	}
	for _, tc := range cases {
		got, _, err := decodeBallots(tc.bytes)
		require.ErrorIs(t, err, tc.err, tc.name)
		require.Equal(t, tc.term, got.term, tc.name)
	}
}

func someSnapshot(t testing.TB) []byte {
	t.Helper()
	a, err := encodeAbout(12, 3, raft.Configuration{Servers: []raft.Server{
		{ID: "1", Address: "http://a:8082"}, {ID: "2", Address: "http://b:8082", Suffrage: raft.Nonvoter},
	}}, 4)
	require.NoError(t, err)
	sum := checksum([]byte("data\x00\x00\x00\x00"), 4)
	return append(snapshotInfo{about: a, size: 4, checksum: sum}.encode(), "data"...)
}

func TestSnapshotFormat(t *testing.T) {
	b := someSnapshot(t)
	golden(t, "snapshot.v1", b)
	i, err := decodeSnapshotInfo(b, int64(len(b)))
	require.NoError(t, err)
	require.Equal(t, "data", string(b[i.dataAt():]))
	m, err := i.meta()
	require.NoError(t, err)
	require.EqualValues(t, 12, m.Index)
	require.Equal(t, []raft.Server{
		{ID: "1", Address: "http://a:8082"}, {ID: "2", Address: "http://b:8082", Suffrage: raft.Nonvoter},
	}, m.Configuration.Servers)
}

// A file that a later version wrote is told from a damaged one.
func TestLaterVersionsAreNamed(t *testing.T) {
	later := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[11] = 9
		sum := checksum(b, 12)
		b[12], b[13], b[14], b[15] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		return b
	}
	require.ErrorContains(t, checkSegmentHeader(later(appendSegmentHeader(nil, 1)), 1), "version 9")
	_, _, err := decodeBallot(later(ballot{}.encode(1)[:ballotHeader]))
	require.ErrorContains(t, err, "version 9")
	i, err := decodeSnapshotInfo(someSnapshot(t), int64(len(someSnapshot(t))))
	require.NoError(t, err)
	i.size = 0
	_, err = decodeSnapshotInfo(later(i.encode()), i.dataAt())
	require.ErrorContains(t, err, "version 9")
}

func FuzzBallot(f *testing.F) {
	v := ballot{term: 9, voteTerm: 8, candidate: "http://a:8082"}
	f.Add(slices.Concat(v.encode(1), v.encode(1), v.encode(2), v.encode(2)))
	f.Add(v.encode(1)[:60])
	f.Add([]byte(ballotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, number, err := decodeBallots(b)
		if err != nil || number == 0 {
			return
		}
		again, same, err := decodeBallot(v.encode(number))
		require.NoError(t, err)
		require.Equal(t, v, again)
		require.Equal(t, number, same)
	})
}

func FuzzSnapshotHeader(f *testing.F) {
	f.Add(someSnapshot(f), int64(0))
	f.Add([]byte(snapshotMagic), int64(5))
	f.Fuzz(func(t *testing.T, b []byte, more int64) {
		i, err := decodeSnapshotInfo(b, int64(len(b))+more)
		if err != nil {
			return
		}
		require.Equal(t, b[:i.dataAt()], i.encode()[:i.dataAt()])
		_, _ = i.meta()
	})
}

func FuzzSegment(f *testing.F) {
	b := appendSegmentHeader(nil, 7)
	for i, l := range someEntries() {
		b = appendEntry(b, l, uint32(i))
	}
	f.Add(b, uint64(7))
	f.Add(append(b, make([]byte, 100)...), uint64(7))
	f.Add(b[:len(b)-5], uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, base uint64) {
		s, err := scanSegment(b, base)
		if err != nil {
			return
		}
		for i, at := range s.starts {
			var l raft.Log
			_, _, err := readEntry(b[at:], &l)
			require.NoError(t, err)
			require.Equal(t, base+uint64(i), l.Index)
		}
		require.LessOrEqual(t, s.end, int64(len(b)))
	})
}
