package metadata_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/metadata"
)

// TestScripts runs the scripts of testdata/image against a machine of node 1. Each directive applies one
// command and prints its answer; "image" draws the state:
//
//	register id=1 run=1 [rack=r] [cluster=c] [previous=epoch] [fenced] [intact] [data=epoch] [min-isr=N] [unclean]
//	create-topics      a line for each topic: NAME replicas of each partition, then key=value ...
//	delete-topics      a line for each: NAME, or id=N for the N-th topic that was created
//	create-partitions  a line for each: NAME count=N replicas of each new partition
//	alter-configs      a line for each: topic NAME or broker ID, then key=v, ~key to delete, key+=..., key-=...
//	producer-ids broker=1 epoch=1 count=10
//	change-brokers     a line for each: ID active, fenced or shutting_down, then [epoch=N] if not the present one
//	unregister id=1
//	alter-partition broker=1 [epoch=N]  a line for each: TOPIC-PARTITION [epoch=L.P] isr=1,2@9 [recovering],
//	  or resign [eligible|unusable]
//	elect [unclean]    a line for each: TOPIC-PARTITION
//	reassign [rf-change]  a line for each: TOPIC-PARTITION replicas, or cancel
//	limits topics=N partitions=N per-topic=N
//	raw                the input is the log entry
//	snapshot           prints the snapshot and goes on from it
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/image", func(t *testing.T, path string) {
		s := &script{limits: metadata.DefaultLimits(), machine: newMachine(t, nil)}
		datadriven.RunTest(t, path, s.run)
	})
}

func newMachine(t testing.TB, static map[string]string) *metadata.Machine {
	t.Helper()
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1, Static: static})
	require.NoError(t, err)
	return m
}

type script struct {
	machine *metadata.Machine
	index   uint64
	limits  metadata.Limits
	topics  int // created so far; numbers their ids
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var c metadata.Command
	switch d.Cmd {
	case "image":
		return draw(s.machine.Image())
	case "snapshot":
		return s.snapshot(t)
	case "raw":
		s.index++
		_, err := s.machine.Apply(s.index, []byte(d.Input))
		return fmt.Sprintln(err)
	case "limits":
		d.ScanArgs(t, "topics", &s.limits.Topics)
		d.ScanArgs(t, "partitions", &s.limits.Partitions)
		d.ScanArgs(t, "per-topic", &s.limits.TopicPartitions)
		return ""
	case "register":
		c = register(t, d)
	case "create-topics":
		c = s.createTopics(t, d)
	case "delete-topics":
		c = deleteTopics(t, d)
	case "create-partitions":
		c = s.createPartitions(t, d)
	case "alter-configs":
		c = alterConfigs(t, d)
	case "producer-ids":
		ids := &metadata.AllocateProducerIDs{}
		d.ScanArgs(t, "broker", &ids.BrokerID)
		d.ScanArgs(t, "epoch", &ids.BrokerEpoch)
		d.ScanArgs(t, "count", &ids.Count)
		c = ids
	default:
		if c = s.clusterCommand(t, d); c == nil {
			d.Fatalf(t, "no directive %s", d.Cmd)
		}
	}
	return s.apply(t, c)
}

// apply applies a command by way of its log entry and prints the answer.
func (s *script) apply(t *testing.T, c metadata.Command) string {
	entry, err := metadata.Encode(c)
	require.NoError(t, err)
	s.index++
	before := s.machine.Image().Hash()
	r, err := s.machine.Apply(s.index, entry)
	require.NoError(t, err)
	var b strings.Builder
	for _, item := range r.Items {
		switch {
		case item.Code != 0:
			fmt.Fprintf(&b, "%s: %s\n", kerr.TypedErrorForCode(item.Code).Message, item.Message)
		case item.Partition != nil:
			fmt.Fprintf(&b, "ok %s\n", drawPartition(item.Partition))
		case item.Topic != nil:
			fmt.Fprintf(&b, "ok %s, %d partitions\n", item.Topic.Name, len(item.Topic.Partitions))
		default:
			fmt.Fprintf(&b, "ok\n")
		}
	}
	switch c.(type) {
	case *metadata.RegisterBroker:
		fmt.Fprintf(&b, "epoch %d\n", r.Epoch)
	case *metadata.AllocateProducerIDs:
		fmt.Fprintf(&b, "first %d\n", r.FirstProducerID)
	}
	if !r.Changed {
		require.NotEqual(t, before, s.machine.Image().Hash(), "the index at least is new")
		fmt.Fprintf(&b, "nothing changed\n")
	}
	return b.String()
}

func (s *script) snapshot(t *testing.T) string {
	var b bytes.Buffer
	image := s.machine.Image()
	require.NoError(t, image.WriteSnapshot(&b))
	text := b.String()
	s.machine = newMachine(t, nil)
	require.NoError(t, s.machine.Restore(&b))
	require.Equal(t, image.Hash(), s.machine.Image().Hash())
	require.Equal(t, draw(image), draw(s.machine.Image()))
	return text
}

