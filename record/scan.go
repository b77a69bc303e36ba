package record

import "io"

const (
	// headBytes is the most that a record takes up to and with its key's length.
	headBytes = 5 + 1 + 10 + 5 + 5
	// lengthBytes is the most that a length or a count takes.
	lengthBytes = 5
	// windowBytes is how much of an expanded stream is at hand at a time.
	windowBytes = 32 << 10
)

// head is what a leader looks at in a record.
type head struct {
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
}

// scan walks over encoded records without looking at keys and values. Records that are not
// compressed are walked in place, others through a window on the stream that expands them, so that
// the memory does not depend on what they expand to.
type scan struct {
	win  []byte   // at hand, not yet walked over
	src  *decoder // where more comes from, nil: nowhere
	err  error    // why src gave no more: a bound or corruption
	left int      // bytes of the current record not yet walked over
}

// next walks over one record. False: it is malformed or cut short, or src failed.
func (s *scan) next(h *head) bool {
	s.need(headBytes)
	p := s.win
	size, n := varint32(p)
	if n == 0 || size < 0 || len(p) <= n {
		return false
	}
	p = p[n+1:] // and the attributes, of which none are defined
	before := len(p)
	if h.timestampDelta, n = varint64(p); n == 0 {
		return false
	}
	p = p[n:]
	if h.offsetDelta, n = varint32(p); n == 0 {
		return false
	}
	s.win = p[n:]
	s.left = int(size) - 1 - (before - len(s.win))
	key, ok := s.field()
	h.nullKey = key < 0
	if !ok {
		return false
	}
	if _, ok = s.field(); !ok {
		return false
	}
	return s.headers() && s.left == 0
}

// headers walks over a record's headers.
func (s *scan) headers() bool {
	count, ok := s.length()
	if !ok || count < 0 || int(count) > s.left/2 { // the smallest header takes two bytes
		return false
	}
	for range count {
		if key, ok := s.field(); !ok || key < 0 {
			return false
		}
		if _, ok := s.field(); !ok {
			return false
		}
	}
	return true
}

// field walks over a length and so many bytes; the length is -1 for null.
func (s *scan) field() (size int32, ok bool) {
	size, ok = s.length()
	if !ok || size < -1 || int(size) > s.left {
		return size, false
	}
	if size <= 0 {
		return size, true
	}
	s.left -= int(size)
	if int(size) <= len(s.win) {
		s.win = s.win[size:]
		return size, true
	}
	return size, s.discard(int(size))
}

// length reads a length or a count.
func (s *scan) length() (v int32, ok bool) {
	s.need(lengthBytes)
	v, n := varint32(s.win)
	s.win = s.win[n:]
	s.left -= n
	return v, n > 0 && s.left >= 0
}

// need has n bytes at hand, or all that are left.
func (s *scan) need(n int) {
	if len(s.win) < n && s.src != nil {
		s.fill(n)
	}
}

// fill is need's slow part.
func (s *scan) fill(n int) {
	if s.src.window == nil {
		s.src.window = make([]byte, windowBytes)
	}
	window := s.src.window
	have := copy(window, s.win)
	for have < n && s.src != nil {
		got, err := s.src.Read(window[have:])
		have += got
		s.ended(err)
	}
	s.win = window[:have]
}

// ended notes that src has no more.
func (s *scan) ended(err error) {
	if err == nil {
		return
	}
	s.src = nil
	if err != io.EOF {
		s.err = err
	}
}

// discard walks over n bytes that are more than is at hand.
func (s *scan) discard(n int) bool {
	n -= len(s.win)
	s.win = nil
	for n > 0 && s.src != nil {
		got, err := s.src.Read(s.src.window)
		s.win = s.src.window[:got]
		s.ended(err)
		skip := min(n, got)
		s.win = s.win[skip:]
		n -= skip
	}
	return n == 0
}

// end says whether all bytes were walked over.
func (s *scan) end() bool {
	s.need(1)
	return len(s.win) == 0 && s.err == nil
}
