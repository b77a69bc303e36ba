package transform

import (
	"regexp"
	"strings"
	"time"

	"errors"
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
			with := expansion(s.String("replacement"))
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

// expansion makes Java's replacement text one of Go's: there a group is $1 or ${name}, and a backslash takes the
// meaning from what follows it.
func expansion(java string) string {
	var b strings.Builder
	for i := 0; i < len(java); i++ {
		c := java[i]
		switch {
		case c == '\\' && i+1 < len(java):
			i++
			if c = java[i]; c == '$' {
				b.WriteString("$$")
			} else {
				b.WriteByte(c)
			}
		case c == '$' && i+1 < len(java) && java[i+1] >= '0' && java[i+1] <= '9':
			b.WriteString("${" + java[i+1:i+2] + "}")
			i++
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
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
