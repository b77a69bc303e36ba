package quorum

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"millrace/storage"
)

// A snapshot is one file, metadata/snapshots/<index, 20 digits>-<term, 20 digits>.snapshot. The header is
//
//	 0               8       12      16      20      24              32      36      40
//	+---------------+-------+-------+-------+-------+---------------+-------+-------+--------
//	| "MRAFTSNP"    | u32=1 | u32   | u32   | u32=0 | u64           | u32   | u32=0 | about,
//	| magic         |version| crc   | length|       | bytes         | crc of|       | data
//	|               |       |       | of it |       | of data       | data  |       |
//	+---------------+-------+-------+-------+-------+---------------+-------+-------+--------
//
// crc is CRC-32C of the rest of the header and of about, which is JSON: the index and term of the last command in it,
// the members and the index at which they became so. The header is written last. The data is the image's own
// (server/metadata).
const (
	snapshotMagic   = "MRAFTSNP"
	snapshotVersion = 1
	snapshotHeader  = 40
	snapshotSuffix  = ".snapshot"
	damagedSuffix   = ".damaged"
	// temporarySuffix ends the name of a snapshot that is being written.
	temporarySuffix = ".tmp"
	// maxAboutBytes bounds the JSON of a snapshot's header.
	maxAboutBytes = 1 << 20
	// keptSnapshots is how many snapshots are kept: a second one in case the newest is damaged.
	keptSnapshots = 2
)

// about says what a snapshot is of.
type about struct {
	Index        uint64           `json:"index"`
	Term         uint64           `json:"term"`
	Members      []snapshotMember `json:"members"`
	MembersIndex uint64           `json:"members_index"`
}

type snapshotMember struct {
	ID       string `json:"id"`
	Address  string `json:"address"`
	Suffrage string `json:"suffrage"`
}

// snapshotInfo is what the header of a snapshot says.
type snapshotInfo struct {
	about    []byte // JSON
	size     int64  // of the data
	checksum uint32 // of the data
}

// dataAt is where the data begins.
func (i snapshotInfo) dataAt() int64 { return snapshotHeader + int64(len(i.about)) }

func (i snapshotInfo) encode() []byte {
	b := append([]byte(nil), snapshotMagic...)
	b = binary.BigEndian.AppendUint32(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(i.about)))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(i.size))
	b = binary.BigEndian.AppendUint32(b, i.checksum)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = append(b, i.about...)
	binary.BigEndian.PutUint32(b[12:], checksum(b, 12))
	return b
}

// decodeSnapshotInfo reads the beginning of a snapshot file of that size.
func decodeSnapshotInfo(b []byte, fileSize int64) (snapshotInfo, error) {
	if len(b) < snapshotHeader || string(b[:8]) != snapshotMagic {
		return snapshotInfo{}, errDamaged
	}
	length := int(binary.BigEndian.Uint32(b[16:]))
	if length > maxAboutBytes || length > len(b)-snapshotHeader {
		return snapshotInfo{}, errDamaged
	}
	b = b[:snapshotHeader+length]
	if binary.BigEndian.Uint32(b[12:]) != checksum(b, 12) {
		return snapshotInfo{}, errDamaged
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != snapshotVersion {
		return snapshotInfo{}, fmt.Errorf("version %d is unknown here, it is newer than this program", v)
	}
	i := snapshotInfo{
		about: b[snapshotHeader:], size: int64(binary.BigEndian.Uint64(b[24:])), checksum: binary.BigEndian.Uint32(b[32:]),
	}
	if i.size < 0 || i.size != fileSize-i.dataAt() {
		return snapshotInfo{}, errDamaged
	}
	return i, nil
}

// meta gives what the header says in raft's terms.
func (i snapshotInfo) meta() (*raft.SnapshotMeta, error) {
	var a about
	if err := json.Unmarshal(i.about, &a); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	m := &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: snapshotID(a.Index, a.Term), Index: a.Index, Term: a.Term,
		ConfigurationIndex: a.MembersIndex, Size: i.size,
	}
	for _, s := range a.Members {
		suffrage, ok := suffrages()[s.Suffrage]
		if !ok {
			return nil, fmt.Errorf("%w: member %s is a %q", errDamaged, s.ID, s.Suffrage)
		}
		m.Configuration.Servers = append(m.Configuration.Servers, raft.Server{
			Suffrage: suffrage, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address),
		})
	}
	return m, nil
}

