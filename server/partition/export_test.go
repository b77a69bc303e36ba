package partition

// LeaderEpoch is the epoch in which this node leads.
func (l *Leader) LeaderEpoch() int32 { return l.role.Load().LeaderEpoch }
