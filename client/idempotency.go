package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
)

// KeysTopic has what became of requests that came with a key. It belongs to the cluster.
const KeysTopic = "__idempotency_keys"

// What is fixed about keys.
const (
	// shownTries and shownPause bound the wait for a topic that was just made.
	shownTries     = 250
	shownPause     = 20 * time.Millisecond
	keysPartitions = 16
	// keysRetention keeps an entry for longer than a partition remembers the producer that stands for its key, 24 h and
	// what the next look at them takes: while the key is known, so is its entry.
	keysRetention = 26 * time.Hour
	keysSegment   = 6 * time.Hour
	// keyTimeout bounds one write of an entry.
	keyTimeout = 15 * time.Second
	// keyRounds bounds how often an entry is looked at anew because another attempt wrote one.
	keyRounds = 8
)

// KeyState is how far the request of a key is.
type KeyState string

// The states of keys.
const (
	KeyRunning KeyState = "running" // an attempt is under way, or died
	KeyDone    KeyState = "done"    // the answer is kept
	KeyFree    KeyState = "free"    // an attempt was refused for now and has done nothing
	KeyUnknown KeyState = "unknown" // an attempt ended, and nobody knows what it has done
)

// KeyEntry is what is kept of a key: the value of a record, in JSON.
type KeyEntry struct {
	State       KeyState          `json:"state"`
	Fingerprint []byte            `json:"fingerprint"`
	Attempt     string            `json:"attempt"` // tells whose entry it is
	Since       int64             `json:"since"`   // when the attempt began, in milliseconds
	Note        json.RawMessage   `json:"note,omitempty"`
	Status      int               `json:"status,omitempty"`
	Header      map[string]string `json:"header,omitempty"`
	Body        []byte            `json:"body,omitempty"`
	Cut         bool              `json:"cut,omitempty"` // the body was too large to keep
}

// Errors of Claim.
var (
	ErrKeyRunning = errors.New("the first request with this key is still being served")
	ErrKeyReused  = errors.New("the key was used for another request")
	ErrKeyLost    = errors.New("what became of the first request with this key is not known any more")
)

// Keys remembers in the log what became of requests that clients name by keys of their own, so that a request that is
// sent again does nothing twice. It is safe for concurrent use.
//
// A key has a named producer, whose sequences count the entries of the key: who writes the next one has the key, and
// whoever comes at the same time is told that it is a duplicate. So no lock is held, and a node that dies leaves an
// entry that says so.
type Keys struct{ client *Client }

// NewKeys makes Keys. It does no I/O: the topic is made when it is first needed. Only a cluster of our own can keep
// keys.
func (c *Client) NewKeys() *Keys { return &Keys{c} }

// Claim is the right of one attempt to serve the request of a key.
type Claim struct {
	keys  *Keys
	key   string
	entry KeyEntry
	seq   int32 // of the entry that is the attempt's own
}

// Claim asks to serve the request of a key. An attempt that began longer ago than life is given up, and taken over:
// it can note and keep nothing any more. It gives
//
//   - a Claim alone: nobody did yet;
//   - a Claim and the entry of the attempt before, which ended without an answer: the caller knows whether its request
//     may be done again, and else calls Leave with KeyUnknown;
//   - an entry alone: what was answered;
//   - ErrKeyRunning, ErrKeyReused or ErrKeyLost, or another error: nothing was done.
func (k *Keys) Claim(ctx context.Context, key string, fingerprint []byte, life time.Duration) (
	*Claim, *KeyEntry, error,
) {
	now := k.client.now().UnixMilli()
	c := &Claim{keys: k, key: key, entry: KeyEntry{
		State: KeyRunning, Fingerprint: fingerprint, Attempt: uuid.NewString(), Since: now,
	}}
	var before *KeyEntry
	for range keyRounds {
		taken, err := k.put(ctx, key, c.seq, &c.entry)
		switch {
		case err != nil:
			return nil, nil, err
		case taken:
			return c, before, nil
		}
		last, entry, err := k.newest(ctx, key)
		switch {
		case err != nil:
			return nil, nil, err
		case entry.Attempt == c.entry.Attempt: // written by a try of ours whose answer was lost
			c.seq = last
			return c, before, nil
		case string(entry.Fingerprint) != string(fingerprint):
			return nil, nil, ErrKeyReused
		case entry.State == KeyDone:
			return nil, entry, nil
		case entry.State == KeyRunning && now-entry.Since < life.Milliseconds():
			return nil, nil, ErrKeyRunning
		}
		c.seq, c.entry.Note, before = last+1, entry.Note, entry
		if entry.State == KeyFree {
			c.entry.Note, before = nil, nil
		}
	}
	return nil, nil, ErrKeyRunning
}

// Note keeps a word about the attempt, for whoever finds it dead.
func (c *Claim) Note(ctx context.Context, note any) error {
	raw, err := json.Marshal(note)
	if err != nil {
		return err
	}
	next := c.entry
	next.Note = raw
	return c.write(ctx, next)
}

// Done keeps the answer.
func (c *Claim) Done(ctx context.Context, answer KeyEntry) error {
	next := c.entry
	next.State, next.Note = KeyDone, nil
	next.Status, next.Header, next.Body, next.Cut = answer.Status, answer.Header, answer.Body, answer.Cut
	return c.write(ctx, next)
}

// Leave ends the attempt without an answer: with KeyFree where nothing was done, else with KeyUnknown.
func (c *Claim) Leave(ctx context.Context, state KeyState) error {
	next := c.entry
	next.State = state
	return c.write(ctx, next)
}

