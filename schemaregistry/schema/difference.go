package schema

import "strings"

// CompareOptions say how two schemas are compared.
type CompareOptions struct {
	// Lenient trusts readers and writers with extra members of JSON objects.
	Lenient bool
	// ReaderName and WriterName are what messages call the two sides: "new" and "old", or the reverse.
	ReaderName, WriterName string
	// ValidateFields also compares the reserved fields below.
	ValidateFields bool
	// ReaderReserved and WriterReserved are the field paths that the metadata of each side reserves.
	ReaderReserved, WriterReserved []string
}

// Comparison is what Format.Compare finds.
type Comparison struct {
	// Differences are all that were found, also the compatible ones where the format lists them.
	Differences []Difference
	// Warnings say what the verdict does not cover, in words for the author of the schema.
	Warnings []string
}

// Compatible reports whether no difference is incompatible.
func (c *Comparison) Compatible() bool {
	for i := range c.Differences {
		if !c.Differences[i].Compatible {
			return false
		}
	}
	return true
}

// Difference is one way in which two schemas differ.
type Difference struct {
	Kind       string // the registry's name, such as TYPE_MISMATCH
	Path       string // where, in the form of the format
	Compatible bool
	// Description says what is where in which schema, naming the path in single quotes.
	Description string
	// Info is what tools read beside the description; Avro alone has it.
	Info string
	// Reader and Writer show both sides in short; empty where a side has nothing.
	Reader, Writer string
}

// Message is the difference as the registry's clients know it: almost JSON. Tools parse it.
func (d *Difference) Message(t Type) string {
	var b strings.Builder
	quote := "\""
	if t == Avro {
		quote = "'"
	}
	b.WriteString("{errorType:" + quote + d.Kind + quote + ", description:" + quote + d.Description)
	switch t {
	case Avro:
		b.WriteString("', additionalInfo:'" + d.Info + "'}")
	case JSON:
		b.WriteString("'}") // a mistake of long standing
	default:
		b.WriteString("\"}")
	}
	return b.String()
}
