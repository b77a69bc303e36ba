// Package plugin is what connectors, converters, transforms and predicates are to the runner: their interfaces, and how
// they say which settings they have.
//
// It owns the contract between the runner (packages connect and connect/task) and what it runs, in the terms of Kafka
// Connect, and the checking of settings against their definitions. It promises that a setting is checked the same way
// when a connector is validated, created and started. The connectors of this module are in connect/postgres.
package plugin
