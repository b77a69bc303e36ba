package connect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect"
	"millrace/connect/plugin"
	"millrace/connect/store"
)

// A connector's life, asked of one node after the other.
func TestConnectorsFromEveryNode(t *testing.T) {
	d := newDesk(t, 3, nil)
	ctx := t.Context()
	names, err := d.ask().Connectors(ctx)
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = d.ask().Info(ctx, "a/ü %")
	refused(t, err, 404, "a/ü %")

	info, err := d.ask().Create(ctx, " a/ü % ", idleProps(idleSource), "")
	require.NoError(t, err)
	want := idleProps(idleSource, "name=a/ü %")
	require.Equal(t, &connect.ConnectorInfo{Name: "a/ü %", Config: want, Tasks: []connect.TaskID{}, Type: "source"}, info)
	_, err = d.ask().Create(ctx, "a/ü %", idleProps(idleSource), "")
	refused(t, err, 409, "already")
	_, err = d.ask().Create(ctx, "b", idleProps(idleSource, "name=c"), "")
	refused(t, err, 400, "")
	_, err = d.ask().Create(ctx, "b", map[string]string{}, "")
	refused(t, err, 400, "connector.class")
	_, err = d.ask().Create(ctx, "b", idleProps(idleSource, "bad=rotten"), "")
	refused(t, err, 400, "1 error")
	_, err = d.ask().Create(ctx, "b", idleProps(idleSource), "dancing")
	refused(t, err, 400, "dancing")
	for _, initial := range []string{"stopped", "PAUSED", "Running"} {
		_, err = d.ask().Create(ctx, "b-"+initial, idleProps(idleSink, "topics=other"), initial)
		require.NoError(t, err)
	}
	d.awaitStates("b-stopped", "STOPPED")
	d.awaitStates("b-PAUSED", "PAUSED")
	d.awaitStates("b-Running", "RUNNING", "RUNNING", "RUNNING")
	d.awaitStates("a/ü %", "RUNNING", "RUNNING", "RUNNING")
	names, err = d.ask().Connectors(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"a/ü %", "b-PAUSED", "b-Running", "b-stopped"}, names)
	all, err := d.ask().Describe(ctx)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, "sink", all["b-stopped"].Info.Type)
	d.await("it is told that it runs", func() bool {
		all, err := d.ask().Describe(ctx)
		return err == nil && all["a/ü %"].Status.Connector.State == "RUNNING"
	})
	require.NoError(t, d.ask().Delete(ctx, "a/ü %"))
	_, err = d.ask().Status(ctx, "a/ü %")
	refused(t, err, 404, "")
	refused(t, d.ask().Delete(ctx, "a/ü %"), 404, "")
}

