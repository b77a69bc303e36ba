package txn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// limit is the last epoch in these tables.
const limit = 100

var allStates = []kmsg.TransactionState{empty, ongoing, prepareCommit, prepareAbort, completeCommit, completeAbort}

func said(to verdict, e *kerr.Error) string {
	if to == refuse {
		return e.Message
	}
	return [...]string{"refuse", "wait", "repeat", "bump", "rotate", "fence", "decide", "nothing"}[to]
}

// Every cell of the table of EndTxn. current is the state's epoch, retry the one before. Where the transaction
// before is still being ended, its current epoch is that of the next one, which the answer has given to the
// producer already: it waits.
func TestEndTxnTable(t *testing.T) {
	const (
		fenced  = "PRODUCER_FENCED"
		invalid = "INVALID_TXN_STATE"
	)
	for state, row := range map[kmsg.TransactionState][4]string{
		// COMMIT current, COMMIT retry, ABORT current, ABORT retry
		empty:          {invalid, fenced, "nothing", fenced},
		ongoing:        {"decide", fenced, "decide", fenced},
		prepareCommit:  {"wait", "wait", "wait", invalid},
		prepareAbort:   {"wait", invalid, "wait", "wait"},
		completeCommit: {invalid, "repeat", "nothing", invalid},
		completeAbort:  {invalid, invalid, "nothing", "repeat"},
	} {
		v := &value{producerID: 7, epoch: 5, previousID: -1, nextID: -1, state: state, version: 2}
		for i, want := range row {
			req := kmsg.NewPtrEndTxnRequest()
			req.ProducerID, req.ProducerEpoch, req.Commit = 7, 5-int16(i%2), i < 2
			require.Equal(t, want, said(endVerdict(v, req, limit)), "%s, commit %t, epoch %d", state, req.Commit,
				req.ProducerEpoch)
		}
		for _, commit := range []bool{true, false} {
			req := kmsg.NewPtrEndTxnRequest()
			req.Commit, req.ProducerEpoch = commit, 5
			req.ProducerID = 8
			require.Equal(t, "INVALID_PRODUCER_ID_MAPPING", said(endVerdict(v, req, limit)))
			for _, epoch := range []int16{-1, 3, 6} {
				req.ProducerID, req.ProducerEpoch = 7, epoch
				require.Equal(t, fenced, said(endVerdict(v, req, limit)), "%s, epoch %d", state, epoch)
			}
		}
	}
}

// Around the end of a producer id: the request of its last epoch is the retry, whatever producer id there is now.
func TestEndTxnAtTheLastEpoch(t *testing.T) {
	end := func(v *value, producerID int64, epoch int16, commit bool) string {
		req := kmsg.NewPtrEndTxnRequest()
		req.ProducerID, req.ProducerEpoch, req.Commit = producerID, epoch, commit
		return said(endVerdict(v, req, limit))
	}
	deciding := &value{producerID: 7, epoch: limit + 1, previousID: -1, nextID: 9, state: prepareCommit, version: 2}
	require.Equal(t, "wait", end(deciding, 7, limit, true))
	require.Equal(t, "INVALID_TXN_STATE", end(deciding, 7, limit, false))
	require.Equal(t, "wait", end(deciding, 9, 0, true), "the answer may have come already")
	require.Equal(t, "INVALID_PRODUCER_ID_MAPPING", end(deciding, 9, 1, true))
	done := deciding.completed()
	require.Equal(t, value{producerID: 9, previousID: 7, nextID: -1, state: completeCommit, version: 2}, done)
	require.Equal(t, "repeat", end(&done, 7, limit, true))
	require.Equal(t, "INVALID_TXN_STATE", end(&done, 7, limit, false))
	require.Equal(t, "INVALID_PRODUCER_ID_MAPPING", end(&done, 7, limit-1, true))
	require.Equal(t, "nothing", end(&done, 9, 0, false))
	require.Equal(t, "PRODUCER_FENCED", end(&done, 9, -1, true), "there is no epoch before the first")
	done.epoch, done.state = 1, completeAbort // one transaction later
	require.Equal(t, "INVALID_PRODUCER_ID_MAPPING", end(&done, 7, limit, false))
	require.Equal(t, "repeat", end(&done, 9, 0, false))
}

