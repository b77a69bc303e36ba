package protobuf_test

import (
	"strconv"
	"strings"
	"sync"

	"millrace/schemaregistry/protobuf"
)

// format is one Format for all tests: it does not change.
var format = sync.OnceValue(func() *protobuf.Format { return protobuf.New(protobuf.Limits{}) })

func itoa(n int) string { return strconv.Itoa(n) }

// repeat joins what fn makes of 0 to n-1.
func repeat(n int, fn func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(fn(i))
	}
	return b.String()
}
