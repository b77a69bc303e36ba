package registry

import (
	"net/http"

	"millrace/api"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// RegisterSchema makes a schema a version of a subject. What the subject has already is answered by every node.
func (a *API) RegisterSchema(w http.ResponseWriter, r *http.Request, subject string, p RegisterSchemaParams) {
	sent, err := a.body(w, r, a.opts.BodyBytes)
	defer sent.Free()
	if err != nil {
		a.fail(w, r, tooLarge(err))
		return
	}
	var body schemaBody
	if err := api.DecodeKnown(sent.Bytes, &body); err != nil {
		a.fail(w, r, err)
		return
	}
	q := body.request(p.Normalize)
	q.Force = is(p.Force)
	to, err := a.subject(r, subject)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	v, known, err := a.registry.Known(r.Context(), to, q)
	if err == nil && !known {
		if a.forwarded(w, again(r, sent.Bytes)) { // without the names that nobody knows
			return
		}
		v, err = a.registry.RegisterUnknown(r.Context(), to, q)
	}
	if err == nil {
		v, err = a.shown(r.Context(), v, form{format: text(p.Format)})
	}
	a.answerRegistered(w, r, &v, err)
}

// tagsBody changes the tags, metadata and rules of a version.
type tagsBody struct {
	NewVersion    *int32           `json:"newVersion"`
	TagsToAdd     []schema.Tagged  `json:"tagsToAdd"`
	TagsToRemove  []schema.Tagged  `json:"tagsToRemove"`
	Metadata      *schema.Metadata `json:"metadata"`
	RuleSet       *schema.RuleSet  `json:"ruleSet"`
	RulesToMerge  *schema.RuleSet  `json:"rulesToMerge"`
	RulesToRemove []string         `json:"rulesToRemove"`
}

// ModifySchemaTags makes a new version of one with other tags, metadata or rules.
func (a *API) ModifySchemaTags(w http.ResponseWriter, r *http.Request, subject, version string) {
	if a.forwarded(w, r) {
		return
	}
	var body tagsBody
	if err := a.readSchema(w, r, &body); err != nil {
		a.fail(w, r, err)
		return
	}
	q := schemaregistry.TagsRequest{
		TagsToAdd: body.TagsToAdd, TagsToRemove: body.TagsToRemove, Metadata: body.Metadata, RuleSet: body.RuleSet,
		RulesToMerge: body.RulesToMerge, RulesToRemove: body.RulesToRemove,
	}
	if body.NewVersion != nil {
		n := int(*body.NewVersion)
		q.NewVersion = &n
	}
	subject, err := a.subject(r, subject)
	var v schemaregistry.Version
	if err == nil {
		v, err = a.registry.ModifyTags(r.Context(), subject, version, q)
	}
	a.answerRegistered(w, r, &v, err)
}

// batchBody are schemas to register together.
type batchBody struct {
	Schemas   []batchEntry `json:"schemas"`
	Normalize *bool        `json:"normalize"`
}

type batchEntry struct {
	Subject *string `json:"subject"`
	schemaBody
}

// mostEntries bounds the schemas of a batch.
const mostEntries = 1000

// RegisterSchemas registers all of some schemas or none.
func (a *API) RegisterSchemas(w http.ResponseWriter, r *http.Request) {
	if a.forwarded(w, r) {
		return
	}
	var body batchBody
	entries, err := a.readBatch(w, r, &body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	made, err := a.registry.RegisterBatch(r.Context(), entries)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	out := []byte(`{"schemas":[`)
	for i := range made {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendVersion(out, &made[i], members{place: true, id: true}); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	a.tellOffset(w)
	a.write(w, r, append(out, `]}`...))
}

func (a *API) readBatch(w http.ResponseWriter, r *http.Request, body *batchBody) ([]schemaregistry.BatchEntry, error) {
	sent, err := a.body(w, r, a.edge.Limits().BodyBytes)
	defer sent.Free()
	if err != nil {
		return nil, tooLarge(err)
	}
	if err := api.DecodeKnown(sent.Bytes, body); err != nil {
		return nil, err
	}
	if n := len(body.Schemas); n == 0 || n > mostEntries {
		return nil, api.Refuse(api.UnprocessableBody, "a batch has 1 to %d schemas, but this one has %d", mostEntries, n)
	}
	entries := make([]schemaregistry.BatchEntry, len(body.Schemas))
	for i := range body.Schemas {
		e := &body.Schemas[i]
		if e.Subject == nil {
			return nil, api.Refuse(api.UnprocessableBody, "schemas[%d] names no subject", i)
		}
		to, err := a.subject(r, *e.Subject)
		if err != nil {
			return nil, err
		}
		entries[i] = schemaregistry.BatchEntry{Subject: to, Request: e.request(body.Normalize)}
	}
	return entries, nil
}
