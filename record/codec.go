package record

import "fmt"

// Codec is how the records of a batch are compressed; the numbers are those of the attributes.
type Codec int8

// The codecs of the format.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the codec's name as in compression.type, but "none" for None.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	default:
		return fmt.Sprintf("codec %d", int8(c))
	}
}

// ParseCodec reads a codec's name; "uncompressed" is another name of "none".
func ParseCodec(name string) (Codec, error) {
	switch name {
	case "none", "uncompressed":
		return None, nil
	case "gzip":
		return Gzip, nil
	case "snappy":
		return Snappy, nil
	case "lz4":
		return LZ4, nil
	case "zstd":
		return Zstd, nil
	default:
		return None, fmt.Errorf("%w: %q", ErrUnsupportedCodec, name)
	}
}
