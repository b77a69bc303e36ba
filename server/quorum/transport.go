package quorum

import (
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// transport carries raft's messages.
type transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	CloseStreams()
	// campaign makes this node, the only voter, stand for election at once.
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
	n := &network{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: c.StreamLayer, MaxPool: maxStreams, Timeout: streamTimeout, Logger: newLogger(c.Logger),
			// One at a time: with two in flight the library's sender waits for ever for its receiver, when that has ended
			// over a refusal, and neither that follower nor a stop of the node gets any further.
			MaxRPCsInFlight: 1,
		}),
		echoes:   newEchoes(c.heartbeatTimeout()),
		messages: make(chan raft.RPC),
		ending:   make(chan struct{}),
	}
	n.wg.Go(n.forward)
	return n
}

// standNow is the message by which a leader that leaves names its successor.
func standNow(self raft.Server) *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self.ID), Addr: []byte(self.Address),
	}}
}

// loopback reaches this node alone.
type loopback struct{ *raft.InmemTransport }

// CloseStreams does nothing: there are none.
func (loopback) CloseStreams() {}

// campaign sends the message, to where the node is now rather than where it was when the log was written. Should it
// fail, the election timeout does the same a little later.
func (l loopback) campaign(self raft.Server) {
	_ = l.TimeoutNow(self.ID, l.LocalAddr(), standNow(self), new(raft.TimeoutNowResponse))
}

// network talks over a stream layer. It asks it for an address with the wanted node's id behind a #, so that the
// stream layer can make sure that it gets to that node.
type network struct {
	*raft.NetworkTransport
	echoes   *echoes
	messages chan raft.RPC
	once     sync.Once
	ending   chan struct{} // closed when Close begins
	wg       sync.WaitGroup
}

// forward brings the messages of others to raft.
func (n *network) forward() {
	for {
		select {
		case m := <-n.NetworkTransport.Consumer():
			select {
			case n.messages <- m:
			case <-n.ending:
				return
			}
		case <-n.ending:
			return
		}
	}
}

// Consumer implements raft.Transport.
func (n *network) Consumer() <-chan raft.RPC { return n.messages }

// campaign sends the message past the network, on which this node may not listen yet.
func (n *network) campaign(self raft.Server) {
	select {
	case n.messages <- raft.RPC{Command: standNow(self), RespChan: make(chan raft.RPCResponse, 1)}:
	case <-n.ending:
	}
}

// Close implements raft.WithClose.
func (n *network) Close() error {
	n.once.Do(func() { close(n.ending) })
	n.wg.Wait()
	return n.NetworkTransport.Close()
}

// withID puts a node's id behind an address.
func withID(id raft.ServerID, a raft.ServerAddress) raft.ServerAddress {
	return a + "#" + raft.ServerAddress(id)
}

// splitID undoes withID.
func splitID(a raft.ServerAddress) (address, id string) {
	address, id, _ = strings.Cut(string(a), "#")
	return address, id
}

// AppendEntriesPipeline implements raft.Transport.
func (n *network) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	return n.NetworkTransport.AppendEntriesPipeline(id, withID(id, to))
}

// AppendEntries implements raft.Transport.
func (n *network) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if n.echoes.answer(id, to, req, resp) {
		return nil
	}
	err := n.NetworkTransport.AppendEntries(id, withID(id, to), req, resp)
	n.echoes.heard(id, to, req, resp, err)
	return err
}

// RequestVote implements raft.Transport.
func (n *network) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return n.NetworkTransport.RequestVote(id, withID(id, to), req, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (n *network) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	return n.NetworkTransport.RequestPreVote(id, withID(id, to), req, resp)
}

// InstallSnapshot implements raft.Transport.
func (n *network) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return n.NetworkTransport.InstallSnapshot(id, withID(id, to), req, resp, data)
}

// TimeoutNow implements raft.Transport.
func (n *network) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return n.NetworkTransport.TimeoutNow(id, withID(id, to), req, resp)
}
