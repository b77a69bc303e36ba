package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"millrace/server/quorum"
)

// A node takes part in the metadata quorum only when it is certain that it may. Until then no message of the quorum
// leaves it and none is taken, because a voter that has forgotten how it voted, or what it has agreed to, can undo what
// was agreed on, and so can two that pass for one.
//
// A node whose disk is new has to hear from other voters whether the cluster has known it before. If it has, or if the
// node runs on an older copy of its data directory, it loses its vote, takes what was agreed on, and gets it back.

// admit returns when the node may take part in the quorum. missing says that others do not have it among the members.
func (n *Node) admit(ctx context.Context) (missing bool, err error) {
	found, err := n.checkOwnAddresses(ctx)
	if err != nil {
		return false, err
	}
	if err := n.checkDirectory(); err != nil {
		return false, err
	}
	fresh := n.fresh()
	if founded := n.founders(); fresh && founded != listVoters(n.cfg.Voters) {
		return false, fmt.Errorf("the data directory %s was first used with other --voters, %s: go back to those, or "+
			"empty it", n.cfg.DataDir, founded)
	}
	report := n.reporter()
	for {
		answers := n.askVoters(ctx)
		if why := n.forgotten(answers); why != nil {
			return false, n.readmit(ctx, why)
		}
		if err := n.checkCluster(answers, fresh); err != nil {
			return false, err
		}
		if fresh && n.wasRemoved(answers) {
			return false, n.readmit(ctx, fmt.Errorf("node %d was taken out of its cluster, and its data directory is new",
				n.cfg.NodeID))
		}
		why := n.maySettle(answers, fresh)
		if why == nil && !found && !n.isFound(answers) {
			why = fmt.Errorf("nobody finds this node at %s, where it says that it is: correct its address in --voters or "+
				"advertised.listeners; it listens on %s", n.cfg.address(n.Addr()), n.Addr())
		}
		if why == nil {
			close(n.admitted)
			return n.missing(answers), nil
		}
		report(why)
		if err := pause(ctx, joinRetry); err != nil {
			return false, err
		}
	}
}

// isFound reports whether another node finds this one where it looks for it.
func (n *Node) isFound(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil && a.who.Asker.Run == n.run })
}

// wasRemoved reports whether the cluster of the same voters lacks this one. Several such nodes must not found another
// one, even if they are a majority of the list.
func (n *Node) wasRemoved(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool {
		return a.err == nil && a.who.Joined && a.who.Voters == listVoters(n.cfg.Voters) && !n.counts(a)
	})
}

// askIn asks for a place in the quorum, which comes without a vote to a node that had none.
func (n *Node) askIn(ctx context.Context) error {
	return n.askMembers(ctx, memberChange{
		Op: "add", ID: n.cfg.NodeID, Address: n.cfg.address(n.Addr()), Run: n.run,
	}, errors.New("the node asks to be taken into the metadata quorum"))
}

// missing reports whether somebody of the cluster does not have this node among its members.
func (n *Node) missing(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool {
		return a.err == nil && a.who.ClusterID != "" && !slices.Contains(a.who.Members, n.cfg.NodeID)
	})
}

// fresh tells of a founding voter that has never taken part in an election.
func (n *Node) fresh() bool {
	_, known := n.dir.Meta()
	return !known && n.quorum.Term() <= 1 && len(n.cfg.Voters) > 1 && n.listed()
}

// checkDirectory refuses a data directory of a cluster that has none of the other voters in it.
func (n *Node) checkDirectory() error {
	meta, known := n.dir.Meta()
	members := n.memberships()
	isMember := func(v quorum.Voter) bool {
		return v.ID != n.cfg.NodeID && slices.ContainsFunc(members, func(m quorum.Member) bool { return m.ID == v.ID })
	}
	alone := len(n.cfg.Voters) == 1 && n.listed()
	if !known || alone || len(members) == 0 || slices.ContainsFunc(n.cfg.Voters, isMember) {
		return nil
	}
	return fmt.Errorf("the data directory %s is of cluster %s, and none of the other --voters is a member of that: "+
		"correct --voters, or give this node an empty --data-dir to join their cluster; to keep its data and let the others "+
		"join it, name it alone in --voters on all nodes", n.cfg.DataDir, meta.ClusterID)
}

// founders are the members that the log names; of a fresh node, who is to found the cluster.
func (n *Node) founders() string {
	var voters []quorum.Voter
	for _, m := range n.memberships() {
		voters = append(voters, quorum.Voter{ID: m.ID, Address: m.Address})
	}
	return listVoters(voters)
}

