package protobuf_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// order is a schema of ordinary size.
const order = `syntax = "proto3";
package shop.orders.v1;

import "google/protobuf/timestamp.proto";
import "google/type/money.proto";

message Order {
  string id = 1;
  string customer_id = 2;
  google.protobuf.Timestamp placed_at = 3;
  repeated Line lines = 4;
  map<string, string> labels = 5;
  Status status = 6;
  oneof payment {
    Card card = 7;
    string voucher = 8;
  }
  optional string note = 9;

  message Line {
    string sku = 1;
    uint32 quantity = 2;
    google.type.Money price = 3;
  }
  message Card {
    string network = 1;
    string last_four = 2;
  }
}
enum Status {
  STATUS_UNSPECIFIED = 0;
  STATUS_OPEN = 1;
  STATUS_PAID = 2;
}
`

const orderJSON = `{"id":"o-1","customerId":"c-77","placedAt":"2026-09-18T10:00:00Z","lines":[` +
	`{"sku":"A-1","quantity":2,"price":{"currencyCode":"EUR","units":"12","nanos":500000000}},` +
	`{"sku":"B-9","quantity":1,"price":{"currencyCode":"EUR","units":"3","nanos":0}}],` +
	`"labels":{"channel":"web","region":"north"},"status":"STATUS_PAID","card":{"network":"visa","lastFour":"4242"},` +
	`"note":"leave at the door"}`

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		protobuf.New(protobuf.Limits{})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, o := range []struct {
		name string
		schema.ParseOptions
	}{{"strict", schema.ParseOptions{Strict: true}}, {"normalize", schema.ParseOptions{Strict: true,
		Normalize: true}}} {
		b.Run(o.name, func(b *testing.B) {
			b.SetBytes(int64(len(order)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := format().Parse(order, nil, o.ParseOptions)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	s, err := format().Parse(order, nil, schema.ParseOptions{Strict: true})
	require.NoError(b, err)
	t, err := format().Parse(order, nil, schema.ParseOptions{Strict: true})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := format().Compare(s, t, schema.CompareOptions{})
		require.NoError(b, err)
	}
}

func BenchmarkCodec(b *testing.B) {
	s, err := format().Parse(order, nil, schema.ParseOptions{Strict: true})
	require.NoError(b, err)
	c, err := s.Codec()
	require.NoError(b, err)
	value, err := c.Encode(nil, []byte(orderJSON))
	require.NoError(b, err)
	var buf []byte
	for name, fn := range map[string]func() error{
		"encode": func() (err error) { buf, err = c.Encode(buf[:0], []byte(orderJSON)); return err },
		"decode": func() (err error) { buf, err = c.Decode(buf[:0], value); return err },
		"check":  func() error { return c.Check(value) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, fn())
			}
		})
	}
}
