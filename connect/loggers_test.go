package connect_test

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect"
)

// A logger lets pass what its own level says, or the nearest above it, whatever the handler would have taken.
func TestLoggersHaveLevels(t *testing.T) {
	var out bytes.Buffer
	base := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})
	l := connect.NewLoggers(base, func() time.Time { return time.UnixMilli(7) })
	a, ab := l.Logger("a"), l.Logger("a.b").With("k", "v").WithGroup("g")
	says := func(log *slog.Logger, at slog.Level) bool {
		out.Reset()
		log.Log(t.Context(), at, "said", "x", 1)
		return strings.Contains(out.String(), "said")
	}
	require.False(t, says(ab, slog.LevelInfo))
	require.True(t, says(ab, slog.LevelWarn))
	require.Contains(t, out.String(), "k=v g.x=1")
	level, ok := l.Level("root")
	require.True(t, ok)
	require.Equal(t, connect.LoggerLevel{Level: "WARN"}, level)

	changed, err := l.Set("a", "Debug")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a.b"}, changed)
	require.True(t, says(a, slog.LevelDebug))
	require.True(t, says(ab, slog.LevelDebug))
	require.False(t, says(l.Logger("ab"), slog.LevelDebug), "of which a is not above")
	require.False(t, says(a, slog.LevelDebug-4))
	level, _ = l.Level("a.b")
	require.Equal(t, int64(7), *level.LastModified)

	_, err = l.Set("a.b", "off")
	require.NoError(t, err)
	require.False(t, says(ab, slog.LevelError))
	require.True(t, says(a, slog.LevelDebug))
	_, err = l.Set("root", "trace")
	require.NoError(t, err)
	require.True(t, says(ab, slog.LevelDebug-4), "root is above all, and set last")
	_, err = l.Set("root", "ALL")
	require.NoError(t, err)
	require.True(t, says(a, math.MinInt))
	for _, name := range []string{"OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"} {
		_, err = l.Set("a", name)
		require.NoError(t, err)
		level, _ = l.Level("a")
		require.Equal(t, name, level.Level)
	}
}

// There are not endlessly many loggers, and their names are not endless.
func TestLoggersAreBounded(t *testing.T) {
	l := connect.NewLoggers(slog.DiscardHandler, time.Now)
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = l.Set(strings.Repeat("x", n%100+1)+string(rune('a'+n/100)), "INFO")
		require.Less(t, n, 2000)
	}
	require.Equal(t, 1000, n-1)
	_, err = l.Set("root", "INFO")
	require.NoError(t, err)
	_, err = connect.NewLoggers(slog.DiscardHandler, time.Now).Set(strings.Repeat("x", 201), "INFO")
	require.Error(t, err)
}

// Levels may be set while others log.
func TestLoggersAreSafe(t *testing.T) {
	l := connect.NewLoggers(slog.DiscardHandler, time.Now)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "a.b", "root", "c"} {
		wg.Go(func() {
			log := l.Logger(name)
			for range 100 {
				_, _ = l.Set(name, "DEBUG")
				log.Debug("x")
				l.List()
			}
		})
	}
	wg.Wait()
	level, ok := l.Level("a.b")
	require.True(t, ok)
	require.Equal(t, "DEBUG", level.Level)
}
