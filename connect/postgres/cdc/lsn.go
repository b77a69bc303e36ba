package cdc

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// lsn is a place in the server's write-ahead log.
type lsn uint64

// String writes a place as the server does.
func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// parseLSN reads a place as the server writes it, or as a plain number.
func parseLSN(s string) (lsn, error) {
	high, low, found := strings.Cut(s, "/")
	if !found {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no place in a write-ahead log", s)
		}
		return lsn(n), nil
	}
	h, err := strconv.ParseUint(high, 16, 32)
	if err == nil {
		var l uint64
		if l, err = strconv.ParseUint(low, 16, 32); err == nil {
			return lsn(h<<32 | l), nil
		}
	}
	return 0, fmt.Errorf("%q is no place in a write-ahead log", s)
}

// epochMicros is the server's epoch, 2000-01-01, in microseconds since 1970.
const epochMicros = 946684800_000_000

// micros are microseconds since 1970, as the server's clock had them.
type micros int64

func microsOf(t time.Time) micros { return micros(t.UnixMicro()) }

func (m micros) millis() int64 { return time.UnixMicro(int64(m)).UnixMilli() }
