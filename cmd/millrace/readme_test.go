package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is one command of the README's tour and what it says comes back.
type step struct {
	line    int
	command string
	want    string
}

// tour reads the fenced blocks marked console: a line that begins with $ is a command, which goes on while lines end
// in a backslash; what follows is its output.
func tour(t *testing.T) []step {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	var steps []step
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
		case strings.HasSuffix(steps[len(steps)-1].command, `\`) && steps[len(steps)-1].want == "":
			steps[len(steps)-1].command += "\n" + line
		default:
			steps[len(steps)-1].want += line + "\n"
		}
	}
	return steps
}

// Every command of the tour does what the README shows, at one node and then at the three of `millrace dev`. In the
// expected output ... stands for anything within a line, such as a time or an id.
func TestTour(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("the tour is written with curl: install it")
	}
	p := serve(t, t.TempDir())
	ports := []string{"127.0.0.1:8082", strings.TrimPrefix(p.url, "http://")}
	steps := tour(t)
	require.Greater(t, len(steps), 10)
	dir := t.TempDir()
	for _, s := range steps {
		switch {
		case strings.HasPrefix(s.command, "git clone"), strings.HasPrefix(s.command, "make "):
			continue // what a fresh machine does first; the build is tested where it is called
		case s.command == "bin/millrace dev":
			first := freePorts(t, devNodes)
			p, ports = startDev(t, first, t.TempDir()), nil
			for i := range devNodes {
				ports = append(ports, fmt.Sprint("127.0.0.1:", 8082+i), fmt.Sprint("127.0.0.1:", first+i))
			}
			continue // it runs on
		}
		command := strings.NewReplacer(append(ports, "bin/millrace", "millrace")...).Replace(patient(s.command))
		command = strings.ReplaceAll(command, "auto_offset_reset=earliest'", "auto_offset_reset=earliest"+longWait+"'")
		run := func(command string) string {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MILLRACE_URL=" + p.url}
			out, _ := cmd.CombinedOutput() // some commands of the tour show an error
			return strings.ReplaceAll(string(out), ports[1], ports[0])
		}
		got := run(command)
		if slow := strings.Replace(command, "curl -sNm1 ", "curl -sNm30 ", 1); slow != command && !matches(s.want, got) {
			got = run(slow) // which cuts a stream off later
		}
		if !matches(s.want, got) {
			t.Errorf("README.md:%d: $ %s\nwant:\n%s\ngot:\n%s", s.line, s.command, s.want, got)
		}
	}
}

// matches compares output with what was written down, where ... stands for anything within a line.
func matches(want, got string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(want))
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, `[^\n]*`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(got))
}