func register(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.RegisterBroker{NewClusterID: "new", PreviousEpoch: -1}
	var run int
	d.ScanArgs(t, "id", &c.ID)
	d.ScanArgs(t, "run", &run)
	d.MaybeScanArgs(t, "rack", &c.Rack)
	d.MaybeScanArgs(t, "cluster", &c.ClusterID)
	d.MaybeScanArgs(t, "previous", &c.PreviousEpoch)
	d.MaybeScanArgs(t, "data", &c.DataEpoch)
	d.MaybeScanArgs(t, "min-isr", &c.Defaults.MinISR)
	c.Fenced, c.Intact, c.Defaults.UncleanElection = d.HasArg("fenced"), d.HasArg("intact"), d.HasArg("unclean")
	c.Incarnation = metadata.UUID{byte(run)}
	return c
}

func topicID(n int) metadata.UUID { return metadata.UUID{0x40, byte(n >> 8), byte(n)} }

func (s *script) createTopics(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.CreateTopics{Limits: s.limits}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		s.topics++
		n := metadata.NewTopic{Name: strings.Trim(fields[0], `"`), ID: topicID(s.topics)}
		for _, f := range fields[1:] {
			if key, value, ok := strings.Cut(f, "="); ok {
				if n.Configs == nil {
					n.Configs = make(map[string]string)
				}
				n.Configs[key] = value
				continue
			}
			n.Partitions = append(n.Partitions, replicas(t, f))
		}
		c.Topics = append(c.Topics, n)
	}
	return c
}

// replicas reads "1,2"; "-" is none.
func replicas(t *testing.T, text string) []int32 {
	if text == "-" {
		return nil
	}
	var ids []int32
	for _, s := range strings.Split(text, ",") {
		id, err := strconv.Atoi(s)
		require.NoError(t, err, "replicas %q", text)
		ids = append(ids, int32(id))
	}
	return ids
}

func deleteTopics(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.DeleteTopics{}
	for line := range strings.Lines(d.Input) {
		name := strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(name, "id="); ok {
			n, err := strconv.Atoi(id)
			require.NoError(t, err)
			c.Topics = append(c.Topics, metadata.TopicRef{ID: topicID(n)})
			continue
		}
		c.Topics = append(c.Topics, metadata.TopicRef{Name: name})
	}
	return c
}

func (s *script) createPartitions(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.CreatePartitions{Limits: s.limits}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		count, err := strconv.Atoi(strings.TrimPrefix(fields[1], "count="))
		require.NoError(t, err)
		n := metadata.MorePartitions{Name: fields[0], Count: int32(count)}
		for _, f := range fields[2:] {
			n.Added = append(n.Added, replicas(t, f))
		}
		c.Topics = append(c.Topics, n)
	}
	return c
}

func alterConfigs(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.AlterConfigs{}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		r := metadata.AlterResource{Type: metadata.TopicResource, Name: strings.Trim(fields[1], `"`)}
		if fields[0] == "broker" {
			r.Type = metadata.BrokerResource
		}
		for _, f := range fields[2:] {
			r.Operations = append(r.Operations, alterKey(t, f))
		}
		c.Resources = append(c.Resources, r)
	}
	return c
}

// alterKey reads key=v (set), ~key (delete), key+=v (append), key-=v (subtract) and key=~ (set to null).
func alterKey(t *testing.T, text string) metadata.AlterKey {
	if name, ok := strings.CutPrefix(text, "~"); ok {
		return metadata.AlterKey{Name: name, Op: metadata.OpDelete}
	}
	name, value, ok := strings.Cut(text, "=")
	require.True(t, ok, "operation %q", text)
	a := metadata.AlterKey{Name: strings.TrimRight(name, "+-"), Value: &value}
	switch {
	case strings.HasSuffix(name, "+"):
		a.Op = metadata.OpAppend
	case strings.HasSuffix(name, "-"):
		a.Op = metadata.OpSubtract
	case value == "~":
		a.Value = nil
	}
	return a
}

// draw prints an image.
func draw(m *metadata.Image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %q, next producer id %d, %d topics, %d partitions\n",
		m.ClusterID, m.NextProducerID, m.TopicCount(), m.PartitionCount())
	for _, broker := range m.Brokers() {
		fmt.Fprintf(&b, "broker %d epoch %d rack %q%s%s\n", broker.ID, broker.Epoch, broker.Rack, drawState(broker),
			drawOverrides(m.BrokerOverrides(fmt.Sprint(broker.ID))))
	}
	if all := m.BrokerOverrides(""); len(all) > 0 {
		fmt.Fprintf(&b, "all brokers%s\n", drawOverrides(all))
	}
	for t := range m.Topics() {
		fmt.Fprintf(&b, "topic %s %s%s\n", t.Name, metadata.UUID(t.ID), drawOverrides(t.Configs))
		for i, p := range t.Partitions {
			fmt.Fprintf(&b, "  %d: %s\n", i, drawPartition(&p))
		}
	}
	return b.String()
}

func drawOverrides(configs map[string]string) string {
	var all []string
	for name, value := range configs {
		all = append(all, " "+name+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
