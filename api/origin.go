package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// allowOriginHeader lets a page read the answer.
const allowOriginHeader = "Access-Control-Allow-Origin"

// exposedHeaders are those of answers that a page of an allowed origin may read beyond the few that every page may.
const exposedHeaders = "Allow, ETag, High-Watermark, Link, Location, Next, Next-Offset, Retry-After"

// preflightSeconds is how long a browser may remember what it was allowed.
const preflightSeconds = "600"

// CheckOrigin says why a setting cannot be an origin as browsers send it: scheme, host, and the port if it is not the
// scheme's own.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	switch {
	case origin == "*":
		return fmt.Errorf("origin *: name the origins that may use the API, such as https://dash.example")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("origin %q: want one such as https://dash.example or http://localhost:3000", origin)
	case strings.Contains(u.Host, "*"), strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("origin %q: name one host; there are no patterns", origin)
	case u.Scheme+"://"+strings.ToLower(u.Host) != origin:
		return fmt.Errorf("origin %q: want scheme, host and port alone, in small letters: %s://%s", origin, u.Scheme,
			strings.ToLower(u.Host))
	case u.Scheme == "http" && u.Port() == "80", u.Scheme == "https" && u.Port() == "443":
		return fmt.Errorf("origin %q: leave out the port, as browsers do with the scheme's own", origin)
	}
	return nil
}

// allowOrigin lets a page of an allowed origin read the answer to r. It is called when there are such origins.
func (e *Edge) allowOrigin(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Vary"] = append(h["Vary"], "Origin")
	if origin := r.Header.Get("Origin"); origin != "" && slices.Contains(e.opts.Origins, origin) {
		h.Set(allowOriginHeader, origin)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
}

// allowMethods answers a preflight: the browser asks whether a page of an allowed origin may send what it means to.
// Credentials are never allowed, so whichever headers it asks for may come.
func allowMethods(h http.Header, r *http.Request, allow []string) {
	if r.Header.Get("Access-Control-Request-Method") == "" {
		return
	}
	h.Set("Access-Control-Allow-Methods", strings.Join(allow, ", "))
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", preflightSeconds)
	h["Vary"] = append(h["Vary"], "Access-Control-Request-Method", "Access-Control-Request-Headers")
}
