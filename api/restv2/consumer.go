package restv2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/consumer"
)

// A consumer instance is a member of a group that a node runs for a client. A call for it is served on the node of the
// group's coordinator, wherever it comes to. What the instance is beyond a member is kept with the member, so that the
// next node that runs it knows.

// Bounds of calls to consumer instances.
const (
	instanceBody = 1 << 20                // bytes of a body
	joinWait     = 3 * time.Second        // for the first partitions after a subscription
	moveTries    = 20                     // of a call while the instance moves to another node
	movePause    = 100 * time.Millisecond // between them
)

// mountConsumers adds the routes of consumer instances.
func (a *API) mountConsumers(r chi.Router) {
	const instance = "/consumers/{group}/instances/{instance}"
	r.Post("/consumers/{group}", a.createOnce)
	for _, route := range []struct {
		method, path string
		answer       func(*call) error
	}{
		{http.MethodDelete, "", (*call).delete},
		{http.MethodPost, "/subscription", (*call).subscribe},
		{http.MethodGet, "/subscription", (*call).subscription},
		{http.MethodDelete, "/subscription", (*call).unsubscribe},
		{http.MethodPost, "/assignments", (*call).assign},
		{http.MethodGet, "/assignments", (*call).assignments},
		{http.MethodPost, "/positions", (*call).seek},
		{http.MethodPost, "/positions/beginning", (*call).seekToBeginning},
		{http.MethodPost, "/positions/end", (*call).seekToEnd},
		{http.MethodGet, "/records", (*call).records},
		{http.MethodPost, "/offsets", (*call).commit},
		{http.MethodGet, "/offsets", (*call).committed},
	} {
		r.Method(route.method, instance+route.path, a.calls(func(c *call) error {
			if err := c.find(); err != nil {
				return err
			}
			return route.answer(c)
		}))
	}
}

// createOnce is create for requests that may have a key, which is looked at where the instance is made.
func (a *API) createOnce(w http.ResponseWriter, r *http.Request) {
	create := a.calls((*call).create)
	if _, keyed := r.Header[api.IdempotencyKey]; !keyed || a.opts.Keyed == nil {
		create(w, r)
		return
	}
	if !a.edge.ForwardGroup(w, r, api.PathParam(r, "group")) {
		a.opts.Keyed(api.KeyedRoute{Again: true, Fail: a.fail}, create)(w, r)
	}
}

// call is one call to a group's consumer instances being answered.
type call struct {
	*API
	w         http.ResponseWriter
	r         *http.Request
	group, id string
	mediaType string // of the answer
	body      []byte // nil: there is none
	start     time.Time
	again     bool // the call was tried before, on a node that the instance left meanwhile

	member   *consumer.Member // of a call to one instance
	settings *settings
}

// calls makes a handler that answers on the node of the group's coordinator. An error of answer means that nothing was
// written yet.
func (a *API) calls(answer func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{
			API: a, w: w, r: r, group: api.PathParam(r, "group"), id: api.PathParam(r, "instance"), start: time.Now(),
		}
		if a.opts.Members == nil {
			a.fail(w, r, api.Refuse(api.Overloaded, "this server runs no consumer instances"))
			return
		}
		if a.edge.ForwardGroup(w, r, c.group) {
			return
		}
		body, err := a.edge.ReadBody(w, r, instanceBody)
		defer body.Free()
		if err == nil {
			c.body = body.Bytes
			err = c.checkTypes()
		}
		if err == nil {
			err = answer(c)
		}
		for try := 1; isMoving(err) && try < moveTries && c.pause(); try++ {
			if a.edge.ForwardGroup(w, c.afresh(), c.group) {
				return
			}
			c.again = true
			err = answer(c)
		}
		if err != nil {
			a.fail(w, r, c.explain(err))
		}
	}
}

// isMoving says of an error that the instance is, or is about to be, on another node.
func isMoving(err error) bool {
	return errors.Is(err, consumer.ErrMoved) || errors.Is(err, kerr.NotCoordinator)
}

func (c *call) pause() bool {
	t := time.NewTimer(movePause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.r.Context().Done():
		return false
	}
}

// afresh is the request with its body, which was read.
func (c *call) afresh() *http.Request {
	r := c.r.Clone(c.r.Context())
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(c.body)), nil
	r.Header.Del("Content-Encoding")
	if len(c.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(c.body))
		r.Header.Set("Content-Length", strconv.Itoa(len(c.body)))
	}
	return r
}

