package partition

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/storage"
)

// What a partition says beside the errors of record and storage. Explain gives each its Kafka code.
var (
	// ErrNotLeader says that this node does not lead the partition, or no longer (6).
	ErrNotLeader = errors.New("this node does not lead the partition")
	// ErrLeadershipLost says that another node leads the partition now, and that whether it has a batch which
	// this one appended is not known here (7).
	ErrLeadershipLost = errors.New("leadership of the partition moved before the batch was committed")
	// ErrDiscarded says that another node leads the partition now and has not taken over the batch that this one
	// appended: no replica ever will (6).
	ErrDiscarded = errors.New("leadership of the partition moved, and the new leader does not have the batch")
	// ErrUnsynced says that a follower has written what is not on disk yet, and must not fetch before.
	ErrUnsynced = errors.New("what was fetched is not on disk yet")
	// ErrNotReplica says that a fetch comes from a node that has no replica of the partition, by what the
	// leader knows (6, or 75 where the other may know more).
	ErrNotReplica = errors.New("the partition is not assigned to the node that fetches")
	// ErrStaleBroker says that a fetch comes from a run of a broker that has ended (6).
	ErrStaleBroker = errors.New("the broker has registered anew since")
	// ErrDeleted says that the partition's topic was deleted (3).
	ErrDeleted = errors.New("the partition was deleted")
	// ErrTimeout says that a wait took longer than the request allows (7). What was appended stays
	// and may yet be committed.
	ErrTimeout = errors.New("the request's time ran out before the batch was committed")
	// ErrFencedEpoch says that the request knows an older leader epoch (74).
	ErrFencedEpoch = errors.New("the leader epoch of the request is older than the partition's")
	// ErrUnknownEpoch says that the request knows a newer leader epoch (75).
	ErrUnknownEpoch = errors.New("the leader epoch of the request is newer than the partition's")
	// ErrStaleMetadata says that the log was written under a later leader epoch than the cluster's
	// metadata knows, as after restoring an old copy of the metadata (56).
	ErrStaleMetadata = errors.New("the cluster's metadata is older than the partition's log")
	// ErrOffsetUnknown says that the high watermark may lag what clients have seen (78).
	ErrOffsetUnknown = errors.New("the leader is new and does not know the latest offset yet")
	// ErrUnjudged says that it could not be found out whether records match the schemas that their topic enforces (5).
	ErrUnjudged = errors.New("the records could not be checked against their schemas")
	// ErrPolicy says that the topic's cleanup.policy does not allow deleting records (44).
	ErrPolicy = errors.New("cleanup.policy of the topic does not contain delete")
	// ErrTransactional says that a batch belongs to a transaction and its request names none (53).
	ErrTransactional = errors.New("the batch belongs to a transaction and the request names none")
	// ErrTxnState says that a batch does not fit the state of its producer's transaction on the partition (48).
	ErrTxnState = errors.New("the producer has no such transaction on the partition")
	// ErrTxnCrowded says that no more transactions can be open on the partition (51).
	ErrTxnCrowded = errors.New("too many transactions are open on the partition")
	// ErrCoordinatorFenced says that a marker comes from a coordinator that has been replaced (52).
	ErrCoordinatorFenced = errors.New("a newer transaction coordinator has written to the partition")
	// ErrSpecialTime says that a negative timestamp has no meaning in ListOffsets (35).
	ErrSpecialTime = errors.New("unknown special timestamp")

	// errStaleGuard says that a leave to append was given in another leader epoch than this one (6).
	errStaleGuard      = errors.New("the leave to append was given in another leader epoch")
	errOpenTransaction = fmt.Errorf("%w: it has one, and the batch is outside it", ErrTxnState)
)

// IsrError says that an acks=all write has too few replicas in sync: before the write nothing was
// written (19), after it the batch is there but its guarantee is not met (20).
type IsrError struct {
	InSync, Required int
	Written          bool
}

func (e *IsrError) Error() string {
	if e.InSync == 1 {
		return fmt.Sprintf("1 replica is in sync and min.insync.replicas is %d", e.Required)
	}
	return fmt.Sprintf("%d replicas are in sync and min.insync.replicas is %d", e.InSync, e.Required)
}

// ExpectedOffsetError says that a conditional append found another log end offset (95).
type ExpectedOffsetError struct{ Expected, Actual int64 }

func (e *ExpectedOffsetError) Error() string {
	return fmt.Sprintf("the log ends at offset %d, not %d", e.Actual, e.Expected)
}

// DamageError says that a batch that was asked for is damaged (2). Next is the offset behind it to read
// on from, 0 when that is not known.
type DamageError struct {
	Next int64
	Err  error
}

func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// OpenError says that a partition's log could not be opened or made (56).
type OpenError struct {
	Name Name
	Err  error
}

func (e *OpenError) Error() string { return fmt.Sprintf("open log of %s: %v", e.Name, e.Err) }

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// Refusal is an error as a Kafka answer says it.
type Refusal struct {
	Code    int16
	Message string
	Records []record.RecordFault // the records at fault, when single ones are
	// NotWritten holds when the code alone leaves open whether the batch was written, but it was not.
	NotWritten bool
}

