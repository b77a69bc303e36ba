package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
	"millrace/storage"
)

const (
	// joinRetry is the pause between two tries to join.
	joinRetry = 250 * time.Millisecond
	// joinReport is how often a node that waits says what for, and asks again for what it was promised.
	joinReport = 10 * time.Second
	// rivalPatience is how many session timeouts a node waits for another one with its id to be given up.
	rivalPatience = 2
)

// ErrNotJoined means that a node of several cannot join its cluster, mostly for a mistake in its settings. It may be
// closed in order.
var ErrNotJoined = errors.New("the node cannot join its cluster")

// start lets the node join its cluster. A cluster of one is waited for. Of several nodes each must answer before the
// others can start, so there the rest happens in the background, and AwaitReady tells when it is done.
func (n *Node) start() error {
	n.setWaiting(errors.New("the node is starting"))
	if !n.cfg.clustered() {
		ctx, cancel := context.WithTimeout(n.life, startTimeout)
		defer cancel()
		if err := n.join(ctx); err != nil {
			return err
		}
		n.schemas.awaitRead(ctx)
		return nil
	}
	n.log.Info("joining the cluster", "node", n.cfg.NodeID, "url", n.cfg.address(n.Addr()),
		"voters", listVoters(n.cfg.Voters))
	n.joining.Go(func() {
		if err := n.join(n.life); err != nil && n.life.Err() == nil {
			n.log.Error("the node cannot join its cluster", "err", err)
			n.setWaiting(err)
			n.fatal(fmt.Errorf("%w: %w", ErrNotJoined, err))
		}
	})
	n.joining.Go(n.watchVoters)
	n.joining.Go(n.watchMetadataLog)
	n.joining.Go(n.watchMembership)
	return nil
}

