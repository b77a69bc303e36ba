package cdc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
	"millrace/connect/postgres/pgtest"
)

func all(tableName) bool { return true }

func text(b []byte, values ...string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		switch v {
		case "<null>":
			b = append(b, valueNull)
		case "<unchanged>":
			b = append(b, valueUnchanged)
		default:
			b = append(b, valueText)
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		}
	}
	return b
}

func relationMessage(oid uint32, name string, columns ...wireColumn) []byte {
	b := binary.BigEndian.AppendUint32([]byte{msgRelation}, oid)
	b = append(append(b, "public\x00"...), name...)
	b = append(b, 0, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		flag := byte(0)
		if c.Key {
			flag = 1
		}
		b = append(append(append(b, flag), c.Name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.Type)
		b = binary.BigEndian.AppendUint32(b, uint32(c.Typmod))
	}
	return b
}

func changeMessage(kind byte, oid uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, oid)
}

// FuzzDecode: whatever bytes come, the decoder says so, and what it gives is of those bytes.
func FuzzDecode(f *testing.F) {
	f.Add(beginMessage(1, 2, 3))
	f.Add(commitMessage(1, 2, 3))
	f.Add(relationMessage(5, "t", wireColumn{true, "id", 23, -1}, wireColumn{false, "v", 25, -1}))
	f.Add(text(append(changeMessage(msgInsert, 5), 'N'), "1", "<null>", "<unchanged>", ""))
	f.Add(text(append(text(append(changeMessage(msgUpdate, 5), 'O'), "1"), 'N'), "2"))
	f.Add(text(append(changeMessage(msgDelete, 5), 'K'), "1"))
	f.Add([]byte("T\x00\x00\x00\x01\x03\x00\x00\x00\x05"))
	f.Add([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x05p\x00\x00\x00\x00\x02hi"))
	f.Add([]byte("S\x00\x00\x00\x01\x01"))
	f.Add([]byte("A\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		if err := m.decode(b); err != nil {
			return
		}
		for _, p := range []*tuple{&m.old, &m.new} {
			require.Equal(t, len(p.kinds), len(p.texts))
			for i, x := range p.texts {
				require.LessOrEqual(t, len(x), len(b))
				require.Equal(t, p.kinds[i] == valueText, x != nil || p.kinds[i] == valueText)
			}
		}
	})
}

// FuzzCopyData: what the server wraps messages in, too.
func FuzzCopyData(f *testing.F) {
	f.Add([]byte("k\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add(append(append([]byte{'w'}, make([]byte, 24)...), beginMessage(1, 2, 3)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &stream{asked: make(chan struct{}, 1),
			spill:  newSpill(func() (string, error) { return "", errors.New("no folder") }, all),
			blocks: make(chan *block, 4), free: make(chan *block, 1)}
		s.max.bytes, s.max.rows = 1<<20, 1<<20
		s.current = s.fresh()
		_ = s.copyData(t.Context(), b)
		for {
			_, m, ok := s.current.next()
			if !ok {
				break
			}
			var x message
			_ = x.decode(m)
		}
	})
}

func TestSpillKeepsWhatIsNotUndone(t *testing.T) {
	// A model: transactions as lists of changes with the stack of subtransactions that they are in.
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s := newSpill(func() (string, error) { return dir, nil }, func(n tableName) bool { return n.Name == "t" })
		require.NoError(t, s.start(100))
		require.NoError(t, s.add(100, 5, msgRelation, relationMessage(9, "other")[1:]))
		require.NoError(t, s.stop())
		var want []string // "" is a change of the other table
		stack, starts := []uint32{100}, []int{0}
		next := uint32(101)
		for range r.IntN(40) {
			switch r.IntN(4) {
			case 0:
				stack, starts = append(stack, next), append(starts, len(want))
				next++
			case 1:
				if n := len(stack) - 1; n > 0 {
					i := 1 + r.IntN(n)
					want = want[:starts[i]]
					for j := len(stack) - 1; j >= i; j-- {
						require.NoError(t, s.abort(100, stack[j]))
					}
					stack, starts = stack[:i], starts[:i]
				}
			default:
				require.NoError(t, s.start(100))
				for range 1 + r.IntN(3) {
					v := fmt.Sprint(r.IntN(1000))
					rest := []byte(v)
					if r.IntN(3) == 0 {
						v, rest = "", []byte{0, 0, 0, 9}
					}
					require.NoError(t, s.add(stack[len(stack)-1], 5, msgInsert, rest))
					want = append(want, v)
				}
				require.NoError(t, s.stop())
			}
		}
		var got []string
		require.NoError(t, s.replay(100, func(_ lsn, b []byte) error {
			switch b[0] {
			case msgRelation:
			case msgPassed:
				got = append(got, make([]string, binary.BigEndian.Uint32(b[1:]))...)
			default:
				got = append(got, string(b[1:]))
			}
			return nil
		}))
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "seed %d", seed)
		require.Zero(t, s.bytes)
	}
}

