package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
)

// compatibility is the registry's verdict on a schema.
type compatibility struct {
	Compatible  bool               `json:"is_compatible"`
	Messages    []string           `json:"messages"`
	Differences []schemaDifference `json:"differences,omitempty"`
	Warnings    []string           `json:"warnings,omitempty"`
}

type schemaDifference struct {
	Kind        string `json:"kind"`
	Path        string `json:"path"`
	Compatible  bool   `json:"compatible"`
	Description string `json:"description"`
	Old         string `json:"old,omitempty"`
	New         string `json:"new,omitempty"`
	Version     int    `json:"version"`
}

func newSchemaCheck(c *cli) *cobra.Command {
	var f schemaFlags
	var subject string
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Check whether schemas in files could be registered, as a step of CI",
		Long: `Check each schema in the files, and in the files of the folders, against the registry: whether it is valid,
and compatible with the versions of its subject as registering it would ask. Nothing is registered.

A file's subject is its name without its ending: orders-value.avsc is checked against orders-value; --subject names that
of a single file. In folders, files that end in .avsc, .json, .jsonschema or .proto count.

` + referencesHelp + `
Files may refer to each other also where none is registered yet. Without "version", or with "latest", a file is checked
with what is in the other file.

The command ends with code 1 when a schema is not valid or not compatible.`,
		Example: `  millrace schema check schemas/
  millrace schema check order.avsc --subject orders-value
  millrace schema check schemas/ -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := schemaFiles(args)
			if err != nil {
				return err
			}
			if subject != "" && len(files) != 1 {
				return usagef("--subject goes with one file, and there are %d", len(files))
			}
			return c.checkSchemas(cmd.Context(), files, subject, &f)
		},
	}
	cmd.Flags().StringVar(&subject, "subject", "", "the subject of a single file")
	f.add(cmd)
	return cmd
}

// schemaFiles lists the files that paths name, and those with schemas in folders.
func schemaFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == "-" {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		before := len(files)
		err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && schemaEndings()[strings.ToLower(filepath.Ext(file))] != "" {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, usagef("%s holds no file that ends in .avsc, .json, .jsonschema or .proto", path)
		}
	}
	return files, nil
}

// checked is what came of a file.
type checked struct {
	File    string `json:"file"`
	Subject string `json:"subject"`
	New     bool   `json:"new"` // the subject has no version yet
	compatibility

	schema *registrySchema
}

func (c *cli) checkSchemas(ctx context.Context, files []string, subject string, f *schemaFlags) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	all := make([]*checked, 0, len(files))
	for _, file := range files {
		one, err := c.readChecked(file, subject, f)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	if err := onePerSubject(all); err != nil {
		return err
	}
	if err := r.checkAll(ctx, all, f.query()); err != nil {
		return err
	}
	bad := 0
	for _, one := range all {
		if !one.Compatible {
			bad++
		}
		if !asJSON {
			c.showChecked(one)
		}
	}
	if asJSON {
		if err := json.NewEncoder(c.out).Encode(all); err != nil {
			return err
		}
	}
	if bad > 0 {
		return failf(exitFailed, "%d of %s cannot be registered", bad, plural(len(files), "schema"))
	}
	return nil
}

func (c *cli) readChecked(file, subject string, f *schemaFlags) (*checked, error) {
	if subject == "" {
		if file == "-" {
			return nil, usagef("a schema on standard input needs --subject")
		}
		subject = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	s, err := f.read(c, file)
	return &checked{File: file, Subject: subject, schema: s}, err
}

// onePerSubject refuses files of the same subject: which of them would be its next version is not said.
func onePerSubject(all []*checked) error {
	files := map[string]string{}
	for _, one := range all {
		if other := files[one.Subject]; other != "" {
			return usagef("%s and %s are both of subject %s", other, one.File, one.Subject)
		}
		files[one.Subject] = one.File
	}
	return nil
}

// checkAll asks the registry about files. Those that have to do with each other are checked together, each after those
// that it refers to. A registry of another make cannot do that, and need not where files stand alone.
func (r *remote) checkAll(ctx context.Context, all []*checked, query url.Values) error {
	together := inOrder(all)
	part := map[*checked]bool{}
	for _, one := range together {
		part[one] = true
	}
	for _, one := range all {
		if !part[one] {
			if err := r.checkOne(ctx, one, query); err != nil {
				return err
			}
		}
		var versions []int
		err := r.get(ctx, subjectPath(one.Subject, "versions"), &versions)
		if one.New = statusOf(err) == http.StatusNotFound; err != nil && !one.New {
			return fmt.Errorf("%s: %w", one.File, err)
		}
	}
	return r.checkTogether(ctx, together, query)
}

// inOrder gives the files that refer to others of them, or are referred to, each after those that it refers to.
func inOrder(all []*checked) (out []*checked) {
	of := map[string]*checked{}
	for _, one := range all {
		of[one.Subject] = one
	}
	part := map[*checked]bool{}
	for _, one := range all {
		for _, ref := range one.schema.References {
			if other := of[ref.Subject]; other != nil {
				part[one], part[other] = true, true
			}
		}
	}
	seen := map[*checked]bool{}
	var take func(one *checked)
	take = func(one *checked) {
		if one == nil || seen[one] || !part[one] {
			return
		}
		seen[one] = true
		for _, ref := range one.schema.References {
			take(of[ref.Subject])
		}
		out = append(out, one)
	}
	for _, one := range all {
		take(one)
	}
	return out
}

// checkTogether asks about files of which each may refer to those before it.
func (r *remote) checkTogether(ctx context.Context, files []*checked, query url.Values) error {
	if len(files) == 0 {
		return nil
	}
	body := struct {
		Schemas   []registrySchema `json:"schemas"`
		Normalize bool             `json:"normalize"`
	}{Normalize: query.Has("normalize")}
	to, context := r.withoutContext()
	for _, one := range files {
		s := *one.schema
		if s.Subject = one.Subject; contextOf(s.Subject) == "" {
			s.Subject = context + s.Subject
		}
		body.Schemas = append(body.Schemas, s)
	}
	var answer struct {
		Results []compatibility `json:"results"`
	}
	err := to.do(ctx, jsonCall(http.MethodPost, "/v1/schemas:check", &body), &answer)
	switch {
	case statusOf(err) == http.StatusNotFound:
		return r.checkApart(ctx, files, query)
	case err != nil:
		return err
	case len(answer.Results) != len(files):
		return failf(exitFailed, "the server's answer has %d results for %d files", len(answer.Results), len(files))
	}
	for i, one := range files {
		one.compatibility = answer.Results[i]
	}
	return nil
}

// checkApart asks a registry that cannot check files together about each, where they name the versions that they refer
// to.
func (r *remote) checkApart(ctx context.Context, files []*checked, query url.Values) error {
	for _, one := range files {
		for _, ref := range one.schema.References {
			if ref.Version == latestVersion {
				return failf(exitFailed, "%s refers to the latest version of %s, and the registry at %s cannot check files "+
					"together: register that one first, and name its version", one.File, ref.Subject, r.base)
			}
		}
	}
	for _, one := range files {
		if err := r.checkOne(ctx, one, query); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) checkOne(ctx context.Context, one *checked, query url.Values) error {
	verdict, err := r.compatible(ctx, one.Subject, "", one.schema, query)
	if err != nil {
		return fmt.Errorf("%s: %w", one.File, err)
	}
	one.compatibility = *verdict
	return nil
}

// withoutContext is the registry that a URL which ends in a context belongs to, and what its subjects begin with there.
func (r *remote) withoutContext() (whole *remote, context string) {
	base, context, ok := strings.Cut(r.base, "/contexts/")
	if !ok {
		return r, ""
	}
	out := *r
	out.base = base
	return &out, ":." + strings.TrimLeft(strings.Trim(context, ":"), ".") + ":"
}

// compatible asks for the verdict on a schema, against one version or, with none, as registering would.
func (r *remote) compatible(ctx context.Context, subject, version string, s *registrySchema, query url.Values) (
	*compatibility, error,
) {
	path := "/compatibility" + subjectPath(subject, "versions")
	if version != "" {
		path += "/" + url.PathEscape(version)
	}
	post := jsonCall(http.MethodPost, path, s)
	query.Set("verbose", "true")
	post.query = query
	var verdict compatibility
	return &verdict, r.do(ctx, post, &verdict)
}

func (c *cli) showChecked(one *checked) {
	what := "ok"
	switch {
	case !one.Compatible:
		what = "REFUSED"
	case one.New:
		what = "new"
	}
	fmt.Fprintf(c.out, "%-8s %s (%s)\n", what, one.File, one.Subject)
	one.reasons(c.out, "         ")
}

// reasons lists why a schema is refused: the differences, or the messages where there are none; and all warnings.
func (v *compatibility) reasons(out io.Writer, indent string) {
	shown := v.Compatible
	for i := range v.Differences {
		if d := &v.Differences[i]; !d.Compatible {
			fmt.Fprintf(out, "%s%s\n", indent, d)
			shown = true
		}
	}
	for _, m := range v.Messages {
		if !shown {
			fmt.Fprintf(out, "%s%s\n", indent, m)
		}
	}
	for _, w := range v.Warnings {
		fmt.Fprintf(out, "%swarning: %s\n", indent, w)
	}
}

func (d *schemaDifference) String() string {
	out := d.Kind
	if !strings.Contains(d.Description, "'"+d.Path+"'") {
		out += " at " + d.Path
	}
	if d.Version > 0 {
		out += fmt.Sprintf(", against version %d", d.Version)
	}
	return out + ": " + d.Description
}

func newSchemaDiff(c *cli) *cobra.Command {
	var f schemaFlags
	var from, to string
	cmd := &cobra.Command{
		Use:   "diff SUBJECT [FILE]",
		Short: "Show how a schema differs from a version of a subject, and what that does to readers",
		Long: `Show line by line how the schema in a file, or another version of the subject, differs from a version, and
each difference that the registry finds under the subject's compatibility level.`,
		Example: `  millrace schema diff orders-value order.avsc
  millrace schema diff orders-value --from 1 --to 3
  millrace schema diff orders-value order.avsc --from 2`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 2) == (to != "") {
				return usagef("give a file or --to, one of them")
			}
			file := ""
			if len(args) == 2 {
				file = args[1]
			}
			return c.diffSchema(cmd.Context(), args[0], file, from, to, &f)
		},
	}
	cmd.Flags().StringVar(&from, "from", "latest", "the version to compare with")
	cmd.Flags().StringVar(&to, "to", "", "the version that is compared")
	f.add(cmd)
	return cmd
}

