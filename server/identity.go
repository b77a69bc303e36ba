package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/server/quorum"
)

// nodePath is where a node tells another one who it is.
const nodePath = internalPrefix + "node"

const (
	// askTimeout bounds how long a node waits for another one to say who it is, and voterTimeout for it to say as well
	// whether it finds the one that asks.
	askTimeout   = time.Second
	voterTimeout = 2 * askTimeout
	// identityBytes bounds what is read of that.
	identityBytes = 64 << 10
)

// identity is what a node says of itself to others, who compare it with what they take it for.
type identity struct {
	NodeID int32  `json:"node_id"`
	Run    string `json:"run"` // random for every start
	// Incarnation is that of its registration, "" before it asks for one.
	Incarnation string `json:"incarnation"`
	// ClusterID is the cluster's, "" before the node was ever in one.
	ClusterID string `json:"cluster_id"`
	// Voters is the list that the node was started with.
	Voters string `json:"voters"`
	// Members are the ids in the metadata quorum, as far as the node knows.
	Members []int32 `json:"members"`
	// Joined says that it is in its cluster by now, and knows what was agreed on before.
	Joined bool `json:"joined"`
	// Controller says that it leads the metadata quorum.
	Controller bool `json:"controller"`
	// Asker is what it knows of the node that asks.
	Asker asker `json:"asker"`
}

// asker is what a node knows of the one that asks.
type asker struct {
	// Epoch is the newest broker epoch, -1 for none; Incarnation goes with it.
	Epoch       int64  `json:"epoch"`
	Incarnation string `json:"incarnation"`
	// Address is where it looks for that node, and Run what answers there; "" is nothing, and Err why.
	Address string `json:"address"`
	Run     string `json:"run"`
	Err     string `json:"err"`
}

// serveIdentity answers who this node is.
func (n *Node) serveIdentity(w http.ResponseWriter, r *http.Request) {
	me := identity{
		NodeID: n.cfg.NodeID, Run: n.run, ClusterID: n.clusterID(), Voters: listVoters(n.cfg.Voters),
		Incarnation: n.incarnation(), Joined: n.hasJoined(), Controller: n.quorum.IsLeader(),
	}
	for _, m := range n.memberAddresses() {
		me.Members = append(me.Members, m.ID)
	}
	if id, err := strconv.ParseInt(r.URL.Query().Get("for"), 10, 32); err == nil {
		me.Asker = n.lookFor(r.Context(), int32(id))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(me) // a peer that is gone asks again
}

// incarnation is the name under which the node has registered, or is about to.
func (n *Node) incarnation() string {
	if name := n.registered.Load(); name != nil {
		return *name
	}
	return ""
}

// lookFor tells what this node knows of another one, and whether it finds it.
func (n *Node) lookFor(ctx context.Context, id int32) asker {
	known := asker{Epoch: -1, Address: n.peers.url(id)}
	if b := n.machine.Image().Broker(id); b != nil {
		known.Epoch, known.Incarnation = b.Epoch, nameOf(b.Incarnation)
	}
	if known.Address == "" {
		known.Err = "no address of it is known"
		return known
	}
	who, err := n.ask(ctx, known.Address+nodePath)
	if err != nil {
		known.Err = err.Error()
		return known
	}
	known.Run = who.Run
	return known
}

// noAnswer is why nobody answered.
type noAnswer struct{ why error }

// Error implements error.
func (e noAnswer) Error() string { return e.why.Error() }

// Unwrap gives the reason.
func (e noAnswer) Unwrap() error { return e.why }

// ask finds out who answers at a URL. Its error is a noAnswer if nobody does.
func (n *Node) ask(ctx context.Context, url string) (*identity, error) {
	return n.askWithin(ctx, url, askTimeout)
}

func (n *Node) askWithin(ctx context.Context, url string, limit time.Duration) (*identity, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	status, text, err := n.fetchIdentity(ctx, url)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, noAnswer{context.Cause(ctx)}
	case err != nil:
		return nil, noAnswer{err}
	}
	var who identity
	switch {
	case status == http.StatusUnauthorized:
		return nil, fmt.Errorf("it does not take this node's credential: %s", strings.TrimSpace(string(text)))
	case status != http.StatusOK:
		return nil, fmt.Errorf("it answers %d to %s: is it a node of Millrace, of this version?", status, nodePath)
	case json.Unmarshal(text, &who) != nil || who.NodeID < 1:
		return nil, fmt.Errorf("what it answers to %s is not from a node", nodePath)
	}
	return &who, nil
}

