package connectors

import (
	"net/http"
	"strconv"

	"millrace/connect"
	"millrace/connect/store"
)

// GetConnectorStatus tells the state of a connector.
func (a *API) GetConnectorStatus(w http.ResponseWriter, r *http.Request, name string) {
	status, err := a.worker.Status(r.Context(), name)
	a.answer(w, r, status, err)
}

// RestartConnector restarts a connector. By itself it is done with that; what else is restarted is told.
func (a *API) RestartConnector(w http.ResponseWriter, r *http.Request, name string, p RestartConnectorParams) {
	ask := store.Restart{IncludeTasks: is(p.IncludeTasks), OnlyFailed: is(p.OnlyFailed)}
	status, err := a.worker.Restart(r.Context(), name, ask)
	if err != nil || !ask.IncludeTasks && !ask.OnlyFailed {
		a.done(w, r, http.StatusNoContent, err)
		return
	}
	a.answerAs(w, r, http.StatusAccepted, status, nil)
}

// is reports whether a boolean parameter is there and true.
func is(p *bool) bool { return p != nil && *p }

// PauseConnector pauses a connector.
func (a *API) PauseConnector(w http.ResponseWriter, r *http.Request, name string) {
	a.done(w, r, http.StatusAccepted, a.worker.Pause(r.Context(), name))
}

// ResumeConnector resumes a connector.
func (a *API) ResumeConnector(w http.ResponseWriter, r *http.Request, name string) {
	a.done(w, r, http.StatusAccepted, a.worker.Resume(r.Context(), name))
}

// StopConnector stops a connector.
func (a *API) StopConnector(w http.ResponseWriter, r *http.Request, name string) {
	a.done(w, r, http.StatusNoContent, a.worker.Stop(r.Context(), name))
}

// ListConnectorTasks tells what the tasks of a connector are.
func (a *API) ListConnectorTasks(w http.ResponseWriter, r *http.Request, name string) {
	tasks, err := a.worker.Tasks(r.Context(), name)
	if tasks == nil {
		tasks = []connect.TaskInfo{}
	}
	a.answer(w, r, tasks, err)
}

// GetConnectorTasksConfig tells the configs of the tasks of a connector, in the form of earlier versions of Connect.
func (a *API) GetConnectorTasksConfig(w http.ResponseWriter, r *http.Request, name string) {
	tasks, err := a.worker.Tasks(r.Context(), name)
	out := make(map[string]map[string]string, len(tasks))
	for _, t := range tasks {
		out[t.ID.Connector+"-"+strconv.Itoa(t.ID.Task)] = t.Config
	}
	a.answer(w, r, out, err)
}

// GetConnectorTaskStatus tells the state of a task.
func (a *API) GetConnectorTaskStatus(w http.ResponseWriter, r *http.Request, name string, task int32) {
	status, err := a.worker.TaskStatus(r.Context(), name, int(task))
	a.answer(w, r, status, err)
}

// RestartConnectorTask restarts a task.
func (a *API) RestartConnectorTask(w http.ResponseWriter, r *http.Request, name string, task int32) {
	a.done(w, r, http.StatusNoContent, a.worker.RestartTask(r.Context(), name, int(task)))
}
