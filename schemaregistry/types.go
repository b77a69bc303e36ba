package schemaregistry

import "millrace/schemaregistry/schema"

// Version is one version of a subject and the schema that it holds.
type Version struct {
	Subject   string // with its context, unless that is the default one
	Version   int
	ID        int
	GUID      [16]byte
	Content   schema.Content // Text is canonical
	Deleted   bool           // softly
	Timestamp int64          // of the record, in milliseconds
	Tags      []schema.Tagged
}

// ExtendedVersion is a version and the aliases that lead to its subject.
type ExtendedVersion struct {
	Version
	Aliases []string
}

// SubjectVersion names a version.
type SubjectVersion struct {
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// ContextID names a schema.
type ContextID struct {
	Context string `json:"context"`
	ID      int    `json:"id"`
}

// Page is a part of a list. A Limit below 1 takes all.
type Page struct{ Offset, Limit int }

// SubjectsQuery says which subjects to list. DeletedOnly wins over Deleted.
type SubjectsQuery struct {
	Prefix  string // ":*:" begins one that holds in every context; "" is the default context
	Deleted bool
	// DeletedOnly lists subjects without any version that is not deleted.
	DeletedOnly bool
	Page        Page
}

// VersionsQuery says which versions to list. DeletedAsNegative wins over DeletedOnly, and that over Deleted.
type VersionsQuery struct {
	Deleted, DeletedOnly bool
	DeletedAsNegative    bool // also deleted ones, as negative numbers
	Page                 Page
}

// SchemasQuery says which versions to list with their schemas.
type SchemasQuery struct {
	Prefix     string
	Aliases    bool // tell the aliases of each subject
	Deleted    bool
	LatestOnly bool
	RuleType   string // only those with a rule of this type
	Page       Page
}

// RegisterRequest is a schema to register, look up or check. What is not there is taken from the subject's newest
// version when it is registered.
type RegisterRequest struct {
	Content       schema.Content
	Version       int  // 0: the next one; -1: likewise, but equality is tried against the latest one only
	ID            *int // nil or negative: the registry chooses
	Normalize     bool
	Force         bool // do not ask for compatibility
	TagsAdd       []schema.Tagged
	TagsRemove    []schema.Tagged
	PropagateTags bool // take over the inline tags of the newest version
}

// BatchEntry is one schema of an atomic batch.
type BatchEntry struct {
	Subject string
	Request RegisterRequest
}

// TagsRequest changes tags, metadata and rules of a version by making a new one.
type TagsRequest struct {
	NewVersion    *int
	TagsToAdd     []schema.Tagged
	TagsToRemove  []schema.Tagged
	Metadata      *schema.Metadata
	RuleSet       *schema.RuleSet
	RulesToMerge  *schema.RuleSet
	RulesToRemove []string
}

// CompatibilityResult is what a check finds.
type CompatibilityResult struct {
	Compatible  bool
	Messages    []string // empty where compatible
	Differences []Difference
	Warnings    []string
}

// Difference is one way in which a schema differs from a version.
type Difference struct {
	Kind        string
	Path        string
	Compatible  bool
	Description string
	Old, New    string // both sides in short; empty where one has nothing
	Version     int    // the one compared with
}

// SubjectConfig is the config of a subject, a context or of all. What is nil is not set.
type SubjectConfig struct {
	CompatibilityLevel  *string          `json:"compatibilityLevel,omitempty"`
	CompatibilityPolicy *string          `json:"compatibilityPolicy,omitempty"`
	CompatibilityGroup  *string          `json:"compatibilityGroup,omitempty"`
	Normalize           *bool            `json:"normalize,omitempty"`
	ValidateFields      *bool            `json:"validateFields,omitempty"`
	ValidateNewSchemas  *bool            `json:"validateNewSchemas,omitempty"`
	ValidateRules       *bool            `json:"validateRules,omitempty"`
	Alias               *string          `json:"alias,omitempty"`
	AliasForDeks        *string          `json:"aliasForDeks,omitempty"`
	DefaultMetadata     *schema.Metadata `json:"defaultMetadata,omitempty"`
	OverrideMetadata    *schema.Metadata `json:"overrideMetadata,omitempty"`
	DefaultRuleSet      *schema.RuleSet  `json:"defaultRuleSet,omitempty"`
	OverrideRuleSet     *schema.RuleSet  `json:"overrideRuleSet,omitempty"`
}

// Change is a new value of a member, if Set: nil removes the member.
type Change[T any] struct {
	Set   bool
	Value *T
}

// ConfigUpdate says which members of a SubjectConfig change.
type ConfigUpdate struct {
	Compatibility       Change[string]
	CompatibilityPolicy Change[string]
	CompatibilityGroup  Change[string]
	Normalize           Change[bool]
	ValidateFields      Change[bool]
	ValidateNewSchemas  Change[bool]
	ValidateRules       Change[bool]
	Alias               Change[string]
	AliasForDeks        Change[string]
	DefaultMetadata     Change[schema.Metadata]
	OverrideMetadata    Change[schema.Metadata]
	DefaultRuleSet      Change[schema.RuleSet]
	OverrideRuleSet     Change[schema.RuleSet]
}
