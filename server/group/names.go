package group

import (
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxGroupID bounds a group id, in bytes. Kafka has no bound but that of its strings, 32767 bytes; this one lets an
// id stand in a path, a header and a log line.
const maxGroupID = 255

// checkGroupID refuses ids that are empty, longer than maxGroupID, no UTF-8, or hold control characters. Groups of such
// names that a log has, written by another system, are loaded but cannot be asked for.
func checkGroupID(id string) *kerr.Error {
	if id == "" || len(id) > maxGroupID || !utf8.ValidString(id) {
		return kerr.InvalidGroupID
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return kerr.InvalidGroupID
		}
	}
	return nil
}
