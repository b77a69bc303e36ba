package quorum

import (
	"github.com/hashicorp/raft"
)

// transport carries raft's messages.
type transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	CloseStreams()
	// campaign makes this node stand for election at once where it can.
	campaign(self raft.Server)
}

// newTransport returns a transport over the stream layer, or one that reaches this node alone.
func newTransport(c Config) transport {
	if c.StreamLayer == nil {
		address := c.servers().Servers[0].Address
		_, t := raft.NewInmemTransport(address)
		t.Connect(address, t)
		return loopback{t}
	}
	return network{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: c.StreamLayer, MaxPool: maxStreams, Timeout: streamTimeout, Logger: newLogger(c.Logger),
	})}
}

// loopback reaches this node alone.
type loopback struct{ *raft.InmemTransport }

// CloseStreams does nothing: there are none.
func (loopback) CloseStreams() {}

// campaign sends this node the message by which a leader that leaves names its successor. Should it
// fail, the election timeout does the same a little later.
func (l loopback) campaign(self raft.Server) {
	request := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self.ID), Addr: []byte(self.Address),
	}}
	_ = l.TimeoutNow(self.ID, self.Address, &request, new(raft.TimeoutNowResponse))
}

// network talks over a stream layer.
type network struct{ *raft.NetworkTransport }

// campaign does nothing: the election timeout will do.
func (network) campaign(raft.Server) {}
