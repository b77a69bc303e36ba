package main

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// whole copies the config of all into a registry that has nothing yet, and says what is not copied of its mode.
func (im *importer) whole(ctx context.Context) error {
	if im.flags.prefix != everyContext {
		return nil
	}
	mode, err := settingOf(ctx, im.from, "/mode", "", im.header)
	if err != nil {
		return err
	}
	if mode := mode["mode"]; mode != nil && mode != "READWRITE" {
		im.note("the other registry is in mode %s; modes of all are not copied", mode)
	}
	there, err := settingOf(ctx, im.from, "/config", "", im.header)
	if err != nil {
		return err
	}
	here, err := settingOf(ctx, im.to, "/config", "", nil)
	if err != nil || there == nil || reflect.DeepEqual(here, there) {
		return err
	}
	var some []string
	err = im.to.do(ctx, call{
		method: http.MethodGet, path: "/subjects", query: url.Values{"deleted": {"true"}, "limit": {"1"}},
	}, &some)
	if err != nil {
		return err
	}
	if len(some) > 0 {
		im.note("the config of all differs: %v there, %v here; it is left as it is", there["compatibilityLevel"],
			here["compatibilityLevel"])
		return nil
	}
	return im.putConfig(ctx, "all subjects", "/config", there)
}

// carryOut copies the versions that are not here, each after those that it refers to, and then deletes those that are
// deleted there, each before them.
func (im *importer) carryOut(ctx context.Context) error {
	var levels [][]*imported
	began := map[*importHere]bool{}
	for _, v := range im.versions { // by level
		if !v.copy && !v.erase {
			continue
		}
		for len(levels) <= v.level {
			levels = append(levels, nil)
		}
		levels[v.level] = append(levels[v.level], v)
		began[im.scopes[v.Subject]] = true
	}
	if !im.flags.dry {
		if err := each(ctx, slices.Collect(maps.Keys(began)), im.begin); err != nil {
			return err
		}
	}
	for _, level := range levels {
		if err := each(ctx, level, im.register); err != nil {
			return err
		}
	}
	for _, level := range slices.Backward(levels) {
		if err := each(ctx, level, im.erase); err != nil {
			return err
		}
	}
	return nil
}

// begin puts a subject into mode IMPORT, if it is not in it.
func (im *importer) begin(ctx context.Context, h *importHere) error {
	if h.mode == modeImport {
		return nil
	}
	h.began = true
	return im.putMode(ctx, h.name, modeImport)
}

func (im *importer) putMode(ctx context.Context, subject, mode string) error {
	put := jsonCall(http.MethodPut, "/mode/"+url.PathEscape(subject), map[string]string{"mode": mode})
	put.query = url.Values{"force": {"true"}}
	return im.to.do(ctx, put, nil)
}

// register copies one version.
func (im *importer) register(ctx context.Context, v *imported) error {
	if !v.copy {
		return nil
	}
	if !im.flags.dry {
		body := v.registrySchema
		body.Subject, body.GUID, body.Deleted = "", "", false
		err := im.to.do(ctx, jsonCall(http.MethodPost, subjectPath(v.Subject, "versions"), &body), nil)
		if isRefused(err) {
			v.erase = false
			im.fail(&v.registrySchema, "%v", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	im.count(&im.report.Copied)
	return nil
}

// isRefused reports whether an error is about what was sent, so that others may go on.
func isRefused(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return true
	}
	return false
}

// codeDeleted is the registry's number for a version that is softly deleted already.
const codeDeleted = 40406

// erase deletes a version softly, as it is there.
func (im *importer) erase(ctx context.Context, v *imported) error {
	if !v.erase {
		return nil
	}
	if !im.flags.dry {
		path := subjectPath(v.Subject, "versions", strconv.Itoa(v.Version))
		err := im.to.do(ctx, call{method: http.MethodDelete, path: path}, nil)
		if isRefused(err) {
			im.fail(&v.registrySchema, "it is deleted there, and cannot be here: %v", err)
			return nil
		}
		if err != nil && registryCode(err) != codeDeleted {
			return err
		}
	}
	im.count(&im.report.Deleted)
	return nil
}

// finish gives all subjects and contexts their configs and modes.
func (im *importer) finish(ctx context.Context) error {
	return each(ctx, slices.SortedFunc(maps.Values(im.scopes), func(a, b *importHere) int {
		return cmp.Compare(a.name, b.name)
	}), im.finishScope)
}

func (im *importer) finishScope(ctx context.Context, h *importHere) error {
	there, err := settingOf(ctx, im.from, "/config/", h.name, im.header)
	switch {
	case err != nil:
		return err
	case there == nil || reflect.DeepEqual(there, h.own):
	case h.own != nil:
		im.note("%s has a config of its own here, and another one there; it is left as it is", h.name)
	default:
		if err := im.putConfig(ctx, h.name, "/config/"+url.PathEscape(h.name), there); err != nil {
			return err
		}
	}
	return im.finishMode(ctx, h)
}

// finishMode takes over the mode that a subject has there, if it was not here before, and else gives it its own again.
func (im *importer) finishMode(ctx context.Context, h *importHere) error {
	mode, err := settingOf(ctx, im.from, "/mode/", h.name, im.header)
	if err != nil {
		return err
	}
	there, _ := mode["mode"].(string)
	want := h.mode
	if h.mode == modeImport || h.mode == "" && !h.known { // nothing was here, or a copy was interrupted
		want = there
	}
	switch {
	case want != there && there != "":
		im.note("%s: its mode there is %s; here it is left as it is", h.name, there)
	case want != h.mode && want != "":
		im.count(&im.report.Modes)
	}
	now := h.mode
	if h.began {
		now = modeImport
	}
	switch {
	case im.flags.dry || want == now:
		return nil
	case want == "":
		return im.dropMode(ctx, h.name)
	}
	return im.putMode(ctx, h.name, want)
}

func (im *importer) dropMode(ctx context.Context, subject string) error {
	err := im.to.do(ctx, call{method: http.MethodDelete, path: "/mode/" + url.PathEscape(subject)}, nil)
	if statusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// giveBackWait bounds the last requests of a copy that failed.
const giveBackWait = 10 * time.Second

// giveBack gives subjects that were here before their modes again, as well as it can, when a copy ends before its end.
// Others stay in mode IMPORT, which says that they are not complete.
func (im *importer) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWait)
	defer cancel()
	for _, h := range im.scopes {
		switch {
		case !h.began, !h.known && h.mode == "":
		case h.mode == "":
			_ = im.dropMode(ctx, h.name)
		default:
			_ = im.putMode(ctx, h.name, h.mode)
		}
	}
}

// putConfig copies a config. It is read with its level under another name than it is written with.
func (im *importer) putConfig(ctx context.Context, what, path string, config map[string]any) error {
	if !im.flags.dry {
		config = maps.Clone(config)
		config["compatibility"] = config["compatibilityLevel"]
		delete(config, "compatibilityLevel")
		err := im.to.do(ctx, jsonCall(http.MethodPut, path, config), nil)
		if isRefused(err) {
			im.fail(&registrySchema{Subject: what}, "its config: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	im.count(&im.report.Configs)
	return nil
}
