package protobuf

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// dropUnknown takes options out of a parsed file that are set by extensions which neither it nor its imports have, and
// reports whether there were any. The language refuses them, but other registries keep them as they are written, and
// no data depend on them: they stay in the text, and what is compiled does without.
func (c *compilation) dropUnknown(u *unit) bool {
	custom := false
	u.written.eachOption(func(o *option) { custom = custom || o.custom() })
	if !custom {
		return false
	}
	known := extensionNames{}
	known.add(u.proto)
	for _, path := range u.proto.Dependency {
		c.visible(path, known, map[string]bool{})
	}
	return known.strip(u.proto.ProtoReflect())
}

// visible adds the extensions that an import makes known.
func (c *compilation) visible(path string, known extensionNames, seen map[string]bool) {
	d := c.find(path)
	if d == nil || seen[path] {
		return
	}
	seen[path] = true
	known.add(d.proto)
	for _, i := range d.proto.GetPublicDependency() {
		c.visible(d.proto.Dependency[i], known, seen)
	}
}

// extensionNames are the full names of extensions.
type extensionNames map[string]bool

func (n extensionNames) add(f *descriptorpb.FileDescriptorProto) {
	if f == nil {
		return
	}
	n.addTo(f.GetPackage(), f.Extension, f.MessageType)
}

func (n extensionNames) addTo(scope string, list []*descriptorpb.FieldDescriptorProto,
	messages []*descriptorpb.DescriptorProto,
) {
	if scope != "" {
		scope += "."
	}
	for _, x := range list {
		n[scope+x.GetName()] = true
	}
	for _, m := range messages {
		n.addTo(scope+m.GetName(), m.Extension, m.NestedType)
	}
}

// may reports whether a name can mean any of the extensions, from some place in the file.
func (n extensionNames) may(name string) bool {
	if full, ok := strings.CutPrefix(name, "."); ok {
		return n[full]
	}
	for full := range n {
		if full == name || strings.HasSuffix(full, "."+name) {
			return true
		}
	}
	return false
}

// strip takes the options out that no extension can be meant by, in a message and all below it.
func (n extensionNames) strip(m protoreflect.Message) (found bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.Message().FullName() == "google.protobuf.UninterpretedOption":
			found = n.stripList(v.List()) || found
		case f.IsList():
			for i := range v.List().Len() {
				found = n.strip(v.List().Get(i).Message()) || found
			}
		default:
			found = n.strip(v.Message()) || found
		}
		return true
	})
	return found
}

func (n extensionNames) stripList(list protoreflect.List) bool {
	kept := 0
	for i := range list.Len() {
		o, ok := list.Get(i).Message().Interface().(*descriptorpb.UninterpretedOption)
		if ok && n.unknown(o) {
			continue
		}
		list.Set(kept, list.Get(i))
		kept++
	}
	found := kept < list.Len()
	list.Truncate(kept)
	return found
}

func (n extensionNames) unknown(o *descriptorpb.UninterpretedOption) bool {
	for _, part := range o.Name {
		if part.GetIsExtension() && !n.may(part.GetNamePart()) {
			return true
		}
	}
	return false
}
