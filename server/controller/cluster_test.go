package controller_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/controller"
	"millrace/server/metadata"
)

// The times of Kafka's defaults.
const (
	sessionTimeout    = 9 * time.Second
	heartbeatInterval = 2 * time.Second
)

// registration is a request of a broker whose id tells its address.
func registration(id int32) *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.BrokerID, r.IncarnationID = id, [16]byte{byte(id)}
	r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "http", Host: "10.0.0.1", Port: uint16(id)}}
	return r
}

func (c *cluster) register(t testing.TB, r *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	t.Helper()
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp
}

// heartbeat is a request of the broker's current registration, which knows all metadata.
func (c *cluster) heartbeat(id int32) *kmsg.BrokerHeartbeatRequest {
	r := kmsg.NewPtrBrokerHeartbeatRequest()
	r.BrokerID, r.BrokerEpoch = id, c.machine.Image().BrokerEpoch(id)
	r.CurrentMetadataOffset = int64(c.machine.Image().Index)
	return r
}

func (c *cluster) send(t testing.TB, r *kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse {
	t.Helper()
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp
}

// beat sends one heartbeat for each broker, which must be taken.
func (c *cluster) beat(t testing.TB, ids ...int32) {
	t.Helper()
	for _, id := range ids {
		require.Zero(t, c.send(t, c.heartbeat(id)).ErrorCode)
	}
}

// startBrokers registers brokers 1 to n and takes them into service.
func (c *cluster) startBrokers(t testing.TB, n int) {
	t.Helper()
	for id := range int32(n) {
		require.Zero(t, c.register(t, registration(id+1)).ErrorCode)
	}
	for id := range int32(n) {
		c.beat(t, id+1)
		require.True(t, c.machine.Image().Active(id+1))
	}
}

// started is a cluster of n brokers in service on node 1.
func started(t testing.TB, n int, config controller.Config) *cluster {
	t.Helper()
	c := openCluster(t, nil, config)
	c.startBrokers(t, n)
	return c
}

func (c *cluster) partition(topic string, i int) metadata.Partition {
	return c.machine.Image().Topic(topic).Partitions[i]
}

// inSync is the ISR by id.
func inSync(p metadata.Partition) []int32 { return slices.Sorted(slices.Values(p.ISR)) }

func appliedIndex(t testing.TB, tags *kmsg.Tags) uint64 {
	t.Helper()
	index, ok := ktag.AppliedIndex(tags)
	require.True(t, ok, "no applied index")
	return uint64(index)
}
