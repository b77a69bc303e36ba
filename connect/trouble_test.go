package connect_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/store"
)

// A task that tries again and again runs, and its status says what it waits for: without secrets, and as long as it
// does.
func TestStatusSaysWhatATaskWaitsFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLab(t, "connect.config.providers.file.allowed.paths="+dir).gathered()
	file := filepath.Join(dir, "secrets.properties")
	l.appendText(file, "password=hush\n")
	reference := "${file:" + file + ":password}"
	l.put("c", source(l.lines("in", 1, 10), "out", 1, "secret="+reference))
	l.awaitStates("c", running(1)...)
	is := func(state, trace string) func() bool {
		return func() bool {
			st := l.store.TaskStatuses("c")[0]
			return st.State == state && st.Trace == trace
		}
	}
	l.bench.set(func() { l.bench.away = errors.New("nobody opens to hush") })
	why := "it is tried again: read the source: nobody opens to " + reference
	l.await("the status says why nothing is read", is("RUNNING", why))
	l.change(store.SetTarget("c", store.Paused))
	l.await("it is paused", is("PAUSED", ""))
	l.change(store.SetTarget("c", store.Started))
	l.await("it goes on to wait", is("RUNNING", why))
	require.Equal(t, 1, l.bench.started("c", 0))
	l.bench.set(func() { l.bench.away = nil })
	l.await("it works again", is("RUNNING", ""))
	require.Equal(t, 1, l.bench.started("c", 0))

	l.bench.set(func() { l.bench.away = errors.New("nobody is there") })
	l.await("the status says so again", is("RUNNING", "it is tried again: read the source: nobody is there"))
	l.bench.set(func() { l.bench.away = nil })
	l.change(store.RequestTaskRestart("c", 0))
	l.await("a task that starts anew waits for nothing", func() bool {
		return l.bench.started("c", 0) >= 2 && is("RUNNING", "")()
	})
}
