package metadata_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/server/metadata"
)

// drawCommand makes a random command, good or bad, on few names so that commands meet.
func drawCommand(t *rapid.T, image *metadata.Image, serial int) metadata.Command {
	name := rapid.SampledFrom([]string{"a", "b.c", "b_c", "d", "e.f_g", "..", "__consumer_offsets"})
	broker := rapid.Int32Range(0, 3)
	lists := rapid.SliceOfN(rapid.SliceOfN(broker, 0, 3), 0, 3)
	limits := metadata.Limits{Topics: 4, Partitions: 9, TopicPartitions: 4}
	switch rapid.IntRange(0, 6).Draw(t, "command") {
	case 6:
		return drawClusterCommand(t, image, serial)
	case 0:
		return &metadata.RegisterBroker{
			NewClusterID: "c", ID: broker.Draw(t, "id"), Incarnation: metadata.UUID{rapid.Byte().Draw(t, "run")},
			Rack:          rapid.SampledFrom([]string{"", "r"}).Draw(t, "rack"),
			PreviousEpoch: rapid.Int64Range(-1, 9).Draw(t, "previous"),
		}
	case 1:
		return &metadata.CreateTopics{Limits: limits, Topics: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metadata.NewTopic {
			return metadata.NewTopic{
				Name: name.Draw(t, "name"), Partitions: lists.Draw(t, "partitions"), Configs: drawConfigs(t),
				ID: metadata.UUID{1, byte(serial), rapid.Byte().Draw(t, "id")},
			}
		}), 0, 4).Draw(t, "topics")}
	case 2:
		return &metadata.DeleteTopics{Topics: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metadata.TopicRef {
			return metadata.TopicRef{Name: name.Draw(t, "name")}
		}), 0, 2).Draw(t, "topics")}
	case 3:
		return &metadata.CreatePartitions{Limits: limits,
			Topics: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metadata.MorePartitions {
				return metadata.MorePartitions{
					Name: name.Draw(t, "name"), Count: rapid.Int32Range(-1, 5).Draw(t, "count"), Added: lists.Draw(t, "added"),
				}
			}), 0, 3).Draw(t, "topics")}
	case 4:
		return &metadata.AllocateProducerIDs{
			BrokerID: broker.Draw(t, "id"), BrokerEpoch: rapid.Int64Range(0, 9).Draw(t, "epoch"),
			Count: rapid.Int32Range(-1, 5).Draw(t, "count"),
		}
	default:
		return &metadata.AlterConfigs{Resources: rapid.SliceOfN(rapid.Custom(drawResource), 0, 3).Draw(t, "resources")}
	}
}

func drawConfigs(t *rapid.T) map[string]string {
	return rapid.MapOfN(
		rapid.SampledFrom([]string{"retention.ms", "cleanup.policy", "min.compaction.lag.ms", "nonsense"}),
		rapid.SampledFrom([]string{"1", "compact", "-1", "9223372036854775807"}), 0, 2,
	).Draw(t, "configs")
}

