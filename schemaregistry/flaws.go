package schemaregistry

// Flaws are faults planted on purpose, a test hook: a simulation that does not find each of them finds nothing. All are
// false in a real node.
type Flaws struct {
	// AnyOffset appends wherever the log ends.
	AnyOffset bool
	// ForgetMark leaves out the mark of the greatest id when its schema is removed.
	ForgetMark bool
	// SkipFresh reads what is in memory without asking for the log's end.
	SkipFresh bool
	// Early acknowledges what the leader alone has, before it is read back.
	Early bool
}
