package metadata_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

func newTopics(first, count int, configs map[string]string) *metadata.CreateTopics {
	c := &metadata.CreateTopics{Limits: metadata.DefaultLimits()}
	for i := first; i < first+count; i++ {
		c.Topics = append(c.Topics, metadata.NewTopic{
			Name: fmt.Sprintf("topic.%05d", i), ID: metadata.UUID{1, byte(i >> 8), 5: 9, 15: byte(i)},
			Partitions: [][]int32{{1}}, Configs: configs,
		})
	}
	return c
}

func drawChange(c metadata.Change) string {
	switch {
	case c.Old == nil:
		return "+" + c.New.Name
	case c.New == nil:
		return "-" + c.Old.Name
	default:
		return "~" + c.New.Name
	}
}

func TestWatchersSeeEveryChangeInOrder(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	var seen []string
	last := (*metadata.Image)(nil)
	m.Watch(func(old, now *metadata.Image) {
		require.Same(t, last, old, "no change is left out")
		require.Same(t, now, m.Image(), "the image told of is the current one")
		last = now
		var changes []string
		for _, c := range metadata.Diff(old, now) {
			changes = append(changes, drawChange(c))
		}
		seen = append(seen, strings.Join(changes, " "))
	})
	apply(t, m, newTopics(0, 2, nil))
	apply(t, m, &metadata.CreatePartitions{Limits: metadata.DefaultLimits(), Topics: []metadata.MorePartitions{
		{Name: "have", Count: 2, Added: [][]int32{{1}}},
	}})
	apply(t, m, &metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "have"}, {Name: "topic.00001"}}})
	apply(t, m, &metadata.AlterConfigs{Resources: []metadata.AlterResource{{
		Type: metadata.BrokerResource, Operations: []metadata.AlterKey{{Name: "log.retention.ms", Value: new("5")}},
	}}})
	apply(t, m, &metadata.AlterConfigs{Resources: []metadata.AlterResource{{
		Type: metadata.BrokerResource, Operations: []metadata.AlterKey{{Name: "num.io.threads", Value: new("9")}},
	}}})
	require.Equal(t, []string{
		"+have", "+topic.00000 +topic.00001", "~have", "-have -topic.00001", "~topic.00000", "",
	}, seen)
}

func TestWatchersAreNotToldOfNothing(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	calls := 0
	m.Watch(func(_, _ *metadata.Image) { calls++ })
	index := m.Image().Index
	entry, err := metadata.Encode(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "none"}}})
	require.NoError(t, err)
	r, err := m.Apply(index+5, entry)
	require.NoError(t, err)
	require.False(t, r.Changed)
	require.Equal(t, 1, calls)
	require.Equal(t, index+5, m.Image().Index, "but the index moves on")
}

func TestDiffOfATopicMadeAgain(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	old := m.Image()
	apply(t, m, &metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "have"}}})
	apply(t, m, &metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
		{Name: "have", ID: metadata.UUID{7}, Partitions: [][]int32{{1}}},
	}})
	changes := metadata.Diff(old, m.Image())
	require.Len(t, changes, 2)
	require.Equal(t, "-have", drawChange(changes[0]))
	require.Equal(t, "+have", drawChange(changes[1]))
	require.Empty(t, metadata.Diff(old, old))
}

func TestUnchangedTopicsAreShared(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	apply(t, m, newTopics(0, 500, nil))
	old := m.Image()
	apply(t, m, newTopics(500, 1, nil))
	require.Nil(t, old.Topic("topic.00500"))
	for topic := range old.Topics() {
		require.Same(t, topic, m.Image().Topic(topic.Name))
	}
	require.Equal(t, 502, m.Image().TopicCount())
}

