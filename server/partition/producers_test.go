package partition

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/internal/ktag"
)

// data is a batch of count records of a counted producer.
func data(id int64, epoch int16, first, count int32, offset int64) stamp {
	return stamp{
		producerID: id, epoch: epoch, first: first, last: addSequence(first, count-1),
		firstOffset: offset, lastOffset: offset + int64(count) - 1, timestamp: 1000 + offset,
	}
}

// addSequence is written another way than the product's.
func addSequence(s, n int32) int32 { return int32((int64(s) + int64(n)) % (1 << 31)) }

func TestGoldenSnapshot(t *testing.T) {
	const golden = "00017f9ea7410000000100000000000003e8000300000009000000000000002c00000002" +
		"0000018bcfe56805ffffffff000000000000002a"
	p := newProducers(false)
	s := data(1000, 3, 7, 3, 42)
	s.timestamp, s.transactional = 1700000000005, true
	p.apply(s, 0)
	require.Equal(t, golden, hex.EncodeToString(p.encode()))

	raw, err := hex.DecodeString(golden)
	require.NoError(t, err)
	got, err := decodeProducers(raw, 77)
	require.NoError(t, err)
	e := got.entries[1000]
	require.Equal(t, int64(77), e.seen)
	require.Equal(t, int64(42), e.txnFirstOffset)
	require.Equal(t, written{lastSequence: 9, offsetDelta: 2, lastOffset: 44, timestamp: 1700000000005}, *e.newest())
	require.Equal(t, raw, got.encode())
}

func TestEmptySnapshot(t *testing.T) {
	b := newProducers(false).encode()
	require.Len(t, b, snapshotHeaderSize)
	p, err := decodeProducers(b, 0)
	require.NoError(t, err)
	require.Empty(t, p.entries)
}

func TestDamagedSnapshot(t *testing.T) {
	p := newProducers(false)
	p.apply(data(1, 0, 0, 1, 0), 0)
	p.apply(data(2, 0, 0, 1, 1), 0)
	good := p.encode()
	for n := range good {
		_, err := decodeProducers(good[:n], 0)
		require.ErrorIs(t, err, errSnapshot, "cut to %d bytes", n)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x10
		_, err := decodeProducers(bad, 0)
		require.ErrorIs(t, err, errSnapshot, "bit flipped in byte %d", i)
	}
	_, err := decodeProducers(append(append([]byte(nil), good...), 0), 0)
	require.ErrorIs(t, err, errSnapshot)
}

// rule is what is to be said of a batch that comes after others.
type rule struct {
	name   string
	before []stamp
	now    stamp
	strict bool
	want   string
}

func TestSequenceRules(t *testing.T) {
	const id = 7
	window := make([]stamp, 7) // two batches more than are remembered
	for i := range window {
		window[i] = data(id, 0, int32(10*i), 10, int64(10*i))
	}
	checkRules(t, []rule{
		{"new producer", nil, data(id, 0, 0, 1, 0), false, "ok"},
		{"forgotten producer takes any sequence", nil, data(id, 3, 55, 1, 0), false, "ok"},
		{"next", []stamp{data(id, 0, 0, 3, 0)}, data(id, 0, 3, 2, 0), false, "ok"},
		{"gap", []stamp{data(id, 0, 0, 3, 0)}, data(id, 0, 4, 2, 0), false, "expected 3"},
		{"repeat", []stamp{data(id, 0, 0, 3, 0), data(id, 0, 3, 2, 3)}, data(id, 0, 3, 2, 0), false, "repeat of 3..4"},
		{"repeat of the oldest remembered", window, data(id, 0, 20, 10, 0), false, "repeat of 20..29"},
		{"repeat that is forgotten", window, data(id, 0, 10, 10, 0), false, "expected 70"},
		{"repeat with other bounds", []stamp{data(id, 0, 0, 3, 0)}, data(id, 0, 0, 2, 0), false, "expected 3"},
		{"older epoch", []stamp{data(id, 2, 0, 1, 0)}, data(id, 1, 1, 1, 0), false, "fenced by 2"},
		{"newer epoch from 0", []stamp{data(id, 2, 0, 1, 0)}, data(id, 3, 0, 1, 0), false, "ok"},
		{"newer epoch not from 0", []stamp{data(id, 2, 0, 1, 0)}, data(id, 3, 1, 1, 0), false, "expected 0"},
		{"same sequences in a newer epoch are new", []stamp{data(id, 2, 0, 1, 0)}, data(id, 3, 0, 1, 0), false, "ok"},
		{"wrap between batches", []stamp{data(id, 0, math.MaxInt32-1, 2, 0)}, data(id, 0, 0, 1, 0), false, "ok"},
		{"wrap inside a batch", []stamp{data(id, 0, math.MaxInt32-1, 4, 0)}, data(id, 0, 2, 1, 0), false, "ok"},
		{"gap at the wrap", []stamp{data(id, 0, math.MaxInt32, 1, 0)}, data(id, 0, 1, 1, 0), false, "expected 0"},
		{"repeat over the wrap", []stamp{data(id, 0, math.MaxInt32, 2, 5)}, data(id, 0, math.MaxInt32, 2, 0), false,
			"repeat of 5..6"},
		{"marker only, then 0", []stamp{{producerID: id, epoch: 1, control: true}}, data(id, 1, 0, 1, 0), false, "ok"},
		{"marker only, then 1", []stamp{{producerID: id, epoch: 1, control: true}}, data(id, 1, 1, 1, 0), false,
			"expected 0"},
	})
}