// schemaComparison is what diff shows.
type schemaComparison struct {
	From string `json:"from"`
	To   string `json:"to"`
	Diff string `json:"diff"`
	compatibility
}

func (c *cli) diffSchema(ctx context.Context, subject, file, from, to string, f *schemaFlags) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var old, young registrySchema
	if err := r.get(ctx, subjectPath(subject, "versions", from), &old); err != nil {
		return err
	}
	d := schemaComparison{From: fmt.Sprintf("%s version %d", subject, old.Version), To: file}
	if file != "" {
		s, err := f.read(c, file)
		if err != nil {
			return err
		}
		young = *s
	} else {
		if err := r.get(ctx, subjectPath(subject, "versions", to), &young); err != nil {
			return err
		}
		d.To = fmt.Sprintf("%s version %d", subject, young.Version)
		young.Subject, young.Version, young.ID, young.GUID = "", 0, 0, ""
	}
	verdict, err := r.compatible(ctx, subject, from, &young, f.query())
	if err != nil {
		return err
	}
	d.compatibility = *verdict
	d.Diff, err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(old.pretty()), B: difflib.SplitLines(young.pretty()), FromFile: d.From, ToFile: d.To,
		Context: 3,
	})
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(d)
	}
	c.showComparison(&d)
	return nil
}

func (c *cli) showComparison(d *schemaComparison) {
	if d.Diff == "" {
		fmt.Fprintln(c.out, "the texts are the same")
	}
	fmt.Fprint(c.out, d.Diff)
	fmt.Fprintln(c.out)
	if d.Compatible {
		fmt.Fprintln(c.out, "compatible")
	} else {
		fmt.Fprintln(c.out, "NOT compatible")
	}
	for i := range d.Differences {
		if one := &d.Differences[i]; one.Compatible {
			fmt.Fprintf(c.out, "  fine: %s\n", one)
		}
	}
	d.reasons(c.out, "  ")
}