// The table of InitProducerID: state by what the producer names.
func TestInitProducerIDTable(t *testing.T) {
	const fenced = "PRODUCER_FENCED"
	given := []struct {
		name       string
		producerID int64
		epoch      int16
	}{
		{"nothing", -1, -1}, {"current", 7, 5}, {"the epoch before", 7, 4}, {"an older epoch", 7, 3},
		{"a later epoch", 7, 6}, {"another producer id", 8, 5},
	}
	for state, row := range map[kmsg.TransactionState][6]string{
		empty:          {"bump", "bump last 5", "repeat", fenced, fenced, fenced},
		ongoing:        {"fence", "fence", fenced, fenced, fenced, fenced},
		prepareCommit:  {"wait", "wait", "wait", "wait", "wait", fenced},
		prepareAbort:   {"wait", "wait", "wait", "wait", "wait", fenced},
		completeCommit: {"bump", "bump last 5", "repeat", fenced, fenced, fenced},
		completeAbort:  {"bump", "bump last 5", "repeat", fenced, fenced, fenced},
	} {
		for i, g := range given {
			req := initRequest("id")
			req.ProducerID, req.ProducerEpoch = g.producerID, g.epoch
			v := &value{producerID: 7, epoch: 5, lastEpoch: 4, previousID: -1, nextID: -1, state: state, version: 2}
			to, last, e := initVerdict(v, req, limit)
			got := said(to, e)
			if last >= 0 {
				got += fmt.Sprint(" last ", last)
			}
			require.Equal(t, row[i], got, "%s, %s", state, g.name)
			if v.lastEpoch = -1; g.name == "the epoch before" && (state == empty || state > prepareAbort) {
				_, _, e := initVerdict(v, req, limit)
				require.Equal(t, kerr.ProducerFenced, e, "no answer was missed")
			}
		}
	}
}

func TestInitProducerIDAtTheLastEpoch(t *testing.T) {
	for _, state := range []kmsg.TransactionState{empty, completeCommit, completeAbort} {
		v := &value{producerID: 7, epoch: limit, lastEpoch: limit - 1, previousID: -1, nextID: -1, state: state}
		req := initRequest("id")
		to, last, _ := initVerdict(v, req, limit)
		require.Equal(t, rotate, to)
		require.Equal(t, int16(-1), last)
		req.ProducerID, req.ProducerEpoch = 7, limit
		to, last, _ = initVerdict(v, req, limit)
		require.Equal(t, rotate, to)
		require.Equal(t, int16(limit), last)
		rotated := &value{producerID: 9, lastEpoch: last, previousID: 7, nextID: -1, state: empty, version: 2}
		to, _, _ = initVerdict(rotated, req, limit)
		require.Equal(t, repeat, to, "the answer was missed")
		rotated.lastEpoch = -1
		_, _, e := initVerdict(rotated, req, limit)
		require.Equal(t, kerr.ProducerFenced, e, "another process has taken over")
	}
	deciding := &value{producerID: 7, epoch: limit + 1, previousID: -1, nextID: 9, state: prepareAbort}
	req := initRequest("id")
	req.ProducerID, req.ProducerEpoch = 9, 0
	to, _, _ := initVerdict(deciding, req, limit)
	require.Equal(t, wait, to)
}

func TestInitProducerIDOfTheOtherRange(t *testing.T) {
	v := &value{producerID: 7, epoch: 5, lastEpoch: -1, previousID: -1, nextID: -1, state: completeCommit, version: 2}
	req := initRequest("id")
	ktag.SetNamed(&req.UnknownTags)
	to, _, _ := initVerdict(v, req, limit)
	require.Equal(t, rotate, to)
	v.producerID = ktag.NamedProducerID("x")
	to, _, _ = initVerdict(v, req, limit)
	require.Equal(t, bump, to)
	to, _, _ = initVerdict(v, initRequest("id"), limit)
	require.Equal(t, rotate, to)
	req = initRequest("id")
	req.ProducerID, req.ProducerEpoch = v.producerID, 5
	to, _, _ = initVerdict(v, req, limit)
	require.Equal(t, bump, to, "who goes on keeps the range")
}

func TestAddTable(t *testing.T) {
	for _, state := range allStates {
		v := &value{producerID: 7, epoch: 5, previousID: -1, nextID: -1, state: state}
		if v.preparing() {
			require.Equal(t, kerr.ConcurrentTransactions, addError(v, 7, 5), state)
			require.Equal(t, kerr.ConcurrentTransactions, addError(v, 9, 0), "the next producer id")
			continue
		}
		require.Nil(t, addError(v, 7, 5), state)
		require.Equal(t, kerr.ProducerFenced, addError(v, 7, 4), state)
		require.Equal(t, kerr.ProducerFenced, addError(v, 7, 6), state)
		require.Equal(t, kerr.InvalidProducerIDMapping, addError(v, 8, 5), state)
	}
}
