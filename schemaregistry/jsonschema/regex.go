package jsonschema

import (
	"errors"
	"unicode"
	"unicode/utf8"
)

// regex is a regular expression of ECMA-262, which JSON Schema prescribes, with what Java adds and schemas use: flags
// such as (?i) in front, \A and \z. It is matched by a program whose steps are counted, so that no pattern costs more
// than its caller grants; where it has no back reference it takes no more steps than program times text.
type regex struct {
	source string
	root   *rx
	groups int
	refs   bool // has back references
	fold   bool // letters match in either case
	dotAll bool
	multi  bool // ^ and $ match at lines
}

var (
	errRegexSize  = errors.New("its repetitions make it too large")
	errRegexSteps = errors.New("it takes too many steps")
)

// maxProgram is the most instructions of a program: repetitions are written out.
const maxProgram = 20_000

type opcode uint8

const (
	opMatch opcode = iota
	opChar
	opSet
	opAny
	opSplit // x is tried first, then y
	opJump
	opSave   // the place goes into register n
	opMoved  // fails where the place is still that of register n
	opAssert // n is what to look for
	opLook   // the program at x must or must not match here; y goes on
	opBack   // what group n took comes again
	opRun    // one character of a kind comes x to y times
)

type assertion int

const (
	atStart assertion = iota
	atEnd
	lineStart
	lineEnd
	wordEdge
	noWordEdge
)

type inst struct {
	op     opcode
	neg    bool   // of opLook
	behind bool   // of opLook
	lazy   bool   // of opRun
	one    opcode // of opRun: opChar, opSet or opAny
	r      rune
	set    *runeSet
	n      int
	x, y   int
}

type program struct {
	code      []inst
	registers int
	memo      bool // whether a place and an instruction that failed together always fail
	fold      bool
	dotAll    bool
}

// compile writes the program.
func (re *regex) compile() (*program, error) {
	c := regexCompiler{re: re, prog: &program{
		registers: 2 * (re.groups + 1), memo: !re.refs, fold: re.fold, dotAll: re.dotAll,
	}}
	c.emit(re.root)
	c.add(inst{op: opMatch})
	if c.full {
		return nil, errRegexSize
	}
	return c.prog, nil
}

type regexCompiler struct {
	re   *regex
	prog *program
	full bool
}

func (c *regexCompiler) add(i inst) int {
	if len(c.prog.code) >= maxProgram {
		c.full = true
		return 0
	}
	c.prog.code = append(c.prog.code, i)
	return len(c.prog.code) - 1
}

func (c *regexCompiler) here() int { return len(c.prog.code) }

func (c *regexCompiler) emit(x *rx) {
	if c.full {
		return
	}
	switch x.op {
	case rxEmpty:
	case rxChar:
		c.add(inst{op: opChar, r: x.r})
	case rxSet:
		c.add(inst{op: opSet, set: x.set})
	case rxAny:
		c.add(inst{op: opAny})
	case rxCat:
		for _, s := range x.subs {
			c.emit(s)
		}
	case rxAlt:
		c.emitAlt(x.subs)
	case rxRepeat:
		c.emitRepeat(x)
	case rxGroup:
		c.save(2 * x.n)
		c.emit(x.subs[0])
		c.save(2*x.n + 1)
	case rxLook:
		at := c.add(inst{op: opLook, neg: x.neg, behind: x.behind})
		c.emit(x.subs[0])
		c.add(inst{op: opMatch})
		c.prog.code[at].x, c.prog.code[at].y = at+1, c.here()
	case rxBack:
		c.add(inst{op: opBack, n: x.n})
	case rxAssert:
		c.add(inst{op: opAssert, n: x.n})
	}
}

// save keeps a place for a back reference; without any there is no need.
func (c *regexCompiler) save(n int) {
	if c.re.refs {
		c.add(inst{op: opSave, n: n})
	}
}

func (c *regexCompiler) emitAlt(subs []*rx) {
	var ends []int
	for i, s := range subs {
		if i == len(subs)-1 {
			c.emit(s)
			break
		}
		split := c.add(inst{op: opSplit})
		c.prog.code[split].x = c.here()
		c.emit(s)
		ends = append(ends, c.add(inst{op: opJump}))
		if c.full {
			return
		}
		c.prog.code[split].y = c.here()
	}
	for _, e := range ends {
		c.prog.code[e].x = c.here()
	}
}

