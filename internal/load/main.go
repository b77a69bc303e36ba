// Command load measures the built binary against the rooflines of the load harness, as docs/performance.md asks.
//
// It builds the harness's programs, then runs each row in rounds: within a round every contender of a row once, in
// turn, on a fresh data directory that is deleted afterwards. It prints medians, the ratio to each row's baseline,
// the server's CPU a record, how many cores other programs used meanwhile, and whether the gate is met. `make load`
// calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options is what the command line says.
type options struct {
	harness, binary, dir, nats string
	rows                       string
	rounds                     int
	length, warm               time.Duration
	quiet                      float64
	keep                       bool
}

func main() {
	var o options
	flag.StringVar(&o.harness, "harness", "../shared/bench-harness", "folder of the load harness")
	flag.StringVar(&o.binary, "binary", "bin/millrace", "the server to measure")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "where data directories are made and deleted; a real disk")
	flag.StringVar(&o.nats, "nats-server", os.Getenv("NATS_SERVER"), "nats-server; empty looks on PATH, then builds it")
	flag.StringVar(&o.rows, "rows", "", "rows to run, by commas, such as P1,C3, or K for all of them; empty runs all")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; medians are over these")
	flag.DurationVar(&o.length, "d", 1500*time.Millisecond, "length of one measurement")
	flag.DurationVar(&o.warm, "warm", 500*time.Millisecond, "time before each measurement that is not counted")
	flag.Float64Var(&o.quiet, "quiet", 0, "wait, up to 20 s, until others use less than so many cores; 0: never")
	flag.BoolVar(&o.keep, "keep", false, "keep the working folder with servers' logs")
	bareAddr := flag.String("bare", "", "serve the answers that row G1 compares with at this address, and nothing else")
	flag.Parse()
	if *bareAddr != "" {
		fmt.Fprintln(os.Stderr, "load:", serveBare(*bareAddr))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := measure(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Printf("\n%d gates missed\n", missed)
	}
}

// bench is one run of this command.
type bench struct {
	options
	work     string // deleted at the end
	roofline string
	loadgen  string
	millrace string
	schemas  string // data with many schemas, once they are registered
	db       *database
}

func measure(ctx context.Context, o options) (missed int, err error) {
	if o.rounds < 1 || o.rounds > 50 || o.length > 30*time.Second {
		return 0, errors.New("over the bounds of this tool: 50 rounds, 30 s a measurement")
	}
	b := &bench{options: o}
	if b.work, err = os.MkdirTemp(o.dir, "millrace-load-"); err != nil {
		return 0, err
	}
	if !o.keep {
		defer os.RemoveAll(b.work)
	}
	defer func() {
		if b.db != nil {
			err = errors.Join(err, b.db.close())
		}
	}()
	rows := b.rows()
	if o.rows != "" {
		want := strings.Split(strings.ToUpper(o.rows), ",")
		rows = slices.DeleteFunc(rows, func(r *row) bool { return !wanted(want, r.id) })
		if len(rows) == 0 {
			return 0, fmt.Errorf("no such rows: %s", o.rows)
		}
	}
	if err := b.build(ctx, rows); err != nil {
		return 0, err
	}
	for round := range o.rounds {
		for _, r := range rows {
			if r.failed != nil {
				continue
			}
			if r.failed = b.round(ctx, r, round); ctx.Err() != nil {
				return 0, fmt.Errorf("row %s: %w", r.id, r.failed)
			}
		}
	}
	return report(os.Stdout, rows), nil
}

// wanted says whether a row is asked for, by its id or by the letter that its kind begins with.
func wanted(want []string, id string) bool {
	return slices.Contains(want, id) || len(id) > 1 && id[1] <= '9' && slices.Contains(want, id[:1])
}

// round runs every contender of a row once. A contender other than ours may fail: its column stays empty.
func (b *bench) round(ctx context.Context, r *row, round int) error {
	for _, c := range r.contenders {
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: %s %s\n", round+1, b.rounds, r.id, c.name)
		res, err := c.run(ctx)
		switch {
		case err == nil:
			r.add(c.name, res)
		case c.name == own:
			return err
		default:
			fmt.Fprintf(os.Stderr, "  %s: %v\n", c.name, err)
		}
	}
	return nil
}

// build compiles the harness, and nats-server when it is not installed. Without nats-server its columns stay empty.
// The rows of connectors need neither.
func (b *bench) build(ctx context.Context, rows []*row) error {
	var err error
	if b.millrace, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if _, err := os.Stat(b.millrace); err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	if !slices.ContainsFunc(rows, func(r *row) bool { return !strings.HasPrefix(r.id, "K") }) {
		return nil
	}
	bin := filepath.Join(b.work, "bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin+string(filepath.Separator), "./cmd/...")
	cmd.Dir = b.harness
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the harness in %s (set HARNESS): %w\n%s", b.harness, err, out)
	}
	b.roofline, b.loadgen = filepath.Join(bin, "roofline"), filepath.Join(bin, "loadgen")
	if b.nats == "" {
		b.nats, _ = exec.LookPath("nats-server")
	}
	if b.nats == "" {
		install := exec.CommandContext(ctx, "go", "install", "github.com/nats-io/nats-server/v2@v2.15.2")
		install.Env = append(os.Environ(), "GOBIN="+bin)
		install.Dir = b.work
		if out, err := install.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "nats-server is not to be had; rows L compare with roofline only: %s\n", out)
			return nil
		}
		b.nats = filepath.Join(bin, "nats-server")
	}
	return nil
}
