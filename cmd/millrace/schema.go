package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func newSchema(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "List, get, register, check, compare and delete schemas, and copy a registry",
		Example: `  millrace schema list
  millrace schema get orders-value
  millrace schema register orders-value order.avsc
  millrace schema check schemas/
  millrace schema diff orders-value order.avsc
  millrace schema compat orders-value FULL
  millrace schema import --from http://registry:8081`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.clientFlags(cmd)
	cmd.AddCommand(newSchemaList(c), newSchemaGet(c), newSchemaRegister(c), newSchemaCheck(c), newSchemaDiff(c),
		newSchemaDelete(c), newSchemaCompat(c), newSchemaImport(c))
	return cmd
}

// registrySchema is a schema as the registry's API shows and takes it.
type registrySchema struct {
	Subject    string              `json:"subject,omitempty"`
	Version    int                 `json:"version,omitempty"`
	ID         int                 `json:"id,omitempty"`
	GUID       string              `json:"guid,omitempty"`
	Type       string              `json:"schemaType,omitempty"`
	References []registryReference `json:"references,omitempty"`
	Metadata   json.RawMessage     `json:"metadata,omitempty"`
	RuleSet    json.RawMessage     `json:"ruleSet,omitempty"`
	Schema     string              `json:"schema"`
	Deleted    bool                `json:"deleted,omitempty"`
}

// kind is the type's name; one that is not given is AVRO.
func (s *registrySchema) kind() string {
	if s.Type == "" {
		return "AVRO"
	}
	return s.Type
}

type registryReference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// latestVersion stands for the newest version of a subject.
const latestVersion = -1