func (c *regexCompiler) emitRepeat(x *rx) {
	body := x.subs[0]
	if body.op == rxEmpty {
		return
	}
	if one, ok := single(body); ok && x.max > 1 {
		c.add(inst{op: opRun, one: one, r: body.r, set: body.set, x: x.min, y: x.max, lazy: x.lazy})
		return
	}
	for range x.min {
		before := c.here()
		if c.emit(body); c.full {
			return
		}
		if c.here() == before { // however often nothing is repeated
			return
		}
	}
	if x.max < 0 {
		c.emitLoop(body, x.lazy)
		return
	}
	var splits []int
	for range x.max - x.min {
		splits = append(splits, c.add(inst{op: opSplit}))
		before := c.here()
		if c.emit(body); c.full {
			return
		}
		if c.here() == before {
			break
		}
	}
	for _, s := range splits {
		c.prog.code[s].x, c.prog.code[s].y = s+1, c.here()
		if x.lazy {
			c.prog.code[s].x, c.prog.code[s].y = c.here(), s+1
		}
	}
}

// single is the instruction of an expression that takes exactly one character.
func single(x *rx) (opcode, bool) {
	switch x.op {
	case rxChar:
		return opChar, true
	case rxSet:
		return opSet, true
	case rxAny:
		return opAny, true
	}
	return 0, false
}

func (c *regexCompiler) emitLoop(body *rx, lazy bool) {
	split := c.add(inst{op: opSplit})
	register := c.prog.registers
	c.prog.registers++
	c.add(inst{op: opSave, n: register})
	c.emit(body)
	c.add(inst{op: opMoved, n: register})
	c.add(inst{op: opJump, x: split})
	if c.full {
		return
	}
	c.prog.code[split].x, c.prog.code[split].y = split+1, c.here()
	if lazy {
		c.prog.code[split].x, c.prog.code[split].y = c.here(), split+1
	}
}

// match says whether the text holds a match anywhere. Each step is taken from steps.
func (p *program) match(s string, steps *int) (bool, error) {
	m := machine{prog: p, s: s, steps: steps, registers: make([]int, p.registers)}
	for i := range m.registers {
		m.registers[i] = -1
	}
	const most = 1 << 25
	if size := len(p.code) * (len(s) + 1); p.memo && size <= most {
		m.failed = make([]uint64, size/64+1)
		*steps -= size / 256
	}
	for pos := 0; ; {
		if m.run(0, pos, -1) {
			return true, nil
		}
		if *steps < 0 {
			return false, errRegexSteps
		}
		if pos >= len(s) {
			return false, nil
		}
		_, n := utf8.DecodeRuneInString(s[pos:])
		pos += n
	}
}

type machine struct {
	prog      *program
	s         string
	steps     *int
	registers []int
	failed    []uint64 // a bit for each instruction at each place; nil inside of lookarounds and with back references
	stack     []choice
}

// choice is where to go on when a way fails, or a register to restore.
type choice struct {
	pc, pos  int
	register int // -1: none
}

// run follows the program from one place; end, unless negative, is where it must stop. It goes no further when the
// steps are used up.
func (m *machine) run(pc, pos, end int) bool {
	bottom := len(m.stack)
	defer func() { m.stack = m.stack[:bottom] }()
	m.stack = append(m.stack, choice{pc, pos, -1})
	for len(m.stack) > bottom {
		c := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if c.register >= 0 {
			m.registers[c.register] = c.pos
			continue
		}
		if m.follow(c.pc, c.pos, end) {
			return true
		}
		if *m.steps < 0 {
			return false
		}
	}
	return false
}

// follow takes one way until it fails or ends, and leaves the others on the stack.
func (m *machine) follow(pc, pos, end int) bool {
	for {
		if *m.steps--; *m.steps < 0 || m.seen(pc, pos) {
			return false
		}
		i := &m.prog.code[pc]
		pc++
		switch i.op {
		case opMatch:
			if end < 0 || pos == end {
				return true
			}
			return false
		case opChar, opSet, opAny:
			if pos >= len(m.s) {
				return false
			}
			r, n := utf8.DecodeRuneInString(m.s[pos:])
			if !m.prog.takes(i, i.op, r) {
				return false
			}
			pos += n
		case opRun:
			var ok bool
			if pos, ok = m.repeat(i, pc, pos); !ok {
				return false
			}
		case opSplit:
			m.stack = append(m.stack, choice{i.y, pos, -1})
			pc = i.x
		case opJump:
			pc = i.x
		case opSave:
			m.stack = append(m.stack, choice{0, m.registers[i.n], i.n})
			m.registers[i.n] = pos
		case opMoved:
			if m.failed == nil && m.registers[i.n] == pos {
				return false
			}
		case opAssert:
			if !m.holds(assertion(i.n), pos) {
				return false
			}
		case opLook:
			if m.look(i, pos) == i.neg {
				return false
			}
			pc = i.y
		case opBack:
			if from, to := m.registers[2*i.n], m.registers[2*i.n+1]; from >= 0 && to >= from {
				if n := to - from; pos+n > len(m.s) || !m.same(m.s[from:to], m.s[pos:pos+n]) {
					return false
				}
				pos += to - from
			}
		}
	}
}

