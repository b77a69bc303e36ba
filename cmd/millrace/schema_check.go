package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Differences []schemaDifference `json:"differences"`
	Warnings    []string           `json:"warnings"`
}

type schemaDifference struct {
	Kind        string `json:"kind"`
	Path        string `json:"path"`
	Compatible  bool   `json:"compatible"`
	Description string `json:"description"`
	Old         string `json:"old"`
	New         string `json:"new"`
	Version     int    `json:"version"`
}

func newSchemaCheck(c *cli) *cobra.Command {
	var f schemaFlags
	var subject string
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Check whether schemas in files could be registered, as a step of CI",
		Long: `Check each schema in the files, and in the files of the folders, against the registry: whether it is valid, and
compatible with the versions of its subject as registering it would ask. Nothing is registered. A file's subject is its
name without its ending: orders-value.avsc is checked against orders-value; --subject names that of a single file. In
folders, files that end in .avsc, .json, .jsonschema or .proto count.

A schema that refers to others has a file beside it with .references behind the whole name: a JSON list of
{"name","subject","version"}.

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
}

func (c *cli) checkSchemas(ctx context.Context, files []string, subject string, f *schemaFlags) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	bad := 0
	all := make([]checked, 0, len(files))
	for _, file := range files {
		one, err := c.checkFile(ctx, r, file, subject, f)
		if err != nil {
			return err
		}
		if !one.Compatible {
			bad++
		}
		all = append(all, *one)
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

// checkFile asks the registry about one file.
func (c *cli) checkFile(ctx context.Context, r *remote, file, subject string, f *schemaFlags) (*checked, error) {
	s, err := f.read(c, file)
	if err != nil {
		return nil, err
	}
	if err := readReferences(file+".references", s); err != nil {
		return nil, err
	}
	if subject == "" {
		if file == "-" {
			return nil, usagef("a schema on standard input needs --subject")
		}
		subject = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	one := &checked{File: file, Subject: subject}
	verdict, err := r.compatible(ctx, subject, "", s, f.query())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	one.compatibility = *verdict
	var versions []int
	err = r.get(ctx, subjectPath(subject, "versions"), &versions)
	if code := registryCode(err); code == codeNoSubject {
		err, one.New = nil, true
	}
	return one, err
}

// codeNoSubject is the registry's number for a subject that is not there.
const codeNoSubject = 40401

// readReferences adds what the file beside a schema's lists, if there is one.
func readReferences(file string, s *registrySchema) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var refs []registryReference
	if err := json.Unmarshal(text, &refs); err != nil {
		return fmt.Errorf(`%s: want a JSON list of {"name","subject","version"}: %w`, file, err)
	}
	s.References = append(s.References, refs...)
	return nil
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
	if !one.Compatible {
		c.showReasons(&one.compatibility)
	}
	for _, w := range one.Warnings {
		fmt.Fprintf(c.out, "         warning: %s\n", w)
	}
}

// showReasons lists why a schema is refused: the differences, or the messages where there are none.
func (c *cli) showReasons(v *compatibility) {
	shown := false
	for _, d := range v.Differences {
		if !d.Compatible {
			fmt.Fprintf(c.out, "         %s at %s, against version %d: %s\n", d.Kind, d.Path, d.Version, d.Description)
			shown = true
		}
	}
	for _, m := range v.Messages {
		if !shown {
			fmt.Fprintf(c.out, "         %s\n", m)
		}
	}
}

func newSchemaDiff(c *cli) *cobra.Command {
	var f schemaFlags
	var from, to string
	cmd := &cobra.Command{
		Use:   "diff SUBJECT [FILE]",
		Short: "Show how a schema differs from a version of a subject, and what that does to readers",
		Long: `Show line by line how the schema in a file, or another version of the subject, differs from a version, and each
difference that the registry finds under the subject's compatibility level.`,
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
		A: difflib.SplitLines(old.pretty()), B: difflib.SplitLines(young.pretty()), FromFile: d.From, ToFile: d.To, Context: 3,
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
	if d.Compatible {
		fmt.Fprintln(c.out, "\ncompatible")
	} else {
		fmt.Fprintln(c.out, "\nNOT compatible")
		if len(d.Differences) == 0 {
			c.showReasons(&d.compatibility)
		}
	}
	for _, one := range d.Differences {
		mark := "  "
		if !one.Compatible {
			mark = "! "
		}
		fmt.Fprintf(c.out, "%s%s at %s: %s\n", mark, one.Kind, one.Path, one.Description)
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(c.out, "  warning: %s\n", w)
	}
}
