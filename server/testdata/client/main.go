// Command client uses the Go client that oapi-codegen makes of openapi.yaml: it creates a topic, produces by /v1 and by
// /v3, reads everything back, and meets a fault. The test that generates the client runs it against a node; the package
// sdk exists only then. It prints what it read and exits with 1 when anything is not as the contract says.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"millrace/server/testdata/client/sdk"
)

// What programs give, as values of Go's own types.
var (
	_ sdk.ProduceRecordsApplicationVndMillraceRecordsPlusJSONRequestBody = []sdk.Record{}
	_ sdk.ProduceRecordsApplicationCloudeventsBatchPlusJSONRequestBody   = []sdk.CloudEvent{}
	_ sdk.ProduceRecordsJSONRequestBody                                  = []byte(`{}`)
	_ sdk.ProduceRecordsApplicationVndMillraceRecordsPlusJSONRequestBody = sdk.RecordsBody{}
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	c, err := sdk.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	made, err := c.CreateTopicWithResponse(ctx, nil, sdk.NewTopic{Name: "orders"})
	if err != nil {
		return err
	}
	if made.JSON201 == nil || made.JSON201.Partitions != 1 {
		return fmt.Errorf("create: %s", made.Body)
	}
	if err := produce(ctx, c); err != nil {
		return err
	}
	from := "earliest"
	page, err := c.ReadRecordsWithResponse(ctx, "orders", &sdk.ReadRecordsParams{Offset: &from})
	if err != nil {
		return err
	}
	if page.JSON200 == nil {
		return fmt.Errorf("read: %s", page.Body)
	}
	for _, r := range page.JSON200.Records {
		fmt.Printf("%d %s\n", *r.Offset, r.Value)
	}
	return meetFault(ctx, c)
}

// produce stores a record by each API.
func produce(ctx context.Context, c *sdk.ClientWithResponses) error {
	stored, err := c.ProduceRecordsWithResponse(ctx, "orders", nil, sdk.AnyJSON(`{"id":9007199254740993}`))
	if err != nil {
		return err
	}
	if stored.JSON200 == nil || *stored.JSON200.Offsets[0].BaseOffset != 0 {
		return fmt.Errorf("produce by /v1: %s", stored.Body)
	}
	clusters, err := c.ListKafkaClustersWithResponse(ctx)
	if err != nil {
		return err
	}
	if clusters.JSON200 == nil || len(clusters.JSON200.Data) != 1 {
		return fmt.Errorf("clusters: %s", clusters.Body)
	}
	cluster, kind := clusters.JSON200.Data[0].ClusterId, sdk.ProduceDataTypeJSON
	batch, err := c.ProduceKafkaRecordsBatchWithResponse(ctx, cluster, "orders", sdk.ProduceBatchRequest{
		Entries: []sdk.ProduceBatchEntry{
			{Id: "a", Value: &sdk.ProduceData{Type: &kind, Data: sdk.AnyJSON(`{"id":2}`)}},
		},
	})
	if err != nil {
		return err
	}
	if batch.JSON207 == nil || len(batch.JSON207.Successes) != 1 || batch.JSON207.Successes[0].Offset != 1 {
		return fmt.Errorf("produce by /v3: %s", batch.Body)
	}
	return nil
}

// meetFault reads beyond the end, and looks for both bounds in the problem.
func meetFault(ctx context.Context, c *sdk.ClientWithResponses) error {
	beyond := "99"
	page, err := c.ReadPartitionRecordsWithResponse(ctx, "orders", 0, &sdk.ReadPartitionRecordsParams{Offset: &beyond})
	if err != nil {
		return err
	}
	p := page.ApplicationproblemJSON416
	if p == nil || p.LogStartOffset == nil || p.HighWatermark == nil || *p.HighWatermark != 2 {
		return errors.New("no problem with both bounds: " + string(page.Body))
	}
	return nil
}
