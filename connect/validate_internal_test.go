package connect

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

// Who looks at the outside takes turns, and whoever cannot wait for one is told to come again.
func TestLooksTakeTurns(t *testing.T) {
	asked := 0
	class := &plugin.Class{New: func() plugin.Connector { return validator(func() { asked++ }) }}
	w := &Worker{checks: make(chan struct{}, 1)}
	problems, err := w.look(t.Context(), class, map[string]string{"a": "b"})
	require.NoError(t, err)
	require.Equal(t, []plugin.Problem{{Key: "a", Message: "b"}}, problems)
	require.Empty(t, w.checks, "the turn is given back")

	w.checks <- struct{}{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.look(gone, class, nil)
	var refused *Error
	require.True(t, errors.As(err, &refused))
	require.Equal(t, unavailable, refused.Status)
	require.Equal(t, 1, asked)
}

// validator tells its settings as problems.
type validator func()

func (v validator) Validate(_ context.Context, props map[string]string) (out []plugin.Problem) {
	v()
	for key, value := range props {
		out = append(out, plugin.Problem{Key: key, Message: value})
	}
	return out
}

func (validator) Start(context.Context, map[string]string, plugin.ConnectorContext) error { return nil }
func (validator) TaskConfigs(context.Context, int) ([]map[string]string, error)           { return nil, nil }
func (validator) Stop(context.Context) error                                              { return nil }
func (validator) NewSource() plugin.SourceTask                                            { return nil }
func (validator) NewSink() plugin.SinkTask                                                { return nil }

func (validator) AlterOffsets(context.Context, map[string]string, []plugin.Offset) (bool, error) {
	return false, nil
}
