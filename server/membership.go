package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"millrace/api/native"
	"millrace/server/metadata"
	"millrace/server/quorum"
)

// membershipTimeout bounds a change of the quorum's members: it waits for a majority of them.
const membershipTimeout = 20 * time.Second

// memberChange is one change of the quorum, as nodes pass it on to the leader.
type memberChange struct {
	Op      string `json:"op"` // add, promote, demote, remove, transfer; readmit and reclaim, by the node itself
	ID      int32  `json:"id"` // -1: any, of a transfer
	Address string `json:"address,omitempty"`
	// Run names the run of the node that asks for itself.
	Run string `json:"run,omitempty"`
	// Relayed is set by a node that is not the leader: who gets it passes it on no further.
	Relayed bool `json:"relayed,omitempty"`
}

// memberRefusal is why a change was not made, as nodes pass it back.
type memberRefusal struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// membership is what the native API needs to show and change the members of the quorum, on any node.
func (n *Node) membership() native.Membership {
	change := func(op string) func(context.Context, int32) error {
		return func(ctx context.Context, id int32) error {
			return n.changeMembers(ctx, memberChange{Op: op, ID: id})
		}
	}
	return native.Membership{
		Members: func(context.Context) ([]native.Member, error) { return n.members() },
		Add: func(ctx context.Context, id int32, url string) error {
			return n.changeMembers(ctx, memberChange{Op: "add", ID: id, Address: url})
		},
		Listed:  n.listedVoters(),
		Promote: change("promote"), Demote: change("demote"), Remove: change("remove"), Transfer: change("transfer"),
	}
}

