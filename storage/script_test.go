package storage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// script runs the commands of testdata: one log on a disk in memory, shown after each change.
type script struct {
	t      *testing.T
	disk   *storagetest.FS
	config storage.Config
	dir    *storage.Dir
	log    *storage.Log
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		if strings.HasPrefix(path.Base(path.Dir(file)), "Fuzz") {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			s := &script{t: t, disk: newDisk(), config: storage.DefaultConfig()}
			s.config.FileDeleteDelay = time.Hour
			defer s.stop()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				return s.run(d)
			})
		})
	})
}

func (s *script) stop() {
	if s.dir != nil {
		s.dir.Close()
	}
	s.dir, s.log = nil, nil
}

func (s *script) run(d *datadriven.TestData) string {
	run := map[string]func(*datadriven.TestData) error{
		"config": s.configure, "open": s.open, "append": s.append, "sync": s.sync,
		"checkpoint": s.checkpoint, "close": s.close, "crash": s.crash,
		"flip": s.flip, "cut": s.cut, "put": s.put, "remove": s.remove,
		"copy": s.copy, "truncate": s.truncate, "restart": s.restart, "start": s.start,
		"retain": s.retain, "epoch": s.epoch,
	}
	show := map[string]func(*datadriven.TestData) string{
		"files": s.files, "read": s.read, "time": s.time, "maxtime": s.maxTime,
		"epochs": s.epochs, "batches": s.batches,
	}
	if f := show[d.Cmd]; f != nil {
		return f(d)
	}
	f := run[d.Cmd]
	if f == nil {
		d.Fatalf(s.t, "unknown command")
	}
	err := f(d)
	synctest.Wait() // for what goes on in the background
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return s.state()
}

// state is one line on the log.
func (s *script) state() string {
	if s.log == nil {
		return "ok\n"
	}
	n, err := s.log.Segments()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("start=%d end=%d synced=%d segments=%d\n",
		s.log.StartOffset(), s.log.EndOffset(), s.log.SyncedOffset(), n)
}

// number gives an argument, or what it is when it is not given.
func (s *script) number(d *datadriven.TestData, name string, otherwise int64) int64 {
	d.MaybeScanArgs(s.t, name, &otherwise)
	return otherwise
}

func (s *script) text(d *datadriven.TestData, name, otherwise string) string {
	d.MaybeScanArgs(s.t, name, &otherwise)
	return otherwise
}

func (s *script) configure(d *datadriven.TestData) error {
	c := &s.config
	c.SegmentBytes = s.number(d, "segment", c.SegmentBytes)
	c.IndexInterval = int(s.number(d, "interval", int64(c.IndexInterval)))
	c.RetentionBytes = s.number(d, "bytes", c.RetentionBytes)
	c.RetentionTime = time.Duration(s.number(d, "ms", c.RetentionTime.Milliseconds())) * time.Millisecond
	c.DeleteRetained = s.text(d, "policy", "delete") == "delete"
	if s.log != nil {
		s.log.Reconfigure(*c)
	}
	return nil
}

func (s *script) open(d *datadriven.TestData) error {
	var err error
	if s.dir, err = storage.OpenDir(storage.DirOptions{FS: s.disk}); err != nil {
		return err
	}
	names, err := s.dir.Partitions()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		s.log, err = s.dir.CreateLog(orders, s.config)
	} else {
		s.log, err = s.dir.OpenLog(orders, s.config)
	}
	return err
}

func (s *script) append(d *datadriven.TestData) error {
	ts := s.number(d, "ts", 1000)
	for range s.number(d, "count", 1) {
		b := makeBatch(s.log.EndOffset(), int32(s.number(d, "epoch", 0)), ts,
			int(s.number(d, "records", 1)), int(s.number(d, "size", 30)))
		if _, err := s.log.Append(b); err != nil {
			return err
		}
		ts += s.number(d, "step", 10)
	}
	return nil
}

func (s *script) sync(*datadriven.TestData) error       { return s.log.Sync(context.Background()) }
func (s *script) checkpoint(*datadriven.TestData) error { return s.dir.Checkpoint() }

func (s *script) close(*datadriven.TestData) error {
	err := s.dir.Close()
	s.dir, s.log = nil, nil
	return err
}

func (s *script) crash(d *datadriven.TestData) error {
	for _, mode := range storagetest.Modes() {
		if mode.String() == s.text(d, "mode", "KeepAll") {
			next := s.disk.Crash(mode, rand.New(rand.NewPCG(1, 1)))
			s.stop()
			s.disk = next
			return nil
		}
	}
	return fmt.Errorf("no such mode")
}

