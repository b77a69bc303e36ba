package cdc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// spill holds the changes of transactions that the server sends before they are committed, in one file for each. None
// of it outlives the connection: the server sends it all again. It is for one goroutine.
type spill struct {
	dir   func() (string, error) // makes the folder, once it is needed
	path  string
	open  map[uint32]*pending // by the number of the transaction
	now   *pending            // whose block is coming
	file  *os.File            // of now
	out   *bufio.Writer       // to file
	bytes int64               // in all files

	captured func(tableName) bool
	passed   uint32 // changes in a row that are passed over, and are not in the file yet
	passedBy uint32 // their subtransaction
}

// pending is a transaction of which it is not known yet whether it will be committed. Its file holds, in the order in
// which they came, records of
//
//	subtransaction 4 | place in the log 8 | length 4 | message
type pending struct {
	xid   uint32
	name  string
	size  int64
	first map[uint32]int64 // where a subtransaction's first change stands
	// relations are the relation messages and where they stand. The server sends one once a transaction, so they are
	// kept where the changes around them are undone.
	relations []placedMessage
	// other are tables that are not captured. Of their changes only the number is kept, by which a place in the
	// transaction is named.
	other map[uint32]bool
}

type placedMessage struct {
	offset  int64
	subid   uint32
	at      lsn
	message []byte
}

const spillHeader = 16

func newSpill(dir func() (string, error), captured func(tableName) bool) *spill {
	return &spill{dir: dir, captured: captured, open: map[uint32]*pending{}}
}

// start opens a block of a transaction.
func (s *spill) start(xid uint32) error {
	if s.now != nil {
		return errors.New("a block of a transaction begins inside another")
	}
	p := s.open[xid]
	if p == nil {
		if s.path == "" {
			path, err := s.dir()
			if err != nil {
				return err
			}
			s.path = path
		}
		p = &pending{xid: xid, name: filepath.Join(s.path, fmt.Sprintf("xact-%d.spill", xid)), first: map[uint32]int64{},
			other: map[uint32]bool{}}
		if err := os.Remove(p.name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(p.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.open[xid], s.now, s.file = p, p, f
	if s.out == nil {
		s.out = bufio.NewWriterSize(f, 256<<10)
	} else {
		s.out.Reset(f)
	}
	return nil
}

// add notes a change of the transaction whose block is open.
func (s *spill) add(subid uint32, at lsn, kind byte, rest []byte) error {
	p := s.now
	pass := s.passes(kind, rest)
	if !pass || subid != s.passedBy {
		if err := s.writePassed(); err != nil {
			return err
		}
	}
	if _, ok := p.first[subid]; !ok && subid != p.xid {
		p.first[subid] = p.size
	}
	if pass {
		s.passed, s.passedBy = s.passed+1, subid
		return nil
	}
	if kind == msgRelation {
		p.relations = append(p.relations, placedMessage{p.size, subid, at, append([]byte{kind}, rest...)})
		r := reader{b: rest}
		rel := r.relation()
		p.other[rel.OID] = r.err == nil && !s.captured(tableName{rel.Schema, rel.Name})
	}
	return s.write(subid, at, kind, rest)
}

// passes says whether a change is one of a table that is not captured.
func (s *spill) passes(kind byte, rest []byte) bool {
	switch kind {
	case msgInsert, msgUpdate, msgDelete:
		return len(rest) >= 4 && s.now.other[binary.BigEndian.Uint32(rest)]
	}
	return false
}

// writePassed writes how many changes were passed over in a row.
func (s *spill) writePassed() error {
	if s.passed == 0 {
		return nil
	}
	n := s.passed
	s.passed = 0
	return s.write(s.passedBy, 0, msgPassed, binary.BigEndian.AppendUint32(nil, n))
}

func (s *spill) write(subid uint32, at lsn, kind byte, rest []byte) error {
	var h [spillHeader + 1]byte
	binary.BigEndian.PutUint32(h[:], subid)
	binary.BigEndian.PutUint64(h[4:], uint64(at))
	binary.BigEndian.PutUint32(h[12:], uint32(len(rest)+1))
	h[spillHeader] = kind
	if _, err := s.out.Write(h[:]); err != nil {
		return err
	}
	_, err := s.out.Write(rest)
	n := int64(len(h) + len(rest))
	s.now.size += n
	s.bytes += n
	return err
}

// stop closes the block.
func (s *spill) stop() error {
	if s.now == nil {
		return errors.New("a block of a transaction ends that did not begin")
	}
	err := s.writePassed()
	if e := s.out.Flush(); err == nil {
		err = e
	}
	if e := s.file.Close(); err == nil {
		err = e
	}
	s.now, s.file = nil, nil
	return err
}

// abort forgets a subtransaction, and with it what came after its first change: that is of its own children, or of
// others that are undone with it. Of the transaction itself, everything.
func (s *spill) abort(xid, subid uint32) error {
	p := s.open[xid]
	if p == nil {
		return nil
	}
	if subid == xid {
		return s.drop(p)
	}
	cut, ok := p.first[subid]
	if !ok {
		return nil
	}
	if err := os.Truncate(p.name, cut); err != nil {
		return err
	}
	s.bytes -= p.size - cut
	p.size = cut
	for sub, at := range p.first {
		if at >= cut {
			delete(p.first, sub)
		}
	}
	i := slices.IndexFunc(p.relations, func(m placedMessage) bool { return m.offset >= cut })
	if i < 0 {
		return nil
	}
	again := slices.Clone(p.relations[i:])
	p.relations = p.relations[:i]
	if err := s.start(xid); err != nil {
		return err
	}
	for _, m := range again {
		m.offset = p.size
		p.relations = append(p.relations, m)
		if err := s.write(m.subid, m.at, m.message[0], m.message[1:]); err != nil {
			return errors.Join(err, s.stop())
		}
	}
	return s.stop()
}

// replay gives what is left of a transaction in order, and forgets it. A transaction that is not known had no changes.
func (s *spill) replay(xid uint32, each func(at lsn, message []byte) error) (err error) {
	p := s.open[xid]
	if p == nil {
		return nil
	}
	defer func() { err = errors.Join(err, s.drop(p)) }()
	f, err := os.Open(p.name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 256<<10)
	var h [spillHeader]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(in, h[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(h[12:]))
		buf = slices.Grow(buf[:0], n)[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return err
		}
		if err := each(lsn(binary.BigEndian.Uint64(h[4:])), buf); err != nil {
			return err
		}
	}
}

func (s *spill) drop(p *pending) error {
	delete(s.open, p.xid)
	s.bytes -= p.size
	return os.Remove(p.name)
}

// close forgets everything.
func (s *spill) close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
		s.now, s.file, s.passed = nil, nil, 0
	}
	for _, p := range s.open {
		err = errors.Join(err, s.drop(p))
	}
	return err
}
