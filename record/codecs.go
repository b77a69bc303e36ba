package record

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"millrace/internal/invariant"
)

// Codecs keeps compressors and decompressors between batches, because they are dear to make and
// large. It belongs to whoever makes it, a node in a server: there is no shared one. A nil *Codecs
// works and keeps nothing. Safe for concurrent use.
type Codecs struct {
	maxIdle  int // immutable
	mu       sync.Mutex
	encoders []*encoder // idle; guarded by mu, at most maxIdle
	decoders []*decoder // idle; guarded by mu, at most maxIdle
}

// NewCodecs makes a Codecs that keeps at most maxIdle compressors and as many decompressors. At worst,
// after all codecs and levels were used, one of either takes some 10 MiB.
func NewCodecs(maxIdle int) *Codecs { return &Codecs{maxIdle: maxIdle} }

// compress appends payload in compressed form to dst. Level is in the codec's own scale, 0 for its
// default.
func (c *Codecs) compress(dst []byte, codec Codec, level int, payload []byte) []byte {
	e := c.takeEncoder()
	defer c.putEncoder(e)
	switch codec {
	case None:
		return append(dst, payload...)
	case Gzip:
		return e.gzip.append(dst, level, payload)
	case Snappy:
		return appendSnappy(dst, payload)
	case LZ4:
		return e.lz4.append(dst, level, payload)
	case Zstd:
		return e.zstd.append(dst, level, payload)
	default:
		invariant.Check(false, "no compressor for %v", codec)
		return nil
	}
}

// expand appends what payload expands to, which may be at most maxBytes, to dst.
func (c *Codecs) expand(dst []byte, codec Codec, payload []byte, maxBytes int) ([]byte, error) {
	const step = 4 << 10
	d := c.takeDecoder()
	defer c.putDecoder(d)
	if err := d.open(codec, payload, maxBytes); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = slices.Grow(dst, min(expandedGuess(len(payload)), d.left+1))
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, min(max(len(dst)-start, step), d.left+1))
		}
		n, err := d.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// expandedGuess is room for what so many compressed bytes usually expand to.
func expandedGuess(compressed int) int {
	const growth, least = 4, 4 << 10
	return growth*compressed + least
}

func (c *Codecs) takeEncoder() *encoder {
	if c == nil {
		return new(encoder)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.encoders); n > 0 {
		e := c.encoders[n-1]
		c.encoders = c.encoders[:n-1]
		return e
	}
	return new(encoder)
}

func (c *Codecs) putEncoder(e *encoder) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.encoders) < c.maxIdle {
		c.encoders = append(c.encoders, e)
	}
}

func (c *Codecs) takeDecoder() *decoder {
	if c == nil {
		return new(decoder)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.decoders); n > 0 {
		d := c.decoders[n-1]
		c.decoders = c.decoders[:n-1]
		return d
	}
	return new(decoder)
}

func (c *Codecs) putDecoder(d *decoder) {
	d.close()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.decoders) < c.maxIdle {
		c.decoders = append(c.decoders, d)
	}
}

// errExpands says that the records expand beyond the bound.
var errExpands = errors.New("expands beyond the bound")

// encoder holds one compressor of each kind, made on first use.
type encoder struct {
	gzip gzipEncoder
	lz4  lz4Encoder
	zstd zstdEncoder
}

// keptBlock is the largest block buffer that an idle decoder keeps.
const keptBlock = 1 << 20

// decoder is one decompressor of each kind, made on first use, of which one reads. It is a bounded
// io.Reader of expanded records whose errors wrap ErrCorrupt or ErrTooLarge.
type decoder struct {
	gzip   gzipDecoder
	snappy snappyDecoder
	lz4    lz4Decoder
	zstd   zstdDecoder
	block  []byte // output of the one that reads, when it works block by block
	window []byte // scratch for a scan over the stream

	codec  Codec
	reader io.Reader // the one that reads
	bound  int
	left   int // bytes that may still come; >= 0, < math.MaxInt
}

// open starts to expand payload to at most maxBytes.
func (d *decoder) open(codec Codec, payload []byte, maxBytes int) (err error) {
	d.codec = codec
	d.bound = min(max(maxBytes, 0), math.MaxInt-1)
	d.left = d.bound
	switch codec {
	case Gzip:
		d.reader, err = &d.gzip, d.gzip.open(payload)
	case Snappy:
		d.reader, err = &d.snappy, d.snappy.open(payload, d.block, d.bound)
	case LZ4:
		d.reader, err = &d.lz4, d.lz4.open(payload, d.block)
	case Zstd:
		d.reader, err = &d.zstd, d.zstd.open(payload, d.block, d.bound)
	default:
		return fmt.Errorf("%w: %v", ErrUnsupportedCodec, codec)
	}
	return d.wrap(err)
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	if len(p) > d.left+1 {
		p = p[:d.left+1]
	}
	n, err := d.reader.Read(p)
	if n > d.left {
		return d.left, d.tooLarge()
	}
	d.left -= n
	if err == io.EOF {
		return n, io.EOF
	}
	return n, d.wrap(err)
}

// wrap says which codec found what wrong.
func (d *decoder) wrap(err error) error {
	switch err {
	case nil:
		return nil
	case errExpands:
		return d.tooLarge()
	default:
		return corrupt("%v: %v", d.codec, err)
	}
}

func (d *decoder) tooLarge() error {
	return fmt.Errorf("%w: %v expands beyond %d bytes", ErrTooLarge, d.codec, d.bound)
}

// close lets go of the payload and of memory that is too large to keep.
func (d *decoder) close() {
	switch d.codec {
	case Gzip:
		d.gzip.close()
	case Snappy:
		d.block = d.snappy.close()
	case LZ4:
		d.block = d.lz4.close()
	case Zstd:
		d.block = d.zstd.close()
	}
	if cap(d.block) > keptBlock {
		d.block = nil
	}
	d.codec, d.reader = None, nil
}
