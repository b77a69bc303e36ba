package schemaregistry

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Heavy work waits for its turn, light work does not.
func TestHeavyWorkTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(heavies, 1)
		end := h.begin(heavyBytes)
		var wg sync.WaitGroup
		begun := make(chan struct{})
		wg.Go(func() {
			defer h.begin(heavyBytes)()
			close(begun)
		})
		h.begin(heavyBytes - 1)()
		synctest.Wait()
		select {
		case <-begun:
			require.Fail(t, "two at once")
		default:
		}
		end()
		<-begun
		wg.Wait()
		require.Empty(t, h)
	})
}
