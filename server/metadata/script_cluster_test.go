package metadata_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// clusterCommand reads the directives of brokers and replicas.
func (s *script) clusterCommand(t *testing.T, d *datadriven.TestData) metadata.Command {
	switch d.Cmd {
	case "change-brokers":
		return s.changeBrokers(t, d)
	case "unregister":
		c := &metadata.UnregisterBroker{}
		d.ScanArgs(t, "id", &c.ID)
		return c
	case "vote-due":
		c := &metadata.SetVoteDue{Due: !d.HasArg("no")}
		d.ScanArgs(t, "id", &c.ID)
		return c
	case "alter-partition":
		return s.alterPartition(t, d)
	case "elect":
		c := &metadata.ElectLeaders{Unclean: d.HasArg("unclean")}
		for line := range strings.Lines(d.Input) {
			c.Partitions = append(c.Partitions, partitionRef(t, strings.TrimSpace(line)))
		}
		return c
	case "reassign":
		return reassign(t, d)
	}
	return nil
}

func (s *script) changeBrokers(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.ChangeBrokers{}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		id := number32(t, fields[0])
		change := metadata.BrokerChange{
			ID: id, Epoch: s.machine.Image().BrokerEpoch(id), State: metadata.BrokerState(fields[1]),
		}
		if len(fields) > 2 && fields[2] == "stopping" {
			change.Stopping = true
		} else if len(fields) > 2 {
			change.Epoch = int64(number32(t, strings.TrimPrefix(fields[2], "epoch=")))
		}
		c.Changes = append(c.Changes, change)
	}
	return c
}

func (s *script) alterPartition(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.AlterPartition{}
	d.ScanArgs(t, "broker", &c.BrokerID)
	c.BrokerEpoch = s.machine.Image().BrokerEpoch(c.BrokerID)
	d.MaybeScanArgs(t, "epoch", &c.BrokerEpoch)
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		ref := partitionRef(t, fields[0])
		a := metadata.AlteredPartition{TopicID: topicID(99), Partition: ref.Partition}
		if topic := s.machine.Image().Topic(ref.Topic); topic != nil {
			a.TopicID = topic.ID
			if int(ref.Partition) < len(topic.Partitions) {
				p := topic.Partitions[ref.Partition]
				a.LeaderEpoch, a.PartitionEpoch = p.LeaderEpoch, p.PartitionEpoch
			}
		}
		for _, f := range fields[1:] {
			s.alteration(t, &a, f)
		}
		c.Partitions = append(c.Partitions, a)
	}
	return c
}

// alteration reads one word of an alter-partition line.
func (s *script) alteration(t *testing.T, a *metadata.AlteredPartition, word string) {
	key, text, _ := strings.Cut(word, "=")
	switch key {
	case "epoch":
		_, err := fmt.Sscanf(text, "%d.%d", &a.LeaderEpoch, &a.PartitionEpoch)
		require.NoError(t, err)
	case "isr":
		for _, member := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			id, epoch, given := strings.Cut(member, "@")
			m := metadata.ISRMember{ID: number32(t, id)}
			m.Epoch = s.machine.Image().BrokerEpoch(m.ID)
			if given {
				m.Epoch = int64(number32(t, epoch))
			}
			a.ISR = append(a.ISR, m)
		}
	case "recovering":
		a.Recovering = true
	case "resign":
		a.Resign = true
	case "eligible":
		a.Eligible = true
	case "unusable":
		a.Unusable = true
	default:
		require.Fail(t, "no such word", word)
	}
}

func reassign(t *testing.T, d *datadriven.TestData) metadata.Command {
	c := &metadata.AlterReassignments{AllowRFChange: d.HasArg("rf-change")}
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		ref := partitionRef(t, fields[0])
		r := metadata.Reassignment{Topic: ref.Topic, Partition: ref.Partition}
		if fields[1] != "cancel" {
			r.Replicas = append([]int32{}, replicas(t, fields[1])...)
		}
		c.Partitions = append(c.Partitions, r)
	}
	return c
}

func partitionRef(t *testing.T, text string) metadata.PartitionRef {
	i := strings.LastIndexByte(text, '-')
	require.Positive(t, i, "partition %q", text)
	return metadata.PartitionRef{Topic: text[:i], Partition: number32(t, text[i+1:])}
}

func number32(t *testing.T, text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	return int32(n)
}

func drawState(b *metadata.Broker) string {
	text := ""
	if b.State() != metadata.BrokerActive {
		text = " " + string(b.State())
	}
	if b.ServedEpoch != 0 {
		text += fmt.Sprintf(" (served %d)", b.ServedEpoch)
	}
	if b.Stopping {
		text += " stopping"
	}
	if b.VoteDue {
		text += " vote due"
	}
	return text
}

func drawPartition(p *metadata.Partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %d epoch %d.%d replicas %v isr %v",
		p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR)
	for _, part := range []struct {
		name string
		ids  []int32
	}{{"adding", p.Adding}, {"removing", p.Removing}, {"elr", p.ELR}, {"last known", p.LastKnownELR}} {
		if len(part.ids) > 0 {
			fmt.Fprintf(&b, " %s %v", part.name, part.ids)
		}
	}
	if p.Recovering {
		b.WriteString(" recovering")
	}
	return b.String()
}
