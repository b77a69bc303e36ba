package protobuf

import (
	"strings"

	"millrace/schemaregistry/schema"
)

// What some words cost the compiler beyond themselves: a map makes a message, an import or a name that is reserved is
// looked for among all others, an option in parentheses is read anew for each mention, a oneof looks at all fields, of
// which each that is optional makes one.
const (
	mapWeight      = 12
	importWeight   = 50
	reservedWeight = 10
	oneofWeight    = 10
	extendedWeight = 15
	bracketWeight  = 4  // of fields' options and of messages within options
	longWord       = 16 // bytes that weigh as much as a word
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
		return schema.Invalid("the text is too large: it weighs %d words, more than the %d allowed", tokens,
			b.limits.Tokens)
	}
	if b.tokens > b.limits.AllTokens {
		return schema.Invalid("the text and its imports are too large: they weigh more than %d words",
			b.limits.AllTokens)
	}
	return nil
}

// scale is where weighing a text stands.
type scale struct {
	text     string
	at       int
	tokens   int
	depth    int
	most     int // the greatest depth
	deepest  int // where it is reached
	dots     int // in the name at hand
	reserved bool
	proto3   bool
}

// weigh counts words, marks and strings, and finds the greatest depth of brackets and where it is reached.
func weigh(text string) (tokens, deepest, most int) {
	s := scale{text: text, proto3: strings.Contains(text, "proto3")}
	for s.at < len(text) {
		s.token()
	}
	return s.tokens, s.deepest, s.most
}

func (s *scale) token() {
	rest := s.text[s.at:]
	c := rest[0]
	switch {
	case c <= ' ':
		s.at++
	case c == '/' && strings.HasPrefix(rest, "//"):
		s.at += indexOr(rest, "\n", len(rest))
	case c == '/' && strings.HasPrefix(rest, "/*"):
		s.at = min(s.at+4+indexOr(rest[2:], "*/", len(rest)), len(s.text))
	case c == '"' || c == '\'':
		s.at = endOfString(s.text, s.at)
		s.tokens++
		if s.reserved {
			s.tokens += reservedWeight
		}
	case isWord(c):
		n := 1
		for n < len(rest) && isWord(rest[n]) {
			n++
		}
		s.at += n
		s.word(rest[:n])
	default:
		s.at++
		s.mark(c)
	}
}

func (s *scale) word(w string) {
	s.tokens += 1 + len(w)/longWord
	switch w {
	case "map":
		s.tokens += mapWeight
	case "import":
		s.tokens += importWeight
	case "oneof":
		s.tokens += oneofWeight
	case "optional":
		if s.proto3 {
			s.tokens += oneofWeight
		}
	case "reserved":
		s.reserved = true
	}
	if s.reserved {
		s.tokens += reservedWeight
	}
}

func (s *scale) mark(c byte) {
	s.tokens++
	if c == '.' { // names in many parts are put together again and again
		s.dots++
		s.tokens += s.dots / 4
		return
	}
	s.dots = 0
	switch c {
	case '{', '[', '(', '<':
		s.depth++
		if s.depth > s.most {
			s.most, s.deepest = s.depth, s.at-1
		}
		s.tokens += bracketWeight
		if c == '(' {
			s.tokens += extendedWeight
		}
	case '}', ']', ')', '>':
		s.depth = max(s.depth-1, 0)
	case ';':
		s.reserved = false
	}
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
