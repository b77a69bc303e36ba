package cdc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The kinds of messages of the plugin pgoutput that come here.
const (
	msgBegin        = 'B'
	msgCommit       = 'C'
	msgOrigin       = 'O'
	msgRelation     = 'R'
	msgType         = 'Y'
	msgInsert       = 'I'
	msgUpdate       = 'U'
	msgDelete       = 'D'
	msgTruncate     = 'T'
	msgLogical      = 'M'
	msgStreamStart  = 'S'
	msgStreamStop   = 'E'
	msgStreamCommit = 'c'
	msgStreamAbort  = 'A'
	msgPassed       = 's' // ours: a number of changes of tables that are not captured
)

// The kinds of a column's value in a tuple.
const (
	valueNull      = 'n'
	valueUnchanged = 'u' // it is stored out of line, and the change left it alone
	valueText      = 't'
)

// tuple is a row as it comes: a kind and, where that is valueText, a text for each column. It refers to the message's
// bytes.
type tuple struct {
	kinds []byte
	texts [][]byte
}

func (t *tuple) reset() { t.kinds, t.texts = t.kinds[:0], t.texts[:0] }

func (t *tuple) add(kind byte, text []byte) {
	t.kinds, t.texts = append(t.kinds, kind), append(t.texts, text)
}

// wireColumn is a column as a relation message describes it.
type wireColumn struct {
	Key    bool // of the replica identity
	Name   string
	Type   uint32
	Typmod int32
}

// relation is a table as a relation message describes it.
type relation struct {
	OID      uint32
	Schema   string
	Name     string
	Identity byte // d, n, f or i
	Columns  []wireColumn
}

// message is a message of pgoutput. Which fields are set depends on its kind. It is used again for the next message,
// and refers to the bytes that it was decoded from.
type message struct {
	kind  byte
	xid   uint32 // begin, stream start, commit and abort
	subid uint32 // stream abort
	lsn   lsn    // begin, commit: of the commit record; logical message: its end; origin: at the origin
	end   lsn    // commit: behind the commit record
	time  micros // begin, commit

	rel      uint32 // insert, update, delete
	oldKind  byte   // 'K': the key, 'O': the whole row, 0: there is none
	old, new tuple

	passed        uint32
	relation      *relation
	rels          []uint32 // truncate
	prefix        string   // logical message; origin: its name
	content       []byte
	transactional bool
}

var errShort = errors.New("the message ends early")

// reader takes a message apart. After a fault, all it gives are zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.err = errShort
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uint8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) micros() micros { return micros(int64(r.uint64()) + epochMicros) }

func (r *reader) string() string {
	if r.err != nil {
		return ""
	}
	i := bytes.IndexByte(r.b, 0)
	if i < 0 {
		r.err = errShort
		return ""
	}
	s := string(r.b[:i])
	r.b = r.b[i+1:]
	return s
}

// decode reads a message that has no transaction number of its own: what is streamed has it taken out before.
func (m *message) decode(b []byte) error {
	if len(b) == 0 {
		return errShort
	}
	m.kind = b[0]
	r := reader{b: b[1:]}
	switch m.kind {
	case msgBegin:
		m.lsn, m.time, m.xid = lsn(r.uint64()), r.micros(), r.uint32()
	case msgCommit:
		r.uint8()
		m.lsn, m.end, m.time = lsn(r.uint64()), lsn(r.uint64()), r.micros()
	case msgStreamStart:
		m.xid = r.uint32()
	case msgStreamStop:
	case msgStreamCommit:
		m.xid = r.uint32()
		r.uint8()
		m.lsn, m.end, m.time = lsn(r.uint64()), lsn(r.uint64()), r.micros()
	case msgStreamAbort:
		m.xid, m.subid = r.uint32(), r.uint32()
	case msgOrigin:
		m.lsn, m.prefix = lsn(r.uint64()), r.string()
	case msgRelation:
		m.relation = r.relation()
	case msgType:
	case msgPassed:
		m.passed = r.uint32()
	case msgInsert, msgUpdate, msgDelete:
		m.change(&r)
	case msgTruncate:
		m.truncate(&r)
	case msgLogical:
		m.transactional = r.uint8()&1 != 0
		m.lsn, m.prefix = lsn(r.uint64()), r.string()
		m.content = r.take(int(int32(r.uint32())))
	default:
		return fmt.Errorf("a message of kind %q, which was not asked for", m.kind)
	}
	if r.err != nil {
		return fmt.Errorf("message of kind %q: %w", m.kind, r.err)
	}
	return nil
}

// change reads an insert, update or delete.
func (m *message) change(r *reader) {
	m.rel = r.uint32()
	m.oldKind = 0
	m.old.reset()
	m.new.reset()
	part := r.uint8()
	if part == 'K' || part == 'O' {
		if m.kind == msgInsert {
			r.err = errors.New("an insert has no old row")
			return
		}
		m.oldKind = part
		r.tuple(&m.old)
		if m.kind == msgDelete {
			return
		}
		part = r.uint8()
	}
	if r.err == nil && (part != 'N' || m.kind == msgDelete) {
		r.err = fmt.Errorf("part %q is out of place", part)
		return
	}
	r.tuple(&m.new)
}

func (r *reader) tuple(t *tuple) {
	n := r.uint16()
	for range n {
		kind := r.uint8()
		switch kind {
		case valueNull, valueUnchanged:
			t.add(kind, nil)
		case valueText:
			t.add(kind, r.take(int(int32(r.uint32()))))
		default:
			if r.err == nil {
				r.err = fmt.Errorf("a value of kind %q, which was not asked for", kind)
			}
		}
		if r.err != nil {
			return
		}
	}
}

func (m *message) truncate(r *reader) {
	n := int(r.uint32())
	r.uint8() // of the options, which matter to the server alone
	m.rels = m.rels[:0]
	if n < 0 || n > len(r.b)/4 {
		r.err = errShort
		return
	}
	for range n {
		m.rels = append(m.rels, r.uint32())
	}
}

func (r *reader) relation() *relation {
	t := &relation{OID: r.uint32(), Schema: r.string(), Name: r.string(), Identity: r.uint8()}
	if t.Schema == "" {
		t.Schema = "pg_catalog"
	}
	n := r.uint16()
	if n > len(r.b) {
		r.err = errShort
		return t
	}
	t.Columns = make([]wireColumn, 0, n)
	for range n {
		c := wireColumn{Key: r.uint8()&1 != 0, Name: r.string(), Type: r.uint32(), Typmod: int32(r.uint32())}
		t.Columns = append(t.Columns, c)
		if r.err != nil {
			return t
		}
	}
	return t
}

// isChange says whether messages of a kind count as changes of a transaction, by which a place in it is named. Relation
// messages do not: when they come depends on the connection.
func isChange(kind byte) bool {
	switch kind {
	case msgInsert, msgUpdate, msgDelete, msgTruncate, msgLogical:
		return true
	}
	return false
}
