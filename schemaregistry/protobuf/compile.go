package protobuf

import (
	"embed"
	"encoding/base64"
	"io/fs"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/ast"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/options"
	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"millrace/schemaregistry/schema"
)

const (
	mainName   = "default" // the file name of a schema, which has none of its own
	metaImport = "confluent/meta.proto"
	metaPrefix = "confluent."
)

// builtin holds the files outside google/protobuf that need no reference.
//
//go:embed builtin
var builtin embed.FS

// standard are the files of the language itself. No reference replaces them: the compiler knows them by heart.
var standard = []string{
	"any", "api", "compiler/plugin", "cpp_features", "descriptor", "duration", "empty", "field_mask", "go_features",
	"java_features", "source_context", "struct", "timestamp", "type", "wrappers",
}

// library is what can be imported without a reference. It does not change.
type library struct {
	files map[string]*unit
	types *resolver // of all the files
}

// unit is one file: of a schema, a dependency or the library.
type unit struct {
	name     string
	subject  string // of a dependency
	version  int    //
	written  *file  // as its author wrote it
	proto    *descriptorpb.FileDescriptorProto
	parsed   parser.Result
	linked   linker.File // nil if fault is not
	fault    error       // why it does not compile
	implicit bool        // it uses the meta options without importing them
	loose    bool        // it has options that nothing declares, which only the text has
	shape    *shape      // of the library's files
}

func newLibrary() (*library, error) {
	lib := &library{files: map[string]*unit{}, types: newResolver(nil)}
	known := protocompile.WithStandardImports(protocompile.ResolverFunc(func(string) (protocompile.SearchResult, error) {
		return protocompile.SearchResult{}, protoregistry.NotFound
	}))
	for _, base := range standard {
		name := "google/protobuf/" + base + ".proto"
		found, err := known.FindFileByPath(name)
		if err != nil {
			return nil, err
		}
		linked, err := linker.NewFileRecursive(found.Desc)
		if err != nil {
			return nil, err
		}
		lib.files[name] = &unit{name: name, proto: protodesc.ToFileDescriptorProto(found.Desc), linked: linked}
	}
	c := newCompilation(&Format{library: lib, limits: Limits{}.withDefaults()})
	err := fs.WalkDir(builtin, "builtin", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := builtin.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, "builtin/")
		u, err := c.compile(name, string(text))
		if err == nil {
			err = u.fault
		}
		lib.files[name] = u
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, u := range lib.files {
		u.shape = newShape(u)
		lib.types.add(u.linked)
	}
	for _, u := range lib.files {
		if u.written == nil {
			u.written = described(u.proto, lib.types)
		}
		u.release()
	}
	return lib, nil
}

// compilation turns one schema and its dependencies into descriptors.
type compilation struct {
	format  *Format
	budget  budget
	units   map[string]*unit // the dependencies
	order   []*unit
	symbols *linker.Symbols
}

func newCompilation(f *Format) *compilation {
	return &compilation{
		format: f, budget: budget{limits: f.limits}, units: map[string]*unit{}, symbols: &linker.Symbols{},
	}
}

// dependency adds a file that others import.
func (c *compilation) dependency(d *schema.Dependency) error {
	if known := c.find(d.Name); known != nil && known.standard() {
		return nil
	}
	u, err := c.compile(d.Name, d.Text)
	if err != nil {
		return err
	}
	u.subject, u.version = d.Subject, d.Version
	c.units[d.Name] = u
	c.order = append(c.order, u)
	return u.fault
}

// standard reports whether the file is the language's own.
func (u *unit) standard() bool { return strings.HasPrefix(u.name, "google/protobuf/") }

// freeName is a file name for the schema itself that no dependency has.
func (c *compilation) freeName() string {
	name := mainName
	for c.units[name] != nil {
		name += "_"
	}
	return name
}

// find is the file that an import means, nil if there is none.
func (c *compilation) find(path string) *unit {
	known := c.format.library.files[path]
	if known != nil && known.standard() {
		return known
	}
	if u := c.units[path]; u != nil {
		return u
	}
	return known
}

