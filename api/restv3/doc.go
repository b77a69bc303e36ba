// Package restv3 serves the Confluent REST Proxy's API version 3, under /v3 and under /kafka/v3.
//
// It owns the translation between that API's resources and the cluster's values, the API's links and
// names, and the stream of records and receipts. It promises what docs/compatibility.md says: a client
// written for the REST Proxy finds the same paths, fields, codes and statuses. Routes, parameters and
// models are generated from openapi.yaml; only the record stream, which reads and answers as records
// come, is routed by hand. The server mounts it on the router of package api.
package restv3

//go:generate go tool oapi-codegen -config oapi.yaml ../../openapi.yaml
