package controller_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
)

// stopping is a heartbeat of a broker that wants to stop.
func (c *cluster) stopping(id int32) *kmsg.BrokerHeartbeatRequest {
	r := c.heartbeat(id)
	r.WantShutdown = true
	return r
}

func TestHeartbeatOfAStranger(t *testing.T) {
	c := started(t, 2, controller.Config{})
	require.Equal(t, kerr.BrokerIDNotRegistered.Code, c.send(t, c.heartbeat(9)).ErrorCode)
	stale := c.heartbeat(2)
	stale.BrokerEpoch--
	resp := c.send(t, stale)
	require.Equal(t, kerr.StaleBrokerEpoch.Code, resp.ErrorCode)
	require.True(t, resp.IsFenced)
	require.False(t, resp.ShouldShutdown)
}

func TestUnfencedWhenItKnowsItsRegistration(t *testing.T) {
	c := openCluster(t, nil, controller.Config{})
	epoch := c.register(t, registration(1)).BrokerEpoch

	behind := c.heartbeat(1)
	behind.CurrentMetadataOffset = epoch - 1
	resp := c.send(t, behind)
	require.Zero(t, resp.ErrorCode)
	require.True(t, resp.IsFenced)
	require.False(t, resp.IsCaughtUp)

	shy := c.heartbeat(1)
	shy.WantFence = true
	resp = c.send(t, shy)
	require.True(t, resp.IsFenced)
	require.True(t, resp.IsCaughtUp)

	resp = c.send(t, c.heartbeat(1))
	require.False(t, resp.IsFenced)
	require.Equal(t, c.machine.Image().Index, appliedIndex(t, &resp.UnknownTags))
	proposals := c.quorum.proposals.Load()
	require.False(t, c.send(t, c.heartbeat(1)).IsFenced)
	require.Equal(t, proposals, c.quorum.proposals.Load(), "an ordinary heartbeat goes through no log")

	resp = c.send(t, shy)
	require.True(t, resp.IsFenced, "it asked for it")
}

func TestUnfencingElectsWhereNobodyLeads(t *testing.T) {
	c := started(t, 2, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 2}))
	fence := c.heartbeat(2)
	fence.WantFence = true
	c.send(t, fence)
	require.Equal(t, int32(-1), c.partition("t", 0).Leader)
	c.beat(t, 2)
	require.Equal(t, int32(2), c.partition("t", 0).Leader)
}

// A broker that leads hands over first, and goes when the others know.
func TestControlledShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2, 3, 1}))
		c.beat(t, 1, 2, 3)
		resp := c.send(t, c.stopping(2))
		require.Zero(t, resp.ErrorCode)
		require.False(t, resp.ShouldShutdown)
		require.False(t, resp.IsFenced)
		require.True(t, c.machine.Image().Broker(2).ShuttingDown)
		p := c.partition("t", 0)
		require.Equal(t, int32(3), p.Leader)
		require.Equal(t, []int32{1, 3}, inSync(p))
		began := c.machine.Image().Index

		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown, "the others do not know yet")
		c.beat(t, 1)
		behind := c.heartbeat(3)
		behind.CurrentMetadataOffset = int64(began) - 1
		c.send(t, behind)
		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown)
		require.False(t, c.send(t, c.heartbeat(2)).ShouldShutdown, "an old heartbeat on its way")
		require.True(t, c.machine.Image().Broker(2).ShuttingDown)
		c.beat(t, 3)
		resp = c.send(t, c.stopping(2))
		require.True(t, resp.ShouldShutdown)
		require.True(t, resp.IsFenced)

		c.send(t, c.heartbeat(2))
		require.True(t, c.machine.Image().Broker(2).Fenced, "what was told to go stays out")
		require.True(t, c.send(t, c.stopping(2)).ShouldShutdown, "the answer may have been lost")

		again := registration(2)
		again.IncarnationID[1]++
		require.Zero(t, c.register(t, again).ErrorCode)
		c.beat(t, 2)
		require.True(t, c.machine.Image().Active(2), "the next process serves")
	})
}

// Brokers that say nothing do not keep another one from stopping.
func TestSilentBrokersDoNotHoldUpAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2, 3, 1}))
		c.beatFor(t, 4*time.Second, 1, 2)
		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown)
		c.beat(t, 1)
		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown, "broker 3 was heard of two intervals ago")
		time.Sleep(time.Nanosecond)
		require.True(t, c.send(t, c.stopping(2)).ShouldShutdown)
	})
}

// The new controller does not know when the shutdown began: what it knows now is not before that.
func TestShutdownGoesOnUnderANewController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2, 3, 1}))
		c.send(t, c.stopping(2))
		c.quorum.elect()
		synctest.Wait()
		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown, "no other broker was heard of")
		c.beat(t, 1, 3)
		require.True(t, c.send(t, c.stopping(2)).ShouldShutdown)
	})
}

