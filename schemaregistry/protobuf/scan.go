package protobuf

import (
	"strings"

	"millrace/schemaregistry/schema"
)

// What a map costs the compiler beyond its words: it makes a message of each. A reserved name is looked up among all
// others.
const (
	mapWeight      = 12
	reservedWeight = 4
)

// budget is what one call may still spend on texts. The compiler recurses and never stops by itself, so nothing reaches
// it that has not been weighed.
type budget struct {
	limits Limits
	tokens int // of all texts so far
}

// spend weighs a text: its bytes, its words and marks, and how deep its brackets go.
func (b *budget) spend(text string) error {
	if len(text) > b.limits.TextBytes {
		return schema.Invalid("the text has %d bytes, more than the %d allowed", len(text), b.limits.TextBytes)
	}
	tokens, at, depth := weigh(text)
	if depth > b.limits.Depth {
		return schema.Invalid("%s: brackets are nested deeper than %d levels", place(text, at), b.limits.Depth)
	}
	b.tokens += tokens
	if tokens > b.limits.Tokens {
		return schema.Invalid("the text is too large: it weighs %d words, more than the %d allowed", tokens, b.limits.Tokens)
	}
	if b.tokens > b.limits.AllTokens {
		return schema.Invalid("the text and its imports are too large: they weigh more than %d words", b.limits.AllTokens)
	}
	return nil
}

// weigh counts words, marks and strings, and finds the greatest depth of brackets and where it is reached.
func weigh(text string) (tokens, deepest, most int) {
	depth, reserved := 0, false
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c <= ' ':
			i++
			continue
		case c == '/' && strings.HasPrefix(text[i:], "//"):
			i += indexOr(text[i:], "\n", len(text)-i)
			continue
		case c == '/' && strings.HasPrefix(text[i:], "/*"):
			i += 2 + indexOr(text[i+2:], "*/", len(text)-i-2)
			i = min(i+2, len(text))
			continue
		case c == '"' || c == '\'':
			i = endOfString(text, i)
			if reserved {
				tokens += reservedWeight
			}
		case isWord(c):
			start := i
			for i < len(text) && isWord(text[i]) {
				i++
			}
			switch text[start:i] {
			case "map":
				tokens += mapWeight
			case "reserved":
				reserved = true
			}
			if reserved {
				tokens += reservedWeight
			}
		default:
			i++
			switch c {
			case '{', '[', '(', '<':
				depth++
				if depth > most {
					most, deepest = depth, i-1
				}
			case '}', ']', ')', '>':
				depth = max(depth-1, 0)
			case ';':
				reserved = false
			}
		}
		tokens++
	}
	return tokens, deepest, most
}

func indexOr(s, sub string, otherwise int) int {
	if i := strings.Index(s, sub); i >= 0 {
		return i
	}
	return otherwise
}

// endOfString is the place after the string that starts at i.
func endOfString[T string | []byte](text T, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote, '\n':
			return i + 1
		}
	}
	return len(text)
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
