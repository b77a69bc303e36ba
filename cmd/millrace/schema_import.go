package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
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
		Short: "Copy all of another registry: ids, versions, deleted ones, configs and modes",
		Long: `Copy the schemas of a registry that runs at another URL over its API: each version with its number and its id, so
that data that names ids stays readable, also versions that are softly deleted, and the configs and modes of the subjects
and of all. The other registry is only read.

Each subject is put into mode IMPORT while it is copied, and gets the mode of its original in the end. What is here already
is left as it is, so a copy that was interrupted goes on when the command is given again. A version whose number or id means
something else here is not copied and is listed. The report says what came of each, and the command ends with code 1 if
something was not copied.

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
	cmd.Flags().StringVar(&f.prefix, "prefix", ":*:", "only subjects that begin so; :*: begins all contexts")
	cmd.Flags().StringVar(&f.report, "report", "", "a file for what came of each version, as JSON")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only tell what would be copied")
	return cmd
}

// importer copies one registry into another.
type importer struct {
	c        *cli
	from, to *remote
	header   http.Header // of requests to from
	flags    *importFlags
	report   importReport
}

// importReport is what came of a copy.
type importReport struct {
	Subjects int           `json:"subjects"`
	Copied   int           `json:"copied"`
	Present  int           `json:"present"` // here already
	Deleted  int           `json:"deleted"` // copied, and softly deleted as in the original
	Configs  int           `json:"configs"`
	Modes    int           `json:"modes"`
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
		c: c, to: to, from: &remote{base: strings.TrimRight(f.from, "/"), http: to.http}, flags: f, header: http.Header{},
		report: importReport{Failed: []importFault{}},
	}
	if auth := c.getenv("MILLRACE_FROM_AUTHORIZATION"); auth != "" {
		im.header.Set("Authorization", auth)
	}
	if err := im.run(ctx); err != nil {
		return err
	}
	if f.report != "" {
		text, _ := json.MarshalIndent(im.report, "", "  ") // numbers and strings always encode
		if err := os.WriteFile(f.report, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return im.show(asJSON)
}

func (im *importer) run(ctx context.Context) error {
	all, err := im.load(ctx)
	if err != nil {
		return err
	}
	subjects := map[string]bool{}
	for i := range all {
		subjects[all[i].Subject] = true
	}
	im.report.Subjects = len(subjects)
	versions := inOrder(all)
	progress := im.c.newProgress(-1)
	defer progress.done()
	began := map[string]bool{}
	for n, v := range versions {
		if err := im.version(ctx, v, began); err != nil {
			return fmt.Errorf("%s version %d: %w\nWhat was copied stays; give the command again to go on", v.Subject, v.Version,
				err)
		}
		progress.show(int64(n+1), 0)
	}
	return im.settings(ctx, subjects)
}

// readers is how many requests are under way at the registry that is read.
const readers = 8

// load reads all versions of the other registry, also deleted ones.
func (im *importer) load(ctx context.Context) ([]registrySchema, error) {
	var names []string
	query := url.Values{"deleted": {"true"}, "subjectPrefix": {im.flags.prefix}}
	if err := im.get(ctx, "/subjects", query, &names); err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		all   []registrySchema
		fault error
		next  = make(chan string)
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range readers {
		wg.Go(func() {
			for name := range next {
				some, err := im.loadSubject(ctx, name)
				mu.Lock()
				if all = append(all, some...); err != nil && fault == nil {
					fault = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		select {
		case next <- name:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	if fault == nil {
		fault = ctx.Err()
	}
	return all, fault
}

// loadSubject reads all versions of a subject. Which of them are deleted is what the list of the others leaves out.
func (im *importer) loadSubject(ctx context.Context, name string) ([]registrySchema, error) {
	var every, live []int
	if err := im.get(ctx, subjectPath(name, "versions"), url.Values{"deleted": {"true"}}, &every); err != nil {
		return nil, err
	}
	err := im.get(ctx, subjectPath(name, "versions"), nil, &live)
	if err != nil && registryCode(err) != codeNoSubject {
		return nil, err
	}
	var out []registrySchema
	for _, number := range every {
		var s registrySchema
		path := subjectPath(name, "versions", strconv.Itoa(number))
		if err := im.get(ctx, path, url.Values{"deleted": {"true"}}, &s); err != nil {
			return nil, err
		}
		s.Subject, s.Version, s.Deleted = name, number, !slices.Contains(live, number)
		out = append(out, s)
	}
	return out, nil
}

func (im *importer) get(ctx context.Context, path string, query url.Values, out any) error {
	err := im.from.do(ctx, call{method: http.MethodGet, path: path, query: query, header: im.header}, out)
	if err != nil {
		return fmt.Errorf("%s%s: %w", im.from.base, path, err)
	}
	return nil
}

// inOrder sorts versions by id, but for those that others refer to: they come before them.
func inOrder(all []registrySchema) []*registrySchema {
	type place struct {
		subject string
		version int
	}
	at := map[place]*registrySchema{}
	sorted := make([]*registrySchema, 0, len(all))
	for i := range all {
		at[place{all[i].Subject, all[i].Version}] = &all[i]
		sorted = append(sorted, &all[i])
	}
	slices.SortFunc(sorted, func(a, b *registrySchema) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Version, b.Version))
	})
	var out []*registrySchema
	seen := map[*registrySchema]bool{}
	var take func(s *registrySchema)
	take = func(s *registrySchema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		context := contextOf(s.Subject)
		for _, ref := range s.References {
			subject := ref.Subject
			if contextOf(subject) == "" {
				subject = context + subject
			}
			take(at[place{subject, ref.Version}])
		}
		out = append(out, s)
	}
	for _, s := range sorted {
		take(s)
	}
	return out
}

// contextOf is the context with which a subject's name begins, such as :.ctx:, or "".
func contextOf(subject string) string {
	if !strings.HasPrefix(subject, ":.") {
		return ""
	}
	end := strings.IndexByte(subject[1:], ':')
	if end < 0 {
		return ""
	}
	return subject[:end+2]
}

// version copies one version, unless it is here. An error means that the copy cannot go on.
func (im *importer) version(ctx context.Context, v *registrySchema, began map[string]bool) error {
	path := subjectPath(v.Subject, "versions", strconv.Itoa(v.Version))
	here := registrySchema{}
	err := im.to.do(ctx, call{method: http.MethodGet, path: path, query: url.Values{"deleted": {"true"}}}, &here)
	switch {
	case err == nil && here.ID == v.ID:
		im.report.Present++
		if !v.Deleted || here.Deleted {
			return nil
		}
		return im.delete(ctx, v, path)
	case err == nil:
		im.fail(v, fmt.Sprintf("version %d has id %d here", v.Version, here.ID))
		return nil
	case statusOf(err) != http.StatusNotFound:
		return err
	}
	if im.flags.dry {
		im.report.Copied++
		return nil
	}
	if !began[v.Subject] {
		if err := im.begin(ctx, v.Subject); err != nil {
			return err
		}
		began[v.Subject] = true
	}
	body := *v
	body.Subject, body.Deleted = "", false
	if err := im.to.do(ctx, jsonCall(http.MethodPost, subjectPath(v.Subject, "versions"), &body), nil); err != nil {
		if code := registryCode(err) / 100; code != http.StatusUnprocessableEntity && code != http.StatusConflict {
			return err
		}
		im.fail(v, err.Error())
		return nil
	}
	im.report.Copied++
	if !v.Deleted {
		return nil
	}
	return im.delete(ctx, v, path)
}

// begin puts a subject into mode IMPORT. One that has versions here is a copy that goes on.
func (im *importer) begin(ctx context.Context, subject string) error {
	put := jsonCall(http.MethodPut, "/mode/"+url.PathEscape(subject), map[string]string{"mode": "IMPORT"})
	put.query = url.Values{"force": {"true"}}
	return im.to.do(ctx, put, nil)
}

// delete deletes a version softly, as its original is.
func (im *importer) delete(ctx context.Context, v *registrySchema, path string) error {
	if im.flags.dry {
		return nil
	}
	if err := im.to.do(ctx, call{method: http.MethodDelete, path: path}, nil); err != nil {
		if statusOf(err) != http.StatusUnprocessableEntity {
			return err
		}
		im.fail(v, "it is deleted in the original, and could not be here: "+err.Error())
		return nil
	}
	im.report.Deleted++
	return nil
}

func (im *importer) fail(v *registrySchema, reason string) {
	im.report.Failed = append(im.report.Failed, importFault{Subject: v.Subject, Version: v.Version, ID: v.ID, Reason: reason})
}

// settings copies the configs and modes of subjects and, where all are copied, of all.
func (im *importer) settings(ctx context.Context, subjects map[string]bool) error {
	names := make([]string, 0, len(subjects)+1)
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := im.setting(ctx, name, "/"+url.PathEscape(name)); err != nil {
			return err
		}
	}
	if im.flags.prefix != ":*:" {
		return nil
	}
	return im.setting(ctx, "", "")
}

// setting copies a config and a mode. A subject without a mode of its own in the original has none here in the end.
func (im *importer) setting(ctx context.Context, subject, path string) error {
	config := map[string]any{}
	switch err := im.get(ctx, "/config"+path, nil, &config); {
	case statusOf(err) == http.StatusNotFound:
	case err != nil:
		return err
	default:
		config["compatibility"] = config["compatibilityLevel"]
		delete(config, "compatibilityLevel")
		if err := im.put(ctx, subject, "/config"+path, config, &im.report.Configs); err != nil {
			return err
		}
	}
	mode := map[string]any{}
	err := im.get(ctx, "/mode"+path, nil, &mode)
	switch {
	case statusOf(err) == http.StatusNotFound:
		if im.flags.dry {
			return nil
		}
		err := im.to.do(ctx, call{method: http.MethodDelete, path: "/mode" + path}, nil)
		if statusOf(err) == http.StatusNotFound {
			return nil
		}
		return err
	case err != nil:
		return err
	}
	return im.put(ctx, subject, "/mode"+path, mode, &im.report.Modes)
}

func (im *importer) put(ctx context.Context, subject, path string, body map[string]any, count *int) error {
	if !im.flags.dry {
		put := jsonCall(http.MethodPut, path, body)
		if strings.HasPrefix(path, "/mode") {
			put.query = url.Values{"force": {"true"}}
		}
		if err := im.to.do(ctx, put, nil); err != nil {
			if statusOf(err) != http.StatusUnprocessableEntity {
				return err
			}
			im.report.Failed = append(im.report.Failed, importFault{Subject: subject, Reason: path + ": " + err.Error()})
			return nil
		}
	}
	*count++
	return nil
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
			plural(r.Copied, "version"), verb, r.Present, r.Deleted, plural(r.Configs, "config"), plural(r.Modes, "mode"))
		for _, f := range r.Failed {
			fmt.Fprintf(out, "NOT COPIED %s version %d, id %d: %s\n", f.Subject, f.Version, f.ID, f.Reason)
		}
	}
	if len(r.Failed) > 0 {
		return failf(exitFailed, "%s not copied", plural(len(r.Failed), "item"))
	}
	return nil
}
