// Package restv2 serves the Confluent REST Proxy's API version 2: /topics, /brokers and /consumers.
//
// It owns the translation between that API's bodies and the cluster's values, and its media types. It
// promises what docs/compatibility.md says: a client written for the REST Proxy finds the same paths,
// fields, codes and statuses. The reads are generated from openapi.yaml; the two produce operations
// are routed by hand, since they are a hot path: a body is scanned once and its records are copied
// once, from the body into the batch. So are calls to consumer instances, which are sent on to the node of
// their group before anything of them is read. The server mounts it on the router of package api.
package restv2

//go:generate go tool oapi-codegen -config oapi.yaml ../../openapi.yaml
