package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// BaseURL is what absolute links in the answer to r begin with, such as http://node1:8082, without a slash
// at its end: the advertised URL of the request's scheme, else the host that the client addressed.
func (e *Edge) BaseURL(r *http.Request) string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if e.trusted(r.RemoteAddr) {
		if v := firstValue(r.Header.Get("X-Forwarded-Proto")); v == "http" || v == "https" {
			scheme = v
		}
		if v := firstValue(r.Header.Get("X-Forwarded-Host")); v != "" {
			return scheme + "://" + v
		}
	}
	for _, u := range e.opts.AdvertisedURLs {
		if strings.HasPrefix(u, scheme+"://") {
			return strings.TrimSuffix(u, "/")
		}
	}
	if host == "" { // HTTP/1.0 may leave it out
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			host = a.String()
		}
	}
	return scheme + "://" + host
}

// firstValue is the first of a comma-separated list.
func firstValue(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(first)
}

func (e *Edge) trusted(remote string) bool {
	if len(e.opts.TrustedProxies) == 0 {
		return false
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range e.opts.TrustedProxies {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}
