package connect

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// atLeast checks that a number, which it is, is not below one.
func atLeast(least int64) func(string) error {
	return func(v string) error {
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil && n < least {
			return fmt.Errorf("it must be at least %d", least)
		}
		return nil
	}
}

// between checks that a number, which it is, is in a range.
func between(least, most int64) func(string) error {
	return func(v string) error {
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil && n > most {
			return fmt.Errorf("it must be at most %d", most)
		}
		return atLeast(least)(v)
	}
}

// replicas and partitions check counts of which -1 is the broker's own.
func replicas(v string) error   { return countOrDefault(v, 1<<15-1) }
func partitions(v string) error { return countOrDefault(v, 1<<31-1) }

func countOrDefault(v string, most int64) error {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err == nil && n != -1 && (n < 1 || n > most) {
		return fmt.Errorf("it must be -1 or between 1 and %d", most)
	}
	return nil
}

// elements are the elements of a list.
func elements(v string) (out []string) {
	for e := range strings.SplitSeq(v, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// mostAliases bounds a list of names that have settings of their own.
const mostAliases = 100

func checkAliases(v string) error {
	seen := map[string]bool{}
	for _, alias := range elements(v) {
		if seen[alias] {
			return fmt.Errorf("the name %q is there twice", alias)
		}
		seen[alias] = true
	}
	if len(seen) > mostAliases {
		return fmt.Errorf("it may have at most %d names", mostAliases)
	}
	return nil
}

// topicNameBytes bounds the name of a topic.
const topicNameBytes = 249

func checkTopic(v string) error {
	v = strings.TrimSpace(v)
	illegal := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	switch {
	case v == "":
		return nil
	case v == "." || v == "..", len(v) > topicNameBytes, strings.ContainsFunc(v, illegal):
		return fmt.Errorf("%q cannot be the name of a topic: want up to %d letters, digits, dots, hyphens and underscores",
			v, topicNameBytes)
	}
	return nil
}

func checkTopics(v string) error {
	for _, t := range elements(v) {
		if err := checkTopic(t); err != nil {
			return err
		}
	}
	return nil
}

func checkRegex(v string) error {
	if _, err := wholeMatch(v); err != nil {
		return errors.New("it is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return nil
}

func checkRegexes(v string) error {
	for _, e := range elements(v) {
		if err := checkRegex(e); err != nil {
			return err
		}
	}
	return nil
}

// wholeMatch compiles a regular expression that must match all of a text.
func wholeMatch(expression string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(expression); err != nil { // alone, so that it is shown as it was given
		return nil, err
	}
	return regexp.Compile("^(?:" + expression + ")$")
}
