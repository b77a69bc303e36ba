package provider

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// Properties reads a file of Java's properties: key=value, key: value or key value, # and ! for comments, a backslash
// at the end of a line to go on in the next, and escapes.
func Properties(text string) map[string]string {
	out := make(map[string]string)
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		line := trimFront(lines[i])
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line += trimFront(lines[i])
		}
		end := keyEnd(line)
		key, value := line[:end], trimFront(line[end:])
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = trimFront(value[1:])
		}
		out[unescape(key)] = unescape(value)
	}
	return out
}

func trimFront(s string) string { return strings.TrimLeft(s, " \t\f") }

// continues says whether a line ends with an odd number of backslashes.
func continues(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// keyEnd is where the key of a line ends.
func keyEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			r, size := unescapeUnits(s[i-1:])
			out.WriteString(r)
			i += size - 2
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// unescapeUnits reads \uXXXX, or two of them that make one character, and says how long that is.
func unescapeUnits(s string) (text string, size int) {
	unit := func(s string) (rune, bool) {
		if len(s) < 6 || s[:2] != `\u` {
			return 0, false
		}
		n, err := strconv.ParseUint(s[2:6], 16, 16)
		return rune(n), err == nil
	}
	first, ok := unit(s)
	if !ok {
		return "u", 2
	}
	if second, ok := unit(s[6:]); ok && utf16.IsSurrogate(first) {
		return string(utf16.DecodeRune(first, second)), 12
	}
	return string(first), 6
}
