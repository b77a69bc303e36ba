package jsonschema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type rxOp uint8

const (
	rxEmpty rxOp = iota
	rxChar
	rxSet
	rxAny
	rxCat
	rxAlt
	rxRepeat
	rxGroup
	rxLook
	rxBack
	rxAssert
)

// rx is a part of a regular expression.
type rx struct {
	op          rxOp
	r           rune
	set         *runeSet
	subs        []*rx
	min, max    int // of rxRepeat; max -1: no end
	lazy        bool
	neg, behind bool // of rxLook
	n           int  // group or assertion
	name        string
}

const (
	maxRegexText  = 1 << 16 // bytes
	maxRegexDepth = 200     // how deep groups nest
)

// parseRegex reads a regular expression.
func parseRegex(source string) (*regex, error) {
	if len(source) > maxRegexText {
		return nil, fmt.Errorf("it has more than %d bytes", maxRegexText)
	}
	p := regexParser{s: source, re: &regex{source: source}}
	p.count()
	root, err := p.alternatives(0)
	if err == nil && p.pos < len(p.s) {
		err = p.errorf("an unmatched ')'")
	}
	if err != nil {
		return nil, err
	}
	p.re.root = root
	return p.re, p.resolve()
}

type regexParser struct {
	s      string
	pos    int
	re     *regex
	names  []string // of groups, by number from 1
	total  int      // groups in the whole source
	opened int      // groups so far
	backs  []*rx
}

func (p *regexParser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s at character %d", fmt.Sprintf(format, args...), utf8.RuneCountInString(p.s[:p.pos])+1)
}

func (p *regexParser) peek(s string) bool { return strings.HasPrefix(p.s[p.pos:], s) }

func (p *regexParser) take(s string) bool {
	if p.peek(s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *regexParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.s[p.pos:])
	p.pos += n
	return r
}

// count finds how many groups there are, as \1 may come before its group.
func (p *regexParser) count() {
	class := false
	for i := 0; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(':
			rest := p.s[i+1:]
			named := strings.HasPrefix(rest, "?<") && !strings.HasPrefix(rest, "?<=") && !strings.HasPrefix(rest, "?<!")
			if !strings.HasPrefix(rest, "?") || named {
				p.total++
			}
		}
	}
	if p.total > 0 {
		p.names = make([]string, p.total+1)
	}
	p.re.groups = p.total
}

// resolve gives back references by name their numbers.
func (p *regexParser) resolve() error {
	for _, b := range p.backs {
		if b.name == "" {
			continue
		}
		if b.n = slices.Index(p.names, b.name); b.n < 1 {
			return fmt.Errorf("there is no group %q", b.name)
		}
	}
	return nil
}

func (p *regexParser) alternatives(depth int) (*rx, error) {
	if depth > maxRegexDepth {
		return nil, p.errorf("groups nested more than %d deep", maxRegexDepth)
	}
	var subs []*rx
	for {
		s, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		subs = append(subs, s)
		if !p.take("|") {
			break
		}
	}
	if len(subs) == 1 {
		return subs[0], nil
	}
	return &rx{op: rxAlt, subs: subs}, nil
}

func (p *regexParser) sequence(depth int) (*rx, error) {
	cat := &rx{op: rxCat}
	for p.pos < len(p.s) && !p.peek("|") && !p.peek(")") {
		a, err := p.atom(depth)
		if err != nil {
			return nil, err
		}
		if a, err = p.quantified(a); err != nil {
			return nil, err
		}
		cat.subs = append(cat.subs, a)
	}
	switch len(cat.subs) {
	case 0:
		return &rx{op: rxEmpty}, nil
	case 1:
		return cat.subs[0], nil
	}
	return cat, nil
}

func (p *regexParser) quantified(a *rx) (*rx, error) {
	q := &rx{op: rxRepeat, subs: []*rx{a}, max: -1}
	switch {
	case p.take("*"):
	case p.take("+"):
		q.min = 1
	case p.take("?"):
		q.max = 1
	case p.peek("{"):
		least, most, ok := p.bounds()
		if !ok {
			return a, nil
		}
		if most >= 0 && most < least {
			return nil, p.errorf("a repetition whose bounds are the wrong way round")
		}
		q.min, q.max = least, most
	default:
		return a, nil
	}
	if a.op == rxAssert || a.op == rxLook && a.behind {
		return nil, p.errorf("nothing to repeat")
	}
	if p.take("?") {
		q.lazy = true
	} else {
		p.take("+") // Java's possessive form
	}
	return q, nil
}