// listedVoters are the ids in --voters.
func (n *Node) listedVoters() []int32 {
	var ids []int32
	for _, v := range n.cfg.Voters {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	return ids
}

func (n *Node) members() ([]native.Member, error) {
	members, err := n.quorum.Members()
	if err != nil {
		return nil, fmt.Errorf("members of the quorum: %w", err)
	}
	out := make([]native.Member, len(members))
	for i, m := range members {
		out[i] = native.Member{
			ID: m.ID, URL: m.Address, Voter: m.Voter, Leader: m.Leader, LastContact: n.lastContact(m.ID),
		}
	}
	return out, nil
}

// lastContact is when a member and the leader heard of each other last, zero where that is not known: the leader knows
// it of those whose brokers say that they live, any node of itself.
func (n *Node) lastContact(id int32) time.Time {
	at, known := n.controller.Contact(id)
	if id == n.cfg.NodeID {
		at = n.quorum.LastContact()
		known = !at.IsZero()
	}
	if !known {
		return time.Time{}
	}
	return n.cfg.Now().Add(-time.Since(at))
}

// changeMembers makes a change here, or where the leader is.
func (n *Node) changeMembers(ctx context.Context, c memberChange) error {
	if !n.cfg.clustered() {
		return refuseMember(http.StatusConflict, "",
			"this node is a cluster by itself: to let others join, start it again with --voters %d=%s and a secret in "+
				"--cluster-secret-file, which the others get too", n.cfg.NodeID, n.cfg.address(n.Addr()))
	}
	ctx, cancel := context.WithTimeout(ctx, membershipTimeout)
	defer cancel()
	if c.Op == "add" || c.Op == "readmit" {
		if err := CheckNodeURL(c.Address); err != nil {
			return refuseMember(http.StatusBadRequest, "", "%v", err)
		}
	}
	err := n.changeHere(ctx, c)
	if !errors.Is(err, quorum.ErrNotLeader) {
		return memberFault(err)
	}
	leader := n.quorum.LeaderAddress()
	if leader == "" || c.Relayed {
		return refuseMember(http.StatusServiceUnavailable, "",
			"the metadata quorum has no leader at the moment: try again a little later")
	}
	c.Relayed = true
	return n.relay(ctx, leader, c)
}

// changeHere makes a change as the leader.
func (n *Node) changeHere(ctx context.Context, c memberChange) (err error) {
	switch c.Op {
	case "add":
		if err = n.checkAddress(ctx, c); err == nil {
			err = n.quorum.AddNonvoter(ctx, c.ID, c.Address)
		}
	case "promote":
		if err = n.checkAnswers(ctx, c.ID); err == nil {
			err = n.promoteHere(ctx, c.ID)
		}
	case "demote":
		if err = n.setVoteDue(ctx, c.ID, false); err == nil {
			err = n.quorum.Demote(ctx, c.ID)
		}
	case "remove":
		if err = n.checkStopped(ctx, c.ID); err == nil {
			err = n.setVoteDue(ctx, c.ID, false)
		}
		if err == nil {
			err = n.quorum.Remove(ctx, c.ID)
		}
	case "transfer":
		err = n.quorum.Transfer(ctx, c.ID)
	case "readmit":
		err = n.readmitHere(ctx, c)
	case "reclaim":
		if n.voteDue(c.ID) { // else an operator was faster
			return n.promoteHere(ctx, c.ID)
		}
		if !n.quorum.IsLeader() {
			err = quorum.ErrNotLeader
		}
	default:
		err = refuseMember(http.StatusBadRequest, "", "%q is no change of the members", c.Op)
	}
	return err
}

// promoteHere gives a member a vote, also one that is to have it back.
func (n *Node) promoteHere(ctx context.Context, id int32) error {
	if err := n.quorum.Promote(ctx, id); err != nil {
		return err
	}
	return n.setVoteDue(ctx, id, false)
}

// checkAnswers refuses a vote to a member that is away: it would count for the majority, and the next one to be away
// could be one too many, without which nobody can be taken out again.
func (n *Node) checkAnswers(ctx context.Context, id int32) error {
	if !n.quorum.IsLeader() {
		return quorum.ErrNotLeader
	}
	for _, m := range n.memberships() {
		if m.ID != id || m.Voter {
			continue
		}
		who, err := n.ask(ctx, m.Address+nodePath)
		if err == nil && who.NodeID != id {
			err = fmt.Errorf("it is node %d", who.NodeID)
		}
		if err != nil {
			return refuseMember(http.StatusConflict, "", "member %d does not answer at %s (%v): start it, or tell its new "+
				"address, before it gets a vote", id, m.Address, err)
		}
	}
	return nil
}

// readmitHere takes the vote of a node that has lost what it knew. That it is to have it back is agreed on before, so
// that it does not matter who is lost in between: the answer, the node or the leader.
func (n *Node) readmitHere(ctx context.Context, c memberChange) error {
	if err := n.checkAddress(ctx, c); err != nil {
		return err
	}
	for _, m := range n.memberships() {
		if m.ID != c.ID || !m.Voter {
			continue
		}
		if err := n.setVoteDue(ctx, c.ID, true); err != nil {
			return err
		}
		if err := n.quorum.Demote(ctx, c.ID); err != nil {
			return err
		}
	}
	return n.quorum.AddNonvoter(ctx, c.ID, c.Address)
}

// voteDue reports whether a node is to have the vote back that it lost with what it knew. What an operator takes away
// stays away.
func (n *Node) voteDue(id int32) bool {
	b := n.machine.Image().Broker(id)
	return b != nil && b.VoteDue
}

// setVoteDue has it agreed on whether a node is to have its vote back. Of a node that was never in the cluster there is
// nothing to note.
func (n *Node) setVoteDue(ctx context.Context, id int32, due bool) error {
	if !n.quorum.IsLeader() {
		return quorum.ErrNotLeader
	}
	if b := n.machine.Image().Broker(id); b == nil || b.VoteDue == due {
		return nil
	}
	command, err := metadata.Encode(&metadata.SetVoteDue{ID: id, Due: due})
	if err != nil {
		return err
	}
	_, _, err = n.quorum.Propose(ctx, command)
	return err
}

func (n *Node) memberships() []quorum.Member {
	members, err := n.quorum.Members()
	if err != nil { // it is closing: a change fails as well
		return nil
	}
	return members
}

// codeDuplicate marks the refusal of a node whose id another one has that runs.
const codeDuplicate = "DUPLICATE_BROKER_REGISTRATION"

// freeAddress takes the address that a node is to get from the member that had it, if the node is there by now.
func (n *Node) freeAddress(ctx context.Context, c memberChange) error {
	for _, m := range n.memberships() {
		if m.ID == c.ID || m.Address != c.Address {
			continue
		}
		if who, err := n.ask(ctx, c.Address+nodePath); err != nil || who.NodeID != c.ID {
			return refuseMember(http.StatusConflict, "", "member %d is at %s: start node %d there before it is added, "+
				"remove member %d if it is gone, or correct the address", m.ID, c.Address, c.ID, m.ID)
		}
		return n.quorum.Unplace(ctx, m.ID)
	}
	return nil
}

// checkAddress refuses to give a member another address while it runs at the one that is known, or one that is
// another member's.
func (n *Node) checkAddress(ctx context.Context, c memberChange) error {
	if !n.quorum.IsLeader() {
		return quorum.ErrNotLeader
	}
	for _, m := range n.memberships() {
		if m.ID != c.ID || m.Address == c.Address || m.Address == "" {
			continue
		}
		who, err := n.ask(ctx, m.Address+nodePath)
		if err != nil || who.NodeID != c.ID || who.Run == c.Run {
			continue // it has moved
		}
		if at, err := n.ask(ctx, c.Address+nodePath); err == nil && at.Run == who.Run {
			continue // it has both addresses
		}
		return refuseMember(http.StatusConflict, codeDuplicate, "node %d runs at %s: give the one at %s another --node-id "+
			"and another --data-dir, or stop the other", c.ID, m.Address, c.Address)
	}
	return n.freeAddress(ctx, c)
}

// refusedForGood tells of a refusal that asking again does not change.
func refusedForGood(err error) bool {
	var m *native.MembershipError
	return errors.As(err, &m) && m.Code == codeDuplicate
}

func refuseMember(status int, code, format string, args ...any) error {
	return &native.MembershipError{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// memberFault gives an error of the quorum a form that a client understands.
func memberFault(err error) error {
	var known *native.MembershipError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, quorum.ErrNotMember):
		return refuseMember(http.StatusNotFound, "", "%v", err)
	case errors.Is(err, quorum.ErrRefused):
		return refuseMember(http.StatusConflict, "", "%v", err)
	case errors.Is(err, quorum.ErrNotLeader), errors.Is(err, quorum.ErrBusy), errors.Is(err, quorum.ErrClosed):
		return refuseMember(http.StatusServiceUnavailable, "", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return unknownMember("a majority of the voters did not agree in time")
	}
	return unknownMember("%v", err)
}

// unknownMember is the error of a change that may have been made.
func unknownMember(format string, args ...any) error {
	return refuseMember(http.StatusGatewayTimeout, "", "%s: the change may have been made, or still be; look at the "+
		"members before trying again", fmt.Sprintf(format, args...))
}

// relay passes a change on to the node at a base URL.
func (n *Node) relay(ctx context.Context, to string, c memberChange) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to+membershipPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	n.credential.Set(req.Header)
	req.Header.Set("Content-Type", "application/json")
	var connected atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}))
	resp, err := n.peers.transport.RoundTrip(req)
	switch {
	case err != nil && !connected.Load():
		return refuseMember(http.StatusServiceUnavailable, "", "%s cannot be reached: %v", to, err)
	case err != nil:
		return unknownMember("%s gave no answer: %v", to, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return unknownMember("%s gave half an answer: %v", to, err)
	}
	var r memberRefusal
	if json.Unmarshal(text, &r) != nil || r.Status == 0 {
		reason := resp.Status
		if text = bytes.TrimSpace(text); len(text) > 0 {
			reason += ": " + string(text)
		}
		return refuseMember(http.StatusServiceUnavailable, "", "%s answered %s", to, reason)
	}
	return &native.MembershipError{Status: r.Status, Code: r.Code, Detail: r.Detail}
}

// serveMembership answers a change that another node passed on.
func (n *Node) serveMembership(w http.ResponseWriter, r *http.Request) {
	var c memberChange
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		http.Error(w, fmt.Sprintf("not a change of the members: %v", err), http.StatusBadRequest)
		return
	}
	err := n.changeMembers(r.Context(), c)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	refusal := memberRefusal{Status: http.StatusInternalServerError, Detail: err.Error()}
	var known *native.MembershipError
	if errors.As(err, &known) {
		refusal = memberRefusal{Status: known.Status, Code: known.Code, Detail: known.Detail}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(refusal.Status)
	_ = json.NewEncoder(w).Encode(refusal) // a peer that is gone asks again
}