// Targets and restarts, asked of one node after the other.
func TestStatesFromEveryNode(t *testing.T) {
	d := newDesk(t, 3, nil)
	ctx := t.Context()
	_, err := d.ask().Create(ctx, "a/ü %", idleProps(idleSource), "")
	require.NoError(t, err)
	d.awaitStates("a/ü %", "RUNNING", "RUNNING", "RUNNING")
	tasks, err := d.ask().Tasks(ctx, "a/ü %")
	require.NoError(t, err)
	require.Len(t, tasks, 2)
	require.Equal(t, connect.TaskID{Connector: "a/ü %", Task: 1}, tasks[1].ID)
	require.Equal(t, "1", tasks[1].Config["number"])
	d.await("the task runs", func() bool {
		task, err := d.ask().TaskStatus(ctx, "a/ü %", 1)
		return err == nil && task.State == "RUNNING"
	})
	_, err = d.ask().TaskStatus(ctx, "a/ü %", 2)
	refused(t, err, 404, "no task 2")
	refused(t, d.ask().RestartTask(ctx, "a/ü %", -1), 404, "no task")
	require.NoError(t, d.ask().RestartTask(ctx, "a/ü %", 0))
	refused(t, d.ask().Pause(ctx, "none"), 404, "none")

	require.NoError(t, d.ask().Pause(ctx, "a/ü %"))
	d.awaitStates("a/ü %", "PAUSED", "PAUSED", "PAUSED")
	require.NoError(t, d.ask().Stop(ctx, "a/ü %"))
	info, err := d.ask().Info(ctx, "a/ü %")
	require.NoError(t, err)
	require.Empty(t, info.Tasks)
	d.awaitStates("a/ü %", "STOPPED")
	require.NoError(t, d.ask().Resume(ctx, "a/ü %"))
	d.awaitStates("a/ü %", "RUNNING", "RUNNING", "RUNNING")

	var before, now int
	d.set(func() { before = d.started })
	st, err := d.ask().Restart(ctx, "a/ü %", store.Restart{IncludeTasks: true})
	require.NoError(t, err)
	require.Equal(t, "RESTARTING", st.Connector.State)
	require.Equal(t, "RESTARTING", st.Tasks[1].State)
	d.await("both tasks start", func() bool {
		d.set(func() { now = d.started })
		return now >= before+2
	})
	// What is said of a restart may be written a little later.
	d.await("nothing is restarted of what has not failed", func() bool {
		st, err = d.ask().Restart(ctx, "a/ü %", store.Restart{IncludeTasks: true, OnlyFailed: true})
		return err == nil && st.Connector.State == "RUNNING" && st.Tasks[0].State == "RUNNING"
	})
	d.await("tasks are not restarted with their connector", func() bool {
		st, err = d.ask().Restart(ctx, "a/ü %", store.Restart{})
		return err == nil && st.Connector.State == "RESTARTING" && st.Tasks[0].State == "RUNNING"
	})
}

// While a node dies that leads topics of connectors, whoever asks others is told the truth or that it cannot be told
// now.
func TestOperationsWhileANodeDies(t *testing.T) {
	d := newDesk(t, 3, nil)
	ctx := t.Context()
	for _, class := range []string{idleSource, idleSink} {
		_, err := d.ask().Create(ctx, class, idleProps(class, "topics=out"), "stopped")
		require.NoError(t, err)
	}
	d.awaitStates(idleSource, "STOPPED")
	require.NoError(t, d.ask().Pause(ctx, idleSink))
	topic, err := d.client.Renew(ctx, "connect-configs")
	require.NoError(t, err)
	leader := int(topic.Partitions[0].Leader)
	var left []*connect.Worker
	for i, w := range d.workers {
		if i+1 != leader {
			left = append(left, w)
		}
	}
	require.NoError(t, d.nodes.Node(leader).Kill())
	states := []func(*connect.Worker) error{
		func(w *connect.Worker) error { return w.Pause(ctx, idleSink) },
		func(w *connect.Worker) error { return w.Resume(ctx, idleSink) },
		func(w *connect.Worker) error { _, err := w.Status(ctx, idleSink); return err },
		func(w *connect.Worker) error { _, err := w.Offsets(ctx, idleSource); return err },
		func(w *connect.Worker) error { _, err := w.Offsets(ctx, idleSink); return err },
		func(w *connect.Worker) error {
			_, _, err := w.PutConfig(ctx, idleSink, idleProps(idleSink))
			return err
		},
		func(w *connect.Worker) error {
			_, err := w.AlterOffsets(ctx, idleSource, []plugin.Offset{sourceOffset("a", int64(1))})
			return err
		},
	}
	done := 0
	for began := time.Now(); done < 3*len(states); {
		require.Less(t, time.Since(began), patience)
		for i, do := range states {
			err := do(left[(done+i)%2])
			var fault *connect.Error
			if err == nil {
				done++
				continue
			}
			require.ErrorAs(t, err, &fault)
			require.Contains(t, []int{409, 503}, fault.Status, "operation %d: %s", i, fault.Message)
		}
	}
}