func (n *Node) fetchIdentity(ctx context.Context, url string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	n.credential.Set(req.Header)
	resp, err := n.peers.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, identityBytes))
	return resp.StatusCode, text, err
}

// answer is who a voter of the list is, or why that is not known.
type answer struct {
	voter quorum.Voter
	who   *identity
	err   error
}

// askVoters asks all other voters of the list at once.
func (n *Node) askVoters(ctx context.Context) []answer {
	var all []answer
	for _, v := range n.cfg.Voters {
		if v.ID != n.cfg.NodeID {
			all = append(all, answer{voter: v})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		url := fmt.Sprint(all[i].voter.Address, nodePath, "?for=", n.cfg.NodeID)
		wg.Go(func() { all[i].who, all[i].err = n.askWithin(ctx, url, voterTimeout) })
	}
	wg.Wait()
	for i := range all {
		a := &all[i]
		if a.err == nil && a.who.NodeID != a.voter.ID {
			a.err = fmt.Errorf("it is node %d: correct its address in --voters", a.who.NodeID)
		}
	}
	return all
}

// trouble says what is wrong with a voter, as this node sees it; nil if nothing is.
func (n *Node) trouble(a answer) error {
	err, own := a.err, n.clusterID()
	switch {
	case err != nil:
	case own != "" && a.who.ClusterID != "" && a.who.ClusterID != own:
		err = fmt.Errorf("it is of cluster %s, this node of cluster %s", a.who.ClusterID, own)
	case own == "" && n.listed() && a.who.Voters != listVoters(n.cfg.Voters):
		err = fmt.Errorf("it was started with other --voters, %s: give all nodes the same list", a.who.Voters)
	case a.who.Asker.Address == "": // it is to be told
		return nil
	case a.who.Asker.Run != n.run:
		err = fmt.Errorf("it does not find this node at %s: %s", a.who.Asker.Address, cmp.Or(a.who.Asker.Err,
			"another process answers there"))
	default:
		return nil
	}
	return fmt.Errorf("node %d at %s: %w", a.voter.ID, a.voter.Address, err)
}

// troubles is what is wrong with all voters, nil if nothing is.
func (n *Node) troubles(answers []answer) error {
	var all []string
	for _, a := range answers {
		if err := n.trouble(a); err != nil {
			all = append(all, err.Error())
		}
	}
	if len(all) == 0 {
		return nil
	}
	if slices.ContainsFunc(answers, func(a answer) bool { return errors.As(a.err, &noAnswer{}) }) {
		all = append(all, "start who does not answer, or correct the address in --voters")
	}
	return errors.New(strings.Join(all, "; "))
}

// watchVoters keeps saying what is wrong with the other voters, until the node has joined.
func (n *Node) watchVoters() {
	for !n.hasJoined() {
		if err := n.troubles(n.askVoters(n.life)); err != nil {
			n.amiss.Store(&err)
		} else {
			n.amiss.Store(nil)
		}
		select {
		case <-n.joined:
		case <-n.life.Done():
			return
		case <-time.After(askTimeout):
		}
	}
}

// listVoters writes a list as --voters takes it, in the order of the ids.
func listVoters(voters []quorum.Voter) string {
	sorted := slices.SortedFunc(slices.Values(voters), func(a, b quorum.Voter) int { return int(a.ID) - int(b.ID) })
	var items []string
	for _, v := range sorted {
		items = append(items, fmt.Sprintf("%d=%s", v.ID, v.Address))
	}
	return strings.Join(items, ",")
}
