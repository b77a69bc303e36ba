package cdc

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
)

// The connection that exports the slot's view may end before the view is taken over: another try makes another view.
func TestViewEndsBeforeItIsTaken(t *testing.T) {
	s := pgtest.Start(t)
	url := s.Database(t)
	at := time.Now()
	k := Class().New().NewSource().(*task)
	require.NoError(t, k.Start(t.Context(), map[string]string{"database.hostname": "h", "database.user": "u",
		"database.dbname": "d", "topic.prefix": "p"}, plugin.SourceContext{
		TaskContext: plugin.TaskContext{Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return at },
			Metrics: prometheus.NewRegistry(), Trouble: func(error) {}},
		Offset: func(context.Context, map[string]any) (map[string]any, error) { return nil, nil },
	}))
	err := importView(t.Context(), s.Connect(t, url), "00000003-00000002-1")
	require.ErrorIs(t, err, errViewEnded)
	require.NoError(t, k.recover(err), "it is tried again")
	require.True(t, k.next.After(at))
	require.Error(t, k.recover(errors.New("another")))
}