// compile reads a file. An error means that it is not even well formed.
func (c *compilation) compile(name, text string) (*unit, error) {
	if strings.TrimSpace(text) == "" {
		return nil, schema.Invalid("the text is empty")
	}
	if d := c.descriptor(text); d != nil {
		var err error
		if text, err = c.unprint(name, d); err != nil {
			return nil, err
		}
	}
	if err := c.budget.spend(text); err != nil {
		return nil, err
	}
	node, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	u := &unit{name: name, written: fromSource(node)}
	if u.written.fold() {
		if node, err = parse(name, u.written.String()); err != nil {
			return nil, err
		}
		u.written = fromSource(node)
	}
	if u.fault = c.link(u, node); u.fault == nil {
		return u, nil
	}
	// What is left is for printing and comparing.
	tolerant := reporter.NewHandler(reporter.NewReporter(func(reporter.ErrorWithPos) error { return nil }, nil))
	u.linked = nil
	if u.parsed, _ = parser.ResultFromAST(node, false, tolerant); u.parsed == nil {
		return nil, u.fault
	}
	u.proto = u.parsed.FileDescriptorProto()
	return u, nil
}

func parse(name, text string) (*ast.FileNode, error) {
	node, err := parser.Parse(name, strings.NewReader(text), reporter.NewHandler(nil))
	if err != nil {
		return nil, located(err)
	}
	return node, nil
}

// link compiles a parsed file with its imports.
func (c *compilation) link(u *unit, node *ast.FileNode) error {
	h := reporter.NewHandler(nil)
	parsed, err := parser.ResultFromAST(node, true, h)
	if err != nil {
		return located(err)
	}
	u.parsed, u.proto = parsed, parsed.FileDescriptorProto()
	if u.implicit = u.usesMeta(); u.implicit {
		u.proto.Dependency = append(u.proto.Dependency, metaImport)
	}
	var imports linker.Files
	for _, path := range u.proto.Dependency {
		d := c.find(path)
		if d == nil {
			return schema.Invalid("%simport %q is not known: no reference has that name", importPlace(node,
				path), path)
		}
		if d.linked == nil {
			return schema.Invalid("%simport %q does not compile: %w", importPlace(node, path), path, d.fault)
		}
		imports = append(imports, d.linked)
	}
	u.loose = c.dropUnknown(u)
	linked, err := linker.Link(parsed, imports, c.symbols, h)
	if err != nil {
		return located(err)
	}
	if _, err := options.InterpretOptions(linked, h); err != nil {
		return located(err)
	}
	if err := linked.ValidateOptions(h, c.symbols); err != nil {
		return located(err)
	}
	u.linked = linked
	return foreign(linked.Messages())
}

// usesMeta reports whether options of confluent/meta.proto are used without its import, as is allowed.
func (u *unit) usesMeta() bool {
	for _, i := range u.proto.Dependency {
		if i == metaImport {
			return false
		}
	}
	found := false
	u.written.eachOption(func(o *option) {
		found = found || o.custom() && strings.HasPrefix(strings.TrimPrefix(o.bare(), "."), metaPrefix) &&
			strings.Contains(o.name, "_meta")
	})
	return found && u.written.pkg != "confluent"
}

func importPlace(node *ast.FileNode, path string) string {
	for _, d := range node.Decls {
		if i, ok := d.(*ast.ImportNode); ok && i.Name.AsString() == path {
			p := node.NodeInfo(i.Name).Start()
			return "line " + itoa(p.Line) + ", column " + itoa(p.Col) + ": "
		}
	}
	return ""
}

// foreign refuses messages that carry the name of one that JSON treats in a way of its own but are not it: the
// translators would trip over them.
func foreign(messages protoreflect.MessageDescriptors) error {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.ParentFile().Package() != "google.protobuf" {
			return nil
		}
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(m.FullName())
		if err != nil {
			continue
		}
		known, ok := d.(protoreflect.MessageDescriptor)
		if !ok || !sameFields(m, known) {
			return schema.Invalid("%s is not the message that the language knows by this name", m.FullName())
		}
	}
	return nil
}