// UnmarshalJSON reads a reference; one without a version, or with "latest", is to the newest.
func (r *registryReference) UnmarshalJSON(text []byte) error {
	var in struct {
		Name, Subject string
		Version       json.RawMessage
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*r = registryReference{Name: in.Name, Subject: in.Subject, Version: latestVersion}
	if v := string(in.Version); v == "" || v == "null" || strings.EqualFold(v, `"latest"`) {
		return nil
	}
	return json.Unmarshal(in.Version, &r.Version)
}

func subjectPath(subject string, more ...string) string {
	path := "/subjects/" + url.PathEscape(subject)
	for _, m := range more {
		path += "/" + url.PathEscape(m)
	}
	return path
}

func newSchemaList(c *cli) *cobra.Command {
	var prefix string
	var deleted, all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List subjects with their newest version, or all versions",
		Example: `  millrace schema list
  millrace schema list --prefix orders- --all
  millrace schema list --prefix :.staging: --deleted -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"subjectPrefix": {prefix}, "latestOnly": {strconv.FormatBool(!all)}}
			if deleted {
				query.Set("deleted", "true")
			}
			return c.listSchemas(cmd.Context(), query)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", everyContext, "only subjects that begin so; :*: begins all contexts, "+
		":.ctx: one")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "also what is softly deleted")
	cmd.Flags().BoolVar(&all, "all", false, "all versions, not only the newest")
	return cmd
}

// schemasPage is how many versions are asked for at once.
const schemasPage = 1000

func (c *cli) listSchemas(ctx context.Context, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	all := []registrySchema{}
	for {
		query.Set("offset", strconv.Itoa(len(all)))
		query.Set("limit", strconv.Itoa(schemasPage))
		var page []registrySchema
		if err := r.do(ctx, call{method: http.MethodGet, path: "/schemas", query: query}, &page); err != nil {
			return err
		}
		all = append(all, page...)
		if len(page) < schemasPage {
			break
		}
	}
	if asJSON {
		return json.NewEncoder(c.out).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.err, "no schemas")
		return nil
	}
	w := c.table("SUBJECT\tVERSION\tID\tTYPE\tBYTES")
	for i := range all {
		s := &all[i]
		mark := ""
		if s.Deleted {
			mark = "\tdeleted"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d%s\n", s.Subject, s.Version, s.ID, s.kind(), len(s.Schema), mark)
	}
	return w.Flush()
}

func newSchemaGet(c *cli) *cobra.Command {
	var version, format string
	var id int
	var deleted bool
	cmd := &cobra.Command{
		Use:   "get [SUBJECT]",
		Short: "Print a schema",
		Long: `Print the text of a subject's schema, its newest version unless --version names one, or the schema of an
id. With -o json the whole answer comes: id, type, references, metadata and rules.`,
		Example: `  millrace schema get orders-value > order.avsc
  millrace schema get orders-value --version 3 -o json
  millrace schema get --id 17
  millrace schema get orders-value --format resolved`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, query := fmt.Sprintf("/schemas/ids/%d", id), url.Values{}
			byID := cmd.Flags().Changed("id")
			switch {
			case len(args) == 1 && byID, len(args) == 0 && !byID:
				return usagef("give a subject or --id, one of them")
			case byID && (cmd.Flags().Changed("version") || deleted):
				return usagef("--version and --deleted go with a subject, not with --id")
			case len(args) == 1:
				path = subjectPath(args[0], "versions", version)
			}
			if format != "" {
				query.Set("format", format)
			}
			if deleted {
				query.Set("deleted", "true")
			}
			return c.getSchema(cmd.Context(), path, query)
		},
	}
	cmd.Flags().StringVar(&version, "version", "latest", "the version of the subject")
	cmd.Flags().IntVar(&id, "id", 0, "the schema's id")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "also a version that is softly deleted")
	cmd.Flags().StringVar(&format, "format", "", "resolved writes out an Avro schema's references, serialized is a "+
		"Protobuf descriptor")
	return cmd
}

func (c *cli) getSchema(ctx context.Context, path string, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := r.do(ctx, call{method: http.MethodGet, path: path, query: query}, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var s registrySchema
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	_, err = io.WriteString(c.out, s.pretty())
	return err
}

// pretty is the text for people to read: JSON is indented, and all ends in one newline.
func (s *registrySchema) pretty() string {
	var out bytes.Buffer
	text := strings.TrimSpace(s.Schema)
	if s.kind() != "PROTOBUF" && json.Indent(&out, []byte(text), "", "  ") == nil {
		text = out.String()
	}
	return text + "\n"
}

// schemaFlags are the flags of commands that read a schema from a file.
type schemaFlags struct {
	typ        string
	references []string
	normalize  bool
}

func (f *schemaFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.typ, "type", "", "avro, json or protobuf; by default what the file's name ends in says: "+
		".avsc, .json or .proto")
	cmd.Flags().StringArrayVar(&f.references, "reference", nil, "NAME=SUBJECT:VERSION of a schema that this one "+
		"refers to; may be given more than once")
	cmd.Flags().BoolVar(&f.normalize, "normalize", false, "compare and store the schema in its normal form")
}

func (f *schemaFlags) query() url.Values {
	if f.normalize {
		return url.Values{"normalize": {"true"}}
	}
	return url.Values{}
}

// schemaEndings are the types of files by what their names end in.
func schemaEndings() map[string]string {
	return map[string]string{".avsc": "AVRO", ".json": "JSON", ".jsonschema": "JSON", ".proto": "PROTOBUF"}
}

// read makes a schema of a file.
func (f *schemaFlags) read(c *cli, file string) (*registrySchema, error) {
	s := &registrySchema{Type: strings.ToUpper(f.typ)}
	switch s.Type {
	case "":
		if s.Type = schemaEndings()[strings.ToLower(filepath.Ext(file))]; s.Type == "" {
			return nil, usagef("%s: its name does not say what kind of schema it is; give --type avro, json or protobuf",
				file)
		}
	case "AVRO", "JSON", "PROTOBUF":
	case "JSONSCHEMA":
		s.Type = "JSON"
	default:
		return nil, usagef("--type %q: want avro, json or protobuf", f.typ)
	}
	for _, text := range f.references {
		ref, err := parseReference(text)
		if err != nil {
			return nil, err
		}
		s.References = append(s.References, ref)
	}
	if err := s.readReferences(file + ".references"); err != nil {
		return nil, err
	}
	var err error
	s.Schema, err = c.readText(file)
	return s, err
}

// referencesHelp says how files tell what their schemas refer to.
const referencesHelp = `A schema that refers to others names them with --reference, or in a file beside it with
.references behind its whole name: a JSON list such as [{"name":"Money","subject":"money","version":1}]. The name is
what the schema itself says: the full name of an Avro type, what "$ref" says in JSON Schema, the path of a Protobuf
import.
`

// readReferences adds what the file beside a schema's lists, if there is one.
func (s *registrySchema) readReferences(file string) error {
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
	for _, ref := range refs {
		if ref.Name == "" || ref.Subject == "" {
			return failf(exitFailed, `%s: a reference needs "name" and "subject"`, file)
		}
	}
	s.References = append(s.References, refs...)
	return nil
}

// schemaFileBytes bounds a schema's file: a server takes no larger ones.
const schemaFileBytes = 16 << 20

// readText reads a file, or standard input for "-".
func (c *cli) readText(file string) (string, error) {
	in := c.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, schemaFileBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", file, err)
	case len(text) > schemaFileBytes:
		return "", usagef("%s: it may have at most %d bytes", file, schemaFileBytes)
	}
	return string(text), nil
}

// parseReference reads NAME=SUBJECT:VERSION. The subject may have colons, the name may not have an equals sign.
func parseReference(text string) (registryReference, error) {
	name, rest, ok := strings.Cut(text, "=")
	at := strings.LastIndexByte(rest, ':')
	if !ok || name == "" || at <= 0 {
		return registryReference{}, usagef("--reference %q: want NAME=SUBJECT:VERSION", text)
	}
	version, err := strconv.Atoi(rest[at+1:])
	if rest[at+1:] == "latest" {
		version, err = latestVersion, nil
	}
	if err != nil {
		return registryReference{}, usagef("--reference %q: %q is no version", text, rest[at+1:])
	}
	return registryReference{Name: name, Subject: rest[:at], Version: version}, nil
}

func newSchemaRegister(c *cli) *cobra.Command {
	var f schemaFlags
	cmd := &cobra.Command{
		Use:   "register SUBJECT FILE",
		Short: "Make a schema a version of a subject",
		Long: `Make the schema in a file, or on standard input for -, the newest version of a subject. A schema that the
subject has already keeps its version, so the command may be repeated. One that is not compatible is refused with the
reasons.

` + referencesHelp,
		Example: `  millrace schema register orders-value order.avsc
  millrace schema register orders-value order.proto --reference money.proto=money:1
  cat order.json | millrace schema register orders-value - --type json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.read(c, args[1])
			if err != nil {
				return err
			}
			return c.registerSchema(cmd.Context(), args[0], s, f.query())
		},
	}
	f.add(cmd)
	return cmd
}

