package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// Whatever a power cut keeps or takes away while clients are at work, the node holds to what it told them.
func TestPowerCutsUnderLoad(t *testing.T) {
	for i, mode := range storagetest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			n := servertest.Start(t, servertest.Options{Disk: storagetest.New(), Seed: uint64(i + 1)})
			m := servertest.NewTurmoil(t, n.URL())
			for range 3 {
				m.AwaitAcks(60)
				n.Crash(mode)
				m.Moved(n.URL())
			}
			m.AwaitAcks(60)
			require.Greater(t, m.Check(), 200)
		})
	}
}

// A node that is stopped in order under load does the same, and whoever was answered before is stored.
func TestStopsUnderLoad(t *testing.T) {
	for _, policy := range []string{"ack", "never"} {
		t.Run(policy, func(t *testing.T) {
			n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
				c.Broker = map[string]string{"log.sync": policy}
			}})
			m := servertest.NewTurmoil(t, n.URL())
			for range 2 {
				m.AwaitAcks(60)
				n.Restart()
				m.Moved(n.URL())
			}
			m.AwaitAcks(60)
			require.Greater(t, m.Check(), 100)
		})
	}
}
