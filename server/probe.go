package server

import (
	"millrace/server/metadata"
	"millrace/server/partition"
)

// Probe is what a simulation looks at inside a node.
type Probe struct {
	// Image is the metadata that the node has applied.
	Image    *metadata.Image
	Replicas []partition.Probe
}

// Probe reads the node's state. It waits for nothing.
func (n *Node) Probe() Probe {
	p := Probe{Image: n.machine.Image()}
	if n.broker != nil {
		p.Replicas = n.broker.Probe()
	}
	return p
}
