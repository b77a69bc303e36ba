package task

import "millrace/connect/plugin"

// CheckChain says what is wrong with the transforms and predicates in the settings of a connector.
func CheckChain(props map[string]string) []plugin.Problem {
	b := &chainBuilder{reader: reader{props: props}}
	b.build()
	return b.problems
}
