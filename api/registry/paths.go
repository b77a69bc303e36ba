package registry

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"millrace/api"
	"millrace/schemaregistry"
)

// requestID is the header by which a client finds its request in its own logs.
const requestID = "X-Request-Id"

// enter makes the request that is routed of one as it came: every path may end in a slash, and a path below a context
// means subjects in that context.
func (a *API) enter(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	identify(w, r)
	was := r.URL.EscapedPath()
	path := strings.TrimSuffix(was, "/")
	query := r.URL.RawQuery
	if rest, ok := strings.CutPrefix(path, "/contexts/"); ok {
		if name, below, ok := strings.Cut(rest, "/"); ok && ofContexts(below) {
			context, err := contextName(name)
			if err != nil {
				return nil, err
			}
			path, query = inContext(context, below, r.URL)
		}
	}
	path = namedSubject(path)
	if path == was && query == r.URL.RawQuery {
		return r, nil
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, api.RefuseCompat(http.StatusBadRequest, "Bad Request: the path cannot be read: %v.", err)
	}
	out, u := *r, *r.URL
	u.Path, u.RawPath, u.RawQuery = plain, path, query
	out.URL = &u
	return &out, nil
}

// identify gives the answer the id of the request, or a new one.
func identify(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(requestID)
	if id == "" {
		id = uuid.NewString()
	}
	w.Header()[requestID] = []string{id}
}

// ofContexts says whether a path, without its first slash, may stand below a context: those that name no API of another
// kind.
func ofContexts(path string) bool {
	switch first, rest, _ := strings.Cut(path, "/"); first {
	case "subjects", "schemas", "compatibility", "config", "mode", "contexts":
		return true
	case "v1":
		return strings.HasPrefix(rest, "metadata/")
	default:
		return false
	}
}

// contextName reads a segment of a path that names a context: ".ctx", ":.ctx:" or "ctx".
func contextName(segment string) (string, error) {
	name, err := url.PathUnescape(segment)
	if err != nil {
		return "", api.RefuseCompat(http.StatusBadRequest, "Bad Request: the path cannot be read: %v.", err)
	}
	return contextNamed(name)
}

// contextNamed is contextName for a segment that was read.
func contextNamed(name string) (string, error) {
	if len(name) > 2 && strings.HasPrefix(name, ":.") && strings.HasSuffix(name, ":") {
		name = name[1 : len(name)-1]
	}
	if strings.Contains(name, ":") {
		return "", api.RefuseCompat(http.StatusBadRequest, "Bad Request: the context %.100q has a colon in its name.", name)
	}
	if !strings.HasPrefix(name, ".") {
		name = "." + name
	}
	return name, nil
}

// inContext is the path and the query that mean, without a context, what below and the query of u mean in one.
func inContext(context, below string, u *url.URL) (path, query string) {
	segments := strings.Split(below, "/")
	qualify := func(i int) {
		if i >= len(segments) {
			return
		}
		if name, err := url.PathUnescape(segments[i]); err == nil {
			segments[i] = url.PathEscape(whole(schemaregistry.Qualify(context, name)))
		}
	}
	query = u.RawQuery
	switch first := segments[0]; {
	case (first == "config" || first == "mode") && len(segments) == 1:
		segments = append(segments, url.PathEscape(":"+context+":"))
	case first == "config", first == "mode":
		qualify(1)
	case (first == "subjects" || first == "schemas") && len(segments) == 1:
		query = qualifyQuery(u, "subjectPrefix", context)
	case first == "subjects":
		qualify(1)
	case first == "compatibility":
		qualify(2)
	case first == "schemas" && segments[1] == "ids":
		query = qualifyQuery(u, "subject", context)
	}
	return "/" + strings.Join(segments, "/"), query
}

// whole is a subject as it may stand in a path, where the empty one is no segment.
func whole(subject string) string {
	if subject == "" {
		return ":.:"
	}
	return subject
}

func qualifyQuery(u *url.URL, name, context string) string {
	q := u.Query()
	q.Set(name, schemaregistry.Qualify(context, q.Get(name)))
	return q.Encode()
}

// namedSubject gives the empty subject, which is an empty segment of a path, a name that is one: that of the default
// context.
func namedSubject(path string) string {
	for _, before := range []string{"/subjects/", "/compatibility/subjects/"} {
		if rest, ok := strings.CutPrefix(path, before); ok && strings.HasPrefix(rest, "/") {
			return before + ":.:" + rest
		}
	}
	return path
}