func TestView(t *testing.T) {
	v, err := parseView("10:20:12,15")
	require.NoError(t, err)
	for xid, want := range map[uint32]bool{3: true, 9: true, 10: true, 12: false, 13: true, 15: false, 19: true,
		20: false, 30: false} {
		require.Equal(t, want, v.sees(xid), xid)
	}
	v, err = parseView("4294967290:4294967300:")
	require.NoError(t, err)
	require.True(t, v.sees(4294967291))
	require.True(t, v.sees(3), "4294967299")
	require.False(t, v.sees(4))
	_, err = parseView("1:2")
	require.Error(t, err)
}

func TestPositions(t *testing.T) {
	p := &position{sysid: "1", timeline: 2, slot: "s", commit: 0x1_0000_00ff, txn: 7, seq: 3,
		snap: &snapshotState{Chunks: []chunkedTable{{Table: tableName{"a", "b"}, Last: []string{"x\"'"}}}}}
	q, err := parsePosition(p.offset())
	require.NoError(t, err)
	require.Equal(t, p, q)
	require.Equal(t, "1/FF", p.offset()["commit_lsn"])
	q, err = parsePosition(map[string]any{"lsn": int64(5), "snapshot": "INITIAL", "last_snapshot_record": false})
	require.NoError(t, err)
	require.Nil(t, q, "a snapshot of Debezium's that is not complete is none")
	at, err := parseHistory("1\t0/3000000\tno recovery target specified\n\n2\t0/5000060\tx\n", 1)
	require.NoError(t, err)
	require.Equal(t, lsn(0x3000000), at)
}

func TestNamesForAvro(t *testing.T) {
	require.Equal(t, "a_b.c_d", adjust("avro", "a-b.c d", true))
	require.Equal(t, "_1a", adjust("avro", "1a", false))
	require.Equal(t, "a_u002db_u005fc", adjust("avro_unicode", "a-b_c", false))
	require.Equal(t, "a-b", adjust("none", "a-b", false))
}

// BenchmarkDecode takes captured messages of rows of 200 bytes to records.
func BenchmarkDecode(b *testing.B) {
	t := benchTask(b)
	rel := relationMessage(5, "t", wireColumn{true, "id", 20, -1}, wireColumn{false, "a", 25, -1},
		wireColumn{false, "b", 25, -1},
		wireColumn{false, "n", 23, -1}, wireColumn{false, "at", 1184, -1})
	const rows = 1000
	var x block
	x.reset()
	x.add(1, beginMessage(100, microsOf(time.Now()), 7), nil)
	for i := range rows {
		m := text(append(changeMessage(msgInsert, 5), 'N'), fmt.Sprint(1000000+i), string(bytes.Repeat([]byte{'x'}, 100)),
			string(bytes.Repeat([]byte{'y'}, 60)), "12345", "2026-01-02 03:04:05.123456+00")
		x.add(2, m, nil)
	}
	x.add(3, commitMessage(100, 200, microsOf(time.Now())), nil)
	ctx := b.Context()
	var m message
	require.NoError(b, m.decode(rel))
	k, err := t.session.builder.build(m.relation, nil)
	require.NoError(b, err)
	t.session.current[5] = k
	b.ReportAllocs()
	b.SetBytes(rows * 200)
	for b.Loop() {
		x.at, t.at.commit = 0, 0
		for {
			at, m, ok := x.next()
			if !ok {
				break
			}
			if err := t.handle(ctx, at, m); err != nil {
				b.Fatal(err)
			}
		}
		if out := t.give(t.events.take()); len(out) != rows {
			b.Fatal(len(out))
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func benchTask(b *testing.B) *task {
	s, problems := parseSettings(map[string]string{"database.hostname": "h", "database.user": "u", "database.dbname": "d",
		"topic.prefix": "p"})
	require.Empty(b, problems)
	t := newTask()
	t.s, t.now, t.at, t.recent = s, time.Now, &position{}, newRecent()
	t.events = newEvents(s, "c", 0, time.Now)
	t.metrics = newMetrics(prometheus.NewRegistry())
	t.session = &session{s: s, current: map[uint32]*table{}, all: map[string]*table{}}
	server := pgtest.Start(b)
	types, err := postgres.LoadTypes(b.Context(), server.Connect(b, server.URL()), []uint32{20, 23, 25, 1184})
	require.NoError(b, err)
	t.session.builder = &tableBuilder{s: s, types: types, mapper: postgres.NewMapper(s.mapping, types)}
	return t
}

func TestDefsHaveDocs(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Defs() {
		require.False(t, seen[d.Name], d.Name)
		seen[d.Name] = true
		require.NotEmpty(t, d.Doc, d.Name)
		if d.Required || d.Null || d.Default == "" {
			continue
		}
		require.Empty(t, plugin.Defs{d}.Check(map[string]string{d.Name: d.Default}), d.Name)
	}
}