func (c *cli) registerSchema(ctx context.Context, subject string, s *registrySchema, query url.Values) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	post := jsonCall(http.MethodPost, subjectPath(subject, "versions"), s)
	post.query = query
	var raw json.RawMessage
	err = r.do(ctx, post, &raw)
	if statusOf(err) == http.StatusConflict {
		return c.whyRefused(ctx, r, subject, s, query, err)
	}
	if err != nil || asJSON {
		return c.raw(raw, err)
	}
	var stored registrySchema
	if err := json.Unmarshal(raw, &stored); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if stored.Version == 0 { // older registries tell the id alone
		fmt.Fprintf(c.out, "%s: id %d\n", subject, stored.ID)
		return nil
	}
	fmt.Fprintf(c.out, "%s version %d, id %d\n", subject, stored.Version, stored.ID)
	return nil
}

// whyRefused says in lines why a schema is not compatible, if the registry has that to say, and returns its refusal.
func (c *cli) whyRefused(ctx context.Context, r *remote, subject string, s *registrySchema, query url.Values,
	refused error,
) error {
	verdict, err := r.compatible(ctx, subject, "", s, query)
	if err != nil || verdict.Compatible || len(verdict.Differences) == 0 {
		return refused
	}
	var reasons strings.Builder
	verdict.reasons(&reasons, "  ")
	return failf(exitFailed, "the schema is not compatible with subject %s, and was not registered:\n%s", subject,
		strings.TrimSuffix(reasons.String(), "\n"))
}

