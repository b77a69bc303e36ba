package sink

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
)

// nameUUID is the UUID that Java makes of a name alone.
func nameUUID(name string) string {
	h := md5.Sum([]byte(name))
	h[6] = h[6]&0x0f | 0x30
	h[8] = h[8]&0x3f | 0x80
	return uuidText(h)
}

func uuidText(id [16]byte) string {
	x := hex.EncodeToString(id[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func uuidTexts(ids [][16]byte) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = uuidText(id)
	}
	return out
}

func parseUUID(s string) (id [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is no UUID", s)
	}
	return [16]byte(b), nil
}
