package jsonschema

import (
	"net/url"
	"strconv"
	"strings"

	"millrace/schemaregistry/schema"
)

// resource is a schema that other ones can name by a URI: a document, or a part of one with an identifier of its own.
type resource struct {
	doc       *resource // the document that it is a part of, itself if it is one
	root      *value
	base      *url.URL // without fragment
	draft     draft
	anchors   map[string]*value
	dynamic   map[string]*value    // anchors that a $dynamicRef looks for
	recursive bool                 // $recursiveAnchor
	parts     map[*value]*resource // of a document: all resources in it, itself too
}

// noBase is what a document without an identifier is called. Relative references are resolved against it.
const noBase = "registry:///"

// library holds all resources that a schema may refer to. Nothing outside of it is ever read.
type library struct {
	byURI map[string]*resource
	root  *resource
	later []target // where identifiers may be that are none to the drafts
}

func newLibrary() *library { return &library{byURI: map[string]*resource{}} }

// addRoot adds the schema itself.
func (l *library) addRoot(root *value) {
	l.root = l.add(noBase, root, draft7)
}

// add takes a document that is found under a URI, and all that it defines. fallback is the draft where it names none.
func (l *library) add(uri string, root *value, fallback draft) *resource {
	base, err := url.Parse(uri)
	if err != nil {
		base = &url.URL{Path: "/"}
	}
	res := &resource{root: root, base: base, draft: fallback, parts: map[*value]*resource{}}
	res.doc = res
	if s := root.member("$schema"); s != nil && s.kind == text {
		d, _ := draftOf(s.text)
		res.draft = d
	}
	if id := root.str(res.draft.idKeyword()); id != "" { // here it counts beside a $ref, too
		if u, err := base.Parse(id); err == nil {
			res.base = u
		}
	}
	res.parts[root] = res
	l.register(res)
	l.index(res, root)
	for len(l.later) > 0 {
		t := l.later[0]
		l.later = l.later[1:]
		l.index(t.res, t.val)
	}
	return res
}

// addDependency adds a document under the name that references use: as it is, and relative to the schema itself.
func (l *library) addDependency(name string, root *value) {
	name, _, _ = strings.Cut(name, "#")
	uri := name
	if u, err := l.root.base.Parse(name); err == nil {
		uri = u.String()
	}
	res := l.add(uri, root, l.root.draft)
	for _, alias := range []string{uri, name} {
		if l.byURI[alias] == nil {
			l.byURI[alias] = res
		}
	}
}

func (l *library) register(res *resource) {
	u := *res.base
	u.Fragment, u.RawFragment = "", ""
	res.base = &u
	if key := u.String(); l.byURI[key] == nil {
		l.byURI[key] = res
	}
}

// identifier is the $id that names the schema v, "" if it has none. Up to draft 7 nothing counts beside a $ref.
func (r *resource) identifier(v *value) string {
	if r.draft < draft2019 && v.member("$ref") != nil {
		return ""
	}
	return v.str(r.draft.idKeyword())
}

// index finds the identifiers and anchors of a schema and of what is below it. Places that hold plain values are left
// out; those that are no keywords come last, as references may lead into them but true identifiers go before.
func (l *library) index(res *resource, v *value) {
	if v.kind == array {
		for i := range v.items() {
			l.index(res, &v.sub.items[i])
		}
		return
	}
	if v.kind != object {
		return
	}
	if v != res.doc.root {
		res = l.part(res, v)
	}
	res.addAnchors(v)
	for i, name := range v.names() {
		sub := &v.sub.items[i]
		switch name {
		case "enum", "const", "default", "examples", "example":
		case "properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas":
			for i := range sub.items() {
				l.index(res, &sub.sub.items[i])
			}
		case "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "additionalProperties",
			"unevaluatedProperties", "propertyNames", "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
			l.index(res, sub)
		default:
			if sub.sub != nil {
				l.later = append(l.later, target{val: sub, res: res})
			}
		}
	}
}

