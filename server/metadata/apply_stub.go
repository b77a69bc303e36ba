package metadata

import "github.com/twmb/franz-go/pkg/kerr"

func (c *ChangeBrokers) apply(*editor) Result {
	return oneItem(refuse(kerr.UnsupportedVersion, "not yet"))
}
func (c *UnregisterBroker) apply(*editor) Result {
	return oneItem(refuse(kerr.UnsupportedVersion, "not yet"))
}
func (c *AlterPartition) apply(*editor) Result {
	return oneItem(refuse(kerr.UnsupportedVersion, "not yet"))
}
func (c *ElectLeaders) apply(*editor) Result {
	return oneItem(refuse(kerr.UnsupportedVersion, "not yet"))
}
func (c *AlterReassignments) apply(*editor) Result {
	return oneItem(refuse(kerr.UnsupportedVersion, "not yet"))
}
