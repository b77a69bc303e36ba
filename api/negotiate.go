package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// MediaType is the media type of a Content-Type value in lower case, without parameters; "" for none.
func MediaType(contentType string) string {
	if i := strings.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	return strings.ToLower(strings.TrimSpace(contentType)) // neither allocates when there is nothing to do
}

// Negotiate picks from offers, the best first, the one that an Accept header likes best; "" when it
// accepts none of them. No header accepts all.
func Negotiate(h http.Header, offers ...string) string {
	values := h["Accept"]
	if len(values) == 0 {
		return offers[0]
	}
	accept := values[0]
	if len(values) > 1 {
		accept = strings.Join(values, ",")
	}
	if accept == "" || accept == "*/*" {
		return offers[0]
	}
	best, bestQ := "", 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > bestQ {
			best, bestQ = offer, q
		}
	}
	return best
}

// quality is the weight that an Accept header gives to a media type: the most specific range counts.
func quality(accept, offer string) float64 {
	major, _, _ := strings.Cut(offer, "/")
	q, rank := 0.0, 0
	for accept != "" {
		var item string
		item, accept, _ = strings.Cut(accept, ",")
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		r := 0
		switch {
		case name == offer:
			r = 3
		case strings.HasSuffix(name, "/*") && name[:len(name)-2] == major:
			r = 2
		case name == "*/*" || name == "*":
			r = 1
		}
		if r > rank {
			q, rank = weight(params), r
		}
	}
	return q
}

// weight reads the q parameter; 1 without one, 0 when it is not a number.
func weight(params string) float64 {
	for params != "" {
		var p string
		p, params, _ = strings.Cut(params, ";")
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || q < 0 || q > 1 {
				return 0
			}
			return q
		}
	}
	return 1
}

// PathParam is a path parameter, decoded. chi leaves it encoded when the path holds encoded slashes.
func PathParam(r *http.Request, name string) string {
	v := chi.URLParam(r, name)
	if r.URL.RawPath == "" || strings.IndexByte(v, '%') < 0 {
		return v
	}
	if s, err := url.PathUnescape(v); err == nil {
		return s
	}
	return v
}
