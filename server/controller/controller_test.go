package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
	"millrace/server/metadata"
	"millrace/server/quorum"
)

func TestKeysAreTheHandledOnes(t *testing.T) {
	c := newCluster(t, 1, nil)
	handled := make(map[kmsg.Key]bool)
	for _, key := range controller.Keys() {
		handled[key] = true
	}
	for key := range int16(kmsg.MaxKey + 1) {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		resp, err := c.Request(t.Context(), r)
		if handled[kmsg.Key(key)] {
			require.NoError(t, err)
			require.Equal(t, key, resp.Key())
		} else {
			require.ErrorContains(t, err, kmsg.NameForKey(key))
			require.Nil(t, resp)
		}
	}
}

func TestProposalFailures(t *testing.T) {
	cases := []struct {
		name string
		fail error
		want *kerr.Error // nil: no answer
	}{
		{"lost the lead", quorum.ErrNotLeader, kerr.NotController},
		{"busy", quorum.ErrBusy, kerr.ThrottlingQuotaExceeded},
		{"too large", fmt.Errorf("%w: huge", quorum.ErrTooLarge), kerr.PolicyViolation},
		{"offline", fmt.Errorf("%w: disk", quorum.ErrOffline), kerr.KafkaStorageError},
		{"too slow", context.DeadlineExceeded, kerr.RequestTimedOut},
		{"closed", quorum.ErrClosed, kerr.NotController},
		{"anything else", errors.New("unknown"), nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			c.quorum.failWith(tc.fail)
			r := kmsg.NewPtrCreateTopicsRequest()
			r.TimeoutMillis = 1
			r.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("a", 1, 1), newTopic("b", 0, 1)}
			resp, err := r.RequestWith(t.Context(), c)
			if tc.want == nil {
				require.ErrorIs(t, err, tc.fail)
				require.Nil(t, resp)
				return
			}
			require.NoError(t, err)
			requireCode(t, tc.want, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
			requireCode(t, kerr.InvalidPartitions, resp.Topics[1].ErrorCode, resp.Topics[1].ErrorMessage)
		})
	}
}

func TestCallerGone(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.quorum.failWith(context.DeadlineExceeded) // waits for its context
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("a", 1, 1)}
	_, err := r.RequestWith(ctx, c)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNotController(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("t", 1, 1))
	c.quorum.follower.Store(true)
	created := c.create(t, newTopic("a", 1, 1), newTopic("b", 0, 1))
	for _, answer := range created {
		requireCode(t, kerr.NotController, answer.ErrorCode, answer.ErrorMessage)
		require.Contains(t, *answer.ErrorMessage, "node 7")
	}
	altered := c.alter(t, resource(topicKind, "t", set("retention.ms", "1")))[0]
	requireCode(t, kerr.NotController, altered.ErrorCode, altered.ErrorMessage)
	deleted := c.delete(t, byName("t"))[0]
	requireCode(t, kerr.NotController, deleted.ErrorCode, deleted.ErrorMessage)
	_, err := c.RegisterBroker(t.Context(), controller.Registration{ID: 5, Incarnation: [16]byte{1}})
	require.ErrorIs(t, err, kerr.NotController)
	ids := kmsg.NewPtrAllocateProducerIDsRequest()
	resp, err := ids.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.NotController.Code, resp.ErrorCode)
}

// A node that cannot lead because its disk failed says so: nothing gets better by trying again.
func TestNotControllerForGood(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.quorum.follower.Store(true)
	c.quorum.offline = fmt.Errorf("%w: input/output error", quorum.ErrOffline)
	created := c.create(t, newTopic("a", 1, 1))[0]
	requireCode(t, kerr.KafkaStorageError, created.ErrorCode, created.ErrorMessage)
	require.Contains(t, *created.ErrorMessage, "input/output error")
}

// TestRace checks the answer when another change got into the log between the check and the command.
func TestRace(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.quorum.beforeNext(func() {
		c.mustCreate(t, newTopic("b", 1, 1))
	})
	answers := c.create(t, newTopic("a", 1, 1), newTopic("b", 1, 1))
	requireCode(t, nil, answers[0].ErrorCode, answers[0].ErrorMessage)
	requireCode(t, kerr.TopicAlreadyExists, answers[1].ErrorCode, answers[1].ErrorMessage)
	require.Equal(t, 2, c.machine.Image().TopicCount())
}

