package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

// document is the OpenAPI file, converted once when first asked for.
type document struct {
	yaml []byte
	once sync.Once
	json []byte
	page renderedDocs
	err  error
}

// load converts the file to JSON, in its own order, and renders the page.
func (d *document) load() error {
	d.once.Do(func() {
		if len(d.yaml) == 0 {
			d.err = Refuse(NotFound, "this server carries no OpenAPI document")
			return
		}
		if d.json, d.err = yamlToJSON(d.yaml); d.err != nil {
			return
		}
		d.page, d.err = renderDocs(d.yaml)
	})
	return d.err
}

func (e *Edge) openapiYAML(w http.ResponseWriter, _ *http.Request) {
	if len(e.document.yaml) == 0 {
		WriteProblem(w, Refuse(NotFound, "this server carries no OpenAPI document"))
		return
	}
	writeBytes(w, http.StatusOK, "application/yaml", e.document.yaml)
}

func (e *Edge) openapiJSON(w http.ResponseWriter, r *http.Request) {
	if err := e.document.load(); err != nil {
		e.Fail(w, r, err)
		return
	}
	writeBytes(w, http.StatusOK, "application/json", e.document.json)
}

func (e *Edge) docs(w http.ResponseWriter, r *http.Request) {
	if err := e.document.load(); err != nil {
		e.Fail(w, r, err)
		return
	}
	cluster := ""
	if k, err := e.client.Cluster(r.Context()); err == nil { // without it the example's id stays
		cluster = k.ID
	}
	e.writePage(w, e.document.page.of(e.BaseURL(r), cluster))
}

// yamlToJSON converts a YAML document to JSON and keeps the order of its keys.
func yamlToJSON(in []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(in, &doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	var out bytes.Buffer
	if err := writeNode(&out, &doc); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func writeNode(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeNode(out, n.Content[0])
	case yaml.AliasNode:
		return writeNode(out, n.Alias)
	case yaml.MappingNode:
		return writeList(out, n, '{', '}')
	case yaml.SequenceNode:
		return writeList(out, n, '[', ']')
	default:
		return writeScalar(out, n)
	}
}

func writeList(out *bytes.Buffer, n *yaml.Node, begin, end byte) error {
	out.WriteByte(begin)
	for i, c := range n.Content {
		isValue := n.Kind == yaml.MappingNode && i%2 == 1
		if isValue {
			out.WriteByte(':')
		} else if i > 0 {
			out.WriteByte(',')
		}
		if n.Kind == yaml.MappingNode && !isValue {
			key, err := json.Marshal(c.Value) // a key such as 200 is a number in YAML, a string in JSON
			if err != nil {
				return err
			}
			out.Write(key)
		} else if err := writeNode(out, c); err != nil {
			return err
		}
	}
	out.WriteByte(end)
	return nil
}

func writeScalar(out *bytes.Buffer, n *yaml.Node) error {
	var v any = n.Value // dates and the like stay text
	switch n.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		if err := n.Decode(&v); err != nil {
			return fmt.Errorf("line %d of the OpenAPI document: %w", n.Line, err)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	out.Write(b)
	return nil
}
