package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// coding is how a body is compressed.
type coding int

const (
	identity coding = iota
	gzipped
	zstded
)

// zstdWindow is the largest window of a zstd frame: what a decoder must hold.
const zstdWindow = 8 << 20

// contentCoding reads the Content-Encoding header. One coding at most.
func contentCoding(h http.Header) (coding, error) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return identity, nil
	}
	if len(values) > 1 {
		return identity, Refuse(UnsupportedEncoding, "several Content-Encoding headers")
	}
	switch strings.ToLower(strings.TrimSpace(values[0])) {
	case "", "identity":
		return identity, nil
	case "gzip", "x-gzip":
		return gzipped, nil
	case "zstd":
		return zstded, nil
	default:
		return identity, Refuse(UnsupportedEncoding, "Content-Encoding %q", values[0])
	}
}

// expanders keeps decoders for reuse, a few of each kind.
type expanders struct {
	gzip chan *gzip.Reader
	zstd chan *zstd.Decoder
}

const idleExpanders = 8

func newExpanders(Limits) *expanders {
	return &expanders{
		gzip: make(chan *gzip.Reader, idleExpanders),
		zstd: make(chan *zstd.Decoder, idleExpanders),
	}
}

// expand replaces the body by its decompressed form.
func (b *Body) expand(c coding) error {
	src := bytes.NewReader(b.Bytes)
	if c == gzipped {
		return b.expandGzip(src)
	}
	return b.expandZstd(src)
}

func (b *Body) expandGzip(src *bytes.Reader) error {
	var z *gzip.Reader
	select {
	case z = <-b.edge.expanders.gzip:
	default:
		z = new(gzip.Reader)
	}
	if err := z.Reset(src); err != nil {
		return notCompressed("gzip", err)
	}
	if err := b.expandFrom(z, "gzip"); err != nil {
		return err
	}
	select {
	case b.edge.expanders.gzip <- z:
	default:
	}
	return nil
}

func (b *Body) expandZstd(src *bytes.Reader) error {
	var z *zstd.Decoder
	select {
	case z = <-b.edge.expanders.zstd:
	default:
		var err error
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(uint64(b.edge.limits.ExpandedBytes)+1))
		if err != nil {
			return err
		}
	}
	if err := z.Reset(src); err != nil {
		z.Close()
		return notCompressed("zstd", err)
	}
	if err := b.expandFrom(z, "zstd"); err != nil {
		z.Close()
		return err
	}
	_ = z.Reset(nil) // drops the reference to the body
	select {
	case b.edge.expanders.zstd <- z:
	default:
		z.Close()
	}
	return nil
}

func notCompressed(name string, err error) *Error {
	return Refuse(MalformedBody, "the body is not whole and valid %s: %v", name, err)
}

// expandFrom reads z to its end, within the limits on size and on the ratio to what was sent.
func (b *Body) expandFrom(z io.Reader, name string) error {
	l := b.edge.limits
	bound := min(l.ExpandedBytes, max(l.ExpansionFree, len(b.Bytes)*l.ExpansionRatio))
	size := min(bound+1, max(4<<10, 4*len(b.Bytes)))
	if err := b.take(size); err != nil {
		return err
	}
	buf := b.arena.Alloc(size)
	n := 0
	for {
		k, err := z.Read(buf[n:])
		n += k
		if n > bound {
			return b.edge.OverLimit("expanded_bytes", Refuse(BodyTooLarge,
				"the expanded body may have at most %d bytes, and past %d at most %d times what was sent",
				l.ExpandedBytes, l.ExpansionFree, l.ExpansionRatio))
		}
		if err == io.EOF {
			b.Bytes = buf[:n]
			return nil
		}
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return b.edge.OverLimit("expanded_bytes",
				Refuse(BodyTooLarge, "the body needs more memory to expand than is allowed: %v", err))
		}
		if err != nil {
			return notCompressed(name, err)
		}
		if n == len(buf) {
			size := min(bound+1, 2*len(buf))
			if err := b.take(size - len(buf)); err != nil {
				return err
			}
			grown := b.arena.Alloc(size)
			copy(grown, buf)
			buf = grown
		}
	}
}
