package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"millrace/server/quorum"
)

// ErrRemoved ends a node that was taken out of its cluster while it ran.
var ErrRemoved = errors.New("the node was taken out of its cluster")

// checkStopped refuses to take a node out of the quorum while it runs: it would go on as a broker by metadata that
// grows old, and lead what others lead by then.
func (n *Node) checkStopped(ctx context.Context, id int32) error {
	if !n.quorum.IsLeader() {
		return quorum.ErrNotLeader
	}
	for _, m := range n.memberships() {
		if m.ID != id {
			continue
		}
		runs := ""
		if b := n.machine.Image().Broker(id); b != nil && !b.Fenced {
			runs = "in service"
		} else if who, err := n.ask(ctx, m.Address+nodePath); err == nil && who.NodeID == id {
			runs = "running at " + m.Address
		}
		if runs == "" {
			continue
		}
		return refuseMember(http.StatusConflict, "", "node %d is %s: drain it (millrace cluster drain %[1]d "+
			"--wait), stop it, wait until its broker is fenced, decommission that (millrace cluster decommission %[1]d), and "+
			"then remove the member; if it is one of two voters, demote it before it stops", id, runs)
	}
	return nil
}

// watchMembership ends the node when it was taken out of the metadata quorum, which only its leader can say for sure.
// That leader sends it nothing any more, so the node asks when it hears of none.
func (n *Node) watchMembership() {
	select {
	case <-n.joined:
	case <-n.life.Done():
		return
	}
	for {
		changed := n.quorum.Changed()
		var again <-chan time.Time
		if n.quorum.Leader() < 0 && n.quorum.Offline() == nil {
			if by := n.removedBy(n.life); by > 0 {
				n.leaveCluster(by)
				return
			}
			again = time.After(askTimeout)
		}
		select {
		case <-changed:
		case <-again:
		case <-n.life.Done():
			return
		}
	}
}

// removedBy is the node that leads the metadata quorum without this one, or 0.
func (n *Node) removedBy(ctx context.Context) int32 {
	for id, base := range n.otherMembers() {
		if base == "" {
			continue
		}
		who, err := n.ask(ctx, base+nodePath)
		if err == nil && who.NodeID == id && who.Controller && who.ClusterID == n.clusterID() &&
			!slices.Contains(who.Members, n.cfg.NodeID) {
			return id
		}
	}
	return 0
}

// leaveCluster ends a node that is no member any more.
func (n *Node) leaveCluster(by int32) {
	n.log.Error("this node was removed from the cluster: it votes no more and hears of no change, so it stops; to keep "+
		"it away leave it stopped, for when it is started it joins again, without a vote", "node", n.cfg.NodeID,
		"controller", by)
	n.fatal(fmt.Errorf("%w: node %d is no member of the metadata quorum any more, by node %d which leads it; leave it "+
		"stopped, or start it to have it join without a vote", ErrRemoved, n.cfg.NodeID, by))
}
