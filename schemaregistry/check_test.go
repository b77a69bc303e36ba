package schemaregistry

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

// A batch is checked as registering one schema after the other would, and nothing is registered.
func TestCheckBatch(t *testing.T) {
	d := newDesk(t)
	d.put("base", recordOf("Base", `a:"int"`), 1, 1)
	d.put("user", `"int"`, 1, 2)
	length := d.log.length()
	entry := func(subject, text string, refs ...schema.Reference) BatchEntry {
		return BatchEntry{Subject: subject, Request: RegisterRequest{
			Content: schema.Content{Type: schema.Avro, Text: text, References: refs},
		}}
	}
	latest := func(name, subject string) schema.Reference {
		return schema.Reference{Name: name, Subject: subject, Version: -1}
	}
	got, err := d.CheckBatch(t.Context(), []BatchEntry{
		entry("new", recordOf("New", `a:"int"`)),
		entry("holder", recordOf("Holder", `n:"New"`, `b:"Base"`), latest("New", "new"), ofBase()),
		entry("top", recordOf("Top", `h:"Holder"`), latest("Holder", "holder")),
		entry("top", recordOf("Top", `h:"Holder"`, `more:"int"`), latest("Holder", "holder")), // after the one before
		entry("base", recordOf("Base", `a:"int"`, `b:"int"`)),
		entry("user", `"long"`),
		entry("user", `"int"`), // is registered
		entry("bad", `{"type":"record"}`),
		entry("early", recordOf("Early", `l:"Late"`), latest("Late", "late")),
		entry("late", recordOf("Late", `a:"int"`)),
	})
	require.NoError(t, err)
	var compatible []bool
	for _, one := range got {
		compatible = append(compatible, one.Compatible)
	}
	require.Equal(t, []bool{true, true, true, false, false, true, true, false, false, true}, compatible)
	require.Equal(t, 1, got[3].Differences[0].Version)
	require.Contains(t, got[4].Messages[0], "READER_FIELD_MISSING_DEFAULT_VALUE")
	require.Len(t, got[7].Messages, 1)
	require.Contains(t, got[8].Messages[0], `"late"`)
	require.Equal(t, length, d.log.length())
	subjects, err := d.Subjects(t.Context(), SubjectsQuery{Prefix: EveryContext, Deleted: true})
	require.NoError(t, err)
	require.Equal(t, []string{"base", "user"}, subjects)

	_, err = d.CheckBatch(t.Context(), []BatchEntry{entry("fine", `"int"`), entry("__GLOBAL", `"int"`)})
	require.ErrorContains(t, err, "schema 1 of the batch")
	require.Equal(t, CodeInvalidSubject, AsError(err).Code)
	_, err = d.CheckBatch(t.Context(), make([]BatchEntry, maxBatch+1))
	require.Equal(t, CodeTooLarge, AsError(err).Code)
}
