package metadata_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"millrace/server/metadata"
)

// drawClusterCommand makes a random command about brokers or replicas; most of it is about what there is.
func drawClusterCommand(t *rapid.T, image *metadata.Image, serial int) metadata.Command {
	switch rapid.IntRange(0, 9).Draw(t, "cluster command") {
	case 0:
		return drawRegistration(t, image, serial)
	case 1, 2, 3:
		return drawBrokerChanges(t, image)
	case 4:
		return &metadata.ElectLeaders{
			Unclean: rapid.IntRange(0, 9).Draw(t, "unclean") == 0, Partitions: []metadata.PartitionRef{drawPartitionRef(t)},
		}
	case 5:
		return &metadata.AlterReassignments{
			AllowRFChange: rapid.Bool().Draw(t, "rf change"),
			Partitions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metadata.Reassignment {
				ref := drawPartitionRef(t)
				r := metadata.Reassignment{Topic: ref.Topic, Partition: ref.Partition}
				if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
					r.Replicas = drawBrokers(t, 0)
				}
				return r
			}), 1, 2).Draw(t, "reassignments"),
		}
	case 6:
		return drawRuleChange(t)
	case 7:
		return &metadata.UnregisterBroker{ID: rapid.Int32Range(0, 4).Draw(t, "broker")}
	default:
		return drawAlterPartition(t, image)
	}
}

func drawRegistration(t *rapid.T, image *metadata.Image, serial int) *metadata.RegisterBroker {
	id := rapid.Int32Range(1, 4).Draw(t, "broker")
	c := &metadata.RegisterBroker{
		NewClusterID: "c", ID: id, Incarnation: metadata.UUID{7, byte(serial)}, PreviousEpoch: -1, Fenced: true,
		Defaults: metadata.Defaults{
			MinISR: rapid.IntRange(0, 2).Draw(t, "default"), UncleanElection: rapid.IntRange(0, 9).Draw(t, "unclean") == 0,
		},
	}
	switch rapid.IntRange(0, 2).Draw(t, "proof") {
	case 0:
		c.PreviousEpoch = image.BrokerEpoch(id)
	case 1:
		c.Intact = true
	}
	return c
}

// drawBrokers draws different brokers.
func drawBrokers(t *rapid.T, least int) []int32 {
	return rapid.SliceOfNDistinct(rapid.Int32Range(1, 4), least, 4, rapid.ID[int32]).Draw(t, "brokers")
}

func drawBrokerChanges(t *rapid.T, image *metadata.Image) *metadata.ChangeBrokers {
	c := &metadata.ChangeBrokers{}
	for _, id := range drawBrokers(t, 1) {
		c.Changes = append(c.Changes, metadata.BrokerChange{
			ID: id, Epoch: image.BrokerEpoch(id), State: rapid.SampledFrom([]metadata.BrokerState{
				metadata.BrokerActive, metadata.BrokerActive, metadata.BrokerFenced, metadata.BrokerShuttingDown, "odd",
			}).Draw(t, "state"),
		})
	}
	return c
}

func drawPartitionRef(t *rapid.T) metadata.PartitionRef {
	return metadata.PartitionRef{
		Topic:     rapid.SampledFrom([]string{"a", "d", "none"}).Draw(t, "topic"),
		Partition: rapid.Int32Range(-1, 1).Draw(t, "partition"),
	}
}

func drawRuleChange(t *rapid.T) *metadata.AlterConfigs {
	r := metadata.AlterResource{Type: metadata.BrokerResource}
	if rapid.Bool().Draw(t, "of a topic") {
		r.Type, r.Name = metadata.TopicResource, "a"
	}
	op := metadata.AlterKey{Name: "min.insync.replicas", Op: metadata.OpDelete}
	if rapid.Bool().Draw(t, "set") {
		op.Op, op.Value = metadata.OpSet, new(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "min isr")))
	}
	r.Operations = []metadata.AlterKey{op}
	return &metadata.AlterConfigs{Resources: []metadata.AlterResource{r}}
}