// bounds takes {n}, {n,} or {n,m}. Another brace stands for itself.
func (p *regexParser) bounds() (least, most int, ok bool) {
	end := strings.IndexByte(p.s[p.pos:], '}')
	if end < 0 {
		return 0, 0, false
	}
	low, high, two := strings.Cut(p.s[p.pos+1:p.pos+end], ",")
	least, ok = repetitions(low)
	most = least
	if two {
		most = -1
		if high != "" {
			var fine bool
			most, fine = repetitions(high)
			ok = ok && fine
		}
	}
	if ok {
		p.pos += end + 1
	}
	return least, most, ok
}

func repetitions(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxProgram {
		n = maxProgram + 1 // the program will be refused
	}
	return n, true
}

func (p *regexParser) atom(depth int) (*rx, error) {
	switch r := p.rune(); r {
	case '^':
		return p.anchor(atStart, lineStart), nil
	case '$':
		return p.anchor(atEnd, lineEnd), nil
	case '.':
		return &rx{op: rxAny}, nil
	case '(':
		return p.group(depth)
	case '[':
		set, err := p.class(depth)
		return &rx{op: rxSet, set: set}, err
	case '\\':
		return p.escape()
	case '*', '+', '?':
		p.pos--
		return nil, p.errorf("nothing to repeat")
	default:
		return &rx{op: rxChar, r: r}, nil
	}
}

func (p *regexParser) anchor(whole, line assertion) *rx {
	if p.re.multi {
		return &rx{op: rxAssert, n: int(line)}
	}
	return &rx{op: rxAssert, n: int(whole)}
}

func (p *regexParser) group(depth int) (*rx, error) {
	g := &rx{op: rxGroup}
	switch {
	case p.take("?:"), p.take("?>"):
		g = nil
	case p.take("?="):
		g = &rx{op: rxLook}
	case p.take("?!"):
		g = &rx{op: rxLook, neg: true}
	case p.take("?<="):
		g = &rx{op: rxLook, behind: true}
	case p.take("?<!"):
		g = &rx{op: rxLook, behind: true, neg: true}
	case p.take("?<"):
		name, ok := p.until('>')
		if !ok || slices.Contains(p.names, name) {
			return nil, p.errorf("a group's name that is missing, not closed or not the first of its kind")
		}
		p.opened++
		g.n, p.names[p.opened] = p.opened, name
	case p.peek("?"):
		return p.flags(depth)
	default:
		p.opened++
		g.n = p.opened
	}
	body, err := p.alternatives(depth + 1)
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.errorf("a group that is not closed")
	}
	if g == nil {
		return body, nil
	}
	g.subs = []*rx{body}
	return g, nil
}

// flags takes (?i) and the like, which hold for the whole expression, or a group (?i:...), for which they hold too.
func (p *regexParser) flags(depth int) (*rx, error) {
	start := p.pos
	p.pos++
	for p.pos < len(p.s) {
		switch p.s[p.pos] {
		case 'i':
			p.re.fold = true
		case 's':
			p.re.dotAll = true
		case 'm':
			p.re.multi = true
		case 'u', 'U':
		case ')':
			p.pos++
			return &rx{op: rxEmpty}, nil
		case ':':
			p.pos++
			body, err := p.alternatives(depth + 1)
			if err == nil && !p.take(")") {
				err = p.errorf("a group that is not closed")
			}
			return body, err
		default:
			p.pos = start
			return nil, p.errorf("a group of a kind that there is not")
		}
		p.pos++
	}
	return nil, p.errorf("a group that is not closed")
}

func (p *regexParser) until(end byte) (string, bool) {
	i := strings.IndexByte(p.s[p.pos:], end)
	if i < 1 {
		return "", false
	}
	name := p.s[p.pos : p.pos+i]
	p.pos += i + 1
	return name, true
}

