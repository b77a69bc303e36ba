package connect_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/store"
)

func TestPauseResumeAndStop(t *testing.T) {
	t.Parallel()
	l := newLab(t).gathered()
	dir := l.lines("in", 2, 10)
	l.put("c", source(dir, "out", 2))
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 10)
	before := [2]int{l.bench.started("c", 0), l.bench.started("c", 1)}

	l.change(store.SetTarget("c", store.Paused))
	l.awaitStates("c", "PAUSED", "PAUSED", "PAUSED")
	l.appendLines(filepath.Join(dir, "f0"), 10, 5)
	l.appendLines(filepath.Join(dir, "f1"), 10, 5)
	require.Never(t, func() bool {
		all, err := l.readFrom(1, "out")
		return err == nil && len(all) != 20
	}, 300*time.Millisecond, 50*time.Millisecond)
	l.change(store.SetTarget("c", store.Started))
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 15)
	require.Equal(t, before, [2]int{l.bench.started("c", 0), l.bench.started("c", 1)}, "paused tasks stay started")

	l.change(store.PutTasks("c", nil), store.SetTarget("c", store.Stopped))
	l.await("it is stopped", func() bool {
		return l.states("c", 0)[0] == "STOPPED" && l.bench.stopped("c", 0) >= 1 && l.bench.stopped("c", 1) >= 1
	})
	l.appendLines(filepath.Join(dir, "f0"), 15, 5)
	l.appendLines(filepath.Join(dir, "f1"), 15, 5)
	l.change(store.SetTarget("c", store.Started))
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 20)
	require.Equal(t, 2, l.bench.started("c", 0))
}

func TestAConnectorThatIsPausedFromTheStartHasNoTasks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	props := source(l.lines("in", 2, 10), "out", 2)
	props["name"] = "c"
	l.change(store.PutConnector("c", props), store.SetTarget("c", store.Paused))
	l.awaitStates("c", "PAUSED")
	require.Empty(t, l.store.Configs().Connectors["c"].Tasks)
	l.change(store.SetTarget("c", store.Started))
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 10)
}

func TestRestartRequestsMoveWhatTheyName(t *testing.T) {
	t.Parallel()
	l := newLab(t).gathered()
	dir := l.lines("in", 3, 10)
	l.put("c", source(dir, "out", 3, "millrace.auto.restart=false"))
	l.awaitStates("c", running(3)...)
	l.change(store.RequestTaskRestart("c", 1))
	l.await("the task starts again", func() bool { return l.bench.started("c", 1) >= 2 })
	l.awaitStates("c", running(3)...)
	require.Equal(t, 1, l.bench.started("c", 0))
	asked := l.bench.ask("c")
	l.change(store.RequestRestart("c", store.Restart{}))
	l.await("the connector starts again", func() bool { return l.bench.ask("c") > asked })
	l.awaitStates("c", running(3)...)
	require.Equal(t, [3]int{1, 2, 1}, [3]int{l.bench.started("c", 0), l.bench.started("c", 1), l.bench.started("c", 2)})

	l.appendText(filepath.Join(dir, "f2"), "fail\n")
	l.awaitStates("c", "RUNNING", "RUNNING", "RUNNING", "FAILED")
	require.Contains(t, l.store.TaskStatuses("c")[2].Trace, "line 10 of f2 cannot be read")
	l.change(store.RequestRestart("c", store.Restart{IncludeTasks: true, OnlyFailed: true}))
	l.await("the failed task starts again", func() bool { return l.bench.started("c", 2) >= 2 })
	l.awaitStates("c", "RUNNING", "RUNNING", "RUNNING", "FAILED")
	require.Equal(t, [3]int{1, 2, 2}, [3]int{l.bench.started("c", 0), l.bench.started("c", 1), l.bench.started("c", 2)})
	l.change(store.RequestRestart("c", store.Restart{IncludeTasks: true}))
	l.await("all start again", func() bool {
		return l.bench.started("c", 0) >= 2 && l.bench.started("c", 1) >= 3 && l.bench.started("c", 2) >= 3
	})
}