func (m *machine) seen(pc, pos int) bool {
	if m.failed == nil {
		return false
	}
	bit := pc*(len(m.s)+1) + pos
	if m.failed[bit/64]>>(bit%64)&1 == 1 {
		return true
	}
	m.failed[bit/64] |= 1 << (bit % 64)
	return false
}

// look runs the program of a lookaround. What fails in there may succeed elsewhere, so nothing is remembered.
func (m *machine) look(i *inst, pos int) bool {
	failed := m.failed
	m.failed = nil
	defer func() { m.failed = failed }()
	if !i.behind {
		return m.run(i.x, pos, -1)
	}
	for from := pos; from >= 0 && *m.steps >= 0; from-- {
		if from < len(m.s) && !utf8.RuneStart(m.s[from]) {
			continue
		}
		if m.run(i.x, from, pos) {
			return true
		}
	}
	return false
}

func (m *machine) same(a, b string) bool {
	if !m.prog.fold {
		return a == b
	}
	return foldString(a) == foldString(b)
}

func (m *machine) holds(a assertion, pos int) bool {
	switch a {
	case atStart:
		return pos == 0
	case atEnd:
		return pos == len(m.s)
	case lineStart:
		r, _ := utf8.DecodeLastRuneInString(m.s[:pos])
		return pos == 0 || isLineEnd(r)
	case lineEnd:
		r, _ := utf8.DecodeRuneInString(m.s[pos:])
		return pos == len(m.s) || isLineEnd(r)
	default:
		before := pos > 0 && isWord(m.s[pos-1])
		after := pos < len(m.s) && isWord(m.s[pos])
		return (before != after) == (a == wordEdge)
	}
}

// repeat takes as many characters as it can, or as few, and leaves the other choices on the stack.
func (m *machine) repeat(i *inst, pc, pos int) (int, bool) {
	n, least := 0, pos // least is where the fewest end
	for n < i.y && pos < len(m.s) {
		r, size := utf8.DecodeRuneInString(m.s[pos:])
		if !m.prog.takes(i, i.one, r) {
			break
		}
		*m.steps--
		pos += size
		if n++; n == i.x {
			least = pos
		}
	}
	if n < i.x {
		return 0, false
	}
	most := pos
	if i.lazy { // the fewest come first, so they are pushed last
		for at := most; at > least; {
			m.stack = append(m.stack, choice{pc, at, -1})
			_, size := utf8.DecodeLastRuneInString(m.s[:at])
			at -= size
		}
		return least, true
	}
	for at := least; at < most; {
		m.stack = append(m.stack, choice{pc, at, -1})
		_, size := utf8.DecodeRuneInString(m.s[at:])
		at += size
	}
	return most, true
}

func (p *program) takes(i *inst, op opcode, r rune) bool {
	switch op {
	case opAny:
		return p.dotAll || !isLineEnd(r)
	case opChar:
		return r == i.r || p.fold && fold(r) == fold(i.r)
	default:
		return i.set.has(r, p.fold)
	}
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' || r == 0x2028 || r == 0x2029 }

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func fold(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

func foldString(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = utf8.AppendRune(b, fold(r))
	}
	return string(b)
}

// runeSet is a class of characters.
type runeSet struct {
	neg    bool
	ranges []rune // pairs of first and last
	tables []*unicode.RangeTable
	sets   []*runeSet // classes within the class
}

func (s *runeSet) has(r rune, anyCase bool) bool {
	if anyCase {
		return (s.holds(r) || s.holds(unicode.ToLower(r)) || s.holds(unicode.ToUpper(r))) != s.neg
	}
	return s.holds(r) != s.neg
}

func (s *runeSet) holds(r rune) bool {
	for i := 0; i < len(s.ranges); i += 2 {
		if r >= s.ranges[i] && r <= s.ranges[i+1] {
			return true
		}
	}
	for _, t := range s.tables {
		if unicode.Is(t, r) {
			return true
		}
	}
	for _, sub := range s.sets {
		if sub.has(r, false) {
			return true
		}
	}
	return false
}
