package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

// order is a schema as applications have them, of about 2 KiB, and a value of it.
func order() (content, value string) {
	var props []string
	for i := range 12 {
		props = append(props, fmt.Sprintf(`"field%d":{"type":"string","maxLength":%d,"description":"The field number %d"}`,
			i, 40+i, i))
	}
	content = `{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object","properties":{` +
		`"id":{"type":"integer","minimum":1},"state":{"enum":["new","paid","sent"]}` +
		`,"customer":{"$ref":"#/definitions/party"},` +
		`"lines":{"type":"array","minItems":1,"items":{"type":"object","properties":{"sku":{"type":"string",` +
		`"pattern":"^[A-Z]{3}-[0-9]+$"},"count":{"type":"integer"},"price":{"type":"number","multipleOf":0.01}},` +
		`"required":["sku","count"]}},"note":{"oneOf":[{"type":"null"},{"type":"string"}]},` + strings.Join(props, ",") +
		`},"required":["id","lines"],"additionalProperties":false,"definitions":{"party":{"type":"object","properties":{` +
		`"name":{"type":"string"},"mail":{"type":"string","format":"email"}},"required":["name"]}}}`
	line := `{"sku":"ABC-12345","count":3,"price":19.99}`
	value = `{"id":4711,"state":"paid","customer":{"name":"A. Customer","mail":"a@example.org"},"lines":[` +
		line + `,` + line +
		`,` + line + `],"note":"call first","field0":"the quick brown fox","field7":"jumps over the lazy dog"}`
	return content, value
}

func BenchmarkParse(b *testing.B) {
	content, _ := order()
	f := jsonschema.New(jsonschema.Limits{})
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Parse(content, nil, schema.ParseOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	content, _ := order()
	f := jsonschema.New(jsonschema.Limits{})
	w, err := f.Parse(content, nil, schema.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r, err := f.Parse(strings.Replace(content, `"maxLength":40`, `"maxLength":80`, 1), nil, schema.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if c, err := f.Compare(r, w, schema.CompareOptions{}); err != nil || len(c.Differences) != 1 {
			b.Fatal(err, c)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	content, value := order()
	s, err := parse(content)
	if err != nil {
		b.Fatal(err)
	}
	c, err := s.Codec()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Check([]byte(value)); err != nil {
			b.Fatal(err)
		}
	}
}
