package ktag

import "github.com/twmb/franz-go/pkg/kmsg"

// tagNamed has a number of its own.
const tagNamed uint32 = 10200

// SetNamed asks, in an InitProducerIDRequest with a transactional id, for a producer id from the range of named
// producers: then sequences count the producer's requests, as IsNamed says. The answer's id shows whether that was
// done. Who asks with the producer id that it has keeps the range of that.
func SetNamed(t *kmsg.Tags) { t.Set(tagNamed, nil) }

// tagInternal has a number of its own.
const tagInternal uint32 = 10201

// SetInternal says, in a partition of a ProduceRequest or in a CreateTopicsRequest, that it is the cluster itself which
// writes to a topic of its own, or makes it. Who lets messages of clients in must not let this tag in.
func SetInternal(t *kmsg.Tags) { t.Set(tagInternal, nil) }

// Internal reports whether SetInternal was called.
func Internal(t *kmsg.Tags) bool { return has(t, tagInternal) }

// Named reports whether SetNamed was called.
func Named(t *kmsg.Tags) bool { return has(t, tagNamed) }
