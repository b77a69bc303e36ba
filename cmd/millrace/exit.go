package main

import (
	"context"
	"errors"
	"fmt"
)

// exitCode is what a script sees. The values are part of the command's contract: they are listed in `millrace
// --help` and in README.md, and never change their meaning.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFailed      exitCode = 1   // the request was refused, or a file could not be read or written
	exitUsage       exitCode = 2   // wrong flags, arguments or settings; nothing was tried
	exitNotFound    exitCode = 3   // no such topic, partition, schema, connector or path
	exitUnreachable exitCode = 4   // no node answered at the URL; nothing was done
	exitUnknown     exitCode = 5   // the request may or may not have taken effect
	exitDamaged     exitCode = 6   // `log dump` or `log verify` found damage
	exitInterrupted exitCode = 130 // stopped by a signal before the work was done
)

const exitHelp = `Exit codes:
  0    done
  1    refused by the server, or a local file could not be read or written
  2    wrong flags, arguments or settings; nothing was tried
  3    no such topic, partition, schema, connector or path
  4    no node answers at the URL; nothing was done
  5    unknown: the request may or may not have taken effect
  6    log dump or log verify found damage
  130  stopped by a signal before the work was done`

// failure is an error with the exit code it ends the command with.
type failure struct {
	code exitCode
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(code exitCode, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

// codeOf chooses the exit code of an error that ended a command.
func codeOf(err error) exitCode {
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitFailed
	}
}

// endsAll says whether nothing else that was asked for makes sense either.
func (e exitCode) endsAll() bool { return e == exitInterrupted || e == exitUnreachable }

// each does something to all that are named, whatever becomes of one of them, and says of which it failed. The exit
// code is that of the first. An interrupt, or that no node answers, ends it at once.
func (c *cli) each(what string, names []string, do func(name string) error) error {
	var first error
	failures := 0
	for _, name := range names {
		err := do(name)
		switch code := codeOf(err); {
		case err == nil:
			continue
		case len(names) == 1, code.endsAll():
			return err
		}
		fmt.Fprintf(c.err, "millrace: %s %s: %v\n", what, name, err)
		if failures++; failures == 1 {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	return failf(codeOf(first), "%d of %s failed", failures, plural(len(names), what))
}

// finish reports the error that ended the command, once, and returns its exit code.
func (c *cli) finish(err error) int {
	code := codeOf(err)
	switch {
	case err == nil:
	case code == exitInterrupted:
		fmt.Fprintln(c.err, "millrace: interrupted")
	default:
		fmt.Fprintf(c.err, "millrace: %v\n", err)
	}
	return int(code)
}