// drawAlterPartition draws what the leader of a partition may say of it, or somebody else.
func drawAlterPartition(t *rapid.T, image *metadata.Image) *metadata.AlterPartition {
	ref := drawPartitionRef(t)
	c := &metadata.AlterPartition{BrokerID: rapid.Int32Range(1, 4).Draw(t, "sender")}
	a := metadata.AlteredPartition{Partition: ref.Partition}
	if topic := image.Topic(ref.Topic); topic != nil && ref.Partition >= 0 && int(ref.Partition) < len(topic.Partitions) {
		p := topic.Partitions[ref.Partition]
		if rapid.IntRange(0, 4).Draw(t, "anybody") > 0 {
			c.BrokerID = max(p.Leader, 1)
		}
		a.TopicID, a.LeaderEpoch, a.PartitionEpoch = topic.ID, p.LeaderEpoch, p.PartitionEpoch
		a.PartitionEpoch -= int32(rapid.IntRange(0, 9).Draw(t, "late") / 9)
	}
	c.BrokerEpoch = image.BrokerEpoch(c.BrokerID)
	a.Resign = rapid.IntRange(0, 4).Draw(t, "resign") == 0
	a.Eligible = rapid.Bool().Draw(t, "eligible")
	a.Unusable = !a.Eligible && rapid.Bool().Draw(t, "unusable")
	a.Recovering = rapid.IntRange(0, 4).Draw(t, "recovering") == 0
	for _, id := range drawBrokers(t, 1) {
		if id != c.BrokerID {
			a.ISR = append(a.ISR, metadata.ISRMember{ID: id, Epoch: image.BrokerEpoch(id)})
		}
	}
	a.ISR = append(a.ISR, metadata.ISRMember{ID: c.BrokerID, Epoch: c.BrokerEpoch})
	c.Partitions = []metadata.AlteredPartition{a}
	return c
}

// requireSoundPartition checks what always holds for one partition.
func requireSoundPartition(t require.TestingT, m *metadata.Image, p *metadata.Partition) {
	for _, part := range [][]int32{p.ISR, p.ELR, p.LastKnownELR, p.Adding, p.Removing} {
		require.Subset(t, p.Replicas, part)
		requireDistinct(t, part)
	}
	requireDistinct(t, p.Replicas)
	for _, id := range p.ELR {
		require.NotContains(t, p.ISR, id)
	}
	for _, id := range p.Adding {
		require.NotContains(t, p.Removing, id)
		require.Contains(t, p.Target(), id)
	}
	require.True(t, slices.Equal(p.Removing, p.Replicas[len(p.Target()):]), "removed ones come last")
	require.NotEmpty(t, p.Target())
	if p.Leader == metadata.NoLeader {
		require.Empty(t, p.ISR)
		return
	}
	require.Contains(t, p.ISR, p.Leader)
	if len(p.ISR) == 1 && m.Broker(p.Leader).State() == metadata.BrokerShuttingDown {
		return
	}
	for _, id := range p.ISR {
		require.True(t, m.Active(id), "broker %d is in the ISR %v", id, p.ISR)
	}
}

func requireDistinct(t require.TestingT, ids []int32) {
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), len(ids))
}

// key names a partition for good.
type key struct {
	topic     [16]byte
	partition int
}

// step is one command and what it did.
type step struct {
	before, after *metadata.Image
	command       metadata.Command
	answer        metadata.Result
}

// replicaModel knows which replicas hold every committed record, if the high watermark moves whenever
// it may.
type replicaModel map[key]map[int32]bool

func setOf(ids ...int32) map[int32]bool {
	set := make(map[int32]bool)
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// sequence is machines of two nodes, whose static configuration differs, that take the same commands. Each is checked
// against a model of what records replicas hold.
type sequence struct {
	a, b  *metadata.Machine
	model replicaModel
}

// newSequence begins with what clusterSetUp makes.
func newSequence(t testing.TB) *sequence {
	s := &sequence{a: newMachine(t, nil), model: make(replicaModel), b: newMachine(t, map[string]string{
		"min.insync.replicas": "3", "unclean.leader.election.enable": "true",
	})}
	for _, c := range clusterSetUp() {
		s.run(t, c)
	}
	return s
}

func (s *sequence) run(t require.TestingT, c metadata.Command) metadata.Result {
	before := s.a.Image()
	entry, err := metadata.Encode(c)
	require.NoError(t, err)
	answer, err := s.a.Apply(before.Index+1, entry)
	require.NoError(t, err)
	answerB, err := s.b.Apply(before.Index+1, entry)
	require.NoError(t, err)
	after, other := s.a.Image(), s.b.Image()
	requireSameAnswer(t, answer, answerB)
	require.Equal(t, after.Hash(), other.Hash())
	requireSound(t, after)
	if _, ok := c.(*metadata.AlterConfigs); !ok { // the same value again is a change there
		require.Equal(t, answer.Changed, stateText(t, before) != stateText(t, after), "%T", c)
	}
	requireRepeatable(t, after, c, answer)
	for topic := range after.Topics() {
		require.Equal(t, topic.Settings.MinInsyncReplicas, other.Topic(topic.Name).Settings.MinInsyncReplicas)
		for i := range topic.Partitions {
			s.model.check(t, step{before, after, c, answer}, topic, i)
		}
	}
	return answer
}

// TestClusterSequences runs random commands about brokers and replicas.
func TestClusterSequences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newSequence(t)
		for i := range rapid.IntRange(1, 60).Draw(r, "commands") {
			s.run(r, drawClusterCommand(r, s.a.Image(), i))
		}
	})
}