func TestWhatFailedStartsAgainAfterEverLongerTimes(t *testing.T) {
	t.Parallel()
	l := newLab(t, "connect.restart.backoff.ms=50", "connect.restart.backoff.max.ms=400").gathered()
	l.bench.set(func() { l.bench.fault = errors.New("the outside is not there") })
	l.put("c", source(l.lines("in", 1, 10), "out", 1))
	l.awaitFault("the outside is not there", l.task("c", 0))
	l.await("it starts again and again", func() bool { return l.bench.started("c", 0) >= 6 })
	times := l.bench.times("c/0")
	require.Less(t, times[1].Sub(times[0]), 20*time.Second)
	require.Greater(t, times[5].Sub(times[4]), 300*time.Millisecond, "of at least four fifths of 400 ms")
	l.bench.set(func() { l.bench.fault = nil })
	l.awaitStates("c", running(1)...)
	l.checkOnce("out", 1, 10)
}

func TestAConnectorThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	props := source(l.lines("in", 1, 10), "out", 1, "connector.fault=no such host")
	l.put("c", props)
	l.awaitStates("c", "FAILED")
	l.awaitFault("no such host", l.connector("c"))
	delete(props, "connector.fault")
	l.put("c", props)
	l.awaitStates("c", running(1)...)
	props["connector.class"] = "test.NoSuchConnector"
	l.put("c", props)
	l.awaitFault("test.NoSuchConnector", l.connector("c"))
}

func TestOnlyWhatChangedStartsAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t).gathered()
	dir := l.lines("in", 2, 10)
	props := source(dir, "out", 4)
	l.put("c", props)
	l.put("other", source(l.lines("in2", 1, 10), "out2", 1))
	l.awaitStates("c", running(2)...)
	l.awaitStates("other", running(1)...)

	offset, asked := l.store.Configs().Connectors["c"].TasksOffset, l.bench.ask("c")
	l.bench.reconfigure("c")
	l.await("it is asked", func() bool { return l.bench.ask("c") > asked })
	require.Never(t, func() bool {
		return l.bench.started("c", 0) > 1 || l.store.Configs().Connectors["c"].TasksOffset != offset
	}, 300*time.Millisecond, 50*time.Millisecond, "its tasks are what they were")

	l.appendLines(filepath.Join(dir, "f2"), 0, 10)
	l.bench.reconfigure("c")
	l.awaitStates("c", running(3)...)
	l.checkOnce("out", 3, 10)
	require.Equal(t, 1, l.bench.started("other", 0))

	l.put("c", source(dir, "out", 1))
	l.awaitStates("c", running(1)...)
	l.checkOnce("out", 3, 10)
	require.Equal(t, 1, l.bench.started("other", 0))

	l.change(store.DeleteConnector("c"))
	l.awaitGone("c")
	l.awaitStates("other", running(1)...)
}

func TestSecretsAreResolvedAndNeverStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLab(t, "connect.config.providers.file.allowed.paths="+dir)
	file := filepath.Join(dir, "secrets.properties")
	l.appendText(file, "password=hush\n")
	reference := "${file:" + file + ":password}"
	l.put("c", source(l.lines("in", 1, 10), "out", 1, "secret="+reference))
	l.awaitStates("c", running(1)...)
	tasks := l.store.Configs().Connectors["c"].Tasks
	require.Equal(t, reference, tasks[0]["secret"])
	require.Equal(t, reference, tasks[0]["copy"])
	require.Equal(t, "hush", l.bench.last("c/0")["secret"])
	require.Equal(t, "hush", l.bench.last("c/0")["copy"])
	l.bench.set(func() { l.bench.fault = errors.New("cannot log in with hush") })
	l.change(store.RequestTaskRestart("c", 0))
	l.await("it says why it fails, without the secret", func() bool {
		st := l.task("c", 0)()
		require.NotContains(t, st.Trace, "hush")
		return st.State == "FAILED" && st.Trace == "start the source: cannot log in with "+reference
	})
	l.put("c", source(l.lines("in", 1, 0), "out", 1, "secret=${file:/etc/passwd:root}"))
	l.await("it fails", func() bool { return l.states("c", 0)[0] == "FAILED" })
}

func TestATaskThatHangsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	l := newLab(t, "connect.task.shutdown.graceful.timeout.ms=300").gathered()
	dir := l.lines("in", 1, 10)
	l.put("c", source(dir, "out", 1))
	l.awaitStates("c", running(1)...)
	l.checkOnce("out", 1, 10)
	l.bench.set(func() { l.bench.hang = true })
	l.change(store.RequestTaskRestart("c", 0))
	l.await("it starts again beside the one that hangs", func() bool {
		return l.bench.started("c", 0) >= 2
	})
	l.awaitStates("c", running(1)...)
	l.appendLines(filepath.Join(dir, "f0"), 10, 10)
	l.checkOnce("out", 1, 20)
	l.put("d", source(l.lines("in2", 1, 10), "out2", 1))
	l.awaitStates("d", running(1)...)
	l.bench.release()
}

func TestIncompleteTasksAreMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.put("c", source(l.lines("in", 2, 10), "out", 2))
	l.awaitStates("c", running(2)...)
	before := l.store.Configs().Connectors["c"].TasksOffset
	l.breakTasks("c", 3)
	l.await("there is a whole set again", func() bool {
		c := l.store.Configs().Connectors["c"]
		return !c.Inconsistent && len(c.Tasks) == 2 && c.TasksOffset > before
	})
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 10)
}

func TestManyConnectors(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var names []string
	dir := l.lines("in", 2, 20)
	for i := range 20 {
		name := fmt.Sprintf("c%d", i)
		names = append(names, name)
		l.put(name, source(dir, "out-"+name, 2))
	}
	began := time.Now()
	for _, name := range names {
		l.awaitStates(name, running(2)...)
	}
	t.Logf("all run after %s", time.Since(began))
	l.await("all is balanced", func() bool {
		connectors, tasks := l.owners(names...)
		return balanced(connectors, 3, 20) && balanced(tasks, 3, 40)
	})
	for _, name := range slices.Backward(names) {
		l.checkOnce("out-"+name, 2, 20)
	}
}

// Who stops a connector and resumes it at once may be seen to have done nothing but taken its tasks away.
func TestTasksThatWereTakenAwayAreMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.lines("in", 2, 10)
	l.put("c", source(dir, "out", 2))
	l.awaitStates("c", running(2)...)
	l.change(store.PutTasks("c", nil), store.SetTarget("c", store.Started))
	l.await("it has tasks again", func() bool {
		c := l.store.Configs().Connectors["c"]
		return len(c.Tasks) == 2 && c.FencedOffset > c.TasksOffset
	})
	l.appendLines(filepath.Join(dir, "f0"), 10, 5)
	l.appendLines(filepath.Join(dir, "f1"), 10, 5)
	l.awaitStates("c", running(2)...)
	l.checkOnce("out", 2, 15)
}

// What a worker says of a task that another one runs by now does not stay.
func TestWhoRunsATaskSaysWhatItIs(t *testing.T) {
	t.Parallel()
	l := newLab(t).gathered()
	l.put("c", source(l.lines("in", 1, 10), "out", 1))
	l.awaitStates("c", running(1)...)
	worker := l.store.TaskStatuses("c")[0].WorkerID
	late := store.Status{State: "FAILED", Trace: "it was late", WorkerID: "late:1"}
	require.NoError(t, l.store.PutTaskStatus(t.Context(), "c", 0, late, false))
	require.NoError(t, l.store.PutConnectorStatus(t.Context(), "c", late, false))
	l.await("it is put right", func() bool { return l.store.TaskStatuses("c")[0].WorkerID == worker })
	l.awaitStates("c", running(1)...)

	// The worker itself may have taken what it runs for lost, when it led and the late one was not in the group.
	lost := l.task("c", 0)()
	lost.State = "UNASSIGNED"
	require.NoError(t, l.store.PutTaskStatus(t.Context(), "c", 0, lost, false))
	require.NoError(t, l.store.Fresh(t.Context()))
	l.awaitStates("c", running(1)...)
	require.NoError(t, l.store.ForgetTaskStatus(t.Context(), "c", 0))
	l.awaitStates("c", running(1)...)
}

// Tasks do not start before the transactions of those before them have ended, which takes as long as a partition has no
// leader. Their status says so meanwhile, and the connector does what it is told.
func TestTasksWaitForTheTransactionsOfThoseBefore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.put("c", source(l.lines("in", 2, 10), "out", 2))
	l.awaitStates("c", running(2)...)
	l.open.Store(true)
	l.put("c", source(l.lines("in2", 2, 10), "out2", 2))
	l.awaitStates("c", "RUNNING", "UNASSIGNED", "UNASSIGNED")
	for n := range 2 {
		l.await("it says why it does not start", func() bool {
			return l.task("c", n)().Trace == "it starts when the transactions of the tasks before it have ended"
		})
	}
	l.change(store.SetTarget("c", store.Paused))
	l.awaitStates("c", "PAUSED", "UNASSIGNED", "UNASSIGNED")
	l.change(store.SetTarget("c", store.Started))
	l.open.Store(false)
	l.awaitStates("c", running(2)...)
	l.checkOnce("out2", 2, 10)
}
