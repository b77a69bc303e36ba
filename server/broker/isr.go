package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/partition"
)

// isrProposer brings the ISR changes that this node's leaders want before the controller. One goroutine
// has one AlterPartition on its way at a time; what is wanted meanwhile goes with the next, all together.
type isrProposer struct {
	broker  *Broker
	wake    chan struct{}
	failing bool        // the last request got no answer; of the goroutine
	look    atomic.Bool // the followers are to be looked at now: a broker has come into service or left it

	mu sync.Mutex
	// Guarded by mu.
	wanting  map[*partition.Leader]struct{} // leaders that have something to propose
	resigned map[partition.Name]*resignation
}

func newIsrProposer(b *Broker) *isrProposer {
	return &isrProposer{
		broker: b, wake: make(chan struct{}, 1),
		wanting:  make(map[*partition.Leader]struct{}),
		resigned: make(map[partition.Name]*resignation),
	}
}

// Bounds of one proposal.
const (
	proposalTimeout    = 4 * time.Second
	proposalPause      = 50 * time.Millisecond // before the same is proposed again, and twice that each time
	longProposalPause  = time.Second
	proposalPartitions = 2000
)

// want takes note that a leader has an ISR change to propose. Partitions call it with locks held.
func (p *isrProposer) want(l *partition.Leader) {
	p.mu.Lock()
	p.wanting[l] = struct{}{}
	p.mu.Unlock()
	p.hurry()
}

func (p *isrProposer) hurry() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run proposes until the broker closes.
func (p *isrProposer) run() {
	ctx := p.broker.ctx
	timer := time.NewTimer(p.lagInterval())
	defer timer.Stop()
	pause := proposalPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if p.look.Swap(false) {
				p.checkLag()
			}
		case <-timer.C:
			p.checkLag()
			timer.Reset(p.lagInterval())
		}
		if p.propose(ctx) {
			pause = proposalPause
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, longProposalPause)
			p.hurry()
		}
	}
}

func (p *isrProposer) lagInterval() time.Duration {
	image := p.broker.Image()
	if image == nil {
		return time.Second
	}
	return max(image.Settings().ReplicaLagTimeMax/2, time.Millisecond)
}

// checkLag looks for followers that have fallen behind, and for those that have become fit.
func (p *isrProposer) checkLag() {
	now := time.Now()
	p.broker.view.Load().all(func(h *hosted) {
		for i := range h.parts {
			if l := h.parts[i].leader; l != nil {
				l.CheckLag(now)
			}
		}
	})
}

// proposal is one partition of an AlterPartition request: an ISR change of a leader, or a resignation.
type proposal struct {
	isr    partition.IsrProposal
	leader *partition.Leader
	resign bool
	plight plight // of a replica that resigns
}

// propose sends what is wanted, and reports whether all of it was answered.
func (p *isrProposer) propose(ctx context.Context) bool {
	proposals := p.collect()
	if len(proposals) == 0 {
		return true
	}
	limit, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	req := p.request(proposals)
	resp, err := req.RequestWith(limit, p.broker.cfg.Controller)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	p.tell(ctx, err)
	answers := make(map[answerKey]*kmsg.AlterPartitionResponseTopicPartition)
	if err == nil {
		for i := range resp.Topics {
			t := &resp.Topics[i]
			for j := range t.Partitions {
				answers[answerKey{t.TopidID, t.Partitions[j].Partition}] = &t.Partitions[j]
			}
		}
	}
	settled := true
	for i := range proposals {
		n := proposals[i].isr.Name
		settled = p.settle(&proposals[i], answers[answerKey{n.TopicID, n.Partition}]) && settled
	}
	return settled
}

// tell writes one line when the controller begins to take nothing, and one when it does again.
func (p *isrProposer) tell(ctx context.Context, err error) {
	switch {
	case err != nil && !p.failing && ctx.Err() == nil:
		p.broker.cfg.Logger.Warn("ISR changes are not taken", "node", p.broker.cfg.NodeID, "err", err)
	case err == nil && p.failing:
		p.broker.cfg.Logger.Info("ISR changes are taken again", "node", p.broker.cfg.NodeID)
	}
	p.failing = err != nil
}

// answerKey finds the answer to a proposal.
type answerKey struct {
	topic  [16]byte
	number int32
}

// collect takes the changes that the leaders want now, and the resignations that wait.
func (p *isrProposer) collect() []proposal {
	p.mu.Lock()
	var leaders []*partition.Leader
	for l := range p.wanting {
		if len(leaders) == proposalPartitions {
			p.hurry() // the others go with the next
			break
		}
		delete(p.wanting, l)
		leaders = append(leaders, l)
	}
	p.mu.Unlock()
	var out []proposal
	for _, l := range leaders {
		if change, ok := l.Propose(); ok {
			out = append(out, proposal{isr: change, leader: l})
		}
	}
	return append(out, p.resignations()...)
}

func (p *isrProposer) request(proposals []proposal) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = p.broker.cfg.NodeID, p.broker.Epoch()
	topics := make(map[[16]byte]int)
	for i := range proposals {
		change := &proposals[i].isr
		at, ok := topics[change.Name.TopicID]
		if !ok {
			at = len(req.Topics)
			topics[change.Name.TopicID] = at
			t := kmsg.NewAlterPartitionRequestTopic()
			t.Topic, t.TopicID = change.Name.Topic, change.Name.TopicID
			req.Topics = append(req.Topics, t)
		}
		out := kmsg.NewAlterPartitionRequestTopicPartition()
		out.Partition = change.Name.Partition
		out.LeaderEpoch, out.PartitionEpoch = change.LeaderEpoch, change.PartitionEpoch
		if change.Recovering {
			out.LeaderRecoveryState = 1
		}
		for _, m := range change.ISR {
			member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			member.BrokerID, member.BrokerEpoch = m.ID, m.Epoch
			out.NewEpochISR = append(out.NewEpochISR, member)
			out.NewISR = append(out.NewISR, m.ID)
		}
		switch {
		case !proposals[i].resign:
		case proposals[i].plight == full:
			ktag.SetResignEligible(&out.UnknownTags)
		case proposals[i].plight == unusable:
			ktag.SetResignUnusable(&out.UnknownTags)
		default:
			ktag.SetResign(&out.UnknownTags)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, out)
	}
	return req
}

// settle gives one proposal its answer, nil for none, and reports whether that ends it.
func (p *isrProposer) settle(s *proposal, answer *kmsg.AlterPartitionResponseTopicPartition) bool {
	code := int16(partition.Unanswered)
	if answer != nil {
		code = answer.ErrorCode
	}
	if s.resign {
		return p.resignationAnswered(&s.isr, code)
	}
	var state *partition.Role
	if code == 0 || code == kerr.NewLeaderElected.Code {
		state = &partition.Role{
			Leader: answer.LeaderID, LeaderEpoch: answer.LeaderEpoch, PartitionEpoch: answer.PartitionEpoch,
			ISR: answer.ISR, Recovering: answer.LeaderRecoveryState == 1,
		}
	}
	s.leader.Proposed(s.isr, code, state) // without an answer it says again that it wants this
	return code != partition.Unanswered
}
