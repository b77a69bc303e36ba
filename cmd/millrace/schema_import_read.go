package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// load reads all versions of the other registry, also deleted ones.
func (im *importer) load(ctx context.Context) error {
	var names []string
	query := url.Values{"deleted": {"true"}, "subjectPrefix": {im.flags.prefix}}
	if err := im.get(ctx, "/subjects", query, &names); err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !hasPrefix(name, im.flags.prefix) })
	im.report.Subjects = len(names)
	for _, name := range names {
		im.scope(name)
	}
	if err := each(ctx, names, im.loadSubject); err != nil {
		return err
	}
	setLevels(im.versions)
	return im.loadAliases(ctx)
}

func (im *importer) scope(name string) {
	if im.scopes[name] == nil {
		im.scopes[name] = &importHere{name: name}
	}
	if context := contextOf(name); context != "" && context != name && hasPrefix(context, im.flags.prefix) {
		im.scope(context)
	}
}

// hasPrefix reports whether a subject begins with a prefix, which older registries do not ask. A context begins so if
// all of its subjects do.
func hasPrefix(subject, prefix string) bool {
	rest, every := strings.CutPrefix(prefix, everyContext)
	if every {
		return strings.HasPrefix(strings.TrimPrefix(subject, contextOf(subject)), rest)
	}
	return strings.HasPrefix(subject, prefix) && contextOf(subject) == contextOf(prefix)
}

// loadSubject reads all versions of a subject. Which of them are deleted is what the list of the others leaves out.
func (im *importer) loadSubject(ctx context.Context, name string) error {
	var every, live []int
	err := im.get(ctx, subjectPath(name, "versions"), url.Values{"deleted": {"true"}}, &every)
	if err == nil {
		err = im.get(ctx, subjectPath(name, "versions"), nil, &live)
	}
	if err != nil && statusOf(err) != http.StatusNotFound { // it is deleted, or was meanwhile
		return err
	}
	for _, number := range every {
		v := &imported{}
		path := subjectPath(name, "versions", strconv.Itoa(number))
		switch err := im.get(ctx, path, url.Values{"deleted": {"true"}}, &v.registrySchema); {
		case statusOf(err) == http.StatusNotFound:
			continue // gone meanwhile
		case err != nil:
			return err
		}
		led := v.Subject
		v.Subject, v.Version, v.Deleted = name, number, !slices.Contains(live, number)
		if led != name && led != "" {
			im.fail(&v.registrySchema, "the subject is an alias of %s there, which hides its own versions", led)
			return nil
		}
		im.mu.Lock()
		im.versions = append(im.versions, v)
		im.mu.Unlock()
	}
	return nil
}

// loadAliases finds the subjects that only lead to others: they have a config, and no list has their names.
func (im *importer) loadAliases(ctx context.Context) error {
	for offset := 0; ; offset += schemasPage {
		query := url.Values{
			"aliases": {"true"}, "latestOnly": {"true"}, "subjectPrefix": {im.flags.prefix},
			"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(schemasPage)},
		}
		var page []struct {
			Aliases []string `json:"aliases"`
		}
		switch err := im.get(ctx, "/schemas", query, &page); {
		case statusOf(err) != 0:
			return nil //nolint:nilerr // older registries have neither aliases nor this list
		case err != nil:
			return err
		}
		for _, s := range page {
			for _, alias := range s.Aliases {
				im.scope(alias)
			}
		}
		if len(page) != schemasPage {
			return nil
		}
	}
}

func (im *importer) get(ctx context.Context, path string, query url.Values, out any) error {
	err := im.from.do(ctx, call{method: http.MethodGet, path: path, query: query, header: im.header}, out)
	switch statusOf(err) {
	case 0:
		return err
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s%s: %w\nPut the Authorization header that it wants into MILLRACE_FROM_AUTHORIZATION",
			im.from.base, path, err)
	}
	return fmt.Errorf("%s%s: %w", im.from.base, path, err)
}

// setLevels puts versions above those that they refer to.
func setLevels(all []*imported) {
	type place struct {
		subject string
		version int
	}
	at := map[place]*imported{}
	for _, v := range all {
		at[place{v.Subject, v.Version}] = v
	}
	seen := map[*imported]bool{}
	var set func(v *imported) int
	set = func(v *imported) int {
		if v == nil {
			return -1
		}
		if seen[v] {
			return v.level
		}
		seen[v] = true
		for _, ref := range v.References {
			subject := ref.Subject
			if contextOf(subject) == "" {
				subject = contextOf(v.Subject) + subject
			}
			v.level = max(v.level, set(at[place{subject, ref.Version}])+1)
		}
		return v.level
	}
	for _, v := range all {
		set(v)
	}
	slices.SortFunc(all, func(a, b *imported) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Version, b.Version))
	})
}

// contextOf is the context with which a subject's name begins, such as :.ctx:, or "".
func contextOf(subject string) string {
	if !strings.HasPrefix(subject, ":.") {
		return ""
	}
	end := strings.IndexByte(subject[1:], ':')
	if end < 0 {
		return ""
	}
	return subject[:end+2]
}