// escape takes what follows a backslash outside of a class.
func (p *regexParser) escape() (*rx, error) {
	if p.pos >= len(p.s) {
		return nil, p.errorf("a backslash at the end")
	}
	switch c := p.s[p.pos]; {
	case c == 'b':
		p.pos++
		return &rx{op: rxAssert, n: int(wordEdge)}, nil
	case c == 'B':
		p.pos++
		return &rx{op: rxAssert, n: int(noWordEdge)}, nil
	case c == 'A':
		p.pos++
		return &rx{op: rxAssert, n: int(atStart)}, nil
	case c == 'z' || c == 'Z':
		p.pos++
		return &rx{op: rxAssert, n: int(atEnd)}, nil
	case c >= '1' && c <= '9':
		if n := int(c - '0'); n <= p.total {
			p.pos++
			return p.back(&rx{op: rxBack, n: p.number(n)}), nil
		}
	case c == 'k' && strings.HasPrefix(p.s[p.pos:], "k<"):
		p.pos += len("k<")
		name, ok := p.until('>')
		if !ok {
			return nil, p.errorf("a back reference that is not closed")
		}
		return p.back(&rx{op: rxBack, name: name}), nil
	}
	r, set, err := p.charEscape()
	if set != nil {
		return &rx{op: rxSet, set: set}, err
	}
	return &rx{op: rxChar, r: r}, err
}

// number takes more digits while there are so many groups.
func (p *regexParser) number(n int) int {
	for p.pos < len(p.s) && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
		more := n*10 + int(p.s[p.pos]-'0')
		if more > p.total {
			break
		}
		n = more
		p.pos++
	}
	return n
}

func (p *regexParser) back(b *rx) *rx {
	p.re.refs = true
	p.backs = append(p.backs, b)
	return b
}

// charEscape takes what stands for one character or a class, within a class or not.
func (p *regexParser) charEscape() (rune, *runeSet, error) {
	switch r := p.rune(); r {
	case 'd', 'D', 'w', 'W', 's', 'S', 'h', 'H':
		return 0, namedSet(r), nil
	case 'p', 'P':
		set, err := p.property(r == 'P')
		return 0, set, err
	case 't':
		return '\t', nil, nil
	case 'n':
		return '\n', nil, nil
	case 'r':
		return '\r', nil, nil
	case 'f':
		return '\f', nil, nil
	case 'v':
		return '\v', nil, nil
	case 'e':
		return 0x1b, nil, nil
	case 'a':
		return '\a', nil, nil
	case '0':
		return 0, nil, nil
	case 'c':
		if p.pos < len(p.s) && unicode.IsLetter(rune(p.s[p.pos])) && p.s[p.pos] < utf8.RuneSelf {
			p.pos++
			return rune(p.s[p.pos-1] % 32), nil, nil
		}
		return 'c', nil, nil
	case 'x':
		return p.hex(2, 'x'), nil, nil
	case 'u':
		return p.codePoint()
	default:
		return r, nil, nil
	}
}

// hex takes so many digits; where they are not there, the letter stands for itself.
func (p *regexParser) hex(digits int, letter rune) rune {
	if p.pos+digits > len(p.s) {
		return letter
	}
	n, err := strconv.ParseUint(p.s[p.pos:p.pos+digits], 16, 32)
	if err != nil {
		return letter
	}
	p.pos += digits
	return rune(n)
}

func (p *regexParser) codePoint() (rune, *runeSet, error) {
	if p.take("{") {
		digits, ok := p.until('}')
		n, err := strconv.ParseUint(digits, 16, 32)
		if !ok || err != nil || n > unicode.MaxRune {
			return 0, nil, p.errorf("a code point that there is not")
		}
		return rune(n), nil, nil
	}
	r := p.hex(4, 'u')
	if r >= 0xd800 && r < 0xdc00 && p.peek(`\u`) {
		at := p.pos
		p.pos += 2
		if low := p.hex(4, 'u'); low >= 0xdc00 && low < 0xe000 {
			return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, nil, nil
		}
		p.pos = at
	}
	return r, nil, nil
}

func namedSet(r rune) *runeSet {
	s := &runeSet{neg: unicode.IsUpper(r)}
	switch unicode.ToLower(r) {
	case 'd':
		s.ranges = []rune{'0', '9'}
	case 'w':
		s.ranges = []rune{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}
	case 'h':
		s.ranges = []rune{'\t', '\t', ' ', ' ', 0xa0, 0xa0}
	default:
		s.ranges = []rune{'\t', '\r', ' ', ' ', 0xa0, 0xa0, 0x2028, 0x2029, 0xfeff, 0xfeff}
		s.tables = []*unicode.RangeTable{unicode.Zs}
	}
	return s
}

