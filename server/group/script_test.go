package group

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
	"millrace/server/partition"
)

// The scripts in testdata/scripts drive a coordinator of one partition in fake time. Commands:
//
//	commit group= [topic=t] [member= gen=] [meta=] [epoch=] P:OFFSET ...
//	txn group= producer= epoch= [topic=t] [member= gen=] P:OFFSET ...       TxnOffsetCommit
//	marker producer= epoch= commit|abort
//	add-partitions error=NAME                 what the transaction coordinator says from now on
//	fetch group= [topic=t P ...] [stable] [member= gen=]
//	forget group= [topic=t] P ...             OffsetDelete
//	delete GROUP ... | describe GROUP ... | list [states=] [types=]
//	empty-group group= type= [since=DURATION ago]   the record of a classic group without members
//	write-v1 group= [topic=t] P OFFSET expires=DURATION
//	plant kind=N                              a record of a kind that nobody knows, and one that does not decode
//	topic create|delete NAME
//	clock DURATION | again                    time passes | the partition is led anew and read from its log
//	groups                                    what the shard holds
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		inLab(t, labOptions{}, func(t *testing.T, l *lab) {
			s := &script{lab: l}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				out := s.run(t, d)
				synctest.Wait()
				return out
			})
		})
	})
}

type script struct{ lab *lab }

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "commit":
		return s.commit(t, d)
	case "txn":
		return s.commitTxn(t, d)
	case "marker":
		return s.marker(t, d)
	case "add-partitions":
		s.lab.txn.answer(errorNamed(text(d, "error", "")))
		return ""
	case "fetch":
		return s.fetch(t, d)
	case "forget":
		return s.forget(t, d)
	case "delete", "describe":
		return s.admin(d)
	case "list":
		return s.list(d)
	case "topic":
		if args := words(d); args[0] == "create" {
			s.lab.createTopic(args[1], 4)
		} else {
			s.lab.deleteTopic(args[1])
		}
		return ""
	case "clock":
		pass, err := time.ParseDuration(words(d)[0])
		require.NoError(t, err)
		time.Sleep(pass)
		return ""
	case "again":
		s.lab.again()
		return ""
	case "groups":
		return s.groups()
	default:
		return s.plant(t, d)
	}
}

// text is the value of an argument.
func text(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int64) int64 {
	v, err := strconv.ParseInt(text(d, key, strconv.FormatInt(otherwise, 10)), 10, 64)
	require.NoError(t, err)
	return v
}

// words are the arguments without a value.
func words(d *datadriven.TestData) []string {
	var list []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			list = append(list, a.Key)
		}
	}
	return list
}

func errorNamed(name string) *kerr.Error {
	for code := int16(-1); code < 200; code++ {
		if e := kerr.TypedErrorForCode(code); e != nil && e.Message == name {
			return e
		}
	}
	return nil
}

func nameOf(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "ok"
}

