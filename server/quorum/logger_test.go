package quorum

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

// newTestLogger returns a logger from that level on, and what it writes, without the times.
func newTestLogger(level slog.Level) (hclog.Logger, *bytes.Buffer) {
	b := new(bytes.Buffer)
	return newLogger(slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))), b
}

func TestLogLevelsAreLowered(t *testing.T) {
	l, b := newTestLogger(slog.LevelDebug - 4)
	l.Trace("t")
	l.Debug("d")
	l.Info("i")
	l.Warn("w")
	l.Error("e")
	require.Equal(t, []string{
		`level=DEBUG-4 msg="raft: t"`, `level=DEBUG-4 msg="raft: d"`, `level=DEBUG msg="raft: i"`,
		`level=INFO msg="raft: w"`, `level=ERROR msg="raft: e"`,
	}, strings.Split(strings.TrimSpace(b.String()), "\n"))
	require.True(t, l.IsTrace() && l.IsDebug() && l.IsInfo() && l.IsWarn() && l.IsError())
	require.Equal(t, hclog.Trace, l.GetLevel())

	l, b = newTestLogger(slog.LevelInfo)
	l.Info("i")
	require.Empty(t, b.String())
	require.Equal(t, hclog.Warn, l.GetLevel())
	l, _ = newTestLogger(slog.LevelError)
	require.Equal(t, hclog.Error, l.GetLevel())
}

func TestLogArguments(t *testing.T) {
	l, b := newTestLogger(slog.LevelError)
	l = l.Named("net").With("node", 1)
	l.SetLevel(hclog.Off)
	l.Error("broke", "error", "why", "peer", hclog.Fmt("%d-%d", 1, 2))
	require.Equal(t, "level=ERROR msg=\"raft.net: broke\" node=1 err=why peer=1-2\n", b.String())
	require.Equal(t, "raft.net", l.Name())
	require.Equal(t, []any{"node", 1}, l.ImpliedArgs())
}

func TestLogOfOtherLibraries(t *testing.T) {
	l, b := newTestLogger(slog.LevelDebug)
	l.StandardLogger(nil).Print("hello")
	require.Equal(t, "level=DEBUG msg=hello\n", b.String())
}
