package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"millrace/storage"
)

// ballot is what a voter must not forget: the newest term it knows, and whom it voted for in which term.
//
//	 0               8       12      16              24              32      34
//	+---------------+-------+-------+---------------+---------------+-------+-----------
//	| "MRAFTVOT"    | u32=1 | u32   | u64           | u64           | u16   | candidate
//	| magic         |version| crc   | term          | vote's term   | length|
//	+---------------+-------+-------+---------------+---------------+-------+-----------
//
// crc is CRC-32C of all the rest. The file is metadata/vote; it is replaced as a whole.
type ballot struct {
	term      uint64
	voteTerm  uint64
	candidate string
}

const (
	ballotMagic   = "MRAFTVOT"
	ballotVersion = 1
	ballotHeader  = 34
	maxCandidate  = 1<<16 - 1
)

func (v ballot) encode() []byte {
	b := append([]byte(nil), ballotMagic...)
	b = binary.BigEndian.AppendUint32(b, ballotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, v.term)
	b = binary.BigEndian.AppendUint64(b, v.voteTerm)
	b = binary.BigEndian.AppendUint16(b, uint16(len(v.candidate)))
	b = append(b, v.candidate...)
	binary.BigEndian.PutUint32(b[12:], checksum(b, 12))
	return b
}

func decodeBallot(b []byte) (ballot, error) {
	if len(b) < ballotHeader || string(b[:8]) != ballotMagic || binary.BigEndian.Uint32(b[12:]) != checksum(b, 12) {
		return ballot{}, errDamaged
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != ballotVersion {
		return ballot{}, fmt.Errorf("version %d is unknown here, it is newer than this program", v)
	}
	if int(binary.BigEndian.Uint16(b[32:])) != len(b)-ballotHeader {
		return ballot{}, errDamaged
	}
	return ballot{
		term: binary.BigEndian.Uint64(b[16:]), voteTerm: binary.BigEndian.Uint64(b[24:]), candidate: string(b[ballotHeader:]),
	}, nil
}

// The keys under which raft keeps its term and vote.
const (
	termKey      = "CurrentTerm"
	voteTermKey  = "LastVoteTerm"
	candidateKey = "LastVoteCand"
)

// ballotFile is raft's stable store.
type ballotFile struct {
	fs   storage.FS
	dir  string
	name string
	io   ioLock // held by who writes the file

	mu     sync.Mutex // never held across I/O
	now    ballot     // guarded by mu
	stored ballot     // guarded by mu, changed under io too; what the disk has
	exists bool       // guarded by mu; there is a file
}

func openBallotFile(fsys storage.FS, dir string) (*ballotFile, error) {
	f := &ballotFile{fs: fsys, dir: dir, name: dir + "/vote", io: newIOLock()}
	b, err := readFile(fsys, f.name, ballotHeader+maxCandidate)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.stored, err = decodeBallot(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	f.now, f.exists = f.stored, true
	return f, nil
}

// readFile reads a file of at most so many bytes.
func readFile(fsys storage.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes are too many", errDamaged, size)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); int64(n) < size {
		return nil, err
	}
	return b, nil
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
	v, same := f.now, f.now == f.stored
	f.mu.Unlock()
	if same {
		return nil
	}
	if err := replaceFile(f.fs, f.dir, f.name, v.encode()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored, f.exists = v, true
	return nil
}

// isThere reports whether the file exists.
func (f *ballotFile) isThere() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exists
}

// temporarySuffix ends the names of files that are being written.
const temporarySuffix = ".tmp"

// replaceFile gives a file in dir new content, which is then there for good: a crash leaves the old or the new one.
func replaceFile(fsys storage.FS, dir, name string, b []byte) error {
	f, err := fsys.Open(name+temporarySuffix, storage.OpenWrite|storage.OpenCreate|storage.OpenTruncate)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = fsys.Rename(name+temporarySuffix, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
