package server

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A gate that is shut lets nobody in, and is shut only when all who were inside have left.
func TestGateWaitsForWhoIsInside(t *testing.T) {
	for inside := range 4 {
		synctest.Test(t, func(t *testing.T) {
			var g gate
			for range inside {
				require.True(t, g.enter())
			}
			var shut atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				g.close()
				shut.Store(true)
			})
			synctest.Wait()
			for range inside {
				require.False(t, shut.Load())
				require.False(t, g.enter())
				g.leave()
				synctest.Wait()
			}
			require.True(t, shut.Load())
			require.False(t, g.enter())
			wg.Wait()
		})
	}
}

// Whoever is let in while the gate is being shut is waited for.
func TestGateIsShutUnderLoad(t *testing.T) {
	for range 200 {
		var g gate
		var inside, late atomic.Int64
		var shut atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if !g.enter() {
						continue
					}
					inside.Add(1)
					if shut.Load() {
						late.Add(1)
					}
					inside.Add(-1)
					g.leave()
				}
			})
		}
		g.close()
		left := inside.Load()
		shut.Store(true)
		wg.Wait()
		require.Zero(t, left)
		require.Zero(t, late.Load())
	}
}

// Only connections that nothing has come over are hung up on, and each gives its place back once.
func TestListenerKnowsSilentConnections(t *testing.T) {
	l := newCappedListener(nil, 8)
	var conns [4]net.Conn
	for i := range conns {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		conns[i] = near
		l.slots <- struct{}{}
		l.connState(near, http.StateNew)
	}
	l.connState(conns[0], http.StateActive)
	for range 3 {
		l.connState(conns[1], http.StateActive)
		l.connState(conns[1], http.StateIdle)
	}
	l.connState(conns[2], http.StateClosed)
	require.Equal(t, 3, l.open())
	require.Equal(t, int64(1), l.silent.Load())
	l.hangUp()
	for i, closed := range []bool{false, false, false, true} {
		err := conns[i].SetDeadline(time.Time{})
		require.Equal(t, closed, err != nil, i)
	}
	l.connState(conns[3], http.StateClosed)
	require.Zero(t, l.silent.Load())
	l.connState(conns[0], http.StateHijacked)
	require.Equal(t, 1, l.open())
}

// BenchmarkRequestBooks is what the node keeps of each request beside answering it.
func BenchmarkRequestBooks(b *testing.B) {
	l := newCappedListener(nil, 8)
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	l.connState(near, http.StateNew)
	var g gate
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	b.ReportAllocs()
	for b.Loop() {
		l.connState(near, http.StateActive)
		g.pass(w, r, nothing)
		l.connState(near, http.StateIdle)
	}
}
