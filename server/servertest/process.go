package servertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os/signal"
	"strconv"
	"syscall"

	"millrace/connect/plugin"
	"millrace/server"
	"millrace/server/quorum"
)

// Process is one node of a cluster on loopback ports, for the program of a test that is to be killed as a process.
type Process struct {
	// Args are the node's id, the folder of its data, and the addresses of all nodes.
	Args       []string
	Broker     map[string]string
	Connectors []plugin.Class
	Log        io.Writer
}

// Run runs the node until SIGTERM, and gives the code that the program is to exit with.
func (p *Process) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	id, err := strconv.Atoi(p.Args[0])
	if err != nil {
		fmt.Fprintln(p.Log, err)
		return 2
	}
	addresses := p.Args[2:]
	cfg := server.DefaultConfig()
	cfg.NodeID, cfg.DataDir, cfg.Listen = int32(id), p.Args[1], addresses[id-1]
	for i, address := range addresses {
		cfg.Voters = append(cfg.Voters, quorum.Voter{ID: int32(i + 1), Address: "http://" + address})
	}
	cfg.ClusterSecret, cfg.Connectors, cfg.Broker = []byte("the secret of a test"), p.Connectors, maps.Clone(p.Broker)
	cfg.Logger = slog.New(slog.NewTextHandler(p.Log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	node, err := server.Open(cfg)
	if err == nil {
		<-ctx.Done()
		err = node.Close()
	}
	if err != nil {
		fmt.Fprintln(p.Log, err)
		return 1
	}
	return 0
}