func TestNamedSequenceRules(t *testing.T) {
	named := ktag.NamedProducerID("n")
	one := func(id int64, epoch int16, sequence int32) stamp {
		return stamp{producerID: id, epoch: epoch, first: sequence, last: sequence, firstOffset: 100, lastOffset: 109}
	}
	checkRules(t, []rule{
		{"new", nil, one(named, 0, 9), false, "ok"},
		{"new, strict", nil, one(named, 0, 9), true, "expected 0"},
		{"new from 0, strict", nil, one(named, 0, 0), true, "ok"},
		{"next", []stamp{one(named, 0, 3)}, one(named, 0, 4), true, "ok"},
		{"gap", []stamp{one(named, 0, 3)}, one(named, 0, 9), false, "ok"},
		{"gap, strict", []stamp{one(named, 0, 3)}, one(named, 0, 9), true, "expected 4"},
		{"repeat", []stamp{one(named, 0, 3)}, one(named, 0, 3), true, "repeat of 100..109"},
		{"passed over", []stamp{one(named, 0, 0), one(named, 0, 2)}, one(named, 0, 1), false, "passed over by 2"},
		{"passed over by the first", []stamp{one(named, 0, 3)}, one(named, 0, 2), false, "passed over by 3"},
		{"passed over, strict", []stamp{one(named, 0, 3)}, one(named, 0, 2), true, "passed over by 3"},
		{"passed over in a newer epoch", []stamp{one(named, 0, 1), one(named, 1, 3)}, one(named, 1, 1), false,
			"passed over by 3"},
		{"a gap in a full window", sequences(named, 0, 2, 3, 4, 5, 7), one(named, 0, 6), false, "passed over by 7"},
		{"below a full window", sequences(named, 0, 2, 3, 4, 5, 7), one(named, 0, 1), false, "repeat, forgotten"},
		{"below a window that forgot nothing", sequences(named, 1, 3, 4, 5, 7), one(named, 0, 0), false,
			"passed over by 7"},
		{"older epoch", []stamp{one(named, 5, 3)}, one(named, 4, 4), false, "fenced by 5"},
		{"newer epoch", []stamp{one(named, 5, 3)}, one(named, 6, 2), false, "ok"},
		{"newer epoch, strict", []stamp{one(named, 5, 3)}, one(named, 6, 2), true, "expected 0"},
		{"newer epoch from 0, strict", []stamp{one(named, 5, 3)}, one(named, 6, 0), true, "ok"},
		{"last sequence of all", []stamp{one(named, 0, math.MaxInt32)}, one(named, 0, 0), true,
			"passed over by 2147483647"},
	})
}

// checkRules asks for a verdict on a batch after others of its producer.
func checkRules(t *testing.T, rules []rule) {
	for _, c := range rules {
		t.Run(c.name, func(t *testing.T) {
			p := newProducers(false)
			for _, s := range c.before {
				p.apply(s, 0)
			}
			before := p.encode()
			dup, err := p.check(c.now, terms{strict: c.strict})
			require.Equal(t, c.want, verdict(dup, err))
			require.Equal(t, before, p.encode(), "check changed the state")
		})
	}
}

// sequences are batches of one producer with these sequences.
func sequences(id int64, of ...int32) (out []stamp) {
	for i, n := range of {
		out = append(out, stamp{producerID: id, first: n, last: n, firstOffset: int64(i), lastOffset: int64(i)})
	}
	return out
}

