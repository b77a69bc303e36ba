// Command millrace runs a node and talks to one.
//
// `millrace serve` is the server: it turns a file, the environment and flags into a server.Config, opens the node,
// and closes it on a signal. Every other command is a client of the public HTTP API and works against any node it
// can reach, except `millrace log`, which reads the segment files of a stopped node. Exit codes are in exit.go;
// scripts may rely on them. Everything that touches the process itself - flags, environment, signals, exit, the
// collector's tuning - is here and nowhere else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version and commit are set by the linker; see the Makefile.
var (
	version = "dev"
	commit  = "unknown"
)

func main() { os.Exit(run()) }

// run is main with its exit code as a value, so that a test can run the command in its own process.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), stop: stop}
	root := newRoot(c)
	root.SetArgs(os.Args[1:])
	return c.finish(root.ExecuteContext(ctx))
}
