package connect

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"millrace/connect/store"
)

// mostRedone is how often a change of a config is made anew because somebody else has changed it meanwhile.
const mostRedone = 5

// errRedo has a change be made anew.
var errRedo = errors.New("the config has changed meanwhile")

// Create makes a connector. The initial state is RUNNING, PAUSED or STOPPED, whatever the case; "" is RUNNING.
func (w *Worker) Create(ctx context.Context, name string, props map[string]string, initial string) (
	*ConnectorInfo, error,
) {
	name = strings.TrimSpace(name)
	target, err := targetOf(initial)
	if err != nil {
		return nil, err
	}
	absent := func(all *store.Configs) error {
		if all.Connectors[name] != nil {
			return refuse(conflict, "There is a connector %.300q already.", name)
		}
		return nil
	}
	all, err := w.fresh(ctx)
	if err == nil {
		err = absent(all)
	}
	if err != nil {
		return nil, err
	}
	whole, _, err := w.checkConfig(ctx, name, props, nil)
	if err != nil {
		return nil, err
	}
	all, err = w.update(ctx, func(now *store.Configs) ([]store.Change, error) {
		return []store.Change{store.PutConnector(name, whole), store.SetTarget(name, target)}, absent(now)
	})
	if err != nil {
		return nil, err
	}
	return w.infoIn(all, name, whole), nil
}

// targetOf is the target state for an initial state.
func targetOf(initial string) (store.State, error) {
	switch strings.ToUpper(strings.TrimSpace(initial)) {
	case "", stateRunning:
		return store.Started, nil
	case statePaused:
		return store.Paused, nil
	case stateStopped:
		return store.Stopped, nil
	}
	return "", refuse(badRequest, "The initial state is RUNNING, PAUSED or STOPPED, and not %.100q.", initial)
}

// infoIn is what a connector is after a change. Somebody may have deleted it since.
func (w *Worker) infoIn(all *store.Configs, name string, whole map[string]string) *ConnectorInfo {
	c := all.Connectors[name]
	if c == nil {
		c = &store.Connector{Name: name, Props: whole}
	}
	return w.info(c)
}

// PutConfig makes a connector, or replaces its config. One that is as it was already changes nothing. A masked password
// stands for the one that is stored.
func (w *Worker) PutConfig(ctx context.Context, name string, props map[string]string) (
	info *ConnectorInfo, created bool, err error,
) {
	name = strings.TrimSpace(name)
	for range mostRedone {
		all, err := w.fresh(ctx)
		if err != nil {
			return nil, false, err
		}
		c := all.Connectors[name]
		if info, err = w.replace(ctx, name, props, c); !errors.Is(err, errRedo) {
			return info, err == nil && c == nil, err
		}
	}
	return nil, false, tooBusy(name)
}

// PatchConfig changes some settings of a connector; a nil value removes one.
func (w *Worker) PatchConfig(ctx context.Context, name string, changes map[string]*string) (*ConnectorInfo, error) {
	for range mostRedone {
		c, err := w.connector(ctx, name)
		if err != nil {
			return nil, err
		}
		props := maps.Clone(c.Props)
		for key, value := range changes {
			if value == nil {
				delete(props, key)
			} else {
				props[key] = *value
			}
		}
		if info, err := w.replace(ctx, name, props, c); !errors.Is(err, errRedo) {
			return info, err
		}
	}
	return nil, tooBusy(name)
}

func tooBusy(name string) error {
	return refuse(conflict, "The config of %.300q is being changed by others: nothing was changed; try again.", name)
}

// replace replaces the config of a connector, nil if there is none, that was read before: errRedo, if it has changed
// since then.
func (w *Worker) replace(ctx context.Context, name string, props map[string]string, c *store.Connector) (
	*ConnectorInfo, error,
) {
	var stored map[string]string
	if c != nil {
		stored = c.Props
		named := maps.Clone(props)
		if _, ok := named[nameKey]; !ok {
			named[nameKey] = name
		}
		if whole, _ := w.unmask(named, stored); maps.Equal(whole, stored) {
			return w.info(c), nil
		}
	}
	whole, _, err := w.checkConfig(ctx, name, props, stored)
	if err != nil {
		return nil, err
	}
	all, err := w.update(ctx, func(now *store.Configs) ([]store.Change, error) {
		switch cur := now.Connectors[name]; {
		case (cur == nil) != (c == nil), c != nil && cur.Offset != c.Offset:
			return nil, errRedo
		case c == nil:
			return []store.Change{store.PutConnector(name, whole), store.SetTarget(name, store.Started)}, nil
		}
		return []store.Change{store.PutConnector(name, whole)}, nil
	})
	if err != nil {
		return nil, err
	}
	return w.infoIn(all, name, whole), nil
}

// lastRites bounds what is done for a connector that is deleted already.
const lastRites = 5 * time.Second

// Delete deletes a connector. Its offsets stay: a source of the same name goes on from there.
func (w *Worker) Delete(ctx context.Context, name string) error {
	var gone *store.Connector
	_, err := w.update(ctx, func(now *store.Configs) (_ []store.Change, err error) {
		gone, err = known(now, name)
		return []store.Change{store.DeleteConnector(name)}, err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lastRites)
	defer cancel()
	if w.isSource(gone) {
		// A later connector of the name may have fewer tasks, which would not end all that these could still write.
		if err := w.herd.runner.Fence(ctx, name, max(gone.Fenced, len(gone.Tasks))); err != nil {
			w.log.Warn("tasks of a deleted connector may still write for a moment", "connector", name, "err", err)
		}
	}
	if err := w.forget(ctx, name); err != nil {
		w.log.Warn("the status of a deleted connector is still there", "connector", name, "err", err)
	}
	return nil
}

// forget forgets what was said of a connector, unless there is one again.
func (w *Worker) forget(ctx context.Context, name string) error {
	all, err := w.fresh(ctx)
	if err != nil || all.Connectors[name] != nil {
		return err
	}
	return w.store.ForgetStatus(ctx, name)
}
