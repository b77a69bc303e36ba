package restv3

import (
	"io"
	"unicode/utf8"
)

// latin1Reader reads ISO-8859-1 as UTF-8.
type latin1Reader struct{ from io.Reader }

// Read reads into the upper half of p and spreads that over the whole: no byte becomes more than two,
// so what is written never overtakes what is still to be read.
func (l *latin1Reader) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	half := len(p) / 2
	n, err := l.from.Read(p[half : 2*half])
	return len(appendLatin1(p[:0], p[half:half+n])), err
}

// appendLatin1 appends src as UTF-8.
func appendLatin1(dst, src []byte) []byte {
	for _, b := range src {
		if b < utf8.RuneSelf {
			dst = append(dst, b)
		} else {
			dst = append(dst, 0xc0|b>>6, 0x80|b&0x3f)
		}
	}
	return dst
}
