package client

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrNoAnswer marks a request that the cluster did not answer: it may or may not have taken effect.
var ErrNoAnswer = errors.New("the cluster gave no answer")

// errMissing is why there is no answer when one came that leaves out what was asked about.
var errMissing = errors.New("the answer does not name it")

// KafkaError is an error code that the cluster answered with, and where it was said.
type KafkaError struct {
	// Err is the code; errors.Is and errors.As reach it.
	Err *kerr.Error
	// Message is what the cluster said beyond the code, possibly empty.
	Message string
	// Topic is the topic concerned, empty if none.
	Topic string
	// Partition is the partition concerned, -1 if none.
	Partition int32
	// ExpectedSequence is the next sequence of a named producer after OUT_OF_ORDER_SEQUENCE_NUMBER, else -1.
	ExpectedSequence int32
	// CurrentEpoch is the epoch in force after INVALID_PRODUCER_EPOCH, else -1.
	CurrentEpoch int16
	// ActualOffset is the log end offset after a failed conditional append, else -1.
	ActualOffset int64
	// ResumeOffset is where to read on behind a damaged batch after CORRUPT_MESSAGE, -1 if that is not known.
	ResumeOffset int64
	// PartitionCount is how many partitions the topic has where the request was made for another count, else 0.
	PartitionCount int32
	// NotWritten says that a batch was not written although the code leaves that open: the disk is full.
	NotWritten bool
	// Records are the faults of single records of a refused batch.
	Records []RecordFault
}

// RecordFault is what is wrong with one record of a refused batch.
type RecordFault struct {
	Index   int32 // place in the batch, from 0
	Message string
}

func (e *KafkaError) Error() string {
	text := e.Err.Message
	if e.Topic != "" {
		text += " for " + e.Topic
		if e.Partition >= 0 {
			text += "-" + strconv.Itoa(int(e.Partition))
		}
	}
	return text + ": " + e.Detail()
}

// Detail is the cluster's message or, without one, the code's own description.
func (e *KafkaError) Detail() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Err.Description
}

func (e *KafkaError) Unwrap() error { return e.Err }

// Fault builds the error that the cluster would give for code; it serves checks made before sending.
func Fault(code *kerr.Error, format string, args ...any) *KafkaError {
	return newFault(code, fmt.Sprintf(format, args...), "", -1)
}

func newFault(code *kerr.Error, message, topic string, partition int32) *KafkaError {
	return &KafkaError{
		Err: code, Message: message, Topic: topic, Partition: partition,
		ExpectedSequence: -1, CurrentEpoch: -1, ActualOffset: -1, ResumeOffset: -1,
	}
}

// fault turns an error code of an answer into an error; code 0 gives nil.
func fault(code int16, message *string, topic string, partition int32) error {
	if code == 0 {
		return nil
	}
	text := ""
	if message != nil {
		text = *message
	}
	return newFault(kerr.TypedErrorForCode(code), text, topic, partition)
}

func noAnswer(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, ErrNoAnswer, err)
}
