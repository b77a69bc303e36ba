package restv3

import "bytes"

// seeker finds where the object that begins a buffer ends, going on where it stopped when more of it
// has come. It knows strings and brackets only; whether the object is JSON is the parser's question.
type seeker struct {
	seeking bool
	whole   bool // the end was found
	quoted  bool // pos lies within a string
	pos     int  // up to where the object was looked at; it may lie one past what has come
	depth   int
}

// find reports whether the object is whole.
func (s *seeker) find(data []byte) bool {
	s.seeking = true
	for !s.whole && s.pos < len(data) {
		if s.quoted {
			s.skipString(data)
			continue
		}
		switch data[s.pos] {
		case '"':
			s.quoted = true
		case '{', '[':
			s.depth++
		case '}', ']':
			s.depth--
		}
		s.pos++
		s.whole = s.depth <= 0
	}
	return s.whole
}

// skipString moves behind the string's closing quote, or to the end of what has come.
func (s *seeker) skipString(data []byte) {
	i := bytes.IndexAny(data[s.pos:], `"\`)
	if i < 0 {
		s.pos = len(data)
		return
	}
	s.pos += i
	if data[s.pos] == '\\' {
		s.pos += 2
		return
	}
	s.quoted = false
	s.pos++
}