// Explain gives err its Kafka code and a message for the client. It is the one place where errors of
// record, storage and this package meet the protocol. What has no code of its own is
// UNKNOWN_SERVER_ERROR.
func Explain(err error) Refusal {
	if err == nil {
		return Refusal{}
	}
	r := Refusal{Code: kerr.UnknownServerError.Code, Message: err.Error()}
	for _, m := range codes {
		if errors.Is(err, m.err) {
			r.Code = m.code.Code
			r.NotWritten = m.notWritten
			break
		}
	}
	if code := typedCode(err); code != nil {
		var unopened *OpenError
		r.Code, r.NotWritten = code.Code, r.NotWritten || code == kerr.NotEnoughReplicas || errors.As(err, &unopened)
	}
	var fault *record.Fault
	if errors.As(err, &fault) {
		r.Message, r.Records = fault.Message, fault.Records
	}
	return r
}

// codes is in order: the first error that matches gives the code.
var codes = []struct {
	err        error
	code       *kerr.Error
	notWritten bool
}{
	{err: record.ErrCorrupt, code: kerr.CorruptMessage},
	{err: record.ErrTooLarge, code: kerr.MessageTooLarge},
	{err: record.ErrSegmentTooSmall, code: kerr.RecordListTooLarge},
	{err: record.ErrTimestamp, code: kerr.InvalidTimestamp},
	{err: record.ErrUnsupportedCodec, code: kerr.UnsupportedCompressionType},
	{err: record.ErrInvalid, code: kerr.InvalidRecord},
	{err: record.ErrShort, code: kerr.InvalidRecord},
	{err: ErrNotLeader, code: kerr.NotLeaderForPartition, notWritten: true},
	{err: ErrDiscarded, code: kerr.NotLeaderForPartition, notWritten: true},
	{err: errStaleGuard, code: kerr.NotLeaderForPartition, notWritten: true},
	{err: ErrLeadershipLost, code: kerr.RequestTimedOut},
	{err: ErrNotReplica, code: kerr.NotLeaderForPartition},
	{err: ErrStaleBroker, code: kerr.NotLeaderForPartition},
	{err: ErrDeleted, code: kerr.UnknownTopicOrPartition},
	{err: ErrTimeout, code: kerr.RequestTimedOut},
	{err: ErrFencedEpoch, code: kerr.FencedLeaderEpoch, notWritten: true},
	{err: ErrUnknownEpoch, code: kerr.UnknownLeaderEpoch, notWritten: true},
	{err: ErrStaleMetadata, code: kerr.KafkaStorageError, notWritten: true},
	{err: ErrOffsetUnknown, code: kerr.OffsetNotAvailable},
	{err: ErrUnjudged, code: kerr.LeaderNotAvailable, notWritten: true},
	{err: ErrPolicy, code: kerr.PolicyViolation},
	{err: ErrTransactional, code: kerr.TransactionalIDAuthorizationFailed},
	{err: ErrSpecialTime, code: kerr.UnsupportedVersion},
	{err: ErrTxnState, code: kerr.InvalidTxnState},
	{err: ErrTxnCrowded, code: kerr.ConcurrentTransactions, notWritten: true},
	{err: ErrCoordinatorFenced, code: kerr.TransactionCoordinatorFenced},
	{err: storage.ErrOutOfRange, code: kerr.OffsetOutOfRange},
	{err: storage.ErrDiskFull, code: kerr.KafkaStorageError, notWritten: true},
	{err: storage.ErrOffline, code: kerr.KafkaStorageError},
	{err: syscall.EMFILE, code: kerr.KafkaStorageError, notWritten: true},
	{err: syscall.ENFILE, code: kerr.KafkaStorageError, notWritten: true},
	{err: storage.ErrClosed, code: kerr.NotLeaderForPartition, notWritten: true},
	{err: context.Canceled, code: kerr.RequestTimedOut},
	{err: context.DeadlineExceeded, code: kerr.RequestTimedOut},
}

// Passes says whether what failed may work later without anybody repairing a log: the disk was full, or no file could
// be opened because too many are. The log is as it was.
func Passes(err error) bool {
	return !errors.Is(err, storage.ErrOffline) && isPassing(err)
}

func isPassing(err error) bool {
	return errors.Is(err, storage.ErrDiskFull) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// typedCode is the code of an error that carries values.
func typedCode(err error) *kerr.Error {
	var (
		sequence *SequenceError
		passed   *PassedOverError
		fenced   *FencedError
		isr      *IsrError
		expected *ExpectedOffsetError
		damage   *DamageError
		corrupt  *storage.CorruptionError
		unopened *OpenError
	)
	switch {
	case errors.As(err, &damage):
		return kerr.CorruptMessage
	case errors.As(err, &sequence), errors.As(err, &passed):
		return kerr.OutOfOrderSequenceNumber
	case errors.As(err, &fenced):
		return kerr.InvalidProducerEpoch
	case errors.As(err, &isr) && isr.Written:
		return kerr.NotEnoughReplicasAfterAppend
	case isr != nil:
		return kerr.NotEnoughReplicas
	case errors.As(err, &expected):
		return kerr.InvalidUpdateVersion
	case errors.As(err, &corrupt), errors.As(err, &unopened):
		return kerr.KafkaStorageError
	}
	return nil
}
