package quorum

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logger passes what the raft library logs to slog, one level lower but for errors: what the
// library finds worth a warning, an election, is an operator's information, and its information is
// for whoever debugs it.
type logger struct {
	slog *slog.Logger
	name string
	args []any
}

func newLogger(s *slog.Logger) hclog.Logger {
	if s == nil {
		s = slog.New(slog.DiscardHandler)
	}
	return logger{slog: s, name: "raft"}
}

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelInfo
	case hclog.Info:
		return slog.LevelDebug
	default:
		return slog.LevelDebug - 4
	}
}

// aboutPeers tells what raft calls an error again and again as long as another node does not answer; Streams says so
// once a minute.
func aboutPeers(msg string) bool {
	for _, about := range []string{
		"failed to make requestVote", "failed to start pipeline", "failed to appendEntries", "failed to pipeline",
		"failed to send snapshot", "failed to heartbeat", "failed to decode incoming", "failed to flush response",
	} {
		if strings.HasPrefix(msg, about) {
			return true
		}
	}
	return false
}

// again tells what raft says of elections as long as a node waits for a majority: that one more begins. Only the first
// one after a leader was lost is news.
func again(msg string, args []any) bool {
	if strings.HasPrefix(msg, "heartbeat timeout reached, starting election") {
		i := slices.Index(args, any("last-leader-id"))
		return i >= 0 && i+1 < len(args) && fmt.Sprint(args[i+1]) == ""
	}
	return strings.HasPrefix(msg, "Election timeout reached")
}

// Log implements hclog.Logger.
func (l logger) Log(level hclog.Level, msg string, args ...any) {
	if level == hclog.Error && aboutPeers(msg) || level == hclog.Warn && again(msg, args) {
		level = hclog.Info
	}
	if !l.slog.Enabled(context.Background(), slogLevel(level)) {
		return
	}
	attrs := make([]any, 0, len(args))
	for i, arg := range args {
		if i%2 == 0 && arg == "error" {
			arg = "err"
		}
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			arg = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		attrs = append(attrs, arg)
	}
	l.slog.Log(context.Background(), slogLevel(level), l.name+": "+msg, attrs...)
}

// Trace implements hclog.Logger.
func (l logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l logger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l logger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l logger) enabled(level hclog.Level) bool {
	return l.slog.Enabled(context.Background(), slogLevel(level))
}

// IsTrace implements hclog.Logger.
func (l logger) IsTrace() bool { return l.enabled(hclog.Trace) }

// IsDebug implements hclog.Logger.
func (l logger) IsDebug() bool { return l.enabled(hclog.Debug) }

// IsInfo implements hclog.Logger.
func (l logger) IsInfo() bool { return l.enabled(hclog.Info) }

// IsWarn implements hclog.Logger.
func (l logger) IsWarn() bool { return l.enabled(hclog.Warn) }

// IsError implements hclog.Logger.
func (l logger) IsError() bool { return l.enabled(hclog.Error) }

// ImpliedArgs implements hclog.Logger.
func (l logger) ImpliedArgs() []any { return l.args }

// With implements hclog.Logger.
func (l logger) With(args ...any) hclog.Logger {
	all := append(append([]any(nil), l.args...), args...)
	return logger{slog: l.slog.With(args...), name: l.name, args: all}
}

// Name implements hclog.Logger.
func (l logger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l logger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

// ResetNamed implements hclog.Logger.
func (l logger) ResetNamed(name string) hclog.Logger {
	l.name = name
	return l
}

// SetLevel implements hclog.Logger; the level is that of the slog handler.
func (l logger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l logger) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if l.enabled(level) {
			return level
		}
	}
	return hclog.Error
}

// StandardLogger implements hclog.Logger.
func (l logger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(l.slog.Handler(), slog.LevelDebug).Writer()
}