func TestRestoreRefusesWhatItDoesNotKnow(t *testing.T) {
	header := `{"format":"millrace.metadata","version":1,"index":1,"cluster_id":"c","next_producer_id":0,`
	one := header + `"brokers":0,"configs":0,"topics":1}`
	named := `{"name":"t","id":"AQAAAAAAAAAAAAAAAAAAAA","partitions":[`
	topic := named + `{"replicas":[1],"leader":1,"leader_epoch":0,"partition_epoch":0}]}`
	for name, snapshot := range map[string]string{
		"empty":            "",
		"another format":   `{"format":"other","version":1}`,
		"a newer version":  `{"format":"millrace.metadata","version":2}`,
		"cut off":          header + `"brokers":0,"configs":0,"topics":2}` + topic,
		"more than said":   header + `"brokers":0,"configs":0,"topics":0}` + topic,
		"a topic twice":    header + `"brokers":0,"configs":0,"topics":2}` + topic + topic,
		"a bad name":       one + strings.Replace(topic, `"t"`, `"../t"`, 1),
		"an unknown field": one + strings.Replace(topic, `"name"`, `"x":1,"name"`, 1),
		"no partitions":    one + named + `]}`,
		"a broken broker":  header + `"brokers":1,"configs":0,"topics":0}{"id":"x"}`,
		"a broken config":  header + `"brokers":0,"configs":1,"topics":0}{"broker":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nil)
			before := m.Image()
			require.ErrorContains(t, m.Restore(strings.NewReader(snapshot)), "snapshot")
			require.Same(t, before, m.Image())
		})
	}
	m := newMachine(t, nil)
	require.NoError(t, m.Restore(strings.NewReader(one+topic)))
	require.Equal(t, []int32{1}, m.Image().Topic("t").Partitions[0].ISR)
}

func TestCommandsApplyInOrder(t *testing.T) {
	m := newMachine(t, nil)
	setUp(t, m)
	entry, err := metadata.Encode(&metadata.DeleteTopics{})
	require.NoError(t, err)
	require.Panics(t, func() { _, _ = m.Apply(m.Image().Index, entry) })
}

// BenchmarkCreateTopic creates and deletes one topic among many.
func BenchmarkCreateTopic(b *testing.B) {
	for _, present := range []int{0, 100, 9_900} {
		b.Run(fmt.Sprint(present, " present"), func(b *testing.B) {
			m := newMachine(b, nil)
			setUp(b, m)
			apply(b, m, newTopics(0, present, nil))
			create, err := metadata.Encode(newTopics(present, 1, nil))
			require.NoError(b, err)
			remove, err := metadata.Encode(&metadata.DeleteTopics{Topics: []metadata.TopicRef{
				{Name: fmt.Sprintf("topic.%05d", present)},
			}})
			require.NoError(b, err)
			index := m.Image().Index
			b.ReportAllocs()
			for b.Loop() {
				for _, entry := range [][]byte{create, remove} {
					index++
					if r, err := m.Apply(index, entry); err != nil || !r.Changed {
						b.Fatal(r, err)
					}
				}
			}
		})
	}
}

// BenchmarkCreateTenThousand creates ten thousand topics in one command.
func BenchmarkCreateTenThousand(b *testing.B) {
	c := newTopics(0, 9_999, nil)
	m := newMachine(b, nil)
	setUp(b, m)
	image := m.Image()
	for b.Loop() {
		if now, _ := image.Apply(image.Index+1, c); now.TopicCount() != 10_000 {
			b.Fatal(now.TopicCount())
		}
	}
}

// BenchmarkRestore restores a snapshot of ten thousand topics, without and with settings of their own.
func BenchmarkRestore(b *testing.B) {
	for name, configs := range map[string]map[string]string{
		"plain": nil, "configured": {"retention.ms": "1000", "cleanup.policy": "compact"},
	} {
		b.Run(name, func(b *testing.B) {
			m := newMachine(b, nil)
			setUp(b, m)
			apply(b, m, newTopics(0, 9_999, configs))
			var snapshot bytes.Buffer
			require.NoError(b, m.Image().WriteSnapshot(&snapshot))
			b.SetBytes(int64(snapshot.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Restore(bytes.NewReader(snapshot.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m := newMachine(b, nil)
	setUp(b, m)
	apply(b, m, newTopics(0, 9_999, nil))
	for b.Loop() {
		m.Image().Hash()
	}
}

func BenchmarkTopicLookup(b *testing.B) {
	m := newMachine(b, nil)
	setUp(b, m)
	apply(b, m, newTopics(0, 9_999, nil))
	image := m.Image()
	b.ReportAllocs()
	for b.Loop() {
		if image.Topic("topic.05000") == nil {
			b.Fatal("not there")
		}
	}
}
