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

// Kill is Close without handing anything over to other nodes. A simulation calls it when it has taken the node's disk
// and network away.
func (n *Node) Kill() error {
	n.killed.Store(true)
	return n.Close()
}
