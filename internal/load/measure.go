package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// result is one measurement: what the harness reports, and what the start-up rows time themselves.
type result struct {
	Ops, Records, Errs        uint64
	OpsPerS, RecPerS, MBPerS  float64
	P50, P99                  float64 // microseconds
	ServerCPUPerMRec          float64 // seconds
	ServerCores, ForeignCores float64
	RSSMiB                    float64
	Note                      string

	Took    float64 `json:"-"` // seconds a start took
	KiBEach float64 `json:"-"` // memory an idle connection or partition takes
}

// contender is one server doing one row's work.
type contender struct {
	name string
	run  func(ctx context.Context) (result, error)
}

// row is one line of the table: contenders, and what is asked of their medians.
type row struct {
	id, what   string
	contenders []contender
	show       func(r result) string // the figure that the table gives of each contender
	judge      func(m func(name string) result) verdict
	results    map[string][]result
	failed     error // ours could not be measured
}

// verdict is what a row's gate says of the medians.
type verdict struct {
	text string // such as "0.71 of roofline, gate 0.60"
	met  bool
	open bool // the baseline could not be had
}

func (r *row) add(name string, res result) {
	if r.results == nil {
		r.results = map[string][]result{}
	}
	r.results[name] = append(r.results[name], res)
}

// median takes each figure's median by itself, as the harness's summary does.
func (r *row) median(name string) result {
	rs := r.results[name]
	if len(rs) == 0 {
		return result{}
	}
	m := rs[0]
	for _, f := range figures {
		v := make([]float64, len(rs))
		for i := range rs {
			v[i] = *f(&rs[i])
		}
		slices.Sort(v)
		*f(&m) = v[len(v)/2]
	}
	return m
}

// figures are the numbers of a result that medians are taken of.
var figures = []func(*result) *float64{
	func(r *result) *float64 { return &r.OpsPerS },
	func(r *result) *float64 { return &r.RecPerS },
	func(r *result) *float64 { return &r.MBPerS },
	func(r *result) *float64 { return &r.P50 },
	func(r *result) *float64 { return &r.P99 },
	func(r *result) *float64 { return &r.ServerCPUPerMRec },
	func(r *result) *float64 { return &r.ServerCores },
	func(r *result) *float64 { return &r.ForeignCores },
	func(r *result) *float64 { return &r.RSSMiB },
	func(r *result) *float64 { return &r.Took },
	func(r *result) *float64 { return &r.KiBEach },
}

// drive runs the load generator once against a server.
func (b *bench) drive(ctx context.Context, s *server, args ...string) (result, error) {
	file := filepath.Join(b.work, "run.jsonl")
	os.Remove(file)
	all := append([]string{
		"-addr", s.addr, "-pids", s.pids(), "-runs", "1", "-d", b.length.String(), "-warm", b.warm.String(), "-out", file,
	}, args...)
	if b.quiet > 0 {
		all = append(all, "-quiet", trim(b.quiet), "-tries", "3")
	}
	cmd := exec.CommandContext(ctx, b.loadgen, all...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("loadgen %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	var r result
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(text), &r)
	}
	if err != nil {
		return r, fmt.Errorf("loadgen %s: no result: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	if r.Errs > 0 || r.Records+r.Ops == 0 && r.RSSMiB == 0 {
		return r, fmt.Errorf("loadgen %s: %d errors, %d records\n%s", strings.Join(args, " "), r.Errs, r.Records, out.Bytes())
	}
	return r, nil
}

// once starts a server, drives it once and ends it.
func (b *bench) once(name string, start func(context.Context) (*server, error), args ...string) contender {
	return contender{name, func(ctx context.Context) (result, error) {
		s, err := start(ctx)
		if s != nil {
			defer s.end()
		}
		if err != nil {
			return result{}, err
		}
		return b.drive(ctx, s, args...)
	}}
}
