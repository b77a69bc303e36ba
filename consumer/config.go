package consumer

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// Bounds of a member, beside those that the coordinator has.
const (
	MaxTopics       = 1000 // in a subscription
	MaxPattern      = 1024 // bytes
	MaxID           = 255  // bytes of a member id
	MaxGroupID      = 255  // bytes of a group id
	MaxAssigned     = 2000 // partitions in an assignment by hand
	MinLease        = time.Second
	MaxLease        = 30 * time.Minute
	defaultLease    = 45 * time.Second
	hereSession     = 3 * time.Second
	maxState        = 64 << 10 // bytes that the coordinator keeps of a member
	maxRevocation   = 5 * time.Minute
	revocationSlack = 10 * time.Second
)

// Reset says where to read a partition in which the group has no place, or a place outside the log.
type Reset uint8

const (
	Latest   Reset = iota // the end of the log
	Earliest              // its start
	None                  // nowhere: reading fails with a NoOffsetError
)

// Config is what a member is. Group is required.
type Config struct {
	Group string `json:"-"`
	ID    string `json:"-"` // drawn when empty
	// Topics and Pattern are the subscription; there may be none, to subscribe later or to assign by hand, or both.
	// Pattern is an RE2 expression that matches whole names.
	Topics  []string `json:"topics,omitempty"`
	Pattern string   `json:"pattern,omitempty"`
	Reset   Reset    `json:"reset,omitempty"`
	// AutoCommit commits what was handed out when the client comes back for more, at most once in CommitEvery.
	AutoCommit  bool          `json:"auto,omitempty"`
	CommitEvery time.Duration `json:"every,omitempty"`
	// PinStart commits where a member starts by Reset at once, so that its successor does not start elsewhere.
	PinStart bool `json:"pin,omitempty"`
	// Lease is how long the member stays without a call; 45 s by default.
	Lease time.Duration `json:"lease,omitempty"`
	// Session is how long the group keeps the member when its node is not heard of; Lease by default, and at most 3 s
	// where no other node takes the member over.
	Session   time.Duration    `json:"session,omitempty"`
	Isolation client.Isolation `json:"isolation,omitempty"`
	Rack      string           `json:"rack,omitempty"`
	// Rejoin makes the member join again by itself when the group went on without it, in place of ErrFenced.
	Rejoin bool `json:"rejoin,omitempty"`
	// Here makes the member one that no other node takes over: it leaves when the coordinator moves or the node
	// stops.
	Here bool `json:"here,omitempty"`
	// Extra is the caller's own, kept with the member.
	Extra []byte `json:"extra,omitempty"`
	// ClientID and ClientHost are told to those who look at the group.
	ClientID   string `json:"-"`
	ClientHost string `json:"-"`
}

func bad(format string, args ...any) error { return client.Fault(kerr.InvalidRequest, format, args...) }

// check refuses what cannot be, and sets defaults.
func (c *Config) check() error {
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Session == 0 {
		c.Session = c.Lease
		if c.Here {
			c.Session = min(c.Session, hereSession)
		}
	}
	switch {
	case c.Group == "" || len(c.Group) > MaxGroupID || !utf8.ValidString(c.Group):
		return client.Fault(kerr.InvalidGroupID, "a group id is UTF-8 of 1 to %d bytes", MaxGroupID)
	case len(c.ID) > MaxID || !utf8.ValidString(c.ID):
		return bad("a member id is UTF-8 of 1 to %d bytes", MaxID)
	case c.Lease < MinLease || c.Lease > MaxLease || c.Session < MinLease || c.Session > MaxLease:
		return client.Fault(kerr.InvalidSessionTimeout, "a lease and a session last from %v to %v", MinLease, MaxLease)
	}
	return checkSubscription(c.Topics, c.Pattern)
}

func checkSubscription(topics []string, pattern string) error {
	switch {
	case len(topics) > MaxTopics:
		return bad("a member subscribes to at most %d topics, not %d", MaxTopics, len(topics))
	case len(pattern) > MaxPattern:
		return client.Fault(kerr.InvalidRegularExpression, "a pattern has at most %d bytes", MaxPattern)
	}
	for _, t := range topics {
		if err := client.CheckTopicName(t); err != nil {
			return err
		}
	}
	return nil
}

// state is what the coordinator keeps of a member.
type state struct {
	Version int `json:"v"`
	Config
	Assigned []place `json:"assigned,omitempty"` // by hand
	Seeks    []place `json:"seeks,omitempty"`    // positions that were set and not committed since
}

// place is an offset of a partition.
type place struct {
	Topic     string `json:"t"`
	Partition int32  `json:"p"`
	Offset    int64  `json:"o,omitempty"`
}

const stateVersion = 1

func encodeState(s *state) ([]byte, error) {
	s.Version = stateVersion
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of a member: %w", err)
	}
	if len(b) > maxState {
		return nil, bad("what is to be remembered of the member has %d bytes, the limit is %d: assign or seek in fewer "+
			"partitions", len(b), maxState)
	}
	return b, nil
}

func decodeState(b []byte) (*state, bool) {
	s := &state{}
	if json.Unmarshal(b, s) != nil || s.Version != stateVersion {
		return nil, false
	}
	return s, true
}

// sorted is a sorted copy without doubles.
func sorted(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