// part makes a new resource of v if it has an identifier that is more than an anchor.
func (l *library) part(res *resource, v *value) *resource {
	id := res.identifier(v)
	if id == "" || strings.HasPrefix(id, "#") {
		return res
	}
	u, err := res.base.Parse(id)
	if err != nil {
		return res
	}
	sub := &resource{doc: res.doc, root: v, base: u, draft: res.draft}
	if s := v.member("$schema"); s != nil && s.kind == text {
		if d, ok := draftOf(s.text); ok {
			sub.draft = d
		}
	}
	res.doc.parts[v] = sub
	l.register(sub)
	return sub
}

func (r *resource) addAnchors(v *value) {
	if _, anchor, ok := strings.Cut(r.identifier(v), "#"); ok && anchor != "" {
		r.setAnchor(anchor, v)
	}
	if r.draft < draft2019 {
		return
	}
	if a := v.str("$anchor"); a != "" {
		r.setAnchor(a, v)
	}
	if a := v.str("$dynamicAnchor"); a != "" {
		r.setAnchor(a, v)
		if r.dynamic == nil {
			r.dynamic = map[string]*value{}
		}
		r.dynamic[a] = v
	}
	if a := v.member("$recursiveAnchor"); a != nil && a.text == "true" && v == r.root {
		r.recursive = true
	}
}

func (r *resource) setAnchor(name string, v *value) {
	if r.anchors == nil {
		r.anchors = map[string]*value{}
	}
	if r.anchors[name] == nil {
		r.anchors[name] = v
	}
}

// target is what a reference leads to.
type target struct {
	val *value
	res *resource
	at  string // where it stands, for messages
}

// find resolves a reference that stands in res.
func (l *library) find(res *resource, ref string) (target, error) {
	uri, fragment, _ := strings.Cut(ref, "#")
	to := res
	if uri != "" {
		if to = l.lookUp(res, uri); to == nil {
			return target{}, schema.Invalid("%q is not among the references of the schema; nothing is fetched", ref)
		}
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return target{}, schema.Invalid("%q has a fragment that is not well formed", ref)
	}
	name := uri + "#"
	switch {
	case fragment == "" || fragment == "/" && to.root.member("") == nil:
		return target{to.root, to, name}, nil
	case fragment[0] == '/':
		if t, ok := to.point(fragment); ok {
			t.at = name + fragment
			return t, nil
		}
		if t, ok := to.doc.point(fragment); ok { // as older drafts have it within a part with an identifier
			t.at = name + fragment
			return t, nil
		}
	default:
		for _, r := range []*resource{to, to.doc} { // older drafts look in the whole document
			if v := r.anchors[fragment]; v != nil {
				return target{v, r, name + fragment}, nil
			}
		}
	}
	return target{}, schema.Invalid("%q leads nowhere", ref)
}

func (l *library) lookUp(res *resource, uri string) *resource {
	for _, base := range []*url.URL{res.base, l.root.base} {
		if u, err := base.Parse(uri); err == nil {
			if r := l.byURI[u.String()]; r != nil {
				return r
			}
		}
	}
	if r := l.byURI[uri]; r != nil {
		return r
	}
	if u, err := res.base.Parse(uri); err == nil {
		uri = u.String()
	}
	if content, d, ok := metaSchema(uri); ok {
		if v, err := readValue([]byte(content), 2); err == nil {
			r := &resource{root: v, base: res.base, draft: d}
			r.doc, r.parts = r, map[*value]*resource{v: r}
			l.byURI[uri] = r
			return r
		}
	}
	return nil
}

// point follows a JSON pointer. At the top $defs also means definitions.
func (r *resource) point(pointer string) (target, bool) {
	v, res := r.root, r
	for i, token := range strings.Split(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next := v.child(token)
		if next == nil && i == 0 && token == "$defs" {
			next = v.child("definitions")
		}
		if next == nil && i == 1 && strings.HasPrefix(pointer, "/$defs/") {
			if defs := r.root.member("definitions"); defs != nil {
				next = defs.child(token)
			}
		}
		if next == nil {
			return target{}, false
		}
		v = next
		if part := r.doc.parts[v]; part != nil {
			res = part
		}
	}
	return target{val: v, res: res}, true
}

// child is the member or element that one token of a JSON pointer means.
func (v *value) child(token string) *value {
	if v.kind == object {
		return v.member(token)
	}
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v.items()) {
		return &v.sub.items[i]
	}
	return nil
}