// join makes the node a member of the quorum, registers its broker, and takes up its partitions once the metadata is
// as new as the registration: by older metadata the node might set aside what it should keep.
func (n *Node) join(ctx context.Context) error {
	if err := n.enterQuorum(ctx); err != nil {
		return err
	}
	n.setWaiting(errors.New("the node waits for the cluster's controller"))
	epoch, incarnation, err := n.registerBroker(ctx)
	if err != nil {
		return fmt.Errorf("register with the cluster: %w", err)
	}
	n.setWaiting(errors.New("the node reads the cluster's metadata"))
	if err := n.awaitApplied(ctx, uint64(epoch)); err != nil {
		return fmt.Errorf("read the metadata: %w", err)
	}
	if err := n.saveRegistration(epoch, incarnation); err != nil {
		return err
	}
	n.machine.Watch(n.broker.OnImage)
	n.machine.Watch(n.onTopics)
	n.broker.Start(epoch)
	for n.broker.Fenced() {
		n.setWaiting(errors.New("the node waits for the controller to take it into service"))
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	if err := n.reclaimVote(ctx); err != nil {
		return fmt.Errorf("vote in the metadata quorum: %w", err)
	}
	n.waiting.Store(nil)
	close(n.joined)
	n.joining.Go(n.abortLeft)
	return nil
}

// abortLeft aborts what the run before this one was killed in the midst of, and readers wait for.
func (n *Node) abortLeft() {
	switch count, err := n.native.AbortLeft(n.life); {
	case n.life.Err() != nil:
	case err != nil:
		n.log.Warn("what transactions the run before has left open is not known: they end by their time", "err", err)
	case count > 0:
		n.log.Info("transactions that the run before has left open were aborted", "transactions", count)
	}
}

// saveRegistration notes in the data directory what the node is to the cluster.
func (n *Node) saveRegistration(epoch int64, incarnation string) error {
	meta, known := n.dir.Meta()
	if !known {
		meta = storage.Meta{NodeID: n.cfg.NodeID, DirectoryID: randomID(n.fork()).String()}
	}
	meta.ClusterID, meta.BrokerEpoch, meta.Incarnation = n.machine.Image().ClusterID, epoch, incarnation
	if err := n.dir.SetMeta(meta); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// registerAgain registers a broker that the controller has forgotten or takes for another run, and gives its epoch.
func (n *Node) registerAgain(ctx context.Context) (int64, error) {
	epoch, incarnation, err := n.registerBroker(ctx)
	if err != nil {
		return -1, err
	}
	return epoch, n.saveRegistration(epoch, incarnation)
}

// enterQuorum has the node taken into the quorum, where it is no member yet or one under another address. It then
// follows the metadata, and without a vote if it had none.
func (n *Node) enterQuorum(ctx context.Context) error {
	if !n.cfg.clustered() {
		close(n.admitted)
		return nil
	}
	missing, err := n.admit(ctx)
	if err != nil {
		return err
	}
	own := n.cfg.address(n.Addr())
	for _, m := range n.memberAddresses() {
		if m.ID == n.cfg.NodeID && m.Address == own && !missing {
			return nil
		}
	}
	return n.askIn(ctx)
}

// registerBroker makes the node known to the cluster under its address, and gives its broker epoch. It asks again
// until there is a controller that answers. With the epoch it gives the name under which it registered.
func (n *Node) registerBroker(ctx context.Context) (epoch int64, incarnation string, err error) {
	req, err := n.registration()
	if err != nil {
		return -1, "", err
	}
	report := n.reporter()
	began := time.Now()
	for {
		resp, err := req.RequestWith(ctx, n.router)
		if err == nil {
			if resp.ErrorCode == 0 {
				return resp.BrokerEpoch, nameOf(req.IncarnationID), nil
			}
			err = registrationFault(resp)
			patience := rivalPatience * n.machine.Image().Settings().SessionTimeout
			rival := errors.Is(err, kerr.DuplicateBrokerRegistration) && time.Since(began) < patience
			if !rival && !kerr.IsRetriable(errors.Unwrap(err)) {
				return -1, "", err
			}
		}
		report(fmt.Errorf("the node waits for the cluster's controller: %w", err))
		if err := pause(ctx, joinRetry); err != nil {
			return -1, "", err
		}
	}
}

// nameOf is the random id of a registration as text.
func nameOf(incarnation [16]byte) string { return hex.EncodeToString(incarnation[:]) }

// registrationFault says why a registration was refused.
func registrationFault(resp *kmsg.BrokerRegistrationResponse) error {
	err := kerr.ErrorForCode(resp.ErrorCode)
	if text, ok := ktag.ErrorMessage(&resp.UnknownTags); ok {
		return fmt.Errorf("%w: %s", err, text)
	}
	return fmt.Errorf("%w", err)
}

// registration is what the node tells of itself: where it answers, and what its data directory
// proves of the run before.
func (n *Node) registration() (*kmsg.BrokerRegistrationRequest, error) {
	endpoints, err := n.endpoints()
	if err != nil {
		return nil, err
	}
	settings := n.machine.Image().Settings()
	meta, known := n.dir.Meta()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = n.cfg.NodeID, meta.ClusterID, randomID(n.fork())
	req.PreviousBrokerEpoch = -1
	if known && n.dir.WasClean() {
		req.PreviousBrokerEpoch = meta.BrokerEpoch
	}
	ktag.SetDataEpoch(&req.UnknownTags, -1)
	if known {
		ktag.SetDataEpoch(&req.UnknownTags, meta.BrokerEpoch)
	}
	if known && settings.LogSync == "ack" {
		ktag.SetIntact(&req.UnknownTags)
	}
	if settings.Rack != "" {
		req.Rack = &settings.Rack
	}
	name := nameOf(req.IncarnationID)
	n.registered.Store(&name)
	if known {
		// Noted before anybody knows of it: whoever meets it can tell this directory from an older copy.
		meta.Incarnation = name
		if err := n.dir.SetMeta(meta); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	for _, e := range endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, uint16(e.Port)
		req.Listeners = append(req.Listeners, l)
	}
	return req, nil
}

// endpoints are the addresses under which clients know the node, the advertised ones, else where it listens; and the
// one under which other nodes do.
func (n *Node) endpoints() ([]metadata.Endpoint, error) {
	urls, err := n.cfg.advertised()
	if err != nil {
		return nil, err
	}
	own, err := url.Parse(n.cfg.address(n.Addr()))
	if err != nil {
		return nil, err
	}
	if len(urls) == 0 {
		urls = append(urls, own)
	}
	var out []metadata.Endpoint
	add := func(name string, u *url.URL) error {
		port, err := portOf(u)
		if err != nil {
			return fmt.Errorf("port of %s: %w", u, err)
		}
		out = append(out, metadata.Endpoint{Name: name, Host: u.Hostname(), Port: port})
		return nil
	}
	for _, u := range urls {
		if err := add(u.Scheme, u); err != nil {
			return nil, err
		}
	}
	return out, add(internalEndpoint, own)
}

// reporter gives a function that notes what the node waits for, and tells the operator now and then.
func (n *Node) reporter() func(error) {
	next := time.Now().Add(joinReport / 5)
	return func(err error) {
		n.setWaiting(err)
		if now := time.Now(); now.After(next) {
			next = now.Add(joinReport)
			n.log.Warn("still waiting to join the cluster", "err", n.starting())
		}
	}
}

func (n *Node) setWaiting(err error) { n.waiting.Store(&err) }

// starting says why the node cannot answer for the cluster yet, or nil.
func (n *Node) starting() error {
	waiting, amiss := n.waiting.Load(), n.amiss.Load()
	switch {
	case waiting == nil:
		return nil
	case amiss != nil:
		return fmt.Errorf("%w; %w", *waiting, *amiss)
	}
	return *waiting
}

// hasJoined reports whether the node has joined its cluster.
func (n *Node) hasJoined() bool {
	select {
	case <-n.joined:
		return true
	default:
		return false
	}
}

// AwaitReady waits until the node has joined its cluster. Its error says what the node was waiting for.
func (n *Node) AwaitReady(ctx context.Context) error {
	select {
	case <-n.joined:
		return n.schemas.registry.AwaitRead(ctx)
	case <-ctx.Done():
		if err := n.starting(); err != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return context.Cause(ctx)
	}
}

// pause sleeps, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
