package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed docs.html
var docsTemplate string

//go:embed start.html
var startTemplate string

//go:embed page.css
var pageStyle string

//go:embed docs.js
var docsScript string

// docsPage is what the page of the OpenAPI document shows.
type docsPage struct {
	Title       string
	Version     string
	Description string
	Tags        []docsTag
	Schemas     []docsSchema
	Style       template.CSS
	Script      template.JS
}

type docsTag struct {
	Name        string
	Description string
	Operations  []docsOperation
}

type docsOperation struct {
	ID          string
	Method      string
	Path        string
	Summary     string
	Description string
	Parameters  []docsParameter
	Bodies      []docsBody
	Responses   []docsResponse
	Calls       []docsCall
}

type docsParameter struct {
	Name        string
	In          string
	Required    bool
	Type        template.HTML
	Example     string
	Description string
}

type docsBody struct {
	MediaType string
	Type      template.HTML
}

type docsResponse struct {
	Status      string
	Description string
	Bodies      []docsBody
	Example     string
}

// docsCall is a line of curl.
type docsCall struct {
	Title string
	Curl  string
}

type docsSchema struct {
	Name        string
	Description string
	Type        template.HTML
	Fields      []docsField
}

type docsField struct {
	Name        string
	Type        template.HTML
	Required    bool
	Description string
}

// specReader reads an OpenAPI document as a tree that keeps its order.
type specReader struct {
	root *yaml.Node
}

// renderedDocs is the page of an OpenAPI document, and what of it stands for the node that serves it.
type renderedDocs struct {
	html    []byte
	url     string // of the server
	cluster string // id
}

// renderDocs renders the page of an OpenAPI document.
func renderDocs(document []byte) (renderedDocs, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(document, &doc); err != nil {
		return renderedDocs{}, err
	}
	r := &specReader{root: doc.Content[0]}
	info := r.get(r.root, "info")
	page := docsPage{
		Title: r.text(info, "title"), Version: r.text(info, "version"), Description: r.text(info, "description"),
		Tags: r.tags(), Schemas: r.schemas(), Style: template.CSS(pageStyle), Script: template.JS(docsScript),
	}
	html, err := execute("docs", docsTemplate, page)
	cluster := r.get(r.get(r.get(r.root, "components"), "parameters"), "ClusterId")
	return renderedDocs{html: html, url: r.serverURL(), cluster: r.text(cluster, "example")}, err
}

// of is the page as a node serves it: its lines of curl name the node and its cluster.
func (d *renderedDocs) of(url, cluster string) []byte {
	page := d.html
	if d.url != "" {
		page = bytes.ReplaceAll(page, []byte(d.url), []byte(template.HTMLEscapeString(url)))
	}
	if d.cluster != "" && cluster != "" {
		page = bytes.ReplaceAll(page, []byte(d.cluster), []byte(template.HTMLEscapeString(cluster)))
	}
	return page
}

func execute(name, text string, data any) ([]byte, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"prose": prose, "lower": strings.ToLower}).Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// pagePolicy allows a page its own style and script, and nothing else from anywhere.
func pagePolicy() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(pageStyle) + "; script-src " + hash(docsScript) +
		"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}

// prose renders a description: paragraphs, and code between backticks.
func prose(s string) template.HTML {
	var out strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if paragraph == "" {
			continue
		}
		out.WriteString("<p>")
		out.WriteString(inline(paragraph))
		out.WriteString("</p>")
	}
	return template.HTML(out.String())
}

func inline(s string) string {
	var out strings.Builder
	for i, part := range strings.Split(s, "`") {
		if i%2 == 1 {
			out.WriteString("<code>" + template.HTMLEscapeString(part) + "</code>")
		} else {
			out.WriteString(template.HTMLEscapeString(part))
		}
	}
	return out.String()
}

// get is the value of a key of a mapping, with references followed; nil if there is none.
func (r *specReader) get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return r.follow(n.Content[i+1])
		}
	}
	return nil
}

// follow resolves a reference within the document.
func (r *specReader) follow(n *yaml.Node) *yaml.Node {
	name := reference(n)
	if name == "" {
		return n
	}
	target := r.root
	for _, key := range strings.Split(strings.TrimPrefix(name, "#/"), "/") {
		target = r.get(target, key)
	}
	return target
}

// reference is the $ref of a node, "" if it is none.
func reference(n *yaml.Node) string {
	if n != nil && n.Kind == yaml.MappingNode && len(n.Content) >= 2 && n.Content[0].Value == "$ref" {
		return n.Content[1].Value
	}
	return ""
}

