package postgres

import (
	"errors"
	"strings"
)

// MaxName is how many bytes of a name the server keeps.
const MaxName = 63

// Quote quotes an identifier.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteLiteral makes a text a constant of a statement, in a session where a backslash is none but itself (see Session).
func QuoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// QuoteTable quotes the name of a table; without a schema, the session's search path finds it.
func QuoteTable(schema, table string) string {
	if schema == "" {
		return Quote(table)
	}
	return Quote(schema) + "." + Quote(table)
}

var errName = errors.New("it is no name of a table: table, schema.table, or either part in double quotes")

// ParseName splits the name of a table at a dot outside quotes. Case is kept, quoted or not; the schema is "" where the
// name has none.
func ParseName(s string) (schema, table string, err error) {
	var parts []string
	for rest := s; ; {
		part, after, err := namePart(rest)
		if err != nil {
			return "", "", err
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		if after[0] != '.' {
			return "", "", errName
		}
		rest = after[1:]
	}
	switch len(parts) {
	case 1:
		return "", parts[0], nil
	case 2:
		return parts[0], parts[1], nil
	}
	return "", "", errName
}

// namePart takes one part off the front of a name.
func namePart(s string) (part, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, `."`)
		if end < 0 {
			end = len(s)
		}
		if end == 0 || strings.ContainsRune(s[:end], 0) {
			return "", "", errName
		}
		return s[:end], s[end:], nil
	}
	b := strings.Builder{}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '"':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == '"':
			b.WriteByte('"')
			i++
		case b.Len() == 0:
			return "", "", errName
		default:
			return b.String(), s[i+1:], nil
		}
	}
	return "", "", errName
}