// survey finds out what is here, and so what is to be done.
func (im *importer) survey(ctx context.Context) error {
	bySubject := map[string][]*imported{}
	for _, v := range im.versions {
		bySubject[v.Subject] = append(bySubject[v.Subject], v)
	}
	return each(ctx, slices.Collect(maps.Values(im.scopes)), func(ctx context.Context, h *importHere) error {
		return im.surveyScope(ctx, h, bySubject[h.name])
	})
}

func (im *importer) surveyScope(ctx context.Context, h *importHere, versions []*imported) error {
	var err error
	if h.own, err = settingOf(ctx, im.to, "/config/", h.name, nil); err != nil {
		return err
	}
	mode, err := settingOf(ctx, im.to, "/mode/", h.name, nil)
	if err != nil {
		return err
	}
	h.mode, _ = mode["mode"].(string)
	if alias, _ := h.own["alias"].(string); alias != "" && len(versions) > 0 {
		for _, v := range versions {
			im.fail(&v.registrySchema, "the subject is an alias of %s here", alias)
		}
		return nil
	}
	var here []int
	if len(versions) > 0 {
		list := call{
			method: http.MethodGet, path: subjectPath(h.name, "versions"), query: url.Values{"deleted": {"true"}},
		}
		if err := im.to.do(ctx, list, &here); err != nil && statusOf(err) != http.StatusNotFound {
			return err
		}
	}
	h.known = len(here) > 0
	for _, v := range versions {
		if err := im.surveyVersion(ctx, v, slices.Contains(here, v.Version)); err != nil {
			return err
		}
	}
	return nil
}

// surveyVersion finds out whether a version is here. Whether one that is not can be copied the registry says when it
// is; in a dry run the holder of its id is looked at.
func (im *importer) surveyVersion(ctx context.Context, v *imported, there bool) error {
	ask := call{method: http.MethodGet, query: url.Values{"deleted": {"true"}}}
	switch {
	case there:
		ask.path = subjectPath(v.Subject, "versions", strconv.Itoa(v.Version))
	case im.flags.dry:
		ask.path = "/schemas/ids/" + strconv.Itoa(v.ID)
		ask.query = url.Values{"subject": {contextOf(v.Subject)}}
	default:
		v.copy, v.erase = true, v.Deleted
		return nil
	}
	var here registrySchema
	err := im.to.do(ctx, ask, &here)
	if statusOf(err) == http.StatusNotFound {
		v.copy, v.erase = true, v.Deleted
		return nil
	}
	if err != nil {
		return err
	}
	if there && here.ID != v.ID {
		im.fail(&v.registrySchema, "version %d has id %d here", v.Version, here.ID)
		return nil
	}
	same, err := im.same(ctx, &here, v)
	switch {
	case err != nil:
	case !same && there:
		im.fail(&v.registrySchema, "version %d with id %d is another schema here", v.Version, v.ID)
	case !same:
		im.fail(&v.registrySchema, "id %d is of another schema here", v.ID)
	case !there:
		v.copy, v.erase = true, v.Deleted
	default:
		v.copy, v.erase = here.Deleted && !v.Deleted, v.Deleted && !here.Deleted
		if !v.copy {
			im.count(&im.report.Present)
		}
	}
	return err
}

// same reports whether a schema that is here is that of a version. Registries print schemas differently, so where the
// texts differ the one here is asked what it makes of the other's.
func (im *importer) same(ctx context.Context, here *registrySchema, v *imported) (bool, error) {
	if here.kind() != v.kind() {
		return false, nil
	}
	if here.GUID != "" && here.GUID == v.GUID {
		return true, nil
	}
	body := v.registrySchema
	body.Version, body.ID, body.GUID, body.Deleted = 0, 0, "", false
	ask := jsonCall(http.MethodPost, subjectPath(here.Subject), &body)
	ask.query = url.Values{"deleted": {"true"}}
	var found registrySchema
	err := im.to.do(ctx, ask, &found)
	if code := statusOf(err); code == http.StatusNotFound || code == http.StatusUnprocessableEntity {
		return false, nil
	}
	return found.GUID == here.GUID, err
}

// settingOf is a config or a mode; nil if there is none.
func settingOf(ctx context.Context, r *remote, kind, name string, header http.Header) (map[string]any, error) {
	out := map[string]any{}
	err := r.do(ctx, call{method: http.MethodGet, path: kind + url.PathEscape(name), header: header}, &out)
	if statusOf(err) == http.StatusNotFound {
		return nil, nil
	}
	return out, err
}

// registryCode is the error number of an answer of the registry, 0 of another error.
func registryCode(err error) int {
	var p *problem
	if errors.As(err, &p) {
		return p.Code
	}
	return 0
}

// statusOf is the HTTP status of an answer that was an error, 0 of another error.
func statusOf(err error) int {
	var p *problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}
