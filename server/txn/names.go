package txn

import (
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxID bounds a transactional id, in bytes, as group ids are bounded: it may stand in a path, a header and a log
// line.
const maxID = 255

// checkID refuses ids that are empty, longer than maxID, no UTF-8, or hold control characters. Such ids that a log
// has, written by another system, are loaded, and their transactions end, but they cannot be asked for.
func checkID(id string) *kerr.Error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		return kerr.InvalidRequest
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return kerr.InvalidRequest
		}
	}
	return nil
}
