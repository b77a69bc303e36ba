package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Command is a change of the metadata that was or will be agreed on. The log holds it as JSON:
//
//	{"type":"CreateTopics","version":1,"body":{...}}
//
// A command states facts, not wishes: what depends on the proposer (random ids, the placement of
// replicas, limits, defaults of its static configuration) is in it. So replaying it gives the same
// result on every node and in every later version. A version of a command type is never given
// another meaning; a node that meets a type, version or field it does not know must stop, since it
// would go on with another state than its peers.
type Command interface {
	commandType() string
	// apply makes the changes and answers one item for each item of the command. A bad item
	// changes nothing and does not stop the others.
	apply(*editor) Result
}

// commandVersion is the version of every command type so far.
const commandVersion = 1

// RegisterBroker makes a broker known, or renews it for a new run of its process. The answer's Epoch
// is the broker epoch; the same incarnation again gets the same one.
type RegisterBroker struct {
	// ClusterID is the cluster that the broker's data is of; empty when it has none yet.
	ClusterID string `json:"cluster_id,omitempty"`
	// NewClusterID becomes the cluster's id if neither it nor the broker has one.
	NewClusterID string     `json:"new_cluster_id"`
	ID           int32      `json:"id"`
	Incarnation  UUID       `json:"incarnation"`
	Endpoints    []Endpoint `json:"endpoints,omitempty"`
	Rack         string     `json:"rack,omitempty"`
	// PreviousEpoch is the epoch of the run whose clean end the broker's data proves, or -1. Unless
	// it is the last epoch of the broker, unsynced records may be lost.
	PreviousEpoch int64 `json:"previous_epoch"`
	// Fenced registers the broker out of service until ChangeBrokers takes it in: it leaves every ISR,
	// for the ELR where that is short, so that it never goes on with a leader epoch of the run
	// before. Every new command sets it. Without it the broker is in service at once and stays where
	// it was in sync; the partitions that it leads get a new leader epoch if records may be lost.
	Fenced bool `json:"fenced,omitempty"`
	// Intact says that the data directory holds everything the broker acknowledged even without a clean
	// end, as it does after a crash where each acknowledgement waits for the disk. Where neither
	// this nor PreviousEpoch says so, the broker leaves every ELR too.
	Intact bool `json:"intact,omitempty"`
	// DataEpoch is the broker epoch under which the data directory was last in use, 0 when not told. One
	// below that of the broker's last run in service shows an older directory, which is not intact.
	DataEpoch int64    `json:"data_epoch,omitempty"`
	Defaults  Defaults `json:"defaults,omitzero"`
}

// CreateTopics creates topics.
type CreateTopics struct {
	Topics []NewTopic `json:"topics"`
	Limits Limits     `json:"limits"`
}

// NewTopic is a topic to create: the replicas of each partition, the preferred leader first.
type NewTopic struct {
	Name       string            `json:"name"`
	ID         UUID              `json:"id"`
	Partitions [][]int32         `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
}

// Limits bounds the size of the metadata.
type Limits struct {
	Topics          int `json:"topics"`
	Partitions      int `json:"partitions"`
	TopicPartitions int `json:"topic_partitions"`
}

// DefaultLimits returns the limits of this version.
func DefaultLimits() Limits {
	return Limits{Topics: 10_000, Partitions: 50_000, TopicPartitions: 10_000}
}

// DeleteTopics deletes topics with their configuration.
type DeleteTopics struct {
	Topics []TopicRef `json:"topics"`
}

// TopicRef names a topic by its id, or by its name when the id is zero.
type TopicRef struct {
	Name string `json:"name,omitempty"`
	ID   UUID   `json:"id,omitzero"`
}

// CreatePartitions adds partitions to topics.
type CreatePartitions struct {
	Topics []MorePartitions `json:"topics"`
	Limits Limits           `json:"limits"`
}

// MorePartitions raises a topic to Count partitions; Added holds the replicas of the new ones.
type MorePartitions struct {
	Name  string    `json:"name"`
	Count int32     `json:"count"`
	Added [][]int32 `json:"added"`
}

// AlterConfigs changes single keys of resources.
type AlterConfigs struct {
	Resources []AlterResource `json:"resources"`
}

// AlterResource is the change of one resource; all of its operations happen or none.
type AlterResource struct {
	Type       ResourceType `json:"type"`
	Name       string       `json:"name"`
	Operations []AlterKey   `json:"operations"`
}

// ResourceType is a kind of thing that has configuration, numbered as in Kafka.
type ResourceType int8

// The resource types that can be altered.
const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4
)

// AlterOp is what to do with a key, numbered as in Kafka.
type AlterOp int8

// The operations. Append and Subtract work on lists only.
const (
	OpSet      AlterOp = 0
	OpDelete   AlterOp = 1
	OpAppend   AlterOp = 2
	OpSubtract AlterOp = 3
)

// AlterKey is one operation on one key.
type AlterKey struct {
	Name string  `json:"name"`
	Op   AlterOp `json:"op"`
	// Value is nil for a null value.
	Value *string `json:"value,omitempty"`
	// Base is the value that applies where the resource sets none, as the proposer sees it;
	// Append and Subtract start from it.
	Base string `json:"base,omitempty"`
}

// AllocateProducerIDs hands a block of Count producer ids to a broker. The answer's FirstProducerID
// is where it starts.
type AllocateProducerIDs struct {
	BrokerID    int32 `json:"broker_id"`
	BrokerEpoch int64 `json:"broker_epoch"`
	Count       int32 `json:"count"`
}

func (*RegisterBroker) commandType() string      { return "RegisterBroker" }
func (*CreateTopics) commandType() string        { return "CreateTopics" }
func (*DeleteTopics) commandType() string        { return "DeleteTopics" }
func (*CreatePartitions) commandType() string    { return "CreatePartitions" }
func (*AlterConfigs) commandType() string        { return "AlterConfigs" }
func (*AllocateProducerIDs) commandType() string { return "AllocateProducerIDs" }

func newCommand(kind string) Command {
	switch kind {
	case "RegisterBroker":
		return new(RegisterBroker)
	case "CreateTopics":
		return new(CreateTopics)
	case "DeleteTopics":
		return new(DeleteTopics)
	case "CreatePartitions":
		return new(CreatePartitions)
	case "AlterConfigs":
		return new(AlterConfigs)
	case "AllocateProducerIDs":
		return new(AllocateProducerIDs)
	}
	return newClusterCommand(kind)
}

type envelope struct {
	Type    string          `json:"type"`
	Version int             `json:"version"`
	Body    json.RawMessage `json:"body"`
}

// Encode returns the log entry of a command.
func Encode(c Command) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.commandType(), err)
	}
	return json.Marshal(envelope{Type: c.commandType(), Version: commandVersion, Body: body})
}

// Decode reads a log entry. It refuses what this version does not know.
func Decode(entry []byte) (Command, error) {
	var e envelope
	if err := decodeStrict(entry, &e); err != nil {
		return nil, fmt.Errorf("decode metadata command: %w", err)
	}
	c := newCommand(e.Type)
	if c == nil || e.Version != commandVersion {
		return nil, fmt.Errorf("metadata command %q version %d is not known to this version of the server", e.Type, e.Version)
	}
	if err := decodeStrict(e.Body, c); err != nil {
		return nil, fmt.Errorf("decode metadata command %s: %w", e.Type, err)
	}
	return c, nil
}

// decodeStrict decodes exactly one JSON value without fields that v does not have.
func decodeStrict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more data after the value")
	}
	return nil
}
