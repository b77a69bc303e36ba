package controller_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/controller"
	"millrace/server/metadata"
)

// another is the registration of a second process with the same id, at another address.
func another(id int32) *kmsg.BrokerRegistrationRequest {
	r := registration(id)
	r.IncarnationID[1] = 1
	r.Listeners[0].Host = "10.0.0.2"
	return r
}

func TestRegisteredBrokersStartFenced(t *testing.T) {
	c := openCluster(t, nil, controller.Config{})
	resp := c.register(t, registration(4))
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, uint64(resp.BrokerEpoch), appliedIndex(t, &resp.UnknownTags))
	require.True(t, c.machine.Image().Broker(4).Fenced)
	again := c.register(t, registration(4))
	require.Equal(t, resp.BrokerEpoch, again.BrokerEpoch, "the same process keeps its epoch")
}

func TestSameProcessStaysInService(t *testing.T) {
	c := started(t, 2, controller.Config{})
	epoch := c.machine.Image().BrokerEpoch(2)
	resp := c.register(t, registration(2))
	require.Equal(t, epoch, resp.BrokerEpoch)
	require.True(t, c.machine.Image().Active(2))
}

func TestIDOfALivingBrokerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusing()
		c := started(t, 3, controller.Config{Probe: r.probe})
		resp := c.register(t, another(2))
		require.Equal(t, kerr.DuplicateBrokerRegistration.Code, resp.ErrorCode)
		require.Equal(t, int64(-1), resp.BrokerEpoch)
		text, ok := ktag.ErrorMessage(&resp.UnknownTags)
		require.True(t, ok)
		require.Contains(t, text, "10.0.0.1:2")
		require.Contains(t, text, "--node-id")

		require.Zero(t, c.register(t, func() *kmsg.BrokerRegistrationRequest {
			r := another(2)
			r.Listeners = registration(2).Listeners
			return r
		}()).ErrorCode, "two processes cannot have one address")

		r.refuse(3, 1)
		require.Zero(t, c.register(t, another(3)).ErrorCode, "nobody listens at the old address")
	})
}

// Of two processes that say that they are at one address, the id belongs to the one that answers there.
func TestTwoProcessesWithOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := another(2)
		second.Listeners = registration(2).Listeners
		there := registration(2).IncarnationID // who answers at the address
		c := started(t, 3, controller.Config{Probe: func(_ context.Context, b *metadata.Broker) error {
			if b.ID == 2 && b.Incarnation != there {
				return fmt.Errorf("another process answers: %w", syscall.ECONNREFUSED)
			}
			return nil
		}})
		epoch := c.machine.Image().BrokerEpoch(2)
		for range 5 {
			c.beatFor(t, 2*time.Second, 1, 2, 3)
			resp := c.register(t, second)
			require.Equal(t, kerr.DuplicateBrokerRegistration.Code, resp.ErrorCode)
			text, ok := ktag.ErrorMessage(&resp.UnknownTags)
			require.True(t, ok)
			require.Contains(t, text, "answers at 10.0.0.1:2")
			require.Contains(t, text, "an address of its own")
		}
		require.Equal(t, epoch, c.machine.Image().BrokerEpoch(2))
		require.True(t, c.machine.Image().Active(2))

		there = second.IncarnationID // it was started anew
		require.Zero(t, c.register(t, second).ErrorCode)
	})
}

func TestIDIsFreeAfterTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, _ *metadata.Broker) error { <-ctx.Done(); return ctx.Err() }
		c := started(t, 2, controller.Config{Probe: hang})
		c.beatFor(t, sessionTimeout-2*time.Second, 1)
		require.Equal(t, int16(101), c.register(t, another(2)).ErrorCode)
		c.beatFor(t, 2*time.Second, 1)
		require.Zero(t, c.register(t, another(2)).ErrorCode)

		// A fenced broker that sends heartbeats lives, too.
		c.beat(t, 2)
		fence := c.heartbeat(2)
		fence.WantFence = true
		c.send(t, fence)
		require.True(t, c.machine.Image().Broker(2).Fenced)
		c.send(t, fence)
		require.Equal(t, int16(101), c.register(t, registration(2)).ErrorCode)
	})
}

// A controller begins with its process: what was registered under its own id before is gone.
func TestOwnNodeStartsAnewElsewhere(t *testing.T) {
	c := started(t, 3, controller.Config{})
	c2 := controller.Open(controller.Config{NodeID: 2, Machine: c.machine, Quorum: c.quorum, Rand: newRand()})
	defer c2.Close()
	resp, err := another(2).RequestWith(t.Context(), c2)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	resp, err = another(3).RequestWith(t.Context(), c2)
	require.NoError(t, err)
	require.Equal(t, int16(101), resp.ErrorCode)
}

func TestRegistrationIsBounded(t *testing.T) {
	c := openCluster(t, nil, controller.Config{})
	r := registration(1)
	r.Rack = kmsg.StringPtr(strings.Repeat("r", 256))
	require.Equal(t, kerr.InvalidRegistration.Code, c.register(t, r).ErrorCode)
	r = registration(1)
	for range 16 {
		r.Listeners = append(r.Listeners, r.Listeners[0])
	}
	require.Equal(t, kerr.InvalidRegistration.Code, c.register(t, r).ErrorCode)
	require.Empty(t, c.machine.Image().Brokers())
}

// A broker that comes back leads nothing under an old leader epoch. What it may have lost decides whether it may lead
// without having caught up.
func TestReturningBroker(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(r *kmsg.BrokerRegistrationRequest, epoch int64)
		leads  bool
	}{
		{"clean", func(r *kmsg.BrokerRegistrationRequest, epoch int64) { r.PreviousBrokerEpoch = epoch }, true},
		{"intact", func(r *kmsg.BrokerRegistrationRequest, epoch int64) {
			ktag.SetIntact(&r.UnknownTags)
			ktag.SetDataEpoch(&r.UnknownTags, epoch)
		}, true},
		{"old directory", func(r *kmsg.BrokerRegistrationRequest, epoch int64) {
			ktag.SetIntact(&r.UnknownTags)
			ktag.SetDataEpoch(&r.UnknownTags, epoch-1)
		}, false},
		{"new directory", func(r *kmsg.BrokerRegistrationRequest, _ int64) {
			ktag.SetIntact(&r.UnknownTags)
			ktag.SetDataEpoch(&r.UnknownTags, -1)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := started(t, 2, controller.Config{})
			c.mustCreate(t, newTopic("other", 1, 2))
			c.mustCreate(t, assigned("t", []int32{0, 2}))
			epoch := c.machine.Image().BrokerEpoch(2)
			r := registration(2)
			r.IncarnationID[1]++
			tc.change(r, epoch)
			resp := c.register(t, r)
			require.Zero(t, resp.ErrorCode)
			require.Equal(t, int32(-1), c.partition("t", 0).Leader)
			c.beat(t, 2)
			p := c.partition("t", 0)
			require.GreaterOrEqual(t, p.LeaderEpoch, int32(1))
			if tc.leads {
				require.Equal(t, int32(2), p.Leader)
				require.False(t, p.Recovering)
			} else if p.Leader == 2 {
				require.True(t, p.Recovering, "it is elected as one that may lack records")
			}
		})
	}
}
