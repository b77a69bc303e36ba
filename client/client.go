// Package client makes typed calls on a kmsg.Requestor: produce, fetch, offsets, topics, configs.
//
// It owns the knowledge of how Kafka's messages are filled in and read back, a short-lived cache of
// topic metadata, and the turning of records into one batch a partition. It promises that an answer
// from the cluster comes back as values or as a *KafkaError, that the absence of an answer comes back
// as an error wrapping ErrNoAnswer, and that a topic name is checked before it is sent. The HTTP APIs,
// the schema registry and the connectors are its callers; the Requestor below may be this module's
// own router, a test double or a foreign cluster.
package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// Options are the parts of a Client that a caller may choose; zero values take the defaults.
type Options struct {
	// MetadataTTL is how long a topic's metadata is used without asking again; 1 s by default.
	MetadataTTL time.Duration
	// Now reads the wall clock; time.Now by default.
	Now func() time.Time
	// Rand chooses partitions for records without a key; a seed of its own by default.
	Rand *rand.Rand
	// AdminTimeout is how long the cluster may take over a topic or config change; 30 s by default.
	AdminTimeout time.Duration
	// Life is how long calls go on that do not end with their caller's context; for ever by default.
	Life context.Context
}

// idleCodecs is how many decompressors a Client keeps for the check of compressed batches.
const idleCodecs = 2

// Client makes typed calls. It is safe for concurrent use.
type Client struct {
	requestor    kmsg.Requestor
	ttl          time.Duration
	now          func() time.Time
	adminTimeout time.Duration
	life         context.Context // ends what its caller cannot end; may be nil

	// topics maps a name to its *cachedTopic. Readers take no lock. Bounded by maxCachedTopics.
	topics  sync.Map
	cached  atomic.Int64
	cluster atomic.Pointer[cachedCluster]
	senders sync.Pool // of *Sender
	codecs  *record.Codecs

	randMu sync.Mutex
	rand   *rand.Rand // guarded by randMu
}

// New returns a Client on r. It does no I/O.
func New(r kmsg.Requestor, o Options) *Client {
	c := &Client{
		requestor: r, ttl: o.MetadataTTL, now: o.Now, adminTimeout: o.AdminTimeout, rand: o.Rand,
		codecs: record.NewCodecs(idleCodecs), life: o.Life,
	}
	if c.ttl <= 0 {
		c.ttl = time.Second
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.adminTimeout <= 0 {
		c.adminTimeout = 30 * time.Second
	}
	if c.rand == nil {
		c.rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return c
}

// Now is the wall clock that the client was given.
func (c *Client) Now() time.Time { return c.now() }

// newRand derives a source of randomness from the client's own, so that one seed replays a run.
func (c *Client) newRand() *rand.Rand {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	return rand.New(rand.NewPCG(c.rand.Uint64(), c.rand.Uint64()))
}

func (c *Client) adminMillis() int32 { return int32(c.adminTimeout.Milliseconds()) }

// call makes one request; an error means that no answer came and names what was asked.
func call[T any](ctx context.Context, what string, with func(context.Context, kmsg.Requestor) (T, error),
	r kmsg.Requestor) (T, error) {
	resp, err := with(ctx, r)
	if err != nil {
		var none T
		return none, noAnswer(what, err)
	}
	return resp, nil
}

// find is the part of an answer that is about one partition, nil if there is none. Mostly it stands where the
// request named the partition, at place i.
func find[P any](parts []P, i int, partition int32, number func(*P) int32) *P {
	if i < len(parts) && number(&parts[i]) == partition {
		return &parts[i]
	}
	for j := range parts {
		if number(&parts[j]) == partition {
			return &parts[j]
		}
	}
	return nil
}