func (s *script) flip(d *datadriven.TestData) error {
	return s.disk.FlipBit(s.text(d, "file", ""), s.number(d, "at", 0), uint(s.number(d, "bit", 0)))
}

// cut shortens a file, or lengthens it with zeros.
func (s *script) cut(d *datadriven.TestData) error {
	name := s.text(d, "file", "")
	data, err := s.disk.ReadFile(name)
	size := s.number(d, "size", int64(len(data))+s.number(d, "by", 0))
	s.disk.WriteFile(name, append(data, make([]byte, max(size-int64(len(data)), 0))...)[:size])
	return err
}

func (s *script) put(d *datadriven.TestData) error {
	s.disk.WriteFile(s.text(d, "file", ""), []byte(d.Input+"\n"))
	return nil
}

func (s *script) copy(d *datadriven.TestData) error {
	data, err := s.disk.ReadFile(s.text(d, "file", ""))
	s.disk.WriteFile(s.text(d, "to", ""), data)
	return err
}

func (s *script) remove(d *datadriven.TestData) error { return s.disk.Remove(s.text(d, "file", "")) }

func (s *script) truncate(d *datadriven.TestData) error {
	return s.log.TruncateTo(s.number(d, "to", 0))
}

func (s *script) restart(d *datadriven.TestData) error {
	return s.log.TruncateFullyAndStartAt(s.number(d, "at", 0))
}

func (s *script) start(d *datadriven.TestData) error { return s.log.SetStart(s.number(d, "at", 0)) }

func (s *script) retain(d *datadriven.TestData) error {
	_, err := s.log.ApplyRetention(time.UnixMilli(s.number(d, "now", 0)), s.number(d, "hw", s.log.EndOffset()))
	return err
}

func (s *script) epoch(d *datadriven.TestData) error {
	return s.log.AssignEpoch(int32(s.number(d, "is", 0)), s.log.EndOffset())
}

// epochs shows where each epoch that is asked for ended.
func (s *script) epochs(d *datadriven.TestData) (out string) {
	for e := range int32(s.number(d, "to", 3) + 1) {
		found, end, ok, err := s.log.EndOffsetForEpoch(e)
		switch {
		case err != nil:
			out += fmt.Sprintf("%d: error: %v\n", e, err)
		case !ok:
			out += fmt.Sprintf("%d: unknown\n", e)
		default:
			out += fmt.Sprintf("%d: epoch %d ends at %d\n", e, found, end)
		}
	}
	return out
}

func (s *script) batches(*datadriven.TestData) (out string) {
	all, err := tryReadAll(s.log, s.log.StartOffset())
	for _, b := range all {
		out += fmt.Sprintf("%d..%d epoch %d\n", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
	if err != nil {
		out += "error: " + err.Error() + "\n"
	}
	return out
}

func (s *script) read(d *datadriven.TestData) string {
	r, err := s.log.Read(s.number(d, "from", 0), int(s.number(d, "max", 1<<20)), s.number(d, "limit", 1<<40), nil)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("%d bytes, next %d\n", len(r.Batches), r.NextOffset)
}

func (s *script) time(d *datadriven.TestData) string {
	return showTime(s.log.OffsetForTime(s.number(d, "ts", 0)))
}

func (s *script) maxTime(*datadriven.TestData) string { return showTime(s.log.MaxTimestampOffset()) }

func showTime(r storage.TimeResult, ok bool, err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	if !ok {
		return "none\n"
	}
	return fmt.Sprintf("offset %d, timestamp %d, epoch %d\n", r.Offset, r.Timestamp, r.Epoch)
}

// files shows the partition's files: the indexes decoded, small texts as they are.
func (s *script) files(d *datadriven.TestData) (out string) {
	all := s.text(d, "of", "partition") == "all"
	for _, name := range s.disk.Files() {
		if !all && path.Dir(name) == "." {
			continue
		}
		data, err := s.disk.ReadFile(name)
		require.NoError(s.t, err)
		var shown string
		switch path.Ext(strings.TrimSuffix(name, ".deleted")) {
		case ".index":
			for ; len(data) >= 8; data = data[8:] {
				shown += fmt.Sprintf(" +%d@%d", binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:]))
			}
		case ".timeindex":
			for ; len(data) >= 12; data = data[12:] {
				shown += fmt.Sprintf(" %d:+%d", binary.BigEndian.Uint64(data), binary.BigEndian.Uint32(data[8:]))
			}
		case ".log", ".snapshot", ".swap", ".cleaned":
			shown = fmt.Sprintf(" %d bytes", len(data))
		default:
			shown = " " + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", " | ")
		}
		out += strings.TrimPrefix(name, "orders-0/") + shown + "\n"
	}
	return out
}