// listed reports whether the node is among the voters that it was started with.
func (n *Node) listed() bool { return n.cfg.voter(n.cfg.NodeID) != "" }

// checkOwnAddresses makes sure that nobody else answers where others look for this node. found says that it does.
func (n *Node) checkOwnAddresses(ctx context.Context) (found bool, err error) {
	own := n.cfg.address(n.Addr())
	addresses := []string{own}
	if b := n.machine.Image().Broker(n.cfg.NodeID); b != nil {
		addresses = append(addresses, internalURL(b))
	}
	for _, m := range n.memberAddresses() {
		if m.ID == n.cfg.NodeID {
			addresses = append(addresses, m.Address)
		}
	}
	slices.Sort(addresses)
	for _, base := range slices.Compact(addresses) {
		if base == "" {
			continue
		}
		who, err := n.ask(ctx, base+nodePath)
		switch {
		case err != nil && base == own:
			n.log.Warn("this node does not find itself where the others look for it: check its address in --voters or "+
				"advertised.listeners", "address", base, "listening", n.Addr().String(), "err", err)
		case err != nil:
		case who.Run == n.run:
			found = found || base == own
		case who.NodeID == n.cfg.NodeID:
			return false, fmt.Errorf("node %d runs already, at %s: stop one of the two, or give this one another --node-id and "+
				"another --data-dir", n.cfg.NodeID, base)
		case base == own:
			return false, fmt.Errorf("%s is said to be node %d, but node %d answers there: correct the address of node %d in "+
				"--voters or advertised.listeners", base, n.cfg.NodeID, who.NodeID, n.cfg.NodeID)
		}
	}
	return found, ctx.Err()
}

// checkCluster refuses to go on where the voters are of another cluster, or have agreed on voters without this one.
func (n *Node) checkCluster(answers []answer, fresh bool) error {
	own := n.clusterID()
	var foreign, without *answer
	founders, others := 1, 0
	for i, a := range answers {
		switch {
		case a.err != nil:
		case a.who.ClusterID == "":
			founders++
		case a.who.ClusterID == own:
			return nil
		case own != "":
			foreign = &answers[i]
		case a.who.Voters != listVoters(n.cfg.Voters):
			without = &answers[i]
			others++
		}
	}
	if fresh && others > founders {
		return fmt.Errorf("node %d is in its own --voters, %s, but the cluster %s was not founded with these: give "+
			"it an empty --data-dir and the same --voters as node %d, %s; a node that is not among them joins without a vote",
			n.cfg.NodeID, listVoters(n.cfg.Voters), without.who.ClusterID, without.voter.ID, without.who.Voters)
	}
	if foreign == nil {
		return nil
	}
	return fmt.Errorf("the data directory %s is of cluster %s, but node %d at %s is of cluster %s: correct --voters, or "+
		"give this node an empty --data-dir to join that cluster", n.cfg.DataDir, own, foreign.voter.ID,
		foreign.voter.Address, foreign.who.ClusterID)
}

// counts reports whether a voter was started with the same list, and is in no cluster that lacks this node.
func (n *Node) counts(a answer) bool {
	return a.who.Voters == listVoters(n.cfg.Voters) &&
		(a.who.ClusterID == "" || slices.Contains(a.who.Members, n.cfg.NodeID))
}

// forgotten says why what this node knows is less than what it once knew, or nil. Whoever knows it need not have been
// started with the same list: a lost machine's place may be taken by one with another address.
func (n *Node) forgotten(answers []answer) error {
	meta, known := n.dir.Meta()
	own := n.clusterID()
	for _, a := range answers {
		switch {
		case a.err != nil || a.who.Asker.Epoch < 0 || own != "" && a.who.ClusterID != own:
		case !known:
			return fmt.Errorf("node %d has been in the cluster before, by node %d, and its data directory is new",
				n.cfg.NodeID, a.voter.ID)
		case a.who.Asker.Epoch > meta.BrokerEpoch && a.who.Asker.Incarnation != meta.Incarnation:
			return fmt.Errorf("node %d has been in the cluster later, by node %d, than its data directory says: "+
				"it is an older copy", n.cfg.NodeID, a.voter.ID)
		}
	}
	return nil
}

