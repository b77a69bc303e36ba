// Package registry serves the schema registry as its clients speak it: the paths below /subjects, /schemas,
// /compatibility, /config, /mode and /contexts, and those below /v1/metadata.
//
// It owns what is HTTP about the registry: paths of contexts, aliases, media types, bodies, numbers of errors, and
// which
// node serves a request. What a request means is decided by a schemaregistry.Registry. Reads are answered by every
// node;
// a write is sent on to the node that leads the registry's log, but for one that the state shows to be done already. It
// promises that every body is bounded before it is read, and that every answer to a client of a registry, of whatever
// fault, is in the registry's form.
package registry

//go:generate go tool oapi-codegen -config oapi.yaml ../../openapi.yaml
