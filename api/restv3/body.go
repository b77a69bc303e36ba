package restv3

import (
	"context"
	"errors"
	"net/http"

	"millrace/api"
	"millrace/api/rawjson"
)

// readBody reads the body of an ordinary operation into v, a pointer to a struct.
func (a *API) readBody(ctx context.Context, v any) error {
	c := ctx.Value(callKey{}).(*call)
	if err := isJSON(c.r.Header.Get("Content-Type")); err != nil {
		return err
	}
	body, err := a.edge.ReadBody(c.w, c.r, 0)
	defer body.Free()
	if err != nil {
		return err
	}
	if rawjson.IsEmpty(body.Bytes) {
		return errEmptyBody
	}
	return api.Decode(body.Bytes, v)
}

func isJSON(contentType string) error {
	if api.MediaType(contentType) != jsonType {
		return api.RefuseCompat(http.StatusUnsupportedMediaType,
			"HTTP 415 Unsupported Media Type: Content-Type must be %s.", jsonType)
	}
	return nil
}

// malformed is what a body of records that is not JSON is answered with.
func malformed(err error) *api.Error {
	var kind *rawjson.TypeError
	if errors.As(err, &kind) {
		return badRequest("%v.", kind)
	}
	return badRequest("Malformed JSON: %v.", err)
}
