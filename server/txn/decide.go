package txn

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// What a request about an id comes to, by the state of the id: pure, and all in one place.

// verdict is what to do.
type verdict int

const (
	refuse  verdict = iota // answer with the error
	wait                   // CONCURRENT_TRANSACTIONS, until what is under way is done
	repeat                 // answer as the state is: that was done before
	bump                   // give the next epoch
	rotate                 // give another producer id
	fence                  // abort the transaction that is open, then look again
	decide                 // end the transaction
	nothing                // abort where there is nothing to abort
)

// initVerdict judges InitProducerID about an id that is known. named says from which range the producer id is wanted.
// last is the epoch of which a producer may have missed the answer with the new one, -1: none.
func initVerdict(v *value, req *kmsg.InitProducerIDRequest, limit int16) (to verdict, last int16, e *kerr.Error) {
	given := req.ProducerID >= 0
	again := given && v.lastEpoch >= 0 && req.ProducerEpoch == v.lastEpoch // a retry, where the producer id fits
	switch {
	case given && req.ProducerID != v.producerID && v.preparing() && req.ProducerID == v.nextID:
		return wait, -1, nil
	case given && req.ProducerID != v.producerID:
		if again && req.ProducerID == v.previousID && v.epoch == 0 {
			break
		}
		return refuse, -1, kerr.ProducerFenced
	}
	switch {
	case v.preparing():
		return wait, -1, nil
	case v.state == ongoing:
		if given && req.ProducerEpoch != v.epoch { // of one that is fenced already
			return refuse, -1, kerr.ProducerFenced
		}
		return fence, -1, nil
	case again:
		return repeat, -1, nil
	case given && req.ProducerEpoch != v.epoch:
		return refuse, -1, kerr.ProducerFenced
	case given:
		last = v.epoch
	default:
		last = -1 // what was there before cannot pass as a retry
	}
	if v.epoch >= limit || !given && ktag.IsNamed(v.producerID) != ktag.Named(&req.UnknownTags) {
		return rotate, last, nil
	}
	return bump, last, nil
}

// endVerdict judges EndTxn.
func endVerdict(v *value, req *kmsg.EndTxnRequest, limit int16) (verdict, *kerr.Error) {
	current, retry := false, false
	switch {
	case req.ProducerID == v.producerID:
		current, retry = req.ProducerEpoch == v.epoch, req.ProducerEpoch >= 0 && req.ProducerEpoch == v.epoch-1
	case v.preparing() && req.ProducerID == v.nextID: // what the answer has given already
		current = req.ProducerEpoch == 0
	case req.ProducerID == v.previousID && v.epoch == 0:
		retry = req.ProducerEpoch == limit
	}
	if !current && !retry && req.ProducerID != v.producerID {
		return refuse, kerr.InvalidProducerIDMapping
	}
	switch {
	case !current && !retry:
		return refuse, kerr.ProducerFenced
	case v.preparing() && current:
		return wait, nil // of the next transaction, which has to wait until this one is done
	case v.preparing() && req.Commit == v.commits():
		return wait, nil
	case v.preparing():
		return refuse, kerr.InvalidTxnState
	case retry:
		return retryVerdict(v, req.Commit)
	case v.state == ongoing:
		return decide, nil
	case req.Commit:
		return refuse, kerr.InvalidTxnState
	}
	return nothing, nil
}

// retryVerdict judges EndTxn of the epoch before, where nothing is under way.
func retryVerdict(v *value, commit bool) (verdict, *kerr.Error) {
	switch {
	case v.state == empty || v.state == ongoing:
		return refuse, kerr.ProducerFenced
	case commit == v.commits():
		return repeat, nil
	}
	return refuse, kerr.InvalidTxnState
}

// addError judges the addition of partitions, but for the partitions themselves. A wait comes before all that is said
// of the producer: it may have its next producer id already, which counts when this transaction is done.
func addError(v *value, producerID int64, epoch int16) *kerr.Error {
	switch {
	case v.preparing():
		return kerr.ConcurrentTransactions
	case v.producerID != producerID:
		return kerr.InvalidProducerIDMapping
	case v.epoch != epoch:
		return kerr.ProducerFenced
	}
	return nil
}
