package schemaregistry

import (
	"context"
	"errors"
	"slices"
)

// CheckBatch checks schemas as registering one after the other would: one may refer to another one that comes before
// it. Nothing is registered. A schema that is not valid is one that does not fit.
func (r *Registry) CheckBatch(ctx context.Context, entries []BatchEntry) ([]CompatibilityResult, error) {
	if len(entries) > maxBatch {
		return nil, refuse(CodeTooLarge, "a batch has at most %d schemas", maxBatch)
	}
	if err := r.Fresh(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	w := r.view()
	out := make([]CompatibilityResult, len(entries))
	for i := range entries {
		if err := tooSlow(ctx); err != nil {
			return nil, inEntry(i, err)
		}
		found, err := r.checkEntry(ctx, w, &entries[i])
		var refused *Error
		switch {
		case errors.As(err, &refused) && isInvalid(refused.Code):
			found = CompatibilityResult{Messages: []string{refused.Message}}
		case err != nil:
			return nil, inEntry(i, err)
		}
		out[i] = found
	}
	return out, nil
}

// isInvalid reports whether an error is about the schema itself.
func isInvalid(code int) bool {
	return code == CodeInvalidSchema || code == CodeInvalidRuleSet || code == CodeTooLarge
}

// checkEntry checks one schema against a view, and adds it there for those that refer to it, also where it does not
// fit.
func (r *Registry) checkEntry(ctx context.Context, w *view, e *BatchEntry) (out CompatibilityResult, err error) {
	if err := checkRules(e.Request.Content.RuleSet); err != nil {
		return out, err
	}
	name, err := checkSubject(e.Subject)
	if err != nil {
		return out, err
	}
	g := newRegistration(r, name, e.Request)
	g.mode, g.config, g.q.Version, g.q.ID = ReadWrite, w.config(name), 0, nil
	versions, number := w.versions(name), 1
	if n := len(versions); n > 0 {
		number = versions[n-1].number + 1
	}
	live := slices.DeleteFunc(slices.Clone(versions), func(h held) bool { return h.deleted })
	c, err := g.fillIn(w, live, number)
	if err != nil {
		return out, err
	}
	known, done, err := g.recognise(ctx, w, c, live)
	if done || err != nil {
		return CompatibilityResult{Compatible: err == nil}, err
	}
	if out, err = g.compare(ctx, w, c, live); err != nil {
		return out, err
	}
	if known == nil {
		known = &content{Content: c.content, identity: c.is, id: w.maxID(name.Context) + 1, own: true}
	}
	w.add(target{name, number}, held{number: number, content: known, timestamp: r.cfg.Now().UnixMilli()})
	return out, nil
}