// checkTypes refuses a body of another media type than this API's, and a client that takes none of them.
func (c *call) checkTypes() error {
	if rawjson.IsEmpty(c.body) {
		c.body = nil
	}
	if c.r.Method != http.MethodDelete && c.body != nil && !isV2(api.MediaType(c.r.Header.Get("Content-Type"))) {
		return api.RefuseCompat(http.StatusUnsupportedMediaType,
			"HTTP 415 Unsupported Media Type: Content-Type must be %s.", genericType)
	}
	offers := append([]string{genericType, "application/json"}, embeddedTypes()...)
	switch c.mediaType = api.Negotiate(c.r.Header, offers...); c.mediaType {
	case "":
		return api.RefuseCompat(http.StatusNotAcceptable, "HTTP 406 Not Acceptable: this API answers %s.", genericType)
	case "application/json":
		c.mediaType = genericType
	}
	return nil
}

// find finds the instance that the call is for.
func (c *call) find() error {
	m, err := c.opts.Members.Find(c.r.Context(), c.group, c.id)
	if err != nil {
		return err
	}
	s, ok := decodeSettings(m.Config().Extra)
	if !ok {
		return consumer.ErrUnknownMember // a member of another API
	}
	c.member, c.settings = m, s
	return m.Touch()
}

// create makes an instance.
func (c *call) create() error {
	config, err := c.newInstance()
	if err != nil {
		return err
	}
	if config.ID == "" {
		config.ID = "rest-consumer-" + uuid.NewString()
	}
	config.Group, config.ClientID, config.ClientHost = c.group, c.r.UserAgent(), hostOf(c.r.RemoteAddr)
	c.id = config.ID
	if _, err := c.opts.Members.Join(c.r.Context(), config); err != nil {
		return err
	}
	b := append([]byte(`{"instance_id":`), rawjson.AppendString(nil, config.ID)...)
	b = append(b, `,"base_uri":`...)
	b = rawjson.AppendString(b, c.edge.BaseURL(c.r)+"/consumers/"+url.PathEscape(c.group)+"/instances/"+
		url.PathEscape(config.ID))
	c.answer(append(b, '}'))
	return nil
}

// delete ends the instance.
func (c *call) delete() error {
	err := c.member.Leave(c.r.Context(), nil)
	if c.again && errors.Is(err, consumer.ErrUnknownMember) {
		err = nil
	}
	if err != nil {
		return err
	}
	return c.done()
}

// done answers what has nothing to tell.
func (c *call) done() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// answer sends a JSON document.
func (c *call) answer(body []byte) {
	h := c.w.Header()
	h["Content-Type"] = []string{c.mediaType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = c.w.Write(body) // a client that has gone needs no answer
}

// hostOf is the host of an address.
func hostOf(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i]
		}
	}
	return address
}

// explain tells an error of an instance in this API's numbers.
func (c *call) explain(err error) error {
	var place *consumer.NoOffsetError
	var kafka *client.KafkaError
	switch {
	case errors.Is(err, consumer.ErrUnknownMember), errors.Is(err, consumer.ErrFenced):
		return api.RefuseCompat(codeInstanceNotFound, "Consumer instance not found. Group %q has no instance %q: it was "+
			"never created, or deleted, or not called for too long. Create it again.", c.group, c.id)
	case errors.Is(err, kerr.InvalidGroupID):
		return unprocessable("A group id has 1 to %d bytes of UTF-8.", consumer.MaxGroupID)
	case errors.Is(err, consumer.ErrTaken):
		return api.RefuseCompat(codeInstanceExists,
			"Consumer with specified consumer ID already exists in the specified consumer group.")
	case errors.Is(err, consumer.ErrNotAssigned):
		return illegalState("a partition is not assigned to this instance")
	case errors.Is(err, consumer.ErrNotSubscribed):
		return illegalState("the instance has neither a subscription nor assigned partitions")
	case errors.Is(err, consumer.ErrSubscribedOtherwise):
		return illegalState("subscription to topics, to a pattern and assigned partitions are mutually exclusive")
	case errors.As(err, &place):
		return api.RefuseCompat(codeFinal, "Kafka error: %v in %v. Seek, or commit an offset, to say where to read.", place,
			place.TopicPartition)
	case isMoving(err):
		return api.RefuseCompat(codeRetriable,
			"Kafka error: the instance is moving to another node. Send the request again a little later.")
	case errors.Is(err, consumer.ErrTooMany):
		return api.Refuse(api.Overloaded, "%v", err)
	case errors.As(err, &kafka) && kafka.Err == kerr.InvalidRegularExpression:
		return unprocessable("Invalid topic_pattern: %s", kafka.Detail())
	case errors.As(err, &kafka) && kafka.Err == kerr.UnknownTopicOrPartition:
		return api.RefuseCompat(codeUnknownPartition, "Unknown topic or partition: %s", kafka.Detail())
	case errors.Is(err, context.Cause(c.r.Context())) && c.r.Context().Err() != nil:
		return &api.Error{Fault: api.NoAnswer, Detail: err.Error(), Cause: err}
	}
	return err
}

func illegalState(text string) error {
	return api.RefuseCompat(codeIllegalState, "Illegal state: %s.", text)
}