func newSchemaDelete(c *cli) *cobra.Command {
	var version string
	var permanent bool
	cmd := &cobra.Command{
		Use:   "delete SUBJECT",
		Short: "Delete a subject, or one version of it",
		Long: `Delete a subject with all its versions, or with --version one of them. A deleted version is no longer found by
its subject, but its id still resolves, so that data stays readable. With --permanent what was deleted before is
forgotten, and data with its id cannot be read any more; there is no way back.`,
		Example: `  millrace schema delete orders-value --version 3
  millrace schema delete orders-value
  millrace schema delete orders-value --permanent`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := subjectPath(args[0])
			if version != "" {
				path = subjectPath(args[0], "versions", version)
			}
			return c.deleteSchema(cmd.Context(), args[0], path, permanent)
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "only this version, a number or latest")
	cmd.Flags().BoolVar(&permanent, "permanent", false, "forget what was deleted before")
	return cmd
}

func (c *cli) deleteSchema(ctx context.Context, subject, path string, permanent bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	del := call{method: http.MethodDelete, path: path}
	if permanent {
		del.query = url.Values{"permanent": {"true"}}
	}
	var raw json.RawMessage
	if err := r.do(ctx, del, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	how, what := "deleted", "version"
	if permanent {
		how = "deleted for good"
	}
	numbers := strings.Trim(string(bytes.TrimSpace(raw)), "[]")
	if strings.Contains(numbers, ",") {
		what += "s"
	}
	fmt.Fprintf(c.out, "%s: %s %s %s\n", subject, what, strings.ReplaceAll(numbers, ",", ", "), how)
	return nil
}

func newSchemaCompat(c *cli) *cobra.Command {
	var unset bool
	cmd := &cobra.Command{
		Use:   "compat [SUBJECT] [LEVEL]",
		Short: "Show or set how compatible the versions of a subject must be",
		Long: `Show the compatibility level in force for a subject, or set its own. Without a subject it is the level of all
that have none of their own; to set that, give "" as the subject. The levels are NONE, BACKWARD (a new schema reads what
was written with the one before), FORWARD (the one before reads what the new one writes), FULL (both), and each but NONE
with _TRANSITIVE: against all versions.`,
		Example: `  millrace schema compat
  millrace schema compat orders-value
  millrace schema compat orders-value FULL_TRANSITIVE
  millrace schema compat "" FULL
  millrace schema compat orders-value --unset`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if unset && len(args) != 1 {
				return usagef("--unset wants a subject alone")
			}
			return c.compat(cmd.Context(), args, unset)
		},
	}
	cmd.Flags().BoolVar(&unset, "unset", false, "remove the subject's own level")
	return cmd
}

func (c *cli) compat(ctx context.Context, args []string, unset bool) error {
	asJSON, r, err := c.client()
	if err != nil {
		return err
	}
	path, what := "/config", "all subjects"
	if len(args) > 0 && args[0] != "" {
		path, what = "/config/"+url.PathEscape(args[0]), args[0]
	}
	ask := call{method: http.MethodGet, path: path, query: url.Values{"defaultToGlobal": {"true"}}}
	switch {
	case unset:
		ask = call{method: http.MethodDelete, path: path}
	case len(args) == 2:
		ask = jsonCall(http.MethodPut, path, map[string]string{"compatibility": args[1]})
	}
	var raw json.RawMessage
	if err := r.do(ctx, ask, &raw); err != nil || asJSON {
		return c.raw(raw, err)
	}
	var level struct {
		Read    string `json:"compatibilityLevel"`
		Written string `json:"compatibility"`
	}
	if err := json.Unmarshal(raw, &level); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if unset {
		fmt.Fprintf(c.out, "%s: no level of its own any more; it was %s\n", what, level.Read)
		return nil
	}
	fmt.Fprintf(c.out, "%s: %s\n", what, level.Read+level.Written)
	return nil
}
