package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"millrace/storage"
)

// ballot is what a voter must not forget: the newest term it knows, and whom it voted for in which term.
//
//	 0               8       12      16              24              32              40      42
//	+---------------+-------+-------+---------------+---------------+---------------+-------+-----------
//	| "MRAFTVOT"    | u32=1 | u32   | u64           | u64           | u64           | u16   | candidate
//	| magic         |version| crc   | number        | term          | vote's term   | length|
//	+---------------+-------+-------+---------------+---------------+---------------+-------+-----------
//
// crc is CRC-32C of all the rest. The file is metadata/vote. It holds four copies, one every 4096 bytes, with zeros
// between. The first change, number 1, goes into the first two, the next one into the last two, and so on: a torn write
// leaves those of the change before, and damage to one copy leaves another one as new.
type ballot struct {
	term      uint64
	voteTerm  uint64
	candidate string
}

const (
	ballotMagic   = "MRAFTVOT"
	ballotVersion = 1
	ballotHeader  = 42
	ballotCopy    = 4096 // no less than what a disk writes at once
	ballotCopies  = 4
	maxCandidate  = ballotCopy - ballotHeader
)

// encode gives a copy with the zeros behind it.
func (v ballot) encode(number uint64) []byte {
	b := append(make([]byte, 0, ballotCopy), ballotMagic...)
	b = binary.BigEndian.AppendUint32(b, ballotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, number)
	b = binary.BigEndian.AppendUint64(b, v.term)
	b = binary.BigEndian.AppendUint64(b, v.voteTerm)
	b = binary.BigEndian.AppendUint16(b, uint16(len(v.candidate)))
	b = append(b, v.candidate...)
	binary.BigEndian.PutUint32(b[12:], checksum(b, 12))
	return b[:ballotCopy]
}

// decodeBallot reads one copy.
func decodeBallot(b []byte) (v ballot, number uint64, err error) {
	if len(b) < ballotHeader || string(b[:8]) != ballotMagic {
		return ballot{}, 0, errDamaged
	}
	length := int(binary.BigEndian.Uint16(b[40:]))
	if length > maxCandidate || length > len(b)-ballotHeader {
		return ballot{}, 0, errDamaged
	}
	b = b[:ballotHeader+length]
	if binary.BigEndian.Uint32(b[12:]) != checksum(b, 12) {
		return ballot{}, 0, errDamaged
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != ballotVersion {
		return ballot{}, 0, fmt.Errorf("version %d is unknown here, it is newer than this program", v)
	}
	v = ballot{
		term: binary.BigEndian.Uint64(b[24:]), voteTerm: binary.BigEndian.Uint64(b[32:]),
		candidate: string(b[ballotHeader:]),
	}
	return v, binary.BigEndian.Uint64(b[16:]), nil
}

// decodeBallots gives the newest of the copies in a file. Number 0 stands for a file in which nothing was ever written
// to its end.
func decodeBallots(b []byte) (newest ballot, number uint64, err error) {
	found := false
	for i := range ballotCopies {
		at := min(len(b), i*ballotCopy)
		v, n, err := decodeBallot(b[at:min(len(b), at+ballotCopy)])
		switch {
		case err == nil && (!found || n > number):
			newest, number, found = v, n, true
		case err != nil && !errors.Is(err, errDamaged):
			return ballot{}, 0, err
		}
	}
	if !found && !zero(b[min(len(b), ballotCopies/2*ballotCopy):]) {
		return ballot{}, 0, errDamaged
	}
	return newest, number, nil
}

// The keys under which raft keeps its term and vote.
const (
	termKey      = "CurrentTerm"
	voteTermKey  = "LastVoteTerm"
	candidateKey = "LastVoteCand"
)

// ballotFile is raft's stable store.
type ballotFile struct {
	file storage.File
	io   ioLock // held by who writes the file

	mu     sync.Mutex // never held across I/O
	now    ballot     // guarded by mu
	stored ballot     // guarded by mu, changed under io too; what the disk has
	number uint64     // guarded by mu, changed under io too; of changes so far
}

func openBallotFile(fsys storage.FS, dir string) (*ballotFile, error) {
	name := dir + "/vote"
	file, err := fsys.Open(name, storage.OpenWrite|storage.OpenCreate)
	if err != nil {
		return nil, err
	}
	f := &ballotFile{file: file, io: newIOLock()}
	err = f.load(fsys, name)
	if err == nil {
		err = storage.Relink(fsys, name)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
	}
	return f, nil
}

// load reads the file. A process that ended at a failed sync, or before one, leaves what can be read and yet be lost,
// so this writes it again and syncs.
func (f *ballotFile) load(fsys storage.FS, name string) error {
	var b [ballotCopies * ballotCopy]byte
	n, err := f.file.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if f.stored, f.number, err = decodeBallots(b[:n]); err != nil {
		return err
	}
	f.now = f.stored
	return storage.Rewrite(fsys, name, 0, int64(n), b[:])
}

// Get implements raft.StableStore.
func (f *ballotFile) Get(key []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if string(key) != candidateKey {
		return nil, fmt.Errorf("nothing is kept under the name %q", key)
	}
	if f.now.candidate == "" {
		return nil, nil
	}
	return []byte(f.now.candidate), nil
}

// GetUint64 implements raft.StableStore.
func (f *ballotFile) GetUint64(key []byte) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch string(key) {
	case termKey:
		return f.now.term, nil
	case voteTermKey:
		return f.now.voteTerm, nil
	default:
		return 0, fmt.Errorf("nothing is kept under the name %q", key)
	}
}

// Set implements raft.StableStore.
func (f *ballotFile) Set(key, value []byte) error {
	if string(key) != candidateKey || len(value) > maxCandidate {
		return fmt.Errorf("nothing is kept under the name %q in %d bytes", key, len(value))
	}
	f.mu.Lock()
	f.now.candidate = string(value)
	f.mu.Unlock()
	return f.save()
}

// SetUint64 implements raft.StableStore. The term of a vote waits for the candidate, which raft sets next and before
// it votes: so a crash never leaves a vote for the candidate of another term.
func (f *ballotFile) SetUint64(key []byte, value uint64) error {
	f.mu.Lock()
	switch string(key) {
	case termKey:
		f.now.term = value
	case voteTermKey:
		f.now.voteTerm = value
	default:
		f.mu.Unlock()
		return fmt.Errorf("nothing is kept under the name %q", key)
	}
	f.mu.Unlock()
	if string(key) == voteTermKey {
		return nil
	}
	return f.save()
}

// save brings the ballot to the disk unless it is there.
func (f *ballotFile) save() error {
	f.io.Lock()
	defer f.io.Unlock()
	f.mu.Lock()
	v, same, number := f.now, f.now == f.stored, f.number+1
	f.mu.Unlock()
	if same {
		return nil
	}
	at := int64(1-number%2) * ballotCopies / 2 * ballotCopy
	copies := v.encode(number)
	if _, err := f.file.WriteAt(append(copies, copies...), at); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored, f.number = v, number
	return nil
}

// isThere reports whether anything was ever kept.
func (f *ballotFile) isThere() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number > 0
}

// Close implements io.Closer.
func (f *ballotFile) Close() error { return f.file.Close() }