// write adds an entry behind the attempt's last one. It fails where another attempt took the key over.
func (c *Claim) write(ctx context.Context, next KeyEntry) error {
	taken, err := c.keys.put(ctx, c.key, c.seq+1, &next)
	if err == nil && !taken {
		_, entry, err := c.keys.newest(ctx, c.key)
		if err != nil {
			return err
		}
		if entry.Attempt != next.Attempt || entry.State != next.State {
			return ErrKeyRunning
		}
	}
	if err != nil {
		return err
	}
	c.seq++
	c.entry = next
	return nil
}

// producer is the named producer of a key. No Producer-Id of a client has a NUL.
func keyProducer(key string) *NamedProducer { return &NamedProducer{Name: "key\x00" + key} }

// place finds the partition of a key. The topic is made where it is missing.
func (k *Keys) place(ctx context.Context, key string) (*Topic, int32, error) {
	topic, err := k.client.Topic(ctx, KeysTopic, Refuse)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if err = k.makeTopic(ctx); err == nil {
			topic, err = k.made(ctx)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	return topic, record.KeyPartition([]byte(key), int32(len(topic.Partitions))), nil
}

// made waits until the node shows the topic, which another request, or another node, may have made a moment ago.
func (k *Keys) made(ctx context.Context) (*Topic, error) {
	for try := 0; ; try++ {
		topic, err := k.client.loadTopic(ctx, KeysTopic, Refuse)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || try == shownTries {
			return topic, err
		}
		if err := sleep(ctx, shownPause); err != nil {
			return nil, err
		}
	}
}

func (k *Keys) makeTopic(ctx context.Context) error {
	t := NewTopic{Name: KeysTopic, Partitions: keysPartitions, ReplicationFactor: -1, Internal: true}
	for _, c := range [][2]string{
		{"cleanup.policy", "compact,delete"},
		{"retention.ms", fmt.Sprint(keysRetention.Milliseconds())},
		{"segment.ms", fmt.Sprint(keysSegment.Milliseconds())},
		{"message.timestamp.after.max.ms", fmt.Sprint(math.MaxInt64)}, // the leader's clock may be behind ours
	} {
		t.Configs = append(t.Configs, NewConfig{Name: c[0], Value: &c[1]})
	}
	if _, err := k.client.CreateTopic(ctx, t); !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	return nil
}

// put writes an entry as number seq of its key, and reports whether there was none of that number yet. It may have been
// written by this very call, though, when a first try's answer was lost.
func (k *Keys) put(ctx context.Context, key string, seq int32, entry *KeyEntry) (bool, error) {
	r, err := k.produce(ctx, key, seq, entry)
	return err == nil && !r.Duplicate, err
}

// newest reads the newest entry of a key that has one.
func (k *Keys) newest(ctx context.Context, key string) (int32, *KeyEntry, error) {
	topic, partition, err := k.place(ctx, key)
	if err != nil {
		return 0, nil, err
	}
	known, err := k.client.knownSequences(ctx, topic, keyProducer(key), []int32{partition}, certain)
	if err != nil {
		return 0, nil, err
	}
	last := known[partition].last
	r, err := k.produce(ctx, key, last, &KeyEntry{}) // a repeat, so it tells where that entry is and writes nothing
	if err != nil {
		return 0, nil, err
	}
	if !r.Duplicate || r.BaseOffset < 0 {
		return 0, nil, ErrKeyLost
	}
	entry, err := k.read(ctx, topic, FetchPartition{Partition: partition, Offset: r.BaseOffset}, key)
	return last, entry, err
}

func (k *Keys) produce(ctx context.Context, key string, seq int32, entry *KeyEntry) (*ProduceResult, error) {
	value, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	var b record.Builder
	np := keyProducer(key)
	for try := 0; ; try++ {
		topic, partition, err := k.place(ctx, key)
		if err != nil {
			return nil, err
		}
		b.Reset(nil)
		b.SetProducer(np.id(), 0, seq)
		b.Append(&record.Record{Timestamp: k.client.now().UnixMilli(), Key: []byte(key), Value: value})
		results, err := k.client.Produce(ctx, ProduceRequest{
			Acks: AcksAll, Timeout: keyTimeout,
			Batches: []Batch{{Topic: topic, Partition: partition, Bytes: b.Build(), Counted: true, Internal: true}},
		})
		if err != nil {
			return nil, err
		}
		var f *KafkaError
		if errors.As(results[0].Err, &f) && f.PartitionCount > 0 && try < recounts {
			k.client.Forget(KeysTopic)
			continue
		}
		return &results[0], results[0].Err
	}
}

// read reads the entry of a key at an offset.
func (k *Keys) read(ctx context.Context, topic *Topic, at FetchPartition, key string) (*KeyEntry, error) {
	results, err := k.client.Fetch(ctx, FetchRequest{Topic: topic, Partitions: []FetchPartition{at}, MaxBytes: 1})
	if err != nil {
		return nil, err
	}
	if errors.Is(results[0].Err, kerr.OffsetOutOfRange) {
		return nil, ErrKeyLost
	}
	if results[0].Err != nil {
		return nil, results[0].Err
	}
	if len(results[0].Batches) == 0 {
		return nil, ErrKeyLost
	}
	b, _, err := record.Next(results[0].Batches)
	if err != nil {
		return nil, err
	}
	rd := record.NewReader(b, maxKeyEntry)
	for r := (record.Record{}); rd.Next(&r); {
		if r.Offset != at.Offset || string(r.Key) != key {
			continue
		}
		var entry KeyEntry
		if err := json.Unmarshal(r.Value, &entry); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKeyLost, err)
		}
		return &entry, nil
	}
	if rd.Err() != nil {
		return nil, rd.Err()
	}
	return nil, ErrKeyLost
}

// maxKeyEntry bounds an entry: a body of 64 KiB in base64, and what stands around it.
const maxKeyEntry = 1 << 20
