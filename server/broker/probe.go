package broker

import "millrace/server/partition"

// Probe reads the state of every open replica on this node, for simulations.
func (b *Broker) Probe() (out []partition.Probe) {
	b.view.Load().all(func(h *hosted) {
		for _, p := range h.parts {
			if p.replica != nil && p.replica.Offline() == nil {
				out = append(out, p.replica.Probe())
			}
		}
	})
	return out
}
