package native

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"millrace/api"
)

// knownQuery is a middleware of the generated handlers, which overlook what they do not know: it refuses a query
// parameter that the operation lacks, or that is given twice. A misspelt validate_only must not change a topic.
func knownQuery(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if r.URL.RawQuery != "" {
			if err := checkQuery(r.URL.RawQuery, queryNames(request)); err != nil {
				return nil, err
			}
		}
		return next(ctx, w, r, request)
	}
}

func checkQuery(query string, known []string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return api.BadEscape(query)
	}
	for name, v := range values {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return api.Refuse(api.InvalidParameter, "unknown parameter %.40q; this takes none", name)
		case !slices.Contains(known, name):
			return api.Refuse(api.InvalidParameter, "unknown parameter %.40q; known are %s", name, strings.Join(known, ", "))
		case len(v) > 1:
			return api.Refuse(api.InvalidParameter, "parameter %s is given twice", name)
		}
	}
	return nil
}

// queryNames lists the query parameters of a generated request object: its Params, by their tags.
func queryNames(request any) (names []string) {
	params := reflect.ValueOf(request).FieldByName("Params")
	if !params.IsValid() {
		return nil
	}
	for i := range params.NumField() {
		if name, _, _ := strings.Cut(params.Type().Field(i).Tag.Get("form"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
