package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"millrace/server/metadata"
)

// maxBalanced bounds the leaderships that one step moves; the next step follows after a tick.
const maxBalanced = 1000

// balance gives leaderships back to the preferred leaders when it is time, and returns how long until it is
// again.
func (c *Controller) balance(ctx context.Context, image *metadata.Image) time.Duration {
	s := image.Settings()
	c.mu.Lock()
	left := time.Until(c.balanceAt)
	c.mu.Unlock()
	if left > 0 {
		return left
	}
	wait := max(s.LeaderImbalanceCheckInterval, tick)
	if s.AutoLeaderRebalance {
		moves := imbalanced(image, s.LeaderImbalancePercent)
		if len(moves) > maxBalanced {
			moves, wait = moves[:maxBalanced], tick
		}
		if len(moves) > 0 {
			c.giveBack(ctx, moves)
		}
	}
	c.mu.Lock()
	c.balanceAt = time.Now().Add(wait)
	c.mu.Unlock()
	return wait
}

func (c *Controller) giveBack(ctx context.Context, moves []metadata.PartitionRef) {
	o, err := c.propose(ctx, &metadata.ElectLeaders{Partitions: moves}, 0)
	if err != nil || o.refusal.Code != 0 {
		if ctx.Err() == nil {
			c.logger.Warn("leaders not balanced", "partitions", len(moves), "err", errors.Join(err, o.refusal.Err()))
		}
		return
	}
	moved := 0
	for _, item := range o.Items {
		if item.Code == 0 {
			moved++
		}
	}
	c.logger.Info("leaders balanced", "partitions", moved)
}

// imbalanced lists the partitions to give back: those whose preferred leader could lead but does not, of
// the brokers for which that is more than so many percent of the partitions that prefer them.
func imbalanced(image *metadata.Image, percent int) []metadata.PartitionRef {
	prefer, away := make(map[int32]int), make(map[int32]int)
	for t := range image.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			prefer[p.Replicas[0]]++
			if p.Leader != p.Replicas[0] {
				away[p.Replicas[0]]++
			}
		}
	}
	var moves []metadata.PartitionRef
	for t := range image.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			first := p.Replicas[0]
			if p.Leader == first || away[first]*100 <= percent*prefer[first] {
				continue
			}
			if image.Active(first) && slices.Contains(p.ISR, first) {
				moves = append(moves, metadata.PartitionRef{Topic: t.Name, Partition: int32(i)})
			}
		}
	}
	return moves
}
