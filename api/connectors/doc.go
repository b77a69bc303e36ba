// Package connectors serves connectors as clients of Kafka Connect speak of them: the paths below /connectors,
// /connector-plugins and /admin/loggers, and /health.
//
// It owns what is HTTP about connectors: bodies, names in paths, numbers of errors, and the shapes of answers. What a
// request means is decided by a connect.Worker, which every node has and of which each answers alike. It promises that
// every body is bounded before it is read, and that every error has the form that clients of Kafka Connect read.
package connectors

//go:generate go tool oapi-codegen -config oapi.yaml ../../openapi.yaml
