package protobuf

import (
	"fmt"
	"strings"

	"millrace/schemaregistry/schema"
)

// kind is a way in which two schemas can differ.
type kind struct {
	name       string
	compatible bool
	// text describes it, with the path in place of PATH, and READER and WRITER for what the sides are called.
	text string
}

// The kinds, by the names that the registry's clients know.
var (
	packageChanged = kind{"PACKAGE_CHANGED", false,
		"The READER schema and the WRITER schema declare different packages at path 'PATH'"}
	messageAdded = kind{"MESSAGE_ADDED", true,
		"The READER schema has a message at path 'PATH' that the WRITER schema does not have"}
	messageRemoved = kind{"MESSAGE_REMOVED", false,
		"The READER schema lacks the message at path 'PATH' of the WRITER schema"}
	messageMoved = kind{"MESSAGE_MOVED", true,
		"The message at path 'PATH' has another place among its siblings in the READER schema than in the WRITER schema"}
	enumAdded = kind{"ENUM_ADDED", true,
		"The READER schema has an enum at path 'PATH' that the WRITER schema does not have"}
	enumRemoved = kind{"ENUM_REMOVED", true,
		"The READER schema lacks the enum at path 'PATH' of the WRITER schema"}
	enumConstAdded = kind{"ENUM_CONST_ADDED", true,
		"The READER schema has an enum value at path 'PATH' that the WRITER schema does not have"}
	enumConstRemoved = kind{"ENUM_CONST_REMOVED", true,
		"The READER schema lacks the enum value at path 'PATH' of the WRITER schema"}
	enumConstChanged = kind{"ENUM_CONST_CHANGED", true,
		"The enum value at path 'PATH' has another name in the READER schema than in the WRITER schema"}
	fieldAdded = kind{"FIELD_ADDED", true,
		"The READER schema has a field at path 'PATH' that the WRITER schema does not have"}
	fieldRemoved = kind{"FIELD_REMOVED", true,
		"The READER schema lacks the field at path 'PATH' of the WRITER schema"}
	fieldNameChanged = kind{"FIELD_NAME_CHANGED", true,
		"The field at path 'PATH' has another name in the READER schema than in the WRITER schema"}
	fieldKindChanged = kind{"FIELD_KIND_CHANGED", false,
		"The field at path 'PATH' is a READERKIND in the READER schema but a WRITERKIND in the WRITER schema"}
	fieldScalarKindChanged = kind{"FIELD_SCALAR_KIND_CHANGED", false,
		"The field at path 'PATH' is encoded otherwise in the READER schema than in the WRITER schema"}
	fieldNamedTypeChanged = kind{"FIELD_NAMED_TYPE_CHANGED", false,
		"The field at path 'PATH' holds another message in the READER schema than in the WRITER schema"}
	fieldNumericLabelChanged = kind{"FIELD_NUMERIC_LABEL_CHANGED", false,
		"The number at path 'PATH' has another label in the READER schema than in the WRITER schema"}
	fieldTextLabelChanged = kind{"FIELD_STRING_OR_BYTES_LABEL_CHANGED", true,
		"The text or bytes at path 'PATH' have another label in the READER schema than in the WRITER schema"}
	requiredFieldAdded = kind{"REQUIRED_FIELD_ADDED", false,
		"The READER schema requires a field at path 'PATH' that the WRITER schema does not have"}
	requiredFieldRemoved = kind{"REQUIRED_FIELD_REMOVED", false,
		"The READER schema lacks the field at path 'PATH' that the WRITER schema requires"}
	oneofAdded = kind{"ONEOF_ADDED", true,
		"The READER schema has a oneof at path 'PATH' that the WRITER schema does not have"}
	oneofRemoved = kind{"ONEOF_REMOVED", true,
		"The READER schema lacks the oneof at path 'PATH' of the WRITER schema"}
	oneofFieldAdded = kind{"ONEOF_FIELD_ADDED", true,
		"The READER schema has a field of a oneof at path 'PATH' that the WRITER schema does not have"}
	oneofFieldRemoved = kind{"ONEOF_FIELD_REMOVED", false,
		"The READER schema lacks the field of a oneof at path 'PATH' of the WRITER schema"}
	oneofFieldMovedToTopLevel = kind{"ONEOF_FIELD_MOVED_TO_TOP_LEVEL", true,
		"The field at path 'PATH' of the READER schema is in a oneof in the WRITER schema"}
	multipleFieldsMovedToOneof = kind{"MULTIPLE_FIELDS_MOVED_TO_ONEOF", false,
		"Several fields of the oneof at path 'PATH' in the READER schema can be set together in the WRITER schema"}
	fieldMovedToExistingOneof = kind{"FIELD_MOVED_TO_EXISTING_ONEOF", false,
		"Fields of the oneof at path 'PATH' in the READER schema do not exclude each other in the WRITER schema"}
	reservedFieldRemoved = kind{"RESERVED_FIELD_REMOVED", false,
		"The READER schema no longer reserves the field 'PATH' that the WRITER schema reserves"}
	reservedFieldUsed = kind{"FIELD_CONFLICTS_WITH_RESERVED_FIELD", false,
		"The READER schema has the field 'PATH' although it reserves it"}
)

// maxWarnings bounds what a comparison has to say beyond its verdict.
const maxWarnings = 100

// add lists a difference at the path. Beyond the limit only what decides the verdict is listed, up to as much again.
func (c *comparison) add(k kind, writer, reader string) {
	c.addAt("#/"+strings.Join(c.path, "/"), k, writer, reader)
}

func (c *comparison) addAt(path string, k kind, writer, reader string) {
	if !k.compatible {
		c.breaks++
	}
	if n := len(c.out); n >= c.limits.Differences && (k.compatible || n >= 2*c.limits.Differences) {
		return
	}
	text := strings.NewReplacer("PATH", path, "READERKIND", reader, "WRITERKIND", writer,
		"READER", c.readerName, "WRITER", c.writerName).Replace(k.text)
	c.out = append(c.out, schema.Difference{
		Kind: k.name, Path: path, Compatible: k.compatible, Description: text, Reader: reader, Writer: writer,
	})
}

// warn says what the verdict does not cover. The first verb of the format is for the path.
func (c *comparison) warn(format string, args ...any) {
	if len(c.warnings) < maxWarnings {
		path := "#/" + strings.Join(c.path, "/")
		c.warnings = append(c.warnings, fmt.Sprintf(format, append([]any{path}, args...)...))
	}
}

// reservedFields compares the fields that the schemas' metadata reserve, and looks for them in the file.
func (c *comparison) reservedFields(f *file) {
	reserved := map[string]bool{}
	for _, path := range c.options.ReaderReserved {
		reserved[path] = true
	}
	for _, path := range c.options.WriterReserved {
		if !reserved[path] {
			c.addAt(path, reservedFieldRemoved, path, "")
		}
	}
	for _, path := range c.options.ReaderReserved {
		if hasField(f.messages, strings.TrimPrefix(path, ".")) {
			c.addAt(path, reservedFieldUsed, "", path)
		}
	}
}

// hasField looks for a field by name in any of the messages, or by a path through the names of messages.
func hasField(messages []*message, path string) bool {
	for _, m := range messages {
		for _, f := range m.allFields() {
			if f.name == path || m.name+"."+f.name == path {
				return true
			}
		}
		if rest, ok := strings.CutPrefix(path, m.name+"."); ok && strings.Contains(rest,
			".") && hasField(m.messages, rest) {
			return true
		}
	}
	return false
}
