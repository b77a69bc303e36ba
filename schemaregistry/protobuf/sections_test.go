package protobuf_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// format is one Format for all tests: it does not change.
var format = sync.OnceValue(func() *protobuf.Format { return protobuf.New(protobuf.Limits{}) })

func itoa(n int) string { return strconv.Itoa(n) }

// sections are the parts of a file of testdata, each after a line of ###.
func sections(name string) []string {
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		panic(err)
	}
	return strings.Split(strings.TrimPrefix(strings.TrimSuffix("\n"+string(raw), "\n"), "\n### "), "\n### ")
}

// repeat joins what fn makes of 0 to n-1.
func repeat(n int, fn func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(fn(i))
	}
	return b.String()
}

// ordered is a schema's descriptor with all that the canonical text may reorder in one order: fields by number, nested
// messages by name.
func ordered(t require.TestingT, s schema.Schema) *descriptorpb.FileDescriptorProto {
	d := descriptorOf(t, s)
	for _, m := range d.GetMessageType() {
		orderMessage(m)
	}
	public := map[string]bool{}
	for _, i := range d.GetPublicDependency() {
		public[d.GetDependency()[i]] = true
	}
	slices.Sort(d.Dependency)
	d.PublicDependency = nil
	for i, name := range d.GetDependency() {
		if public[name] {
			d.PublicDependency = append(d.PublicDependency, int32(i))
		}
	}
	for _, s := range d.GetService() {
		for _, m := range s.GetMethod() {
			if proto.Size(m.GetOptions()) == 0 {
				m.Options = nil // braces without anything in them
			}
		}
	}
	return d
}

func orderMessage(m *descriptorpb.DescriptorProto) {
	names := make([]string, len(m.GetOneofDecl()))
	for i, o := range m.GetOneofDecl() {
		names[i] = o.GetName()
	}
	slices.Sort(names)
	for _, f := range m.GetField() {
		if f.OneofIndex != nil {
			f.OneofIndex = proto.Int32(int32(slices.Index(names, m.GetOneofDecl()[f.GetOneofIndex()].GetName())))
		}
	}
	slices.SortFunc(m.OneofDecl, func(a,
		b *descriptorpb.OneofDescriptorProto) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	slices.SortFunc(m.Field, func(a,
		b *descriptorpb.FieldDescriptorProto) int {
		return cmp.Compare(a.GetNumber(), b.GetNumber())
	})
	slices.SortFunc(m.NestedType, func(a,
		b *descriptorpb.DescriptorProto) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	for _, n := range m.GetNestedType() {
		orderMessage(n)
	}
}

func protoOf(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	return protodesc.ToFileDescriptorProto(f)
}
