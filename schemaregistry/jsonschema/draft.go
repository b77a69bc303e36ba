package jsonschema

import "strings"

// draft is a version of JSON Schema. They are ordered.
type draft int

const (
	draft4    draft = 4
	draft6    draft = 6
	draft7    draft = 7
	draft2019 draft = 2019
	draft2020 draft = 2020
)

// draftOf finds the draft that a $schema names; ok is false for one that is not known.
func draftOf(uri string) (d draft, ok bool) {
	uri = strings.TrimSuffix(strings.TrimSuffix(uri, "#"), "/")
	uri = strings.TrimPrefix(strings.TrimPrefix(uri, "https://"), "http://")
	switch uri {
	case "json-schema.org/draft-04/schema":
		return draft4, true
	case "json-schema.org/draft-06/schema":
		return draft6, true
	case "json-schema.org/draft-07/schema":
		return draft7, true
	case "json-schema.org/draft/2019-09/schema":
		return draft2019, true
	case "json-schema.org/draft/2020-12/schema":
		return draft2020, true
	}
	return draft7, false
}

// idKeyword is the member that names a schema.
func (d draft) idKeyword() string {
	if d == draft4 {
		return "id"
	}
	return "$id"
}

// metaSchema stands for the schema of a draft's schemas, which is not at hand: any object, and since draft 6 also a
// boolean.
func metaSchema(uri string) (text string, d draft, ok bool) {
	if d, ok = draftOf(uri); ok {
		if d == draft4 {
			return `{"type":"object"}`, d, true
		}
		return `{"type":["object","boolean"]}`, d, true
	}
	for _, d := range []draft{draft2019, draft2020} {
		prefix := map[draft]string{
			draft2019: "https://json-schema.org/draft/2019-09/meta/",
			draft2020: "https://json-schema.org/draft/2020-12/meta/",
		}[d]
		if strings.HasPrefix(uri, prefix) {
			return `{"type":["object","boolean"]}`, d, true
		}
	}
	return "", 0, false
}
