package restv2

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse feeds the parser what may come over the network. What it takes, encoding/json takes too, and
// nothing that it keeps is longer than what came.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"records":[{"key":"a","value":{"b": [1]}},{"value":"aGk=","partition":1}]}`))
	f.Add([]byte(`{"value_schema_id":null,"records":[{"value":"\/\u0041=="}]}`))
	f.Add([]byte(`{"records":[{"value":1},]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range []format{formatBinary, formatJSON} {
			body := append([]byte(nil), data...)
			inputs, err := parse(nil, &schemas{}, body, 100)
			if err != nil {
				continue
			}
			require.True(t, json.Valid(data))
			require.NotEmpty(t, inputs)
			if decode(inputs, form) != nil {
				continue
			}
			total := 0
			for _, in := range inputs {
				total += len(in.key) + len(in.value)
				if form == formatJSON && in.value != nil {
					require.True(t, json.Valid(in.value), "%q", in.value)
				}
			}
			require.Less(t, total, len(data))
		}
	})
}
