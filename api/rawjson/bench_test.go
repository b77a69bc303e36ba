package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"millrace/api/rawjson"
)

// Values of about 1 KiB of several kinds.
func samples() map[string][]byte {
	words := "the quick brown fox jumps over the lazy dog, and the log goes on; "
	text := `{"id":12345678,"name":"customer-7","note":"` + strings.Repeat(words, 14) + `","paid":true}`
	var fields bytes.Buffer
	fields.WriteString("{")
	for i := range 30 {
		if i > 0 {
			fields.WriteByte(',')
		}
		fields.WriteString(`"field_` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `":"value number ` +
			string(rune('a'+i%26)) + `"`)
	}
	fields.WriteString("}")
	numbers := "[" + strings.TrimSuffix(strings.Repeat("123456,-0.25,", 80), ",") + "]"
	return map[string][]byte{
		"text": []byte(text), "fields": fields.Bytes(), "numbers": []byte(numbers),
		"cjk": []byte(`{"note":"` + strings.Repeat("記録は順番に並ぶ", 40) + `"}`),
	}
}

func BenchmarkScan(b *testing.B) {
	for name, value := range samples() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if _, _, err := rawjson.Document(value, rawjson.MaxDepth); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The library's check of the same values, for comparison.
func BenchmarkJSONValid(b *testing.B) {
	for name, value := range samples() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if !json.Valid(value) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

func BenchmarkAppendString(b *testing.B) {
	text := samples()["text"]
	dst := make([]byte, 0, 2*len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		dst = rawjson.AppendString(dst[:0], text)
	}
}
