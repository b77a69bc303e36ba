package record

import (
	"bytes"
	"compress/flate"

	"github.com/klauspost/compress/gzip"

	"millrace/internal/invariant"
)

// gzipEncoder keeps a writer for each level that was used.
type gzipEncoder struct {
	writers [flate.BestCompression + 1]*gzip.Writer // by level; 0 is the default level
	out     appender
}

// append compresses payload as one gzip member behind dst. Levels are 1 to 9; others are the default.
func (e *gzipEncoder) append(dst []byte, level int, payload []byte) []byte {
	if level < flate.BestSpeed || level > flate.BestCompression {
		level = 0
	}
	w := e.writers[level]
	if w == nil {
		w = newGzipWriter(level)
		e.writers[level] = w
	}
	e.out = dst
	w.Reset(&e.out)
	_, err := w.Write(payload)
	invariant.Check(err == nil, "gzip to memory failed")
	err = w.Close()
	invariant.Check(err == nil, "gzip to memory failed")
	dst, e.out = e.out, nil
	return dst
}

func newGzipWriter(level int) *gzip.Writer {
	if level == 0 {
		level = flate.DefaultCompression
	}
	w, err := gzip.NewWriterLevel(nil, level)
	invariant.Check(err == nil, "gzip has no such level")
	return w
}

// appender is an io.Writer into a slice.
type appender []byte

// Write implements io.Writer.
func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// gzipDecoder reads one or more gzip members.
type gzipDecoder struct {
	src bytes.Reader
	r   *gzip.Reader
}

func (d *gzipDecoder) open(payload []byte) (err error) {
	d.src.Reset(payload)
	if d.r == nil {
		d.r = new(gzip.Reader)
	}
	return d.r.Reset(&d.src)
}

// Read implements io.Reader.
func (d *gzipDecoder) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *gzipDecoder) close() { d.src.Reset(nil) }
