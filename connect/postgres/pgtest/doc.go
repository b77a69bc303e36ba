// Package pgtest runs a real PostgreSQL for tests.
//
// It owns the server that a test package shares: found on this machine, made anew in a folder of its own, run as an
// unprivileged user, and ended with the test process however that ends. It promises a fresh database to whoever asks,
// and that a machine without a server has its database tests reported as skipped. MILLRACE_TEST_POSTGRES names a
// server to use instead, by the URL of a superuser; tests that stop, crash or configure a server are skipped with it.
package pgtest
