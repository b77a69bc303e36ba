package metadata

import (
	"encoding/base64"
	"fmt"
)

// UUID is a 128-bit id, as text in the 22 characters of unpadded base64url that Kafka uses.
type UUID [16]byte

// MakeUUID makes a version 4 UUID of 16 random bytes. It reports false when Kafka does not allow the
// id that comes out: one of the two reserved ids, or one whose text starts with a dash, which
// command lines take for an option.
func MakeUUID(random [16]byte) (UUID, bool) {
	u := UUID(random)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u, u.usable()
}

func (u UUID) usable() bool {
	return u != UUID{} && u != UUID{15: 1} && u.String()[0] != '-'
}

// String returns the text of the id.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// MarshalText returns the text of the id.
func (u UUID) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, u[:]), nil
}

// UnmarshalText reads the text of an id.
func (u *UUID) UnmarshalText(text []byte) error {
	var buf [17]byte
	if len(text) != 22 {
		return fmt.Errorf("id %q: want 22 characters of base64url", text)
	}
	n, err := base64.RawURLEncoding.Strict().Decode(buf[:], text)
	if err != nil || n != len(u) {
		return fmt.Errorf("id %q: want 22 characters of base64url", text)
	}
	copy(u[:], buf[:])
	return nil
}