func suffrages() map[string]raft.ServerSuffrage {
	return map[string]raft.ServerSuffrage{"voter": raft.Voter, "non-voter": raft.Nonvoter, "staging": raft.Staging}
}

func snapshotID(index, term uint64) string { return fmt.Sprintf("%020d-%020d", index, term) }

func encodeAbout(index, term uint64, c raft.Configuration, configIndex uint64) ([]byte, error) {
	a := about{Index: index, Term: term, MembersIndex: configIndex, Members: []snapshotMember{}}
	for _, s := range c.Servers {
		m := snapshotMember{ID: string(s.ID), Address: string(s.Address)}
		for name, suffrage := range suffrages() {
			if suffrage == s.Suffrage {
				m.Suffrage = name
			}
		}
		a.Members = append(a.Members, m)
	}
	return json.Marshal(a)
}

// snapshots is raft's snapshot store.
type snapshots struct {
	fs     storage.FS
	dir    string
	logger hclog.Logger

	mu   sync.Mutex           // never held across I/O
	list []*raft.SnapshotMeta // guarded by mu, the newest first; its elements never change
}

// openSnapshots reads which snapshots there are, all of them to the end: one that is damaged is set aside.
func openSnapshots(fsys storage.FS, dir string, logger hclog.Logger) (*snapshots, error) {
	s := &snapshots{fs: fsys, dir: dir, logger: logger}
	if _, err := storage.RestoreNames(fsys, dir); err != nil {
		return nil, err
	}
	entries, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for i := len(entries) - 1; i >= 0; i-- {
		name := entries[i].Name
		id, ok := strings.CutSuffix(name, snapshotSuffix)
		if strings.HasSuffix(name, temporarySuffix) {
			if err := fsys.Remove(path.Join(dir, name)); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue
		}
		meta, _, err := s.read(id)
		switch {
		case errors.Is(err, errDamaged):
			logger.Error("a snapshot of the metadata is damaged and set aside", "file", path.Join(dir, name), "error", err)
			if err := fsys.Rename(path.Join(dir, name), path.Join(dir, name+damagedSuffix)); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			if err := storage.Relink(fsys, path.Join(dir, name)); err != nil { // it was synced before it got its name
				return nil, err
			}
			s.list = append(s.list, meta)
		}
	}
	return s, fsys.SyncDir(dir)
}

// read opens a snapshot, checks it whole and gives its data.
func (s *snapshots) read(id string) (_ *raft.SnapshotMeta, _ io.ReadCloser, err error) {
	name := path.Join(s.dir, id+snapshotSuffix)
	f, err := s.fs.Open(name, 0)
	if err != nil {
		return nil, nil, err
	}
	meta, info, err := checkSnapshot(f, id)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return meta, snapshotReader{io.NewSectionReader(f, info.dataAt(), info.size), f}, nil
}