func TestRegisterBroker(t *testing.T) {
	c := newCluster(t, 0, nil)
	register := func(r controller.Registration) (int64, error) {
		t.Helper()
		return c.RegisterBroker(t.Context(), r)
	}
	first := controller.Registration{
		ID: 1, Incarnation: [16]byte{1}, Rack: "r", PreviousEpoch: -1,
		Endpoints: []metadata.Endpoint{{Name: "http", Host: "127.0.0.1", Port: 8082}},
	}
	epoch, err := register(first)
	require.NoError(t, err)
	image := c.machine.Image()
	require.Len(t, image.ClusterID, 22)
	require.Equal(t, first.Endpoints, image.Broker(1).Endpoints)
	require.Equal(t, int64(image.Index), epoch)

	again, err := register(first)
	require.NoError(t, err)
	require.Equal(t, epoch, again, "the same run keeps its epoch")
	require.Same(t, image, c.machine.Image())

	c.mustCreate(t, newTopic("t", 2, 1))
	clean := first
	clean.Incarnation, clean.PreviousEpoch, clean.ClusterID = [16]byte{2}, epoch, image.ClusterID
	next, err := register(clean)
	require.NoError(t, err)
	require.Greater(t, next, epoch)
	require.Zero(t, c.machine.Image().Topic("t").Partitions[0].LeaderEpoch, "after a clean end nothing was lost")

	crashed := first
	crashed.Incarnation = [16]byte{3}
	_, err = register(crashed)
	require.NoError(t, err)
	for _, p := range c.machine.Image().Topic("t").Partitions {
		require.Equal(t, int32(1), p.LeaderEpoch, "after a crash readers must be able to notice lost records")
		require.Equal(t, int32(1), p.PartitionEpoch)
	}

	stranger := first
	stranger.ClusterID, stranger.Incarnation = "another", [16]byte{4}
	_, err = register(stranger)
	require.ErrorIs(t, err, kerr.InconsistentClusterID)
	require.ErrorContains(t, err, "another")
}

func TestFoundingWithAKnownClusterID(t *testing.T) {
	c := newCluster(t, 0, nil)
	_, err := c.RegisterBroker(t.Context(), controller.Registration{ClusterID: "mine", ID: 1, Incarnation: [16]byte{1}})
	require.NoError(t, err)
	require.Equal(t, "mine", c.machine.Image().ClusterID)
}

func TestBrokerRegistrationRequest(t *testing.T) {
	c := newCluster(t, 0, nil)
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.BrokerID, r.IncarnationID, r.Rack = 4, [16]byte{4}, kmsg.StringPtr("r1")
	r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "http", Host: "h", Port: 80}}
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	b := c.machine.Image().Broker(4)
	require.Equal(t, resp.BrokerEpoch, b.Epoch)
	require.Equal(t, "r1", b.Rack)
	require.Equal(t, []metadata.Endpoint{{Name: "http", Host: "h", Port: 80}}, b.Endpoints)

	r.ClusterID = "another"
	r.IncarnationID = [16]byte{5}
	resp, err = r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.InconsistentClusterID.Code, resp.ErrorCode)
	require.Equal(t, int64(-1), resp.BrokerEpoch)
}

func TestAllocateProducerIDs(t *testing.T) {
	c := newCluster(t, 2, nil)
	r := kmsg.NewPtrAllocateProducerIDsRequest()
	for i, broker := range []int32{1, 2, 1} {
		r.BrokerID, r.BrokerEpoch = broker, c.machine.Image().Broker(broker).Epoch
		resp, err := r.RequestWith(t.Context(), c)
		require.NoError(t, err)
		require.Zero(t, resp.ErrorCode)
		require.Equal(t, int64(i*1000), resp.ProducerIDStart)
		require.Equal(t, int32(1000), resp.ProducerIDLen)
	}
	r.BrokerEpoch++
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.StaleBrokerEpoch.Code, resp.ErrorCode)
	r.BrokerID = 9
	resp, err = r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, kerr.BrokerIDNotRegistered.Code, resp.ErrorCode)
}