// A leader whose word completes a reassignment that takes a replica away leads on in the next epoch. If it did not hear
// the answer and says the same again, it hears that the epoch in which it says so is over.
func TestRepeatedWordThatCompletedAReassignment(t *testing.T) {
	s := newSequence(t)
	reassigned := s.run(t, &metadata.AlterReassignments{AllowRFChange: true, Partitions: []metadata.Reassignment{
		{Topic: "d", Partition: 1, Replicas: []int32{3, 4}},
	}})
	require.Zero(t, reassigned.Items[0].Code, reassigned.Items[0].Message)
	p := s.a.Image().Topic("d").Partitions[1]
	require.Equal(t, []int32{3, 4, 2}, p.Replicas)
	require.Equal(t, []int32{3, 2}, p.ISR)
	epoch := func(id int32) int64 { return s.a.Image().BrokerEpoch(id) }
	c := &metadata.AlterPartition{BrokerID: 3, BrokerEpoch: epoch(3), Partitions: []metadata.AlteredPartition{{
		TopicID: metadata.UUID{2}, Partition: 1, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		ISR: []metadata.ISRMember{{ID: 2, Epoch: epoch(2)}, {ID: 3, Epoch: epoch(3)}, {ID: 4, Epoch: epoch(4)}},
	}}}
	answer := s.run(t, c)
	require.Zero(t, answer.Items[0].Code, answer.Items[0].Message)
	now := answer.Items[0].Partition
	require.Equal(t, []int32{3, 4}, now.Replicas)
	require.Equal(t, []int32{3, 4}, now.ISR)
	require.Equal(t, int32(3), now.Leader)
	require.Equal(t, p.LeaderEpoch+1, now.LeaderEpoch)
	again := s.run(t, c)
	require.Equal(t, kerr.FencedLeaderEpoch.Code, again.Items[0].Code)
	require.False(t, again.Changed)
}

// clusterSetUp is four brokers and two topics of them.
func clusterSetUp() []metadata.Command {
	var commands []metadata.Command
	active := &metadata.ChangeBrokers{}
	for id := range int32(4) {
		commands = append(commands, &metadata.RegisterBroker{
			NewClusterID: "c", ID: id + 1, Incarnation: metadata.UUID{byte(id + 1)}, PreviousEpoch: -1, Fenced: true,
			Defaults: metadata.Defaults{MinISR: 2},
		})
		active.Changes = append(active.Changes, metadata.BrokerChange{
			ID: id + 1, Epoch: int64(id + 1), State: metadata.BrokerActive,
		})
	}
	return append(commands, active, &metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: "a", ID: metadata.UUID{1}, Partitions: [][]int32{{1, 2, 3}, {2, 3, 4}}},
		{Name: "d", ID: metadata.UUID{2}, Partitions: [][]int32{{4, 1}, {3, 2}}},
	}})
}

// requireRepeatable checks that a leader whose answer got lost can ask again: it gets the same answer, or hears that
// its leader epoch is over. That is so where what it said has completed a reassignment which took a replica away: it
// leads on in the next epoch, of which the metadata tells it.
func requireRepeatable(t require.TestingT, m *metadata.Image, c metadata.Command, answer metadata.Result) {
	alter, ok := c.(*metadata.AlterPartition)
	if !ok || answer.Items[0].Code != 0 || alter.Partitions[0].Resign {
		return
	}
	again := m.Evaluate(c)
	require.False(t, again.Changed)
	now, asked := answer.Items[0].Partition, &alter.Partitions[0]
	require.Equal(t, alter.BrokerID, now.Leader)
	if now.LeaderEpoch > asked.LeaderEpoch {
		require.Equal(t, kerr.FencedLeaderEpoch.Code, again.Items[0].Code, again.Items[0].Message)
		return
	}
	require.Zero(t, again.Items[0].Code, again.Items[0].Message)
	require.Equal(t, now, again.Items[0].Partition)
}

