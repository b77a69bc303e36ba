package polling

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"millrace/connect/postgres"
)

// taskTables is the setting that tells a task its tables, as a JSON array of pairs of schema and name.
const taskTables = "millrace.tables"

// wants says whether a table is to be read.
func (c *config) wants(t *postgres.Table) bool {
	if c.schemas != nil && !c.schemas.MatchString(t.Schema) {
		return false
	}
	if t.Partition && slices.Contains([]byte(c.kinds), 'p') {
		return false
	}
	full := t.Schema + "." + t.Name
	matches := func(list []*regexp.Regexp) bool {
		return slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return re.MatchString(full) })
	}
	named := func(list []tableName) bool {
		return slices.ContainsFunc(list, func(n tableName) bool {
			return n.Table == t.Name && (n.Schema == "" || n.Schema == t.Schema)
		})
	}
	switch {
	case len(c.include) > 0:
		return matches(c.include) && !matches(c.exclude)
	case len(c.allowed) > 0:
		return named(c.allowed)
	}
	return !named(c.denied)
}

// tables are those to read, in the order of their names.
func (c *config) tables(ctx context.Context, q postgres.Querier) (out []*postgres.Table, err error) {
	all, err := postgres.LoadTables(ctx, q, c.kinds)
	if err != nil {
		return nil, postgres.Explain(err, "list the tables")
	}
	for _, t := range all {
		if c.wants(t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// collision reports two tables whose rows would go to one topic.
func (c *config) collision(tables []*postgres.Table) error {
	first := map[string]*postgres.Table{}
	for _, t := range tables {
		topic := c.topic(tableName{t.Schema, t.Name})
		if other := first[topic]; other != nil {
			return fmt.Errorf("the tables %s and %s would both go to the topic %s: leave one out, or have the schema in the "+
				"name: %s=${prefix}${schema}.${table}", other, t, topic, keyFormat)
		}
		first[topic] = t
	}
	return nil
}

// split divides tables between tasks, neighbours together. Without tables there is one task that waits for some.
func split(tables []tableName, most int) ([]map[string]string, error) {
	n := max(1, min(len(tables), most))
	out := make([]map[string]string, n)
	for i := range out {
		part := tables[i*len(tables)/n : (i+1)*len(tables)/n]
		pairs := make([][2]string, len(part))
		for j, t := range part {
			pairs[j] = [2]string{t.Schema, t.Table}
		}
		text, err := json.Marshal(pairs)
		if err != nil {
			return nil, err
		}
		out[i] = map[string]string{taskTables: string(text)}
	}
	return out, nil
}

// assigned are the tables that a task's settings name.
func assigned(props map[string]string) (out []tableName, err error) {
	var pairs [][2]string
	if err := json.Unmarshal([]byte(props[taskTables]), &pairs); err != nil {
		return nil, fmt.Errorf("the task's setting %s is not valid: %w", taskTables, err)
	}
	for _, p := range pairs {
		out = append(out, tableName{p[0], p[1]})
	}
	return out, nil
}