// maySettle says what a node has to wait for before it takes part, or nil. One that has been in the quorum need not
// wait for anybody. A new one either founds the cluster with a majority that is new as well; or it comes late to one,
// and then so many voters must answer that one of them would know of it had it been there before.
func (n *Node) maySettle(answers []answer, fresh bool) error {
	if !fresh {
		return nil
	}
	voters := len(n.cfg.Voters)
	majority := voters/2 + 1
	founders, members, sure := 1, 0, 0
	for _, a := range answers {
		switch {
		case a.err != nil || !n.counts(a):
		case a.who.ClusterID != "":
			members++
			if a.who.Joined {
				sure++
			}
		default:
			founders++
		}
	}
	switch {
	case members == 0 && founders >= majority:
		return nil
	case members == 0:
		return fmt.Errorf("the node waits for a majority of the voters to found the cluster with: %d of %d are there",
			founders, voters)
	case sure >= voters-majority+1:
		return nil
	}
	return fmt.Errorf("the node is new and the cluster is not: it waits for %d of the other voters to join and to say "+
		"that they have not known it before", voters-majority+1)
}

// readmit has the node's vote taken away, waits for what was agreed on without it, and has the vote given back. It asks
// again now and then: an operator may have given the vote back before the node knew that it had lost it.
func (n *Node) readmit(ctx context.Context, why error) error {
	n.log.Warn("the node takes no part in the metadata quorum before it has caught up", "err", why)
	n.setWaiting(why)
	for admitted := false; ; admitted = true {
		err := n.askMembers(ctx, memberChange{
			Op: "readmit", ID: n.cfg.NodeID, Address: n.cfg.address(n.Addr()), Run: n.run,
		}, fmt.Errorf("%w; it asks for what it lacks", why))
		if err != nil {
			return err
		}
		if !admitted {
			close(n.admitted)
		}
		n.setWaiting(fmt.Errorf("%w; it waits for what it lacks", why))
		for again := time.Now().Add(joinReport); time.Now().Before(again); {
			if n.follows() {
				return nil
			}
			if err := pause(ctx, joinRetry); err != nil {
				return err
			}
		}
	}
}

// reclaimVote asks for the vote that this node is to have back, once it knows what was agreed on before it registered.
func (n *Node) reclaimVote(ctx context.Context) error {
	if !n.voteDue(n.cfg.NodeID) {
		return nil
	}
	waiting := errors.New("the node asks for its vote in the metadata quorum")
	n.setWaiting(waiting)
	return n.askMembers(ctx, memberChange{Op: "reclaim", ID: n.cfg.NodeID}, waiting)
}

// follows reports whether the node knows that it has no vote: then it has all that was agreed on before.
func (n *Node) follows() bool {
	members, err := n.quorum.Members()
	if err != nil {
		return false
	}
	for _, m := range members {
		if m.ID == n.cfg.NodeID {
			return !m.Voter
		}
	}
	return false
}

// askMembers has a change of the members made by whichever voter can, this node too, until one has done it or refuses
// it for good.
func (n *Node) askMembers(ctx context.Context, c memberChange, waiting error) error {
	report := n.reporter()
	for {
		var last error
		for _, v := range n.cfg.Voters {
			if v.ID == n.cfg.NodeID && !n.quorum.IsLeader() {
				continue
			}
			err := n.askMember(ctx, v, c)
			if err == nil || refusedForGood(err) {
				return err
			}
			last = err
		}
		if last == nil {
			last = errNoLeader
		}
		report(fmt.Errorf("%w: %w", waiting, last))
		if err := pause(ctx, joinRetry); err != nil {
			return err
		}
	}
}

func (n *Node) askMember(ctx context.Context, v quorum.Voter, c memberChange) error {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	if v.ID == n.cfg.NodeID {
		return n.changeMembers(ctx, c)
	}
	return n.relay(ctx, v.Address, c)
}

// dialQuorum connects to another voter, once this node may take part.
func (n *Node) dialQuorum(ctx context.Context, base string) (net.Conn, error) {
	select {
	case <-n.admitted:
		return n.peers.dialURL(ctx, base)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serveRaft takes messages of the quorum, once this node may take part.
func (n *Node) serveRaft(w http.ResponseWriter, r *http.Request) {
	select {
	case <-n.admitted:
		n.streams.ServeHTTP(w, r)
	case <-time.After(askTimeout):
		http.Error(w, fmt.Sprintf("node %d does not take part in the metadata quorum yet: its /health/ready says why",
			n.cfg.NodeID), http.StatusServiceUnavailable)
	case <-r.Context().Done():
	}
}