func sameFields(m, known protoreflect.MessageDescriptor) bool {
	if strings.HasSuffix(string(known.ParentFile().Path()), "descriptor.proto") {
		return true // it grows, and JSON has nothing special for it
	}
	if m.Fields().Len() != known.Fields().Len() {
		return false
	}
	for i := range known.Fields().Len() {
		want := known.Fields().Get(i)
		got := m.Fields().ByNumber(want.Number())
		if got == nil || got.Name() != want.Name() || got.Kind() != want.Kind() ||
			got.Cardinality() != want.Cardinality() || got.IsMap() != want.IsMap() {
			return false
		}
		if want.IsMap() && !sameFields(got.Message(), want.Message()) {
			return false
		}
		if want.Message() != nil && got.Message().FullName() != want.Message().FullName() {
			return false
		}
	}
	return true
}

// descriptor is the FileDescriptorProto that a text is in base64, nil if it is not one.
func (c *compilation) descriptor(text string) *descriptorpb.FileDescriptorProto {
	text = strings.TrimSpace(text)
	if len(text) < 8 || len(text) > 2*c.budget.limits.TextBytes || strings.ContainsAny(text, " {};\"'") {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) > c.budget.limits.TextBytes {
		return nil
	}
	// A message may be two bytes long and become hundreds.
	w := walker{depth: c.budget.limits.Depth, nodes: c.budget.limits.Tokens}
	if w.message(raw, newLayout((&descriptorpb.FileDescriptorProto{}).ProtoReflect().Descriptor()), 0) != nil {
		return nil
	}
	d := &descriptorpb.FileDescriptorProto{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 200}).Unmarshal(raw, d); err != nil {
		return nil
	}
	return d
}

// unprint writes a descriptor as text.
func (c *compilation) unprint(name string, d *descriptorpb.FileDescriptorProto) (string, error) {
	d.Name = &name
	d.SourceCodeInfo = nil
	linked, err := protodesc.NewFile(d, c)
	if err != nil {
		return "", schema.Invalid("the descriptor does not hold together: %s", words(err))
	}
	types := c.types(linked)
	b := describer{types: types, explicit: func(f *descriptorpb.FieldDescriptorProto) bool {
		return f.GetJsonName() != "" && f.GetJsonName() != camel(f.GetName())
	}}
	return b.file(d).String(), nil
}

// FindFileByPath and FindDescriptorByName let descriptors find what they import.
func (c *compilation) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if u := c.find(path); u != nil && u.linked != nil {
		return u.linked, nil
	}
	return nil, protoregistry.NotFound
}

// FindDescriptorByName finds a type of any file.
func (c *compilation) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	for _, u := range c.order {
		if u.linked != nil {
			if d := u.linked.FindDescriptorByName(name); d != nil {
				return d, nil
			}
		}
	}
	if d := c.format.library.types.descriptor(name); d != nil {
		return d, nil
	}
	return nil, protoregistry.NotFound
}

// types are those of the library, the dependencies and one file more.
func (c *compilation) types(f protoreflect.FileDescriptor) *resolver {
	r := newResolver(c.format.library.types)
	for _, u := range c.order {
		if u.linked != nil {
			r.add(u.linked)
		}
	}
	r.add(f)
	return r
}

// fromDescriptor is the file as its descriptor has it: type names in full, options as the compiler read them.
func (c *compilation) fromDescriptor(u *unit) *file {
	types := c.types(u.linked)
	b := describer{types: types, explicit: func(f *descriptorpb.FieldDescriptorProto) bool {
		node, ok := u.parsed.FieldNode(f).(interface {
			GetOptions() *ast.CompactOptionsNode
		})
		if !ok || node.GetOptions() == nil {
			return false
		}
		return slices.ContainsFunc(node.GetOptions().Options, func(o *ast.OptionNode) bool {
			return len(o.Name.Parts) == 1 && o.Name.Parts[0].Value() == "json_name"
		})
	}}
	out := b.file(u.proto)
	if u.implicit {
		out.imports = out.imports[:len(out.imports)-1]
	}
	return out
}