func checkSnapshot(f storage.File, id string) (*raft.SnapshotMeta, snapshotInfo, error) {
	size, err := f.Size()
	if err != nil {
		return nil, snapshotInfo{}, err
	}
	head := make([]byte, min(size, snapshotHeader+maxAboutBytes))
	if n, err := f.ReadAt(head, 0); n < len(head) {
		return nil, snapshotInfo{}, err
	}
	info, err := decodeSnapshotInfo(head, size)
	if err != nil {
		return nil, info, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(sum, io.NewSectionReader(f, info.dataAt(), info.size)); err != nil {
		return nil, info, err
	}
	meta, err := info.meta()
	if err == nil && (sum.Sum32() != info.checksum || meta.ID != id) {
		err = errDamaged
	}
	return meta, info, err
}

// snapshotReader reads a snapshot's data.
type snapshotReader struct {
	*io.SectionReader
	file storage.File
}

// Close implements io.Closer.
func (r snapshotReader) Close() error { return r.file.Close() }

// List implements raft.SnapshotStore.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*raft.SnapshotMeta(nil), s.list...), nil
}

// newest is the newest snapshot, or nil.
func (s *snapshots) newest() *raft.SnapshotMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	return s.list[0]
}

// Open implements raft.SnapshotStore.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) { return s.read(id) }

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64,
	_ raft.Transport) (raft.SnapshotSink, error) {
	a, err := encodeAbout(index, term, c, configIndex)
	if err != nil {
		return nil, err
	}
	if len(a) > maxAboutBytes {
		return nil, fmt.Errorf("too many members for the header of a snapshot: %d bytes", len(a))
	}
	id := snapshotID(index, term)
	f, err := s.fs.Open(path.Join(s.dir, id+temporarySuffix), storage.OpenWrite|storage.OpenCreate|storage.OpenTruncate)
	if err != nil {
		return nil, err
	}
	k := &sink{store: s, id: id, file: f, info: snapshotInfo{about: a}}
	k.w = bufio.NewWriterSize(io.NewOffsetWriter(f, k.info.dataAt()), snapshotBuffer)
	return k, nil
}

const snapshotBuffer = 64 << 10

// sink writes one snapshot. One goroutine uses it.
type sink struct {
	store *snapshots
	id    string
	file  storage.File
	w     *bufio.Writer
	info  snapshotInfo
	ended bool
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string { return k.id }

// Write implements io.Writer.
func (k *sink) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	k.info.size += int64(n)
	k.info.checksum = crc32.Update(k.info.checksum, crc32.MakeTable(crc32.Castagnoli), p[:n])
	return n, err
}

// Cancel implements raft.SnapshotSink.
func (k *sink) Cancel() error {
	if k.ended {
		return nil
	}
	k.ended = true
	return errors.Join(k.file.Close(), k.store.fs.Remove(path.Join(k.store.dir, k.id+temporarySuffix)))
}

// Close implements io.Closer: the snapshot is complete, and there for good when this succeeds.
func (k *sink) Close() error {
	if k.ended {
		return nil
	}
	meta, err := k.info.meta()
	if err == nil {
		err = k.w.Flush()
	}
	if err == nil {
		_, err = k.file.WriteAt(k.info.encode(), 0)
	}
	if err == nil {
		err = k.file.Sync()
	}
	if err != nil {
		return errors.Join(err, k.Cancel())
	}
	k.ended = true
	if err := k.file.Close(); err != nil {
		return err
	}
	name := path.Join(k.store.dir, k.id)
	if err := k.store.fs.Rename(name+temporarySuffix, name+snapshotSuffix); err != nil {
		return err
	}
	if err := k.store.fs.SyncDir(k.store.dir); err != nil {
		return err
	}
	k.store.add(meta)
	return nil
}

// add lists a new snapshot and removes those that are too old.
func (s *snapshots) add(meta *raft.SnapshotMeta) {
	s.mu.Lock()
	list := []*raft.SnapshotMeta{meta}
	for _, m := range s.list {
		if m.ID != meta.ID {
			list = append(list, m)
		}
	}
	old := list[min(len(list), keptSnapshots):]
	s.list = list[:len(list)-len(old)]
	s.mu.Unlock()
	for _, m := range old {
		if err := s.fs.Remove(path.Join(s.dir, m.ID+snapshotSuffix)); err != nil {
			s.logger.Error("an old snapshot of the metadata stays", "error", err)
		}
	}
}