// class takes the rest of a class, after its bracket.
func (p *regexParser) class(depth int) (*runeSet, error) {
	if depth > maxRegexDepth {
		return nil, p.errorf("classes nested more than %d deep", maxRegexDepth)
	}
	set := &runeSet{neg: p.take("^")}
	for {
		if p.pos >= len(p.s) {
			return nil, p.errorf("a class that is not closed")
		}
		if p.take("]") {
			return set, nil
		}
		low, sub, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if sub != nil {
			set.sets = append(set.sets, sub)
			continue
		}
		high := low
		if p.peek("-") && !p.peek("-]") && p.pos+1 < len(p.s) {
			p.pos++
			if high, sub, err = p.classItem(); err != nil {
				return nil, err
			}
			if sub != nil {
				set.ranges = append(set.ranges, low, low, '-', '-')
				set.sets = append(set.sets, sub)
				continue
			}
			if high < low {
				return nil, p.errorf("a range whose ends are the wrong way round")
			}
		}
		set.ranges = append(set.ranges, low, high)
	}
}

func (p *regexParser) classItem() (rune, *runeSet, error) {
	r := p.rune()
	if r != '\\' {
		return r, nil, nil
	}
	if p.pos >= len(p.s) {
		return 0, nil, p.errorf("a backslash at the end")
	}
	if p.take("b") {
		return '\b', nil, nil
	}
	return p.charEscape()
}

// property takes {Name} after \p, or one letter.
func (p *regexParser) property(neg bool) (*runeSet, error) {
	name := ""
	if p.take("{") {
		var ok bool
		if name, ok = p.until('}'); !ok {
			return nil, p.errorf("a property of characters that is not closed")
		}
	} else if p.pos < len(p.s) {
		name = string(p.rune())
	}
	set := &runeSet{neg: neg}
	if strings.HasPrefix(name, "^") {
		set.neg, name = !neg, name[1:]
	}
	if _, after, ok := strings.Cut(name, "="); ok {
		name = after
	}
	name = strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):]
	if !set.addProperty(name) && !set.addProperty(strings.TrimPrefix(name, "Is")) &&
		!set.addProperty(strings.TrimPrefix(name, "In")) {
		return nil, p.errorf("%q, which is no property of characters that is known here,", name)
	}
	return set, nil
}

func (s *runeSet) addProperty(name string) bool {
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		if t := tables[name]; t != nil {
			s.tables = append(s.tables, t)
			return true
		}
	}
	switch name {
	case "Any", "All":
		s.ranges = []rune{0, unicode.MaxRune}
	case "ASCII":
		s.ranges = []rune{0, 0x7f}
	case "Alpha", "Alphabetic", "Letter":
		s.tables = []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic}
	case "Digit", "Decimal_Number":
		s.tables = []*unicode.RangeTable{unicode.Nd}
	case "Number":
		s.tables = []*unicode.RangeTable{unicode.N}
	case "Alnum":
		s.tables = []*unicode.RangeTable{unicode.L, unicode.Nd}
	case "Upper", "Uppercase", "Uppercase_Letter":
		s.tables = []*unicode.RangeTable{unicode.Lu, unicode.Other_Uppercase}
	case "Lower", "Lowercase", "Lowercase_Letter":
		s.tables = []*unicode.RangeTable{unicode.Ll, unicode.Other_Lowercase}
	case "Punct", "Punctuation":
		s.tables = []*unicode.RangeTable{unicode.P}
	case "Symbol":
		s.tables = []*unicode.RangeTable{unicode.S}
	case "Mark":
		s.tables = []*unicode.RangeTable{unicode.M}
	case "Space", "White_Space", "Separator":
		s.tables = []*unicode.RangeTable{unicode.White_Space}
	case "XDigit":
		s.ranges = []rune{'0', '9', 'A', 'F', 'a', 'f'}
	case "Cntrl":
		s.tables = []*unicode.RangeTable{unicode.Cc}
	default:
		return false
	}
	return true
}