func (r *specReader) text(n *yaml.Node, key string) string {
	if v := r.get(n, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// each calls fn for every key of a mapping, in order. The value is as written: a reference is not followed.
func each(n *yaml.Node, fn func(key string, value *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fn(n.Content[i].Value, n.Content[i+1])
	}
}

// items are the elements of a sequence, with references followed.
func (r *specReader) items(n *yaml.Node) (out []*yaml.Node) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, c := range n.Content {
		out = append(out, r.follow(c))
	}
	return out
}

func (r *specReader) tags() (out []docsTag) {
	for _, t := range r.items(r.get(r.root, "tags")) {
		tag := docsTag{Name: r.text(t, "name"), Description: r.text(t, "description")}
		each(r.get(r.root, "paths"), func(path string, item *yaml.Node) {
			each(item, func(method string, op *yaml.Node) {
				for _, name := range r.items(r.get(op, "tags")) {
					if name.Value == tag.Name {
						tag.Operations = append(tag.Operations, r.operation(path, method, item, op))
					}
				}
			})
		})
		out = append(out, tag)
	}
	return out
}

func (r *specReader) operation(path, method string, item, op *yaml.Node) docsOperation {
	out := docsOperation{
		ID: r.text(op, "operationId"), Method: strings.ToUpper(method), Path: path,
		Summary: r.text(op, "summary"), Description: r.text(op, "description"),
	}
	url, query := r.serverURL()+path, "?"
	for _, p := range append(r.items(r.get(item, "parameters")), r.items(r.get(op, "parameters"))...) {
		dp := docsParameter{
			Name: r.text(p, "name"), In: r.text(p, "in"), Required: r.text(p, "required") == "true",
			Type: r.typeOf(r.raw(p, "schema")), Example: r.text(p, "example"), Description: r.text(p, "description"),
		}
		if dp.In == "path" && dp.Example != "" {
			url = strings.ReplaceAll(url, "{"+dp.Name+"}", dp.Example)
		}
		if dp.In == "query" && (dp.Required || r.text(p, "x-shown") == "true") {
			url, query = url+query+dp.Name+"="+dp.Example, "&"
		}
		out.Parameters = append(out.Parameters, dp)
	}
	out.Bodies = r.bodies(r.get(r.get(op, "requestBody"), "content"))
	each(r.get(op, "responses"), func(status string, v *yaml.Node) {
		out.Responses = append(out.Responses, r.response(status, r.follow(v)))
	})
	out.Calls = r.calls(out.Method, url, r.get(r.get(op, "requestBody"), "content"))
	if out.Method == http.MethodGet {
		out.Calls = append(out.Calls, r.otherForms(url, op)...)
	}
	return out
}

func (r *specReader) response(status string, v *yaml.Node) docsResponse {
	content := r.get(v, "content")
	out := docsResponse{Status: status, Description: r.text(v, "description"), Bodies: r.bodies(content)}
	each(content, func(mediaType string, m *yaml.Node) {
		if e := r.get(m, "example"); e != nil && out.Example == "" {
			out.Example = show(e, mediaType)
		}
	})
	return out
}

// raw is the value of a key as written: a reference is not followed.
func (r *specReader) raw(n *yaml.Node, key string) (out *yaml.Node) {
	each(n, func(k string, v *yaml.Node) {
		if k == key {
			out = v
		}
	})
	return out
}

func (r *specReader) bodies(content *yaml.Node) (out []docsBody) {
	each(content, func(mediaType string, m *yaml.Node) {
		out = append(out, docsBody{MediaType: mediaType, Type: r.typeOf(r.raw(m, "schema"))})
	})
	return out
}

func (r *specReader) serverURL() string {
	if servers := r.items(r.get(r.root, "servers")); len(servers) > 0 {
		return r.text(servers[0], "url")
	}
	return ""
}

// calls are lines of curl: one for each example of a body, or one without a body.
func (r *specReader) calls(method, url string, content *yaml.Node) (out []docsCall) {
	base := "curl"
	if method != http.MethodGet {
		base += " -X " + method
	}
	base += " " + shellQuoted(url)
	each(content, func(mediaType string, m *yaml.Node) {
		add := func(title string, e *yaml.Node) {
			source, body := sendBody(show(e, mediaType))
			out = append(out, docsCall{
				Title: strings.TrimSpace(mediaType + " " + title),
				Curl: source + base + " \\\n  -H " + shellQuoted("Content-Type: "+mediaType) +
					" \\\n  --data-binary " + body,
			})
		}
		if e := r.get(m, "example"); e != nil {
			add("", e)
		}
		each(r.get(m, "examples"), func(name string, e *yaml.Node) {
			if v := r.get(r.follow(e), "value"); v != nil {
				add("("+name+")", v)
			}
		})
	})
	if len(out) == 0 && content == nil {
		out = append(out, docsCall{Curl: base})
	}
	return out
}

// otherForms are lines of curl for the forms of a read beside the first.
func (r *specReader) otherForms(url string, op *yaml.Node) (out []docsCall) {
	each(r.get(r.get(r.get(op, "responses"), "200"), "content"), func(mediaType string, m *yaml.Node) {
		call := docsCall{Title: mediaType, Curl: "curl"}
		address := url
		if mediaType == "text/event-stream" {
			call.Title += " (goes on until you stop it)"
			call.Curl += " -N"
		}
		if mediaType == "text/event-stream" && !strings.Contains(url, "?") {
			address += "?offset=earliest" // by itself it begins at the end, and has nothing to show
		}
		call.Curl += " -H " + shellQuoted("Accept: "+mediaType) + " " + shellQuoted(address)
		if r.text(r.get(m, "schema"), "format") == "binary" {
			call.Curl += " -o records.bin"
		}
		out = append(out, call)
	})
	if len(out) < 2 {
		return nil
	}
	return out[1:]
}

// sendBody gives what goes before curl and what --data-binary takes: a text of lines is printed into curl, one line
// an argument, so that it can be read and changed.
func sendBody(text string) (source, body string) {
	lines, whole := strings.CutSuffix(text, "\n")
	if !whole {
		return "", shellQuoted(text)
	}
	source = "printf '%s\\n'"
	for line := range strings.SplitSeq(lines, "\n") {
		source += " \\\n  " + shellQuoted(line)
	}
	return source + " |\n", "@-"
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// show writes an example as it would be sent: text as it is, anything else as JSON.
func show(n *yaml.Node, mediaType string) string {
	isJSON := mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && !isJSON {
		return n.Value
	}
	var compact, indented bytes.Buffer
	if err := writeNode(&compact, n); err != nil {
		return n.Value
	}
	const oneLine = 100
	if compact.Len() <= oneLine || json.Indent(&indented, compact.Bytes(), "", "  ") != nil {
		return compact.String()
	}
	return indented.String()
}

func (r *specReader) schemas() (out []docsSchema) {
	each(r.get(r.get(r.root, "components"), "schemas"), func(name string, s *yaml.Node) {
		out = append(out, docsSchema{
			Name: name, Description: r.text(s, "description"), Type: r.typeOf(s), Fields: r.fields(s),
		})
	})
	return out
}

func (r *specReader) fields(s *yaml.Node) (out []docsField) {
	required := map[string]bool{}
	for _, n := range r.items(r.get(s, "required")) {
		required[n.Value] = true
	}
	each(r.get(s, "properties"), func(name string, f *yaml.Node) {
		out = append(out, docsField{
			Name: name, Type: r.typeOf(f), Required: required[name], Description: r.text(r.follow(f), "description"),
		})
	})
	return out
}

// typeOf says in a few words what a schema allows. Named schemas are links.
func (r *specReader) typeOf(s *yaml.Node) template.HTML {
	if s == nil {
		return "any"
	}
	if name := reference(s); name != "" {
		name = template.HTMLEscapeString(name[strings.LastIndexByte(name, '/')+1:])
		return template.HTML(`<a href="#schema-` + name + `">` + name + "</a>")
	}
	out := r.plainType(s)
	if enum := r.items(r.get(s, "enum")); len(enum) > 0 {
		values := make([]string, len(enum))
		for i, v := range enum {
			values[i] = "<code>" + template.HTMLEscapeString(v.Value) + "</code>"
		}
		out += " (" + strings.Join(values, ", ") + ")"
	}
	if low, high := r.text(s, "minimum"), r.text(s, "maximum"); low != "" || high != "" {
		out += template.HTMLEscapeString(" [" + low + ".." + high + "]")
	}
	if r.text(s, "nullable") == "true" {
		out += " or null"
	}
	return template.HTML(out)
}

func (r *specReader) plainType(s *yaml.Node) string {
	kind := r.text(s, "type")
	switch {
	case kind == "array":
		return "array of " + string(r.typeOf(r.raw(s, "items")))
	case kind == "object" && r.raw(s, "additionalProperties") != nil && r.get(s, "properties") == nil:
		if r.get(s, "additionalProperties").Kind == yaml.MappingNode {
			return "object with values of " + string(r.typeOf(r.raw(s, "additionalProperties")))
		}
		return "object"
	case kind == "":
		return "any"
	}
	if format := r.text(s, "format"); format != "" {
		kind += " (" + format + ")"
	}
	return template.HTMLEscapeString(kind)
}

// startPage is what a browser gets at `/`.
func (e *Edge) startPage(w http.ResponseWriter, r *http.Request, a rootAnswer) {
	page, err := execute("start", startTemplate, struct {
		rootAnswer
		URL   string
		Style template.CSS
	}{a, e.BaseURL(r), template.CSS(pageStyle)})
	if err != nil {
		e.Fail(w, r, err)
		return
	}
	e.writePage(w, page)
}

// writePage answers with an HTML page that loads nothing from anywhere.
func (e *Edge) writePage(w http.ResponseWriter, page []byte) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	writeBytes(w, http.StatusOK, "text/html; charset=utf-8", page)
}