// check compares a partition with what it was before a command.
func (r replicaModel) check(t require.TestingT, s step, topic *metadata.Topic, i int) {
	p, k := &topic.Partitions[i], key{topic.ID, i}
	was := s.before.TopicByID(topic.ID)
	if was == nil {
		r[k] = setOf(p.ISR...)
		return
	}
	old := &was.Partitions[i]
	requireEpochs(t, old, p)
	complete := r[k]
	switch c := s.command.(type) {
	case *metadata.RegisterBroker:
		if !c.Intact && c.PreviousEpoch == -1 && s.before.BrokerEpoch(c.ID) != s.after.BrokerEpoch(c.ID) {
			delete(complete, c.ID)
		}
	case *metadata.AlterPartition:
		r.altered(k, p, c, s.answer)
	}
	if _, ok := s.command.(*metadata.AlterReassignments); !ok && old.Reassigning() && !p.Reassigning() {
		require.ElementsMatch(t, old.Target(), p.Replicas)
		require.ElementsMatch(t, p.Replicas, p.ISR, "complete only with all in sync")
	}
	eligible := slices.Concat(old.ISR, old.ELR)
	unclean := p.Recovering && p.Leader != metadata.NoLeader && p.Leader != old.Leader &&
		!(complete[p.Leader] && slices.Contains(eligible, p.Leader))
	if unclean && !uncleanAllowed(topic, s.command) {
		for _, id := range eligible {
			require.False(t, complete[id], "replica %d is complete: %s, before: %s", id, drawPartition(p), drawPartition(old))
		}
	}
	if unclean && !complete[p.Leader] {
		r[k] = setOf(p.Leader)
		complete = r[k]
	}
	for _, id := range slices.Concat(p.ISR, p.ELR) {
		require.True(t, complete[id], "replica %d of %v lacks records: %s, before: %s, %T",
			id, k.partition, drawPartition(p), drawPartition(old), s.command)
	}
	if p.Leader != metadata.NoLeader && len(p.ISR) >= min(topic.Settings.MinInsyncReplicas, len(p.Replicas)) {
		r[k] = setOf(p.ISR...)
	}
}

func uncleanAllowed(topic *metadata.Topic, c metadata.Command) bool {
	elect, ok := c.(*metadata.ElectLeaders)
	return topic.Settings.UncleanLeaderElection || ok && elect.Unclean
}

// altered takes note of what a leader knows: who it takes into the ISR has caught up, and who resigns has not.
func (r replicaModel) altered(k key, p *metadata.Partition, c *metadata.AlterPartition, answer metadata.Result) {
	a := &c.Partitions[0]
	code := answer.Items[0].Code
	if a.TopicID != metadata.UUID(k.topic) || int(a.Partition) != k.partition ||
		code != 0 && code != kerr.NewLeaderElected.Code {
		return
	}
	if a.Resign {
		if !a.Eligible {
			delete(r[k], c.BrokerID)
		}
		return
	}
	for _, id := range p.ISR {
		r[k][id] = true
	}
}

// requireEpochs checks that epochs move as they must, and not when they need not.
func requireEpochs(t require.TestingT, old, now *metadata.Partition) {
	same := *now
	same.LeaderEpoch, same.PartitionEpoch = old.LeaderEpoch, old.PartitionEpoch
	if drawPartition(&same) == drawPartition(old) && now.PartitionEpoch == old.PartitionEpoch {
		require.Equal(t, *old, *now)
		return
	}
	require.Greater(t, now.PartitionEpoch, old.PartitionEpoch)
	taken := slices.ContainsFunc(old.Replicas, func(id int32) bool { return !slices.Contains(now.Replicas, id) })
	if now.Leader != old.Leader || taken {
		require.Greater(t, now.LeaderEpoch, old.LeaderEpoch)
		return
	}
	// Two steps of one command may move the leader away and back.
	require.LessOrEqual(t, now.LeaderEpoch-old.LeaderEpoch, now.PartitionEpoch-old.PartitionEpoch-1,
		"%s, before: %s", drawPartition(now), drawPartition(old))
}
