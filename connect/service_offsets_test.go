package connect_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
)

func sourceOffset(table string, n any) plugin.Offset {
	o := plugin.Offset{Partition: map[string]any{"table": table}}
	if n != nil {
		o.Offset = map[string]any{"n": n}
	}
	return o
}

// Offsets of a source are changed while it is stopped only, and after its connector has agreed.
func TestOffsetsOfASource(t *testing.T) {
	d := newDesk(t, 3, nil)
	ctx := t.Context()
	_, err := d.ask().Create(ctx, "s", idleProps(idleSource), "")
	require.NoError(t, err)
	d.awaitStates("s", "RUNNING", "RUNNING", "RUNNING")
	_, err = d.ask().AlterOffsets(ctx, "none", nil)
	refused(t, err, 400, "no offsets")
	_, err = d.ask().AlterOffsets(ctx, "none", []plugin.Offset{sourceOffset("a", int64(1))})
	refused(t, err, 404, "none")
	_, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{sourceOffset("a", int64(1))})
	refused(t, err, 400, "stop")
	_, err = d.ask().ResetOffsets(ctx, "s")
	refused(t, err, 400, "stop")
	require.NoError(t, d.ask().Stop(ctx, "s"))

	text, err := d.ask().AlterOffsets(ctx, "s", []plugin.Offset{
		sourceOffset("b", json.Number("2")), sourceOffset("a", 1.0), sourceOffset("c", "x"),
	})
	require.NoError(t, err)
	require.Contains(t, text, "elsewhere")
	want := []plugin.Offset{sourceOffset("a", int64(1)), sourceOffset("b", int64(2)), sourceOffset("c", "x")}
	require.ElementsMatch(t, want, d.altered)
	for range d.workers {
		got, err := d.ask().Offsets(ctx, "s")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{sourceOffset("a", 1.0), sourceOffset("a", json.Number("3"))})
	refused(t, err, 400, "same partition")
	_, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{{Offset: map[string]any{"n": 1.0}}})
	refused(t, err, 400, "partition")

	yes := "yes"
	_, err = d.ask().PatchConfig(ctx, "s", map[string]*string{"agree": &yes})
	require.NoError(t, err)
	text, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{sourceOffset("b", nil)})
	require.NoError(t, err)
	require.NotContains(t, text, "elsewhere")
	_, err = d.ask().PatchConfig(ctx, "s", map[string]*string{"veto": &yes})
	require.NoError(t, err)
	_, err = d.ask().ResetOffsets(ctx, "s")
	refused(t, err, 500, "yes")
	later := "later"
	_, err = d.ask().PatchConfig(ctx, "s", map[string]*string{"veto": &later})
	require.NoError(t, err)
	_, err = d.ask().ResetOffsets(ctx, "s")
	refused(t, err, 503, "the server is away")
	got, err := d.ask().Offsets(ctx, "s")
	require.NoError(t, err)
	require.Len(t, got, 2)
	_, err = d.ask().PatchConfig(ctx, "s", map[string]*string{"veto": nil})
	require.NoError(t, err)
	_, err = d.ask().ResetOffsets(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, []plugin.Offset{sourceOffset("a", nil), sourceOffset("c", nil)}, d.altered)
	got, err = d.ask().Offsets(ctx, "s")
	require.NoError(t, err)
	require.Empty(t, got)

	// Deleted and made again, a source goes on from where it was.
	_, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{sourceOffset("a", int64(9))})
	require.NoError(t, err)
	require.NoError(t, d.ask().Delete(ctx, "s"))
	_, err = d.ask().Create(ctx, "s", idleProps(idleSource), "stopped")
	require.NoError(t, err)
	got, err = d.ask().Offsets(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, []plugin.Offset{sourceOffset("a", int64(9))}, got)
}

