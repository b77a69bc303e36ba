package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// manyPartitions is how many partitions the rows about idle partitions have, over topics of at most a thousand each.
const manyPartitions = 10_000

// startRows are the rows about opening data and about partitions that nobody uses.
func (b *bench) startRows() []*row {
	return []*row{
		{id: "S1", what: "start with 10,000 partitions after a clean stop", show: showTook, judge: tookWithin(1),
			contenders: []contender{{own, b.cleanStart}}},
		{id: "S2", what: "start after kill -9 with 1 GiB in one partition", show: showTook, judge: tookWithin(1.5 * 0.28),
			contenders: []contender{{own, b.crashStart}}},
		{id: "S3", what: "memory of an idle partition, of 10,000", show: showIdle, judge: idleWithin(8, 1),
			contenders: []contender{{own, b.idlePartitions}}},
		{id: "S6", what: "CPU when idle with 10,000 partitions", show: showIdle, judge: idleWithin(64, 0.01),
			contenders: []contender{{own, b.idlePartitions}}},
		{id: "RSS", what: "memory of an empty node, idle", show: showRSS, judge: func(m func(string) result) verdict {
			rss := m(own).RSSMiB
			return verdict{text: fmt.Sprintf("%.0f MiB, gate 60", rss), met: rss > 0 && rss <= 60}
		}, contenders: []contender{{own, b.emptyNode}}},
	}
}

func tookWithin(gate float64) func(func(string) result) verdict {
	return func(m func(string) result) verdict {
		took := m(own).Took
		return verdict{text: fmt.Sprintf("%.3f s, gate %.2f", took, gate), met: took > 0 && took <= gate}
	}
}

// manyTopics makes topics of a thousand partitions each.
func (s *server) manyTopics() error {
	for i := range manyPartitions / 1000 {
		if err := s.createTopic("many-"+strconv.Itoa(i), 1000); err != nil {
			return err
		}
	}
	return nil
}

// restart starts the binary again on the same data and times it until it says that it is ready.
func (b *bench) restart(ctx context.Context, dir, sync string) (*server, float64, error) {
	start := time.Now()
	s, err := b.startIn(ctx, dir, b.millrace, ownArgs(sync)...)
	if err != nil {
		return nil, 0, err
	}
	err = s.healthy(ctx)
	return s, time.Since(start).Seconds(), err
}

func (b *bench) cleanStart(ctx context.Context) (result, error) {
	s, err := b.own(ctx, "never")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(s.dir)
	err = s.manyTopics()
	s.stop(syscall.SIGTERM)
	if err != nil {
		return result{}, err
	}
	again, took, err := b.restart(ctx, s.dir, "ack")
	if again != nil {
		again.stop(syscall.SIGTERM)
	}
	return result{Took: took}, err
}

func (b *bench) crashStart(ctx context.Context) (result, error) {
	s, err := b.own(ctx, "never")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(s.dir)
	fill := body(v1Path+"?partition=0", "raw", rawBatch, 100, 16, 1024)
	_, err = b.drive(ctx, s, append(fill, "-d", "60s", "-warm", "0s", "-max", strconv.Itoa(1<<20))...)
	s.stop(syscall.SIGKILL)
	if err != nil {
		return result{}, err
	}
	again, took, err := b.restart(ctx, s.dir, "never")
	if again != nil {
		again.stop(syscall.SIGTERM)
	}
	return result{Took: took}, err
}

// idlePartitions compares the memory of a node before and after it got 10,000 partitions and was started again, and
// counts its CPU over two seconds in which nothing is asked.
func (b *bench) idlePartitions(ctx context.Context) (result, error) {
	s, err := b.own(ctx, "never")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(s.dir)
	empty := rssKiB(s.cmd.Process.Pid)
	err = s.manyTopics()
	s.stop(syscall.SIGTERM)
	if err != nil {
		return result{}, err
	}
	again, took, err := b.restart(ctx, s.dir, "ack")
	if again != nil {
		defer again.stop(syscall.SIGTERM)
	}
	if err != nil {
		return result{}, err
	}
	full := rssKiB(again.cmd.Process.Pid)
	before := cpuSeconds(again.cmd.Process.Pid)
	wait(ctx, 2*time.Second)
	used := (cpuSeconds(again.cmd.Process.Pid) - before) / 2
	return result{Took: took, KiBEach: float64(full-empty) / manyPartitions, ServerCores: used}, nil
}

func (b *bench) emptyNode(ctx context.Context) (result, error) {
	s, err := b.own(ctx, "ack")
	if err != nil {
		return result{}, err
	}
	defer s.end()
	wait(ctx, 500*time.Millisecond)
	return result{RSSMiB: float64(rssKiB(s.cmd.Process.Pid)) / 1024}, nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// rssKiB reads a process's resident memory.
func rssKiB(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kib int64
	_, _ = fmt.Sscan(after, &kib)
	return kib
}

// cpuSeconds reads a process's CPU time; the kernel counts in hundredths.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(after)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	sys, _ := strconv.ParseFloat(f[12], 64)
	return (user + sys) / 100
}
