package partition

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/storage"
)

// The list of transactions against one that is gone through from the start each time.
func TestTransactionsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := newTransactions()
		var all []span
		end, hw := int64(0), int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				list.begin(end)
				all = append(all, span{end, none})
				end++
			case 1:
				i := rapid.IntRange(0, max(len(all)-1, 0)).Draw(t, "which")
				if len(all) == 0 || all[i].marker != none {
					continue
				}
				c := change{producerID: 1, ended: all[i].first, marker: end}
				require.Equal(t, entryOf(all, i, end), list.aborted(c))
				list.end(all[i].first, end)
				all[i].marker = end
				end++
			case 2:
				hw += rapid.Int64Range(0, end-hw).Draw(t, "further")
				list.commit(hw)
			case 3:
				list.begin(end)
				list.undo()
			}
			unstable, open := int64(allStable), 0
			for _, s := range all {
				if s.marker == none || s.marker >= hw {
					unstable = min(unstable, s.first)
				}
				if s.marker == none {
					open++
				}
			}
			list.commit(hw)
			require.Equal(t, unstable, list.unstable())
			require.Equal(t, open, list.open)
		}
	})
}

func entryOf(all []span, ended int, marker int64) storage.AbortedTxn {
	t := storage.AbortedTxn{ProducerID: 1, FirstOffset: all[ended].first, LastOffset: marker, LastStable: marker + 1}
	for i, s := range all {
		if i != ended && s.marker == none {
			t.LastStable = min(t.LastStable, s.first)
		}
	}
	return t
}

// Behind a transaction that hangs others come and go without leaving anything.
func TestTransactionsThatEndAreForgotten(t *testing.T) {
	list := newTransactions()
	list.begin(0)
	for at := int64(1); at < 100_000; at += 2 {
		list.begin(at)
		list.end(at, at+1)
		list.commit(at + 2)
	}
	require.Zero(t, list.unstable())
	require.Less(t, cap(list.spans), 1000)
	list.end(0, 100_001)
	list.commit(100_002)
	require.Empty(t, list.spans)
}

// There is an end to open transactions, and always room for other producers.
func TestTooManyOpenTransactions(t *testing.T) {
	p := newProducers(false)
	at := int64(0)
	begin := func(id int64) error {
		s := stamp{producerID: id, firstOffset: at, lastOffset: at, transactional: true}
		if _, err := p.check(s, terms{guarded: true}); err != nil {
			return err
		}
		at++
		if c := p.apply(s, 0); c.begins != none {
			p.txns.begin(c.begins)
		}
		return nil
	}
	for id := range int64(maxOpenTransactions) {
		require.NoError(t, begin(id))
	}
	require.ErrorIs(t, begin(maxOpenTransactions), ErrTxnCrowded)
	require.Equal(t, Refusal{Code: 51, Message: ErrTxnCrowded.Error(), NotWritten: true}, Explain(ErrTxnCrowded))
	for id := range int64(maxProducers - maxOpenTransactions + 2*forgottenAtOnce) {
		at++
		p.apply(stamp{producerID: maxProducers + id, firstOffset: at, lastOffset: at}, 0)
	}
	require.LessOrEqual(t, len(p.entries), maxProducers)
	_, err := p.check(stamp{producerID: 0, first: 1, last: 1, transactional: true}, terms{})
	require.NoError(t, err, "who has an open transaction goes on")
	decoded, err := decodeProducers(p.encode(), 0)
	require.NoError(t, err)
	require.Equal(t, maxOpenTransactions, decoded.txns.open)
}
