package metadata

// Defaults is what the proposer's static configuration says about elections. The image keeps what the
// last command that has it said, so that every node elects by the same numbers.
type Defaults struct {
	// MinISR is min.insync.replicas; 0 means that the command does not tell.
	MinISR int `json:"min_isr,omitempty"`
	// UncleanElection is unclean.leader.election.enable.
	UncleanElection bool `json:"unclean_election,omitempty"`
}

// ChangeBrokers fences brokers, takes them into service or lets them hand over what they lead. All
// changes are made before partitions follow, so a leadership moves once.
type ChangeBrokers struct {
	Changes  []BrokerChange `json:"changes"`
	Defaults Defaults       `json:"defaults,omitzero"`
}

// BrokerChange puts one registration of a broker into a state.
type BrokerChange struct {
	ID    int32       `json:"id"`
	Epoch int64       `json:"epoch"`
	State BrokerState `json:"state"`
	// Stopping goes with BrokerFenced: this run has asked to stop and is never taken into service again.
	Stopping bool `json:"stopping,omitempty"`
}

// BrokerState is what a broker may do.
type BrokerState string

// The states of a registered broker.
const (
	// BrokerFenced brokers lead nothing and are in no ISR.
	BrokerFenced BrokerState = "fenced"
	// BrokerActive brokers may lead and be in sync.
	BrokerActive BrokerState = "active"
	// BrokerShuttingDown brokers are as fenced ones, but keep what nobody else could lead.
	BrokerShuttingDown BrokerState = "shutting_down"
)

// UnregisterBroker forgets a fenced broker that has no replicas any more, with its dynamic configuration.
type UnregisterBroker struct {
	ID int32 `json:"id"`
}

// SetVoteDue notes whether a node is owed a vote in the quorum.
type SetVoteDue struct {
	ID  int32 `json:"id"`
	Due bool  `json:"due"`
}

// AlterPartition changes the ISR of partitions as their leader found it to be. Each item is a
// compare-and-set on the epochs; its answer has the partition as it is then. NEW_LEADER_ELECTED means
// that the change was made and that another broker leads now.
type AlterPartition struct {
	BrokerID    int32              `json:"broker_id"`
	BrokerEpoch int64              `json:"broker_epoch"`
	Partitions  []AlteredPartition `json:"partitions"`
}

// AlteredPartition is what a broker says of one partition.
type AlteredPartition struct {
	TopicID        UUID        `json:"topic_id"`
	Partition      int32       `json:"partition"`
	LeaderEpoch    int32       `json:"leader_epoch"`
	PartitionEpoch int32       `json:"partition_epoch"`
	ISR            []ISRMember `json:"isr,omitempty"`
	// Recovering stays true until the leader of an unclean election has said false.
	Recovering bool `json:"recovering,omitempty"`
	// Resign says that the sender's replica is damaged, whether it leads or follows: it leaves ISR
	// and ELR, and another one leads. ISR, PartitionEpoch and Recovering say nothing then.
	Resign bool `json:"resign,omitempty"`
	// Eligible says of a replica that resigns that it has all it had, and takes nothing more for now: it
	// leaves the ISR alone, and may lead again where nobody else can.
	Eligible bool `json:"eligible,omitempty"`
	// Unusable says of a replica that resigns that nothing of its log can be read: where no other replica may lead
	// without loss, any other one leads if the topic allows that.
	Unusable bool `json:"unusable,omitempty"`
}

// ISRMember is a broker as the leader knows it: the epoch tells one run of it from the next.
type ISRMember struct {
	ID int32 `json:"id"`
	// Epoch is the broker's epoch, or -1 for a member that the leader has not heard of yet; that is
	// allowed for who is in the ISR already.
	Epoch int64 `json:"epoch"`
}

// ElectLeaders elects the preferred leader of partitions, or with Unclean any replica in service for
// those that have no leader.
type ElectLeaders struct {
	Unclean    bool           `json:"unclean,omitempty"`
	Partitions []PartitionRef `json:"partitions"`
}

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// AlterReassignments moves partitions to other brokers, or cancels that.
type AlterReassignments struct {
	Partitions []Reassignment `json:"partitions"`
	// AllowRFChange allows another number of replicas.
	AllowRFChange bool `json:"allow_rf_change,omitempty"`
}

// Reassignment is where the replicas of a partition shall be, the preferred leader first; nil cancels
// the reassignment in progress.
type Reassignment struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas,omitzero"`
}

func (*ChangeBrokers) commandType() string      { return "ChangeBrokers" }
func (*UnregisterBroker) commandType() string   { return "UnregisterBroker" }
func (*SetVoteDue) commandType() string         { return "SetVoteDue" }
func (*AlterPartition) commandType() string     { return "AlterPartition" }
func (*ElectLeaders) commandType() string       { return "ElectLeaders" }
func (*AlterReassignments) commandType() string { return "AlterReassignments" }

func newClusterCommand(kind string) Command {
	switch kind {
	case "ChangeBrokers":
		return new(ChangeBrokers)
	case "UnregisterBroker":
		return new(UnregisterBroker)
	case "SetVoteDue":
		return new(SetVoteDue)
	case "AlterPartition":
		return new(AlterPartition)
	case "ElectLeaders":
		return new(ElectLeaders)
	case "AlterReassignments":
		return new(AlterReassignments)
	}
	return nil
}
