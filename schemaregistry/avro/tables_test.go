package avro_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// entry is an entry of a file of test cases: a name behind "===", then lines of a word and a text each. Lines that
// begin with '#' are headings.
type entry struct {
	heading, name string
	lines         [][2]string
}

// first is the text of the first line with a word.
func (e *entry) first(word string) string {
	return strings.Join(e.all(word)[:min(1, len(e.all(word)))], "")
}

// all are the texts of all lines with a word.
func (e *entry) all(word string) []string {
	var list []string
	for _, l := range e.lines {
		if l[0] == word {
			list = append(list, l[1])
		}
	}
	return list
}

func entries(t testing.TB, path string) []entry {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var list []entry
	heading := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "# "):
			heading = line[2:]
		case strings.HasPrefix(line, "=== "):
			list = append(list, entry{heading: heading, name: line[4:]})
		case line != "":
			word, text, _ := strings.Cut(line, " ")
			e := &list[len(list)-1]
			e.lines = append(e.lines, [2]string{word, strings.TrimLeft(text, " ")})
		}
	}
	return list
}

func readLines(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), err
}
