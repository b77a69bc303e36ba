package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"log/slog"
	"net/http"
)

// scheme is the authentication scheme of nodes, as it stands in the Authorization header.
const scheme = "Millrace-Cluster "

// purpose separates the token from others that may be made of the same secret; its number would change with the way
// the token is made.
const purpose = "millrace cluster credential 1"

// Credential proves that a request comes from a node of the cluster: all nodes have the same secret, and the token on
// the wire is derived from it. It does not depend on any clock. The zero Credential is that of a node without a
// secret: it proves nothing, and no request passes its check. A Credential does not show itself in text and logs.
type Credential struct{ token string }

// NewCredential makes the credential of a secret; of an empty one the zero Credential.
func NewCredential(secret []byte) Credential {
	if len(secret) == 0 {
		return Credential{}
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose)) // a hash takes everything
	return Credential{scheme + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))}
}

// IsZero tells whether there is no secret.
func (c Credential) IsZero() bool { return c.token == "" }

// Set puts the credential on a request.
func (c Credential) Set(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", c.token)
	}
}

// Check tells whether a request carries the credential.
func (c Credential) Check(r *http.Request) bool {
	got := r.Header["Authorization"]
	return c.token != "" && len(got) == 1 && subtle.ConstantTimeCompare([]byte(got[0]), []byte(c.token)) == 1
}

// mask is what is shown of a credential.
const mask = "********"

func (c Credential) String() string { return mask }

// GoString keeps the credential out of %#v.
func (c Credential) GoString() string { return mask }

// LogValue keeps the credential out of logs.
func (c Credential) LogValue() slog.Value { return slog.StringValue(mask) }
