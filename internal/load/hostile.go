package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// hostileSchemas has a few clients read schemas while 50 others send what costs most.
func (b *bench) hostileSchemas(ctx context.Context) (result, error) {
	return b.onSchemas(ctx, func(s *server) (result, error) {
		attack, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		texts := hostileTexts()
		for i := range 50 {
			wg.Go(func() {
				client := &http.Client{}
				defer client.CloseIdleConnections()
				for n := i; attack.Err() == nil; n++ {
					t := texts[n%len(texts)]
					text := strings.ReplaceAll(t.text, "UNIQUE", fmt.Sprint(n))
					body := fmt.Sprintf(`{"schemaType":%q,"schema":%q}`, t.kind, text)
					_ = post(attack, client, s.addr, fmt.Sprint("hostile-", n%10_000), body) // most are refused
				}
			})
		}
		wait(ctx, time.Second)
		return b.readIDs(ctx, s, 4)
	})
}

type hostileText struct{ kind, text string }

// hostileTexts are large, deep, and slow to compare or to match.
func hostileTexts() []hostileText {
	var fields, properties, messages strings.Builder
	for i := range 15_000 {
		fmt.Fprintf(&fields, `,{"name":"fUNIQUE_%d","type":["null","string"],"default":null}`, i)
		fmt.Fprintf(&properties, `,"pUNIQUE_%d":{"type":"string","pattern":"^(a+)+$"}`, i)
		fmt.Fprintf(&messages, "message MUNIQUE_%d { string a = 1; }\n", i)
	}
	deep := 10_000
	return []hostileText{
		{"AVRO", `{"type":"record","name":"R","fields":[` + fields.String()[1:] + `]}`},
		{"JSON", `{"type":"object","properties":{` + properties.String()[1:] + `}}`},
		{"PROTOBUF", "syntax = \"proto3\";\n" + messages.String()},
		{"AVRO", strings.Repeat(`{"type":"array","items":`, deep) + `"int"` + strings.Repeat(`}`, deep)},
		{"JSON", strings.Repeat(`{"items":`, deep) + `{}` + strings.Repeat(`}`, deep)},
		{"JSON", `{"type":"string","pattern":"` + strings.Repeat("(a{1,1000}){1,1000}", 100) + `"}`},
		{"AVRO", `"` + strings.Repeat("x", 900_000) + `"`},
	}
}
