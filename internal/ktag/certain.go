package ktag

import "github.com/twmb/franz-go/pkg/kmsg"

// SetCertain asks, in a BrokerHeartbeatRequest or a DescribeProducersRequest, that the answer be so at a moment after
// the request came: that a node which may have been replaced makes sure of that first.
func SetCertain(t *kmsg.Tags) { t.Set(tagCertain, nil) }

// Certain reports whether SetCertain was called.
func Certain(t *kmsg.Tags) bool { return has(t, tagCertain) }
