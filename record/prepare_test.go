package record_test

import (
	"errors"
)

// isOneOf says whether err is one of the sentinels.
func isOneOf(err error, sentinels ...error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}
