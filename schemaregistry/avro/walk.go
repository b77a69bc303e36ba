package avro

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// walker goes over the bytes of a value as its schema says and checks that they are one. It costs a small multiple of
// the value's size, whatever the schema: items of no bytes are few, and so are the visits to types of no bytes.
type walker struct {
	data      []byte
	pos       int
	maxDepth  int
	visits    int // left
	zeroItems int
}

const (
	maxZeroItems = 4096 // of arrays whose items have no bytes, in one value
	visitBase    = 1 << 16
	visitFactor  = 16
)

func (w *walker) fail(format string, args ...any) *fault {
	return &fault{reason: fmt.Sprintf(format, args...)}
}

// take passes over n bytes.
func (w *walker) take(n int64, what kind) *fault {
	if left := int64(len(w.data) - w.pos); n > left {
		return w.fail("%s of %d bytes ends behind the value, which has %d bytes left", withArticle(what), n, left)
	}
	w.pos += int(n)
	return nil
}

func (w *walker) node(n *node, depth int) *fault {
	if w.visits--; w.visits < 0 {
		return w.fail("the value is made of too many parts for its size")
	}
	switch n.kind {
	case kindNull:
		return nil
	case kindBoolean:
		if w.pos < len(w.data) && w.data[w.pos] > 1 {
			return w.fail("a boolean is 0 or 1, not %d", w.data[w.pos])
		}
		return w.take(1, n.kind)
	case kindInt:
		_, f := w.int()
		return f
	case kindLong:
		_, f := w.long()
		return f
	case kindFloat:
		return w.take(4, n.kind)
	case kindDouble:
		return w.take(8, n.kind)
	case kindBytes, kindString:
		return w.sized(n.kind)
	case kindFixed:
		return w.take(int64(n.size), n.kind)
	case kindEnum:
		i, f := w.int()
		if f == nil && (i < 0 || i >= int64(len(n.symbols))) {
			f = w.fail("the enum %s has no symbol of number %d: they go from 0 to %d",
				clip(n.name.full()), i, len(n.symbols)-1)
		}
		return f
	}
	if depth >= w.maxDepth {
		return w.fail("the value is nested more than %d levels deep", w.maxDepth)
	}
	switch n.kind {
	case kindRecord:
		for i := range n.fields {
			if f := w.node(n.fields[i].node, depth+1); f != nil {
				return f.in(n.fields[i].name)
			}
		}
		return nil
	case kindUnion:
		i, f := w.long()
		switch {
		case f != nil:
			return f
		case i < 0 || i >= int64(len(n.branches)):
			return w.fail("the union has no type of number %d: they go from 0 to %d", i, len(n.branches)-1)
		}
		b := n.branches[i]
		return w.node(b, depth+1).in(b.tag)
	default:
		return w.blocks(n, depth)
	}
}

// sized passes over a string or bytes.
func (w *walker) sized(k kind) *fault {
	n, f := w.long()
	if f != nil {
		return f
	}
	if n < 0 {
		return w.fail("%s has the length %d", withArticle(k), n)
	}
	start := w.pos
	if f := w.take(n, k); f != nil {
		return f
	}
	if k == kindString && !utf8.Valid(w.data[start:w.pos]) {
		return w.fail("a string is not valid UTF-8")
	}
	return nil
}

// blocks passes over the blocks of an array or map.
func (w *walker) blocks(n *node, depth int) *fault {
	least := int64(n.item.minSize)
	if n.kind == kindMap {
		least++
	}
	for index := 0; ; {
		count, f := w.long()
		if f != nil || count == 0 {
			return f
		}
		end := -1
		if count < 0 {
			if count == math.MinInt64 {
				return w.fail("a block has more items than can be counted")
			}
			count = -count
			if end, f = w.blockEnd(); f != nil {
				return f
			}
		}
		if f := w.countItems(count, least); f != nil {
			return f
		}
		for range count {
			if f := w.item(n, depth); f != nil {
				return f.in(strconv.Itoa(index))
			}
			index++
		}
		if end >= 0 && w.pos != end {
			return w.fail("a block of %s is said to end %d bytes from where it does", withArticle(n.kind), end-w.pos)
		}
	}
}

// blockEnd reads how many bytes a block has and says where it must end.
func (w *walker) blockEnd() (int, *fault) {
	size, f := w.long()
	if f != nil {
		return 0, f
	}
	if size < 0 || size > int64(len(w.data)-w.pos) {
		return 0, w.fail("a block has the size %d; %d bytes are left", size, len(w.data)-w.pos)
	}
	return w.pos + int(size), nil
}

// countItems checks that as many items can follow.
func (w *walker) countItems(count, least int64) *fault {
	left := int64(len(w.data) - w.pos)
	if least > 0 && count > left/least {
		return w.fail("a block of %d items cannot fit into the %d bytes that are left", count, left)
	}
	if least == 0 {
		if count > int64(maxZeroItems-w.zeroItems) {
			return w.fail("the value has more than %d items of no bytes", maxZeroItems)
		}
		w.zeroItems += int(count)
	}
	return nil
}

func (w *walker) item(n *node, depth int) *fault {
	if n.kind == kindMap {
		if f := w.sized(kindString); f != nil {
			return f
		}
	}
	return w.node(n.item, depth+1)
}

// long reads a number of up to 64 bits.
func (w *walker) long() (int64, *fault) {
	if w.pos < len(w.data) && w.data[w.pos] < 0x80 {
		u := w.data[w.pos]
		w.pos++
		return int64(u>>1) ^ -int64(u&1), nil
	}
	n, size := binary.Varint(w.data[w.pos:])
	switch {
	case size == 0:
		return 0, w.fail("the value ends inside a number")
	case size < 0:
		return 0, w.fail("a number has more than 64 bits")
	}
	w.pos += size
	return n, nil
}

// maxIntBytes is how many bytes the encoding of an int has at most.
const maxIntBytes = 5

// int reads a number of up to 32 bits.
func (w *walker) int() (int64, *fault) {
	start := w.pos
	n, f := w.long()
	if f == nil && (n < math.MinInt32 || n > math.MaxInt32 || w.pos-start > maxIntBytes) {
		f = w.fail("an int has more than 32 bits")
	}
	return n, f
}