func drawResource(t *rapid.T) metadata.AlterResource {
	r := metadata.AlterResource{
		Type: metadata.ResourceType(rapid.SampledFrom([]int8{2, 4, 8}).Draw(t, "type")),
		Name: rapid.SampledFrom([]string{"", "1", "2", "a", "b.c", "d"}).Draw(t, "name"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "operations") {
		op := metadata.AlterKey{
			Name: rapid.SampledFrom([]string{
				"retention.ms", "cleanup.policy", "log.retention.ms", "log.cleanup.policy", "num.io.threads", "nonsense",
			}).Draw(t, "key"),
			Op:   metadata.AlterOp(rapid.Int8Range(0, 4).Draw(t, "op")),
			Base: rapid.SampledFrom([]string{"", "delete", "8"}).Draw(t, "base"),
		}
		if rapid.Bool().Draw(t, "has value") {
			op.Value = new(rapid.SampledFrom([]string{"1", "compact", "delete", "9"}).Draw(t, "value"))
		}
		r.Operations = append(r.Operations, op)
	}
	return r
}

// TestCommandSequences runs random commands on two machines, of two nodes. After each the agreed part is
// equal, also on a third that is restored from a snapshot of the first, and the images from before
// have not changed.
func TestCommandSequences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a := newMachine(t, nil)
		b, err := metadata.NewMachine(metadata.Options{NodeID: 2, Static: map[string]string{"log.retention.ms": "77"}})
		require.NoError(r, err)
		type moment struct {
			image *metadata.Image
			drawn string
		}
		var past []moment
		for i := range rapid.IntRange(1, 20).Draw(r, "commands") {
			past = append(past, moment{a.Image(), draw(a.Image())})
			entry, err := metadata.Encode(drawCommand(r, a.Image(), i))
			require.NoError(r, err)
			answerA, err := a.Apply(uint64(i+1), entry)
			require.NoError(r, err)
			answerB, err := b.Apply(uint64(i+1), entry)
			require.NoError(r, err)
			requireSameAnswer(r, answerA, answerB)
			require.Equal(r, a.Image().Hash(), b.Image().Hash())
			require.Equal(r, answerA.Changed || stateText(r, a.Image()) != stateText(r, past[i].image), answerA.Changed,
				"an unnoticed change")
			requireSound(r, a.Image())

			var snapshot bytes.Buffer
			require.NoError(r, a.Image().WriteSnapshot(&snapshot))
			c := newMachine(t, nil)
			require.NoError(r, c.Restore(&snapshot))
			require.Equal(r, a.Image().Hash(), c.Image().Hash())
			require.Equal(r, draw(a.Image()), draw(c.Image()))
			requireSameSettings(r, a.Image(), c.Image())
			a = c
		}
		for _, p := range past {
			require.Equal(r, p.drawn, draw(p.image), "an old image changed")
		}
	})
}

func requireSameAnswer(t require.TestingT, a, b metadata.Result) {
	require.Equal(t, a.Changed, b.Changed)
	require.Equal(t, a.Epoch, b.Epoch)
	require.Equal(t, a.FirstProducerID, b.FirstProducerID)
	require.Len(t, b.Items, len(a.Items))
	for i := range a.Items {
		require.Equal(t, a.Items[i].Code, b.Items[i].Code)
		require.Equal(t, a.Items[i].Message, b.Items[i].Message)
		require.Equal(t, a.Items[i].Partition, b.Items[i].Partition)
		require.Equal(t, a.Items[i].Code != 0, a.Items[i].Message != "", "a refusal says why")
	}
}

func requireSameSettings(t require.TestingT, a, b *metadata.Image) {
	require.Equal(t, a.Settings(), b.Settings())
	for topic := range a.Topics() {
		require.Equal(t, topic.Settings, b.Topic(topic.Name).Settings)
	}
}

// requireSound checks the invariants of an image.
func requireSound(t require.TestingT, m *metadata.Image) {
	topics, partitions, before := 0, 0, ""
	for topic := range m.Topics() {
		require.Less(t, before, topic.Name, "topics come by name")
		before = topic.Name
		require.Same(t, topic, m.Topic(topic.Name))
		require.Same(t, topic, m.TopicByID(topic.ID))
		require.NotNil(t, topic.Settings)
		require.NoError(t, metadata.ValidateTopicName(topic.Name))
		require.NotEmpty(t, topic.Partitions)
		for i := range topic.Partitions {
			requireSoundPartition(t, m, &topic.Partitions[i])
		}
		topics++
		partitions += len(topic.Partitions)
	}
	require.Equal(t, topics, m.TopicCount())
	require.Equal(t, partitions, m.PartitionCount())
}