// What a broker said before it asked to stop may come late, to a controller that knows of that by the metadata alone.
func TestLateHeartbeatUnderANewController(t *testing.T) {
	for name, stop := range map[string]func(t *testing.T, c *cluster){
		"told to stop": func(t *testing.T, c *cluster) {
			require.True(t, c.send(t, c.stopping(3)).ShouldShutdown)
		},
		"fenced when it asked to stop": func(t *testing.T, c *cluster) {
			fence := c.heartbeat(3)
			fence.WantFence = true
			c.send(t, fence)
			require.True(t, c.send(t, c.stopping(3)).ShouldShutdown)
		},
		"fenced while it handed over": func(t *testing.T, c *cluster) {
			c.mustCreate(t, assigned("t", []int32{0, 3, 2}))
			require.False(t, c.send(t, c.stopping(3)).ShouldShutdown)
			require.True(t, c.machine.Image().Broker(3).ShuttingDown)
			fence := c.heartbeat(3)
			fence.WantFence = true
			c.send(t, fence)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := started(t, 3, controller.Config{})
				stop(t, c)
				c.quorum.elect()
				require.True(t, c.send(t, c.heartbeat(3)).IsFenced)
				require.True(t, c.machine.Image().Broker(3).Fenced)
				require.True(t, c.send(t, c.stopping(3)).ShouldShutdown)

				again := registration(3)
				again.IncarnationID[1]++
				require.Zero(t, c.register(t, again).ErrorCode)
				c.beat(t, 3)
				require.True(t, c.machine.Image().Active(3), "the next process serves")
			})
		})
	}
}

func TestShutdownOfAFollowerIsImmediate(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c.mustCreate(t, assigned("t", []int32{0, 1, 2, 3}))
	resp := c.send(t, c.stopping(3))
	require.True(t, resp.ShouldShutdown)
	require.Equal(t, []int32{1, 2}, inSync(c.partition("t", 0)))
}

// What nobody else can lead does not keep a broker from stopping: its partition is without a leader then.
func TestShutdownOfTheLastReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 2, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2}))
		require.False(t, c.send(t, c.stopping(2)).ShouldShutdown)
		require.Equal(t, int32(2), c.partition("t", 0).Leader, "it leads until it goes")
		c.beat(t, 1)
		require.True(t, c.send(t, c.stopping(2)).ShouldShutdown)
		require.Equal(t, int32(-1), c.partition("t", 0).Leader)
	})
}

// A cluster of one broker stops without a word in the log, and its partitions keep their leader epochs.
func TestShutdownOfTheOnlyBroker(t *testing.T) {
	c := started(t, 1, controller.Config{})
	c.mustCreate(t, newTopic("t", 1, 1))
	image := c.machine.Image()
	require.True(t, c.send(t, c.stopping(1)).ShouldShutdown)
	require.Same(t, image, c.machine.Image())
}

func TestHeartbeatWithoutAgreement(t *testing.T) {
	c := openCluster(t, nil, controller.Config{})
	c.register(t, registration(1))
	c.quorum.failWith(quorumBusy)
	resp := c.send(t, c.heartbeat(1))
	require.Equal(t, kerr.ThrottlingQuotaExceeded.Code, resp.ErrorCode)
	require.True(t, resp.IsFenced)
}

func TestUnregisterBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, controller.Config{})
		c.mustCreate(t, assigned("t", []int32{0, 2}))
		unregister := func(id int32) *kmsg.UnregisterBrokerResponse {
			r := kmsg.NewPtrUnregisterBrokerRequest()
			r.BrokerID = id
			resp, err := r.RequestWith(t.Context(), c)
			require.NoError(t, err)
			return resp
		}
		resp := unregister(3)
		requireCode(t, kerr.InvalidRequest, resp.ErrorCode, resp.ErrorMessage)
		c.send(t, c.stopping(3))
		resp = unregister(3)
		requireCode(t, nil, resp.ErrorCode, resp.ErrorMessage)
		require.Equal(t, c.machine.Image().Index, appliedIndex(t, &resp.UnknownTags))
		require.Nil(t, c.machine.Image().Broker(3))
		resp = unregister(3)
		requireCode(t, kerr.BrokerIDNotRegistered, resp.ErrorCode, resp.ErrorMessage)

		fence := c.heartbeat(2)
		fence.WantFence = true
		c.send(t, fence)
		resp = unregister(2)
		requireCode(t, kerr.InvalidRequest, resp.ErrorCode, resp.ErrorMessage)
		require.Contains(t, *resp.ErrorMessage, "t")
	})
}