// offsets reads P:OFFSET words.
func offsets(t *testing.T, d *datadriven.TestData) (parts []int32, values []int64) {
	for _, w := range words(d) {
		p, offset, ok := strings.Cut(w, ":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(p, 10, 32)
		require.NoError(t, err)
		v, err := strconv.ParseInt(offset, 10, 64)
		require.NoError(t, err)
		parts, values = append(parts, int32(n)), append(values, v)
	}
	return parts, values
}

func (s *script) commit(t *testing.T, d *datadriven.TestData) string {
	group := text(d, "group", "")
	req := commitTo(group, text(d, "topic", "t"))
	req.MemberID, req.Generation = text(d, "member", ""), int32(number(t, d, "gen", -1))
	parts, values := offsets(t, d)
	for i := range parts {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = parts[i], values[i], int32(number(t, d, "epoch", -1))
		p.Metadata = kmsg.StringPtr(text(d, "meta", ""))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	var out strings.Builder
	for _, p := range ask[*kmsg.OffsetCommitResponse](s.lab, group, req).Topics[0].Partitions {
		fmt.Fprintf(&out, "%d: %s\n", p.Partition, nameOf(p.ErrorCode))
	}
	return out.String()
}

func (s *script) commitTxn(t *testing.T, d *datadriven.TestData) string {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.TransactionalID = text(d, "group", ""), "tx"
	req.ProducerID, req.ProducerEpoch = number(t, d, "producer", 0), int16(number(t, d, "epoch", 0))
	req.MemberID, req.Generation = text(d, "member", ""), int32(number(t, d, "gen", -1))
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = text(d, "topic", "t")
	parts, values := offsets(t, d)
	for i := range parts {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = parts[i], values[i]
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	var out strings.Builder
	for _, p := range ask[*kmsg.TxnOffsetCommitResponse](s.lab, req.Group, req).Topics[0].Partitions {
		fmt.Fprintf(&out, "%d: %s\n", p.Partition, nameOf(p.ErrorCode))
	}
	return out.String()
}

func (s *script) marker(t *testing.T, d *datadriven.TestData) string {
	err := s.lab.nodes[0].coordinator.Marker(context.Background(), 0, &partition.Marker{
		ProducerID: number(t, d, "producer", 0), ProducerEpoch: int16(number(t, d, "epoch", 0)),
		Commit: words(d)[0] == "commit", Version: 2, Epoch: -1,
	})
	if err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}

func (s *script) fetch(t *testing.T, d *datadriven.TestData) string {
	req := kmsg.NewPtrOffsetFetchRequest()
	of := kmsg.NewOffsetFetchRequestGroup()
	of.Group, of.MemberEpoch = text(d, "group", ""), int32(number(t, d, "gen", -1))
	if member := text(d, "member", ""); member != "" {
		of.MemberID = &member
	}
	var parts []int32
	for _, w := range words(d) {
		if w == "stable" {
			req.RequireStable = true
			continue
		}
		p, err := strconv.Atoi(w)
		require.NoError(t, err)
		parts = append(parts, int32(p))
	}
	if len(parts) > 0 {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = text(d, "topic", "t"), parts
		of.Topics = append(of.Topics, topic)
	}
	req.Groups = append(req.Groups, of)
	got := ask[*kmsg.OffsetFetchResponse](s.lab, of.Group, req).Groups[0]
	if got.ErrorCode != 0 {
		return nameOf(got.ErrorCode) + "\n"
	}
	var out strings.Builder
	for _, topic := range got.Topics {
		for _, p := range topic.Partitions {
			fmt.Fprintf(&out, "%s/%d: %d", topic.Topic, p.Partition, p.Offset)
			if p.LeaderEpoch >= 0 {
				fmt.Fprintf(&out, " epoch=%d", p.LeaderEpoch)
			}
			if p.Metadata != nil && *p.Metadata != "" {
				fmt.Fprintf(&out, " meta=%s", *p.Metadata)
			}
			if p.ErrorCode != 0 {
				out.WriteString(" " + nameOf(p.ErrorCode))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

func (s *script) forget(t *testing.T, d *datadriven.TestData) string {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = text(d, "group", "")
	topic := kmsg.NewOffsetDeleteRequestTopic()
	topic.Topic = text(d, "topic", "t")
	for _, w := range words(d) {
		n, err := strconv.Atoi(w)
		require.NoError(t, err)
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = int32(n)
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.OffsetDeleteResponse](s.lab, req.Group, req)
	if resp.ErrorCode != 0 {
		return nameOf(resp.ErrorCode) + "\n"
	}
	var out strings.Builder
	for _, p := range resp.Topics[0].Partitions {
		fmt.Fprintf(&out, "%d: %s\n", p.Partition, nameOf(p.ErrorCode))
	}
	return out.String()
}

// admin is DeleteGroups and DescribeGroups.
func (s *script) admin(d *datadriven.TestData) string {
	var out strings.Builder
	if d.Cmd == "delete" {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = words(d)
		for _, g := range ask[*kmsg.DeleteGroupsResponse](s.lab, "any", req).Groups {
			fmt.Fprintf(&out, "%s: %s\n", g.Group, nameOf(g.ErrorCode))
		}
		return out.String()
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = words(d)
	for _, g := range ask[*kmsg.DescribeGroupsResponse](s.lab, "any", req).Groups {
		fmt.Fprintf(&out, "%s: %s %s type=%q", g.Group, nameOf(g.ErrorCode), g.State, g.ProtocolType)
		fmt.Fprintf(&out, " members=%d\n", len(g.Members))
	}
	return out.String()
}

func (s *script) list(d *datadriven.TestData) string {
	req := kmsg.NewPtrListGroupsRequest()
	if states := text(d, "states", ""); states != "" {
		req.StatesFilter = strings.Split(states, ",")
	}
	if types := text(d, "types", ""); types != "" {
		req.TypesFilter = strings.Split(types, ",")
	}
	var out strings.Builder
	resp := ask[*kmsg.ListGroupsResponse](s.lab, "any", req)
	if resp.ErrorCode != 0 {
		out.WriteString(nameOf(resp.ErrorCode) + "\n")
	}
	for _, g := range resp.Groups {
		fmt.Fprintf(&out, "%s: %s %s type=%q\n", g.Group, g.GroupType, g.GroupState, g.ProtocolType)
	}
	return out.String()
}

// plant writes records past the handlers.
func (s *script) plant(t *testing.T, d *datadriven.TestData) string {
	group, topic := text(d, "group", "any"), text(d, "topic", "t")
	s.lab.inspect(group, func(sh *shard) {
		var kvs []coordinator.KV
		switch d.Cmd {
		case "empty-group":
			since, err := time.ParseDuration(text(d, "since", "0s"))
			require.NoError(t, err)
			v := &groupMetadata{ProtocolType: text(d, "type", ""), CurrentStateTimestamp: sh.millis() - since.Milliseconds()}
			kvs = append(kvs, coordinator.KV{Key: groupKey(kindGroupMetadata, group), Value: encodeGroupMetadata(v)})
		case "write-v1":
			after, err := time.ParseDuration(text(d, "expires", "0s"))
			require.NoError(t, err)
			parts, values := offsets(t, d)
			v := kmsg.OffsetCommitValue{Version: 1, Offset: values[0], CommitTimestamp: sh.millis(),
				ExpireTimestamp: sh.millis() + after.Milliseconds()}
			kvs = append(kvs, coordinator.KV{Key: offsetKey(group, topic, parts[0]), Value: v.AppendTo(nil)})
		case "plant":
			kind := kbin.AppendInt16(nil, int16(number(t, d, "kind", 99)))
			kvs = append(kvs, coordinator.KV{Key: append(kind, "whatever"...), Value: []byte("x")},
				coordinator.KV{Key: offsetKey(group, topic, 0), Value: []byte{0, 3, 1}},
				coordinator.KV{Key: offsetKey(group, topic, 0), Value: []byte{0, 99, 1}})
		default:
			d.Fatalf(t, "unknown command")
		}
		require.NoError(t, sh.run.Append(kvs...))
	})
	return ""
}

// groups draws the state of the shard.
func (s *script) groups() string {
	var out strings.Builder
	s.lab.inspect("any", func(sh *shard) {
		fmt.Fprintf(&out, "groups=%d offsets=%d transactions=%d\n", len(sh.groups), sh.offsets, len(sh.pending))
	})
	return out.String()
}