// FuzzDecode feeds any bytes as a log entry: they are refused, or they apply without a panic and are
// encoded to an entry that does the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []metadata.Command{
		&metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: metadata.UUID{1}},
		&metadata.CreateTopics{Topics: []metadata.NewTopic{{Name: "t", ID: metadata.UUID{1}, Partitions: [][]int32{{1}}}}},
		&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "have"}, {ID: metadata.UUID{2}}}},
		&metadata.CreatePartitions{Topics: []metadata.MorePartitions{{Name: "have", Count: 2, Added: [][]int32{{1}}}}},
		&metadata.AlterConfigs{Resources: []metadata.AlterResource{{Type: 2, Name: "have", Operations: []metadata.AlterKey{
			{Name: "cleanup.policy", Op: metadata.OpAppend, Value: new("compact"), Base: "delete"},
		}}}},
		&metadata.RegisterBroker{
			ID: 2, Incarnation: metadata.UUID{1}, Fenced: true, Intact: true, DataEpoch: 5,
			Defaults: metadata.Defaults{MinISR: 2},
		},
		&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{{ID: 1, Epoch: 1, State: metadata.BrokerShuttingDown}}},
		&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
			{ID: 1, Epoch: 1, State: metadata.BrokerFenced, Stopping: true},
		}},
		&metadata.UnregisterBroker{ID: 1},
		&metadata.SetVoteDue{ID: 1, Due: true},
		&metadata.AlterPartition{BrokerID: 1, BrokerEpoch: 1, Partitions: []metadata.AlteredPartition{
			{TopicID: metadata.UUID{9}, ISR: []metadata.ISRMember{{ID: 1, Epoch: 1}}, Recovering: true}, {Resign: true},
		}},
		&metadata.ElectLeaders{Unclean: true, Partitions: []metadata.PartitionRef{{Topic: "have"}}},
		&metadata.AlterReassignments{AllowRFChange: true, Partitions: []metadata.Reassignment{
			{Topic: "have", Replicas: []int32{1}}, {Topic: "have", Replicas: []int32{}}, {Topic: "have"},
		}},
		&metadata.AllocateProducerIDs{BrokerID: 1, BrokerEpoch: 1, Count: 5},
	} {
		entry, err := metadata.Encode(seed)
		require.NoError(f, err)
		f.Add(entry)
	}
	machine := newMachine(f, nil)
	setUp(f, machine)
	image := machine.Image()
	f.Fuzz(func(t *testing.T, entry []byte) {
		c, err := metadata.Decode(entry)
		if err != nil {
			require.Nil(t, c)
			return
		}
		now, answer := image.Apply(image.Index+1, c)
		requireSound(t, now)
		again, err := metadata.Encode(c)
		require.NoError(t, err)
		c, err = metadata.Decode(again)
		require.NoError(t, err)
		same, sameAnswer := image.Apply(image.Index+1, c)
		require.Equal(t, now.Hash(), same.Hash())
		requireSameAnswer(t, answer, sameAnswer)
	})
}

// setUp registers broker 1 and makes the topic "have".
func setUp(t testing.TB, m *metadata.Machine) {
	t.Helper()
	apply(t, m, &metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: metadata.UUID{1}, PreviousEpoch: -1})
	apply(t, m, &metadata.CreateTopics{
		Topics: []metadata.NewTopic{{Name: "have", ID: metadata.UUID{9}, Partitions: [][]int32{{1}}}},
		Limits: metadata.DefaultLimits(),
	})
}

// apply applies a command whose items all succeed.
func apply(t testing.TB, m *metadata.Machine, c metadata.Command) metadata.Result {
	t.Helper()
	entry, err := metadata.Encode(c)
	require.NoError(t, err)
	r, err := m.Apply(m.Image().Index+1, entry)
	require.NoError(t, err)
	for _, item := range r.Items {
		require.NoError(t, item.Err(), item.Message)
	}
	return r
}

// FuzzRestore feeds any bytes as a snapshot: they are refused, or make an image that is its own snapshot.
func FuzzRestore(f *testing.F) {
	machine := newMachine(f, nil)
	setUp(f, machine)
	var b bytes.Buffer
	require.NoError(f, machine.Image().WriteSnapshot(&b))
	f.Add(b.Bytes())
	f.Add([]byte(fmt.Sprintln(`{"format":"millrace.metadata","version":1,"topics":1}`)))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		m := newMachine(t, nil)
		if m.Restore(bytes.NewReader(snapshot)) != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, m.Image().WriteSnapshot(&b))
		again := newMachine(t, nil)
		require.NoError(t, again.Restore(&b))
		require.Equal(t, m.Image().Hash(), again.Image().Hash())
	})
}
