package registry

import (
	"encoding/json"
	"net/http"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/schemaregistry"
)

// writtenConfig is a config as PUT answers it, where the level has another name than elsewhere.
type writtenConfig struct {
	Compatibility *string `json:"compatibility,omitempty"`
	schemaregistry.SubjectConfig
}

// configBody is a change of a config. What is nil was not there.
type configBody struct {
	Compatibility       json.RawMessage `json:"compatibility"`
	CompatibilityPolicy json.RawMessage `json:"compatibilityPolicy"`
	CompatibilityGroup  json.RawMessage `json:"compatibilityGroup"`
	Normalize           json.RawMessage `json:"normalize"`
	ValidateFields      json.RawMessage `json:"validateFields"`
	ValidateNewSchemas  json.RawMessage `json:"validateNewSchemas"`
	ValidateRules       json.RawMessage `json:"validateRules"`
	Alias               json.RawMessage `json:"alias"`
	AliasForDeks        json.RawMessage `json:"aliasForDeks"`
	DefaultMetadata     json.RawMessage `json:"defaultMetadata"`
	OverrideMetadata    json.RawMessage `json:"overrideMetadata"`
	DefaultRuleSet      json.RawMessage `json:"defaultRuleSet"`
	OverrideRuleSet     json.RawMessage `json:"overrideRuleSet"`
}

// update is the change that the body says.
func (b *configBody) update() (u schemaregistry.ConfigUpdate, err error) {
	for _, err := range []error{
		change(&u.Compatibility, "compatibility", b.Compatibility),
		change(&u.CompatibilityPolicy, "compatibilityPolicy", b.CompatibilityPolicy),
		change(&u.CompatibilityGroup, "compatibilityGroup", b.CompatibilityGroup),
		change(&u.Normalize, "normalize", b.Normalize),
		change(&u.ValidateFields, "validateFields", b.ValidateFields),
		change(&u.ValidateNewSchemas, "validateNewSchemas", b.ValidateNewSchemas),
		change(&u.ValidateRules, "validateRules", b.ValidateRules),
		change(&u.Alias, "alias", b.Alias),
		change(&u.AliasForDeks, "aliasForDeks", b.AliasForDeks),
		change(&u.DefaultMetadata, "defaultMetadata", b.DefaultMetadata),
		change(&u.OverrideMetadata, "overrideMetadata", b.OverrideMetadata),
		change(&u.DefaultRuleSet, "defaultRuleSet", b.DefaultRuleSet),
		change(&u.OverrideRuleSet, "overrideRuleSet", b.OverrideRuleSet),
	} {
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// change reads a member that was there, or null, which removes what is set.
func change[T any](c *schemaregistry.Change[T], name string, value json.RawMessage) error {
	if c.Set = value != nil; !c.Set || rawjson.IsNull(value) {
		return nil
	}
	c.Value = new(T)
	if err := api.DecodeKnown(value, c.Value); err != nil {
		return api.Refuse(api.MalformedBody, "%s: %s", name, api.FromError(err).Detail)
	}
	return nil
}

// GetRegistryConfig answers with the global config.
func (a *API) GetRegistryConfig(w http.ResponseWriter, r *http.Request, _ GetRegistryConfigParams) {
	found, err := a.registry.Config(r.Context(), "", true)
	a.answer(w, r, found, err)
}

// UpdateRegistryConfig changes the global config.
func (a *API) UpdateRegistryConfig(w http.ResponseWriter, r *http.Request) {
	a.UpdateSubjectConfig(w, r, "")
}

// ResetRegistryConfig removes the global config.
func (a *API) ResetRegistryConfig(w http.ResponseWriter, r *http.Request) {
	a.ResetSubjectConfig(w, r, "")
}

// GetSubjectConfig answers with a subject's config.
func (a *API) GetSubjectConfig(w http.ResponseWriter, r *http.Request, subject string, p GetSubjectConfigParams) {
	found, err := a.registry.Config(r.Context(), subject, is(p.DefaultToGlobal))
	a.answer(w, r, found, err)
}

// UpdateSubjectConfig changes a subject's config.
func (a *API) UpdateSubjectConfig(w http.ResponseWriter, r *http.Request, subject string) {
	if a.forwarded(w, r) {
		return
	}
	var body configBody
	err := a.read(w, r, &body)
	var u schemaregistry.ConfigUpdate
	if err == nil {
		u, err = body.update()
	}
	out := writtenConfig{}
	if err == nil {
		out.SubjectConfig, err = a.registry.SetConfig(r.Context(), subject, u)
	}
	out.Compatibility, out.CompatibilityLevel = out.CompatibilityLevel, nil
	a.answerWrite(w, r, out, err)
}

// ResetSubjectConfig removes a subject's config, and answers with what it was.
func (a *API) ResetSubjectConfig(w http.ResponseWriter, r *http.Request, subject string) {
	if a.forwarded(w, r) {
		return
	}
	old, err := a.registry.DeleteConfig(r.Context(), subject)
	a.answerWrite(w, r, old, err)
}