// Whoever changes the offsets of a source ends what its former tasks had under way, wherever they are.
func TestAlteringOffsetsFencesFormerTasks(t *testing.T) {
	d := newDesk(t, 1, nil)
	ctx := t.Context()
	_, err := d.ask().Create(ctx, "s", idleProps(idleSource), "")
	require.NoError(t, err)
	d.awaitStates("s", "RUNNING", "RUNNING", "RUNNING")
	require.NoError(t, d.ask().Stop(ctx, "s"))
	d.awaitStates("s", "STOPPED")
	zombie := client.TxnInit{ID: "connect-cluster-s-1", Timeout: time.Minute}
	var p client.TxnProducer
	require.Eventually(t, func() bool {
		p, err = d.client.InitTxn(ctx, zombie)
		return err == nil
	}, patience, 10*time.Millisecond)
	_, err = d.ask().AlterOffsets(ctx, "s", []plugin.Offset{sourceOffset("a", int64(1))})
	require.NoError(t, err)
	_, err = d.client.InitTxn(ctx, client.TxnInit{ID: zombie.ID, Timeout: zombie.Timeout, Again: &p})
	require.Error(t, err)
	require.NotErrorIs(t, err, client.ErrNoAnswer)
}

func at(partition any, offset any) plugin.Offset {
	o := plugin.Offset{Partition: map[string]any{"kafka_topic": "t", "kafka_partition": partition}}
	if offset != nil {
		o.Offset = map[string]any{"kafka_offset": offset}
	}
	return o
}

// Offsets of a sink are those of its group.
func TestOffsetsOfASink(t *testing.T) {
	d := newDesk(t, 3, nil)
	ctx := t.Context()
	_, err := d.client.CreateTopic(ctx, client.NewTopic{Name: "t", Partitions: 3, ReplicationFactor: 1})
	require.NoError(t, err)
	_, err = d.ask().Create(ctx, "k", idleProps(idleSink), "stopped")
	require.NoError(t, err)
	alter := func(offsets ...plugin.Offset) error {
		_, err := d.ask().AlterOffsets(ctx, "k", offsets)
		return err
	}
	require.NoError(t, alter(at("1", "17"), at(json.Number("2"), json.Number("0")), at(int64(0), int64(5))))
	require.Equal(t, []plugin.Offset{at(int64(1), int64(17)), at(int64(2), int64(0)), at(int64(0), int64(5))}, d.altered)
	got, err := d.ask().Offsets(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []plugin.Offset{at(int64(0), int64(5)), at(int64(1), int64(17)), at(int64(2), int64(0))}, got)
	require.NoError(t, alter(at(int64(1), nil), at(int64(0), int64(6))))
	got, err = d.ask().Offsets(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []plugin.Offset{at(int64(0), int64(6)), at(int64(2), int64(0))}, got)

	refused(t, alter(at("x", "17")), 400, "kafka_partition")
	refused(t, alter(at("1", "-17")), 400, "kafka_offset")
	refused(t, alter(at("1", 1.5)), 400, "kafka_offset")
	refused(t, alter(at("1", 1.0), at(int64(1), "3")), 400, "same partition")
	odd := at("1", 1.0)
	odd.Partition["more"] = "x"
	refused(t, alter(odd), 400, "number 1")
	odd = at("1", nil)
	odd.Offset = map[string]any{"offset": int64(1)}
	refused(t, alter(odd), 400, "kafka_offset")

	_, err = d.ask().ResetOffsets(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, d.altered, "the sink forgets all, not only what its group knows of")
	got, err = d.ask().Offsets(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = d.ask().ResetOffsets(ctx, "k")
	require.NoError(t, err, "there is nothing left, as it was to be")

	// While the group has members nothing is changed.
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Group, join.MemberID, join.RebalanceTimeoutMillis = "connect-k", "0123456789abcdefghijk", 60_000
	join.SubscribedTopicNames, join.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	resp, err := join.RequestWith(ctx, d.cluster)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	refused(t, alter(at("1", "17")), 500, "members")
	_, err = d.ask().ResetOffsets(ctx, "k")
	refused(t, err, 500, "members")
}

// As many offsets as a request may have are told apart.
func TestManyOffsets(t *testing.T) {
	d := newDesk(t, 1, nil)
	_, err := d.ask().Create(t.Context(), "k", idleProps(idleSink), "stopped")
	require.NoError(t, err)
	many := make([]plugin.Offset, 100_000)
	for i := range many {
		many[i] = at(int64(i), int64(1))
	}
	many[len(many)-1] = at("0", int64(1))
	_, err = d.ask().AlterOffsets(t.Context(), "k", many)
	refused(t, err, 400, "Number 100000 is of the same partition")
}
