package server

import (
	"context"
	"fmt"
	"sync"
)

// watchMetadataLog ends the node when its metadata log goes offline: from then on it hears of no change, so it would
// lead by old metadata what others lead by now. First it hands over what it leads. A node that is a cluster by itself
// goes on, as nobody could take over.
func (n *Node) watchMetadataLog() {
	for n.quorum.Offline() == nil {
		changed := n.quorum.Changed()
		if n.quorum.Offline() != nil {
			break
		}
		select {
		case <-changed:
		case <-n.life.Done():
			return
		}
	}
	if len(n.otherMembers()) == 0 {
		return
	}
	n.log.Error("the node hands over and stops: its metadata log is offline", "err", n.quorum.Offline())
	ctx, cancel := context.WithTimeout(n.life, handOverTimeout)
	defer cancel()
	var seeking sync.WaitGroup
	seeking.Go(func() { n.seekController(ctx) })
	if err := n.broker.Shutdown(ctx); err != nil && n.life.Err() == nil {
		n.log.Warn("not all leaderships were handed over", "err", err)
	}
	cancel()
	seeking.Wait()
	if n.life.Err() != nil {
		return // it stops anyway
	}
	n.fatal(fmt.Errorf("the disk fails the metadata log in %s: %w: see that the disk has room and works, then start the "+
		"node again", n.cfg.DataDir, n.quorum.Offline()))
}

// otherMembers are the base URLs of the quorum's other members.
func (n *Node) otherMembers() map[int32]string {
	urls := make(map[int32]string)
	for _, m := range n.memberAddresses() {
		if m.ID != n.cfg.NodeID {
			urls[m.ID] = n.peers.url(m.ID)
		}
	}
	return urls
}

// seekController keeps asking the other members which of them is the controller, until ctx ends.
func (n *Node) seekController(ctx context.Context) {
	for {
		for id, base := range n.otherMembers() {
			if who, err := n.ask(ctx, base+nodePath); err == nil && who.NodeID == id && who.Controller {
				n.peers.controller.Store(&id)
			}
		}
		if pause(ctx, joinRetry) != nil {
			return
		}
	}
}

// controllerID is the node that leads the quorum, or -1. Where this node's part in it has ended, others said so.
func (n *Node) controllerID() int32 {
	if n.quorum.Offline() == nil {
		return n.quorum.Leader()
	}
	if id := n.peers.controller.Load(); id != nil {
		return *id
	}
	return -1
}