// What a snapshot does not hold may have been written; what its log never held was not.
func TestNamedProducersAfterARestart(t *testing.T) {
	id := ktag.NamedProducerID("n")
	before := newProducers(false)
	for _, s := range sequences(id, 3, 5) {
		before.apply(s, 0)
	}
	p, err := decodeProducers(before.encode(), 0)
	require.NoError(t, err)
	p.apply(sequences(id, 8)[0], 0)
	for sequence, want := range map[int32]string{
		3: "repeat, forgotten", 4: "repeat, forgotten", 5: "repeat of 1..1", 6: "passed over by 8", 8: "repeat of 0..0",
	} {
		dup, err := p.check(sequences(id, sequence)[0], terms{})
		require.Equal(t, want, verdict(dup, err), "%d", sequence)
	}
	cut := newProducers(true) // as read from a log whose beginning is gone
	cut.apply(sequences(id, 3)[0], 0)
	dup, err := cut.check(sequences(id, 2)[0], terms{})
	require.Equal(t, "repeat, forgotten", verdict(dup, err))
}

func verdict(dup *repeat, err error) string {
	var sequence *SequenceError
	var fenced *FencedError
	var passed *PassedOverError
	switch {
	case errors.As(err, &passed):
		return fmt.Sprintf("passed over by %d", passed.Last)
	case errors.As(err, &sequence):
		return fmt.Sprintf("expected %d", sequence.Expected)
	case errors.As(err, &fenced):
		return fmt.Sprintf("fenced by %d", fenced.Current)
	case err != nil:
		return err.Error()
	case dup != nil && !dup.remembered:
		return "repeat, forgotten"
	case dup != nil:
		return fmt.Sprintf("repeat of %d..%d", dup.firstOffset(), dup.lastOffset)
	}
	return "ok"
}

func TestExpiry(t *testing.T) {
	p := newProducers(false)
	old := data(1, 0, 0, 1, 0) // its own timestamp is 1000
	p.apply(old, 50_000)       // the leader's clock says it is recent
	p.apply(data(2, 0, 0, 1, 1), 90_000)
	open := data(3, 0, 0, 1, 2)
	open.transactional = true
	p.apply(open, 0)
	require.Equal(t, 0, p.expire(59_999, 10_000))
	require.Equal(t, 1, p.expire(60_000, 10_000))
	require.Equal(t, []int64{2, 3}, p.ids(), "a producer with an open transaction is never forgotten")
}

// The longest silent producers make room for new ones, by the order of the log.
func TestProducersAreBounded(t *testing.T) {
	p := &producers{entries: make(map[int64]*producer, maxProducers)}
	for id := range int64(maxProducers) {
		p.apply(data(id, 0, 0, 1, id), 0)
	}
	open := data(0, 0, 1, 1, maxProducers)
	open.transactional = true
	p.apply(open, 0)
	p.apply(data(1, 0, 1, 1, maxProducers+1), 0)
	require.Len(t, p.entries, maxProducers)
	p.apply(data(maxProducers, 0, 0, 1, maxProducers+2), 0)
	require.Len(t, p.entries, maxProducers-forgottenAtOnce+1)
	require.NotNil(t, p.entries[0], "an open transaction is not forgotten")
	require.NotNil(t, p.entries[1], "it wrote again")
	require.Nil(t, p.entries[2])
	require.Nil(t, p.entries[forgottenAtOnce+1])
	require.NotNil(t, p.entries[forgottenAtOnce+2])
}

// A state kept up from a snapshot on answers like the state it was taken from, except that repeats
// deeper than one batch are forgotten.
func TestSnapshotThenReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, later := newProducers(false), newProducers(false)
		cut := rapid.IntRange(0, 30).Draw(t, "cut")
		offset := int64(0)
		for i := range 40 {
			if i == cut {
				p, err := decodeProducers(whole.encode(), 0)
				require.NoError(t, err)
				later = p
			}
			s := drawBatch(t, whole, offset)
			offset = s.lastOffset + 1
			whole.apply(s, 0)
			if i >= cut {
				later.apply(s, 0)
			}
		}
		require.Equal(t, whole.encode(), later.encode())
	})
}

// drawBatch draws a batch that p accepts, or a marker.
func drawBatch(t *rapid.T, p *producers, offset int64) stamp {
	id := rapid.SampledFrom([]int64{1, 2, ktag.NamedProducerID("x")}).Draw(t, "id")
	epoch, next := int16(0), int32(0)
	if e := p.entries[id]; e != nil {
		epoch = e.epoch
		if e.count > 0 {
			next = addSequence(e.newest().lastSequence, 1)
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "new epoch") == 0 {
		epoch, next = epoch+1, 0
	}
	s := data(id, epoch, next, int32(rapid.IntRange(1, 4).Draw(t, "records")), offset)
	s.timestamp = rapid.Int64Range(0, 1<<40).Draw(t, "timestamp")
	s.control = rapid.IntRange(0, 8).Draw(t, "marker") == 0
	s.transactional = s.control || rapid.Bool().Draw(t, "transactional")
	if ktag.IsNamed(id) {
		s.last = s.first
	}
	return s
}
