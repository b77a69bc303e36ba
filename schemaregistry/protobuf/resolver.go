package protobuf

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// resolver finds messages and extensions among files: for options, for Any, for extensions in messages. Once filled it
// does not change.
type resolver struct {
	base       *resolver // asked after this one
	messages   map[protoreflect.FullName]protoreflect.MessageDescriptor
	enums      map[protoreflect.FullName]protoreflect.EnumDescriptor
	extensions map[protoreflect.FullName]protoreflect.ExtensionType
	numbers    map[protoreflect.FullName]map[protoreflect.FieldNumber]protoreflect.ExtensionType // by message
}

func newResolver(base *resolver) *resolver {
	return &resolver{
		base:       base,
		messages:   map[protoreflect.FullName]protoreflect.MessageDescriptor{},
		enums:      map[protoreflect.FullName]protoreflect.EnumDescriptor{},
		extensions: map[protoreflect.FullName]protoreflect.ExtensionType{},
		numbers:    map[protoreflect.FullName]map[protoreflect.FieldNumber]protoreflect.ExtensionType{},
	}
}

// add makes all that a file declares known.
func (r *resolver) add(f protoreflect.FileDescriptor) {
	r.addExtensions(f.Extensions())
	r.addEnums(f.Enums())
	r.addMessages(f.Messages())
}

func (r *resolver) addMessages(list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		m := list.Get(i)
		r.messages[m.FullName()] = m
		r.addExtensions(m.Extensions())
		r.addEnums(m.Enums())
		r.addMessages(m.Messages())
	}
}

func (r *resolver) addEnums(list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		r.enums[list.Get(i).FullName()] = list.Get(i)
	}
}

func (r *resolver) addExtensions(list protoreflect.ExtensionDescriptors) {
	for i := range list.Len() {
		t := dynamicpb.NewExtensionType(list.Get(i))
		r.extensions[list.Get(i).FullName()] = t
		of := list.Get(i).ContainingMessage().FullName()
		if r.numbers[of] == nil {
			r.numbers[of] = map[protoreflect.FieldNumber]protoreflect.ExtensionType{}
		}
		r.numbers[of][list.Get(i).Number()] = t
	}
}

// message is a message's descriptor, nil if there is none.
func (r *resolver) message(name protoreflect.FullName) protoreflect.MessageDescriptor {
	for ; r != nil; r = r.base {
		if m := r.messages[name]; m != nil {
			return m
		}
	}
	return nil
}

// descriptor is a message's or enum's descriptor, nil if there is none.
func (r *resolver) descriptor(name protoreflect.FullName) protoreflect.Descriptor {
	if m := r.message(name); m != nil {
		return m
	}
	for ; r != nil; r = r.base {
		if e := r.enums[name]; e != nil {
			return e
		}
	}
	return nil
}

// FindMessageByName and the three below are what the libraries ask for.
func (r *resolver) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if m := r.message(name); m != nil {
		return dynamicpb.NewMessageType(m), nil
	}
	return nil, protoregistry.NotFound
}

// FindMessageByURL finds what an Any holds.
func (r *resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return r.FindMessageByName(protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]))
}

// FindExtensionByName finds an extension by its full name.
func (r *resolver) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	for ; r != nil; r = r.base {
		if t := r.extensions[name]; t != nil {
			return t, nil
		}
	}
	return nil, protoregistry.NotFound
}

// FindExtensionByNumber finds an extension of a message.
func (r *resolver) FindExtensionByNumber(
	message protoreflect.FullName, number protoreflect.FieldNumber,
) (protoreflect.ExtensionType, error) {
	for ; r != nil; r = r.base {
		if t := r.numbers[message][number]; t != nil {
			return t, nil
		}
	}
	return nil, protoregistry.NotFound
}
