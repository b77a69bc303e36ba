package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// importFlags are the flags of schema import.
type importFlags struct {
	from, prefix, report string
	dry                  bool
}

func newSchemaImport(c *cli) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --from URL",
		Short: "Copy another registry: ids, versions, deleted ones, configs and modes",
		Long: `Copy the schemas of a registry that runs at another URL over its API: each version with its number and its
id, so that data that names ids stays readable, also versions that are softly deleted, and the configs and modes of
subjects and contexts. The other registry is only read.

What is here already is left as it is, so a copy that was interrupted goes on when the command is given again, and one
that is done is brought up to date. While versions of a subject are copied it is in mode IMPORT. After that it has the
mode of its original, or its own one if it was here before. The config of all is copied where no schema is here yet, and
the mode of all never.

A version whose number or id means something else here is not copied and is listed. The report says so too, and the
command ends with code 1. --dry-run shows what would be copied, and lists such versions.

If the other registry wants a credential, put its Authorization header into MILLRACE_FROM_AUTHORIZATION.`,
		Example: `  millrace schema import --from http://registry:8081 --dry-run
  millrace schema import --from http://registry:8081 --report import.json
  MILLRACE_FROM_AUTHORIZATION='Basic dTpw' millrace schema import --from https://registry:8081 --prefix orders-`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.from == "" {
				return usagef("--from says which registry to copy, such as http://registry:8081")
			}
			return c.importSchemas(cmd.Context(), &f)
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "", "the URL of the registry to copy")
	cmd.Flags().StringVar(&f.prefix, "prefix", everyContext, "only subjects that begin so; :*: begins all contexts, "+
		":.ctx: one")
	cmd.Flags().StringVar(&f.report, "report", "", "a file for what came of it, as JSON")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only tell what would be copied")
	return cmd
}

// everyContext begins a prefix of subjects in all contexts.
const everyContext = ":*:"

// modeImport is the mode in which versions come with their numbers and ids.
const modeImport = "IMPORT"

// importer copies one registry into another.
type importer struct {
	c        *cli
	from, to *remote
	header   http.Header // of requests to from
	flags    *importFlags

	versions []*imported            // of the other registry; each is one worker's at a time
	scopes   map[string]*importHere // what is here of each subject and context that is copied

	mu       sync.Mutex // guards what follows
	report   importReport
	progress *progress
	steps    int64
}

// imported is a version of the other registry.
type imported struct {
	registrySchema
	level int // above those of all that it refers to

	copy  bool // it is not here, or only softly deleted
	erase bool // it is to be softly deleted here, as it is there
}

// importHere is what is here of a subject or a context before anything is copied.
type importHere struct {
	name  string
	known bool           // it has versions
	own   map[string]any // its own config, nil if it has none
	mode  string         // its own mode, "" if it has none
	began bool           // it was put into mode IMPORT
}

// importReport is what came of a copy.
type importReport struct {
	Subjects int           `json:"subjects"`
	Copied   int           `json:"copied"`
	Present  int           `json:"present"` // here already
	Deleted  int           `json:"deleted"` // softly, as in the original
	Configs  int           `json:"configs"`
	Modes    int           `json:"modes"`
	Notes    []string      `json:"notes"`
	Failed   []importFault `json:"failed"`
}

type importFault struct {
	Subject string `json:"subject"`
	Version int    `json:"version,omitempty"`
	ID      int    `json:"id,omitempty"`
	Reason  string `json:"reason"`
}

func (c *cli) importSchemas(ctx context.Context, f *importFlags) error {
	asJSON, to, err := c.client()
	if err != nil {
		return err
	}
	u, err := url.Parse(f.from)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef("--from %q: want a URL such as http://registry:8081", f.from)
	}
	im := &importer{
		c: c, to: to, flags: f, header: http.Header{}, scopes: map[string]*importHere{},
		from:   &remote{base: strings.TrimRight(f.from, "/"), http: to.http, flag: "--from"},
		report: importReport{Notes: []string{}, Failed: []importFault{}}, progress: c.newProgress(-1),
	}
	if im.from.base == to.base {
		return usagef("--from %s is this registry itself; --url says which one to copy into", f.from)
	}
	if auth := c.getenv("MILLRACE_FROM_AUTHORIZATION"); auth != "" {
		im.header.Set("Authorization", auth)
	}
	err = im.run(ctx)
	im.progress.done()
	if f.report != "" {
		text, _ := json.MarshalIndent(im.report, "", "  ") // numbers and strings always encode
		if werr := os.WriteFile(f.report, append(text, '\n'), 0o644); err == nil {
			err = werr
		}
	}
	if err != nil {
		if im.report.Copied > 0 && !f.dry {
			err = fmt.Errorf("%w\n%s copied so far; give the command again to go on", err,
				plural(im.report.Copied, "version"))
		}
		return err
	}
	return im.show(asJSON)
}

func (im *importer) run(ctx context.Context) error {
	if err := im.load(ctx); err != nil {
		return err
	}
	if err := im.survey(ctx); err != nil {
		return err
	}
	if err := im.whole(ctx); err != nil {
		return err
	}
	err := im.carryOut(ctx)
	if err == nil {
		err = im.finish(ctx)
	}
	if err != nil {
		im.giveBack(ctx)
	}
	return err
}

// workers is how many requests are under way at a registry.
const workers = 8

// each calls do for all items, several at a time, until one fails.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan T)
	for range min(workers, len(items)) {
		wg.Go(func() {
			for item := range next {
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < len(items) && ctx.Err() == nil; i++ {
		select {
		case next <- items[i]:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// fail lists a version that is not copied, or of a subject's settings what is not.
func (im *importer) fail(v *registrySchema, format string, args ...any) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.report.Failed = append(im.report.Failed, importFault{
		Subject: v.Subject, Version: v.Version, ID: v.ID, Reason: fmt.Sprintf(format, args...),
	})
}

func (im *importer) note(format string, args ...any) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.report.Notes = append(im.report.Notes, fmt.Sprintf(format, args...))
}

// count adds to a number of the report, and shows that something goes on.
func (im *importer) count(number *int) {
	im.mu.Lock()
	defer im.mu.Unlock()
	*number++
	im.steps++
	im.progress.show(im.steps, 0)
}

func (im *importer) show(asJSON bool) error {
	r, out := &im.report, im.c.out
	if asJSON {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	} else {
		verb := "copied"
		if im.flags.dry {
			verb = "to copy"
		}
		fmt.Fprintf(out, "%s: %s %s, %d here already, %d deleted as there, %s, %s\n", plural(r.Subjects, "subject"),
			plural(r.Copied, "version"), verb, r.Present, r.Deleted, plural(r.Configs, "config"),
			plural(r.Modes, "mode"))
		for _, n := range r.Notes {
			fmt.Fprintf(out, "note: %s\n", n)
		}
		for _, f := range r.Failed {
			what := f.Subject
			if f.Version > 0 {
				what = fmt.Sprintf("%s version %d, id %d", f.Subject, f.Version, f.ID)
			}
			fmt.Fprintf(out, "NOT COPIED %s: %s\n", what, f.Reason)
		}
	}
	if len(r.Failed) > 0 {
		return failf(exitFailed, "%s not copied", plural(len(r.Failed), "item"))
	}
	return nil
}
