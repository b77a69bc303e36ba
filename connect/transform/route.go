package transform

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

func regexRouterClass() class {
	pattern := required("regex", plugin.String, "A regular expression that matches the whole name of a topic.")
	pattern.Check = isPattern
	return class{
		name: kafka + "RegexRouter",
		defs: plugin.Defs{pattern, required("replacement", plugin.String, "The new name; $1 is the first group.")},
		make: func(_ part, s plugin.Settings) (plugin.Transform, error) {
			p, err := whole(s.String("regex"))
			if err != nil {
				return nil, err
			}
			with, err := expansion(s.String("replacement"), p)
			if err != nil {
				return nil, fmt.Errorf("replacement: %w", err)
			}
			return func1(func(r *data.Record) (*data.Record, error) {
				r.Topic = reroute(p, with, r.Topic)
				return r, nil
			}), nil
		},
	}
}

// reroute is what a name becomes by an expression: itself where that does not match.
func reroute(p *regexp.Regexp, with, name string) string {
	at := p.FindStringSubmatchIndex(name)
	if at == nil {
		return name
	}
	return string(p.ExpandString(nil, with, name, at))
}

// expansion makes Java's replacement text for an expression one of Go's: there a group is $1 or ${name}, and a
// backslash takes the meaning from what follows it.
func expansion(java string, p *regexp.Regexp) (string, error) {
	var b strings.Builder
	for i := 0; i < len(java); i++ {
		switch c := java[i]; {
		case c == '\\' && i+1 == len(java):
			return "", errors.New("nothing follows the backslash at the end")
		case c == '\\':
			i++
			b.WriteString(strings.ReplaceAll(java[i:i+1], "$", "$$"))
		case c == '$':
			group, size, err := javaGroup(java[i+1:], p)
			if err != nil {
				return "", err
			}
			b.WriteString("${" + group + "}")
			i += size
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// javaGroup reads what follows a $: {name}, or as many digits as name a group that there is.
func javaGroup(text string, p *regexp.Regexp) (group string, size int, err error) {
	if name, _, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}"); ok && text[0] == '{' {
		if !slices.Contains(p.SubexpNames()[1:], name) || name == "" {
			return "", 0, fmt.Errorf("the expression has no group %q", name)
		}
		return name, len(name) + 2, nil
	}
	n := 0
	for size < len(text) && text[size] >= '0' && text[size] <= '9' {
		next := 10*n + int(text[size]-'0')
		if next > p.NumSubexp() && size > 0 {
			break
		}
		n, size = next, size+1
	}
	switch {
	case size == 0:
		return "", 0, errors.New("$ is followed by neither a number nor a {name}; a backslash before it makes it text")
	case n > p.NumSubexp():
		return "", 0, fmt.Errorf("the expression has no group %d", n)
	}
	return strconv.Itoa(n), size, nil
}

func timestampRouterClass() class {
	format := def("timestamp.format", plugin.String, "yyyyMMdd",
		"How ${timestamp} is written: a pattern of Java's SimpleDateFormat, in UTC.")
	format.Check = isJavaPattern
	return class{
		name: kafka + "TimestampRouter",
		defs: plugin.Defs{
			def("topic.format", plugin.String, "${topic}-${timestamp}",
				"The new name; ${topic} and ${timestamp} are replaced."), format,
		},
		make: func(_ part, s plugin.Settings) (plugin.Transform, error) {
			topic, format := s.String("topic.format"), s.String("timestamp.format")
			p, err := parseJavaPattern(format)
			if err != nil {
				return nil, err
			}
			return func1(func(r *data.Record) (*data.Record, error) {
				if r.Timestamp == data.NoTimestamp {
					return nil, errors.New("TimestampRouter: the record has no timestamp")
				}
				at := p.format(time.UnixMilli(r.Timestamp).UTC())
				r.Topic = strings.NewReplacer("${topic}", r.Topic, "${timestamp}", at).Replace(topic)
				return r, nil
			}), nil
		},
	}
}
