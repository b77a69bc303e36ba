package protobuf_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

// One Format and one schema serve many at once.
func TestConcurrentUse(t *testing.T) {
	shared := parse(t, all)
	errs := make(chan error, 1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, c := range canonicalCases() {
				s, err := format().Parse(c.in, nil, schema.ParseOptions{Strict: true, Normalize: true})
				errs <- err
				_, err = format().Compare(s, shared, schema.CompareOptions{})
				errs <- err
			}
			c, err := shared.Codec()
			errs <- err
			const in = `{"any":{"@type":"type.googleapis.com/google.type.Date","year":1},"byName":{"a":{}}}`
			raw, err := c.Encode(nil, []byte(in))
			errs <- err
			_, err = c.Decode(nil, raw)
			errs <- err
			shared.Format("serialized")
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}
