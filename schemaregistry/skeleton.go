package schemaregistry

import (
	"context"

	"millrace/schemaregistry/schema"
)

var errNotBuilt = &Error{Code: 50001, Message: "not built"}

// Subjects lists subjects, sorted.
func (r *Registry) Subjects(ctx context.Context, q SubjectsQuery) ([]string, error) {
	return nil, errNotBuilt
}

// Versions lists the numbers of a subject's versions, ascending.
func (r *Registry) Versions(ctx context.Context, subject string, q VersionsQuery) ([]int, error) {
	return nil, errNotBuilt
}

// Version is one version: a number, "latest" or "-1".
func (r *Registry) Version(ctx context.Context, subject, version string, deleted bool) (Version, error) {
	return Version{}, errNotBuilt
}

// Latest is the newest version whose metadata have all of the properties.
func (r *Registry) Latest(ctx context.Context, subject string, properties [][2]string, deleted bool) (Version, error) {
	return Version{}, errNotBuilt
}

// Lookup finds the version of a subject that holds a schema.
func (r *Registry) Lookup(ctx context.Context, subject string, q RegisterRequest, deleted bool) (Version, error) {
	return Version{}, errNotBuilt
}

// ByID is a schema by its id, in the subject's context: Subject and Version are set where one was given.
func (r *Registry) ByID(ctx context.Context, id int, subject *string) (Version, error) {
	return Version{}, errNotBuilt
}

// ByGUID is a schema by its GUID, without Subject and Version.
func (r *Registry) ByGUID(ctx context.Context, guid [16]byte) (Version, error) {
	return Version{}, errNotBuilt
}

// GUIDIDs lists the ids that a schema has.
func (r *Registry) GUIDIDs(ctx context.Context, guid [16]byte) ([]ContextID, error) {
	return nil, errNotBuilt
}

// MaxID is the greatest id that was given out in a subject's context; 0 if none was.
func (r *Registry) MaxID(ctx context.Context, subject string) (int, error) { return 0, errNotBuilt }

// SubjectsOfID lists the subjects that hold a schema.
func (r *Registry) SubjectsOfID(ctx context.Context, id int, q HoldersQuery) ([]string, error) {
	return nil, errNotBuilt
}

// VersionsOfID lists the versions that hold a schema.
func (r *Registry) VersionsOfID(ctx context.Context, id int, q HoldersQuery) ([]SubjectVersion, error) {
	return nil, errNotBuilt
}

// HoldersQuery says which holders of a schema to list.
type HoldersQuery struct {
	Subject *string // whose context the id is of, and the only one listed unless its name is empty
	Deleted bool
	Page    Page
}

// ReferencedBy lists the ids of schemas that refer to a version.
func (r *Registry) ReferencedBy(ctx context.Context, subject, version string, deleted bool, p Page) ([]int, error) {
	return nil, errNotBuilt
}

// Schemas lists versions with their schemas, by subject and version.
func (r *Registry) Schemas(ctx context.Context, q SchemasQuery) ([]ExtendedVersion, error) {
	return nil, errNotBuilt
}

// Compatibility checks a schema against a version, or with version "" against all as registering would.
func (r *Registry) Compatibility(ctx context.Context, subject, version string, q RegisterRequest) (
	CompatibilityResult, error,
) {
	return CompatibilityResult{}, errNotBuilt
}

// Config is the config of a subject: its own, or with inScope what is in force.
func (r *Registry) Config(ctx context.Context, subject string, inScope bool) (SubjectConfig, error) {
	return SubjectConfig{}, errNotBuilt
}

// Mode is the mode of a subject: its own, or with inScope what is in force.
func (r *Registry) Mode(ctx context.Context, subject string, inScope bool) (string, error) {
	return "", errNotBuilt
}

// Contexts lists contexts, the default one first.
func (r *Registry) Contexts(ctx context.Context, prefix string, p Page) ([]string, error) {
	return nil, errNotBuilt
}

// Alias is the subject that requests for a subject go to: the subject itself where its config names no other.
func (r *Registry) Alias(ctx context.Context, subject string) (string, error) { return "", errNotBuilt }

// Parsed is a version's schema, parsed. It is cached.
func (r *Registry) Parsed(ctx context.Context, v Version) (schema.Schema, error) {
	return nil, errNotBuilt
}

// Render is v with its text in a form that the format of its schema knows by name, and with qualified the subjects of
// its references written with their contexts.
func (r *Registry) Render(ctx context.Context, v Version, format string, qualified bool) (Version, error) {
	return Version{}, errNotBuilt
}

// Tagged is v with Tags set: the entities that carry one of the inline tags; "*" is any.
func (r *Registry) Tagged(ctx context.Context, v Version, tags []string) (Version, error) {
	return Version{}, errNotBuilt
}

// Register makes a schema a version of a subject, unless it is one already.
func (r *Registry) Register(ctx context.Context, subject string, q RegisterRequest) (Version, error) {
	return Version{}, errNotBuilt
}

// Known is Register where that needs no write: ok tells whether it did.
func (r *Registry) Known(ctx context.Context, subject string, q RegisterRequest) (v Version, ok bool, err error) {
	return Version{}, false, errNotBuilt
}

// RegisterBatch registers all of some schemas or none. One may refer to another one that comes before it.
func (r *Registry) RegisterBatch(ctx context.Context, entries []BatchEntry) ([]Version, error) {
	return nil, errNotBuilt
}

// ModifyTags makes a new version from one with other tags, metadata or rules.
func (r *Registry) ModifyTags(ctx context.Context, subject, version string, q TagsRequest) (Version, error) {
	return Version{}, errNotBuilt
}

// DeleteSubject deletes all versions of a subject, and lists them.
func (r *Registry) DeleteSubject(ctx context.Context, subject string, permanent bool) ([]int, error) {
	return nil, errNotBuilt
}

// DeleteVersion deletes a version, and tells its number.
func (r *Registry) DeleteVersion(ctx context.Context, subject, version string, permanent bool) (int, error) {
	return 0, errNotBuilt
}

// Undelete takes a soft delete of a version back.
func (r *Registry) Undelete(ctx context.Context, subject, version string) (Version, error) {
	return Version{}, errNotBuilt
}

// SetConfig changes a config, and tells it as it is then.
func (r *Registry) SetConfig(ctx context.Context, subject string, u ConfigUpdate) (SubjectConfig, error) {
	return SubjectConfig{}, errNotBuilt
}

// DeleteConfig removes a config, and tells what it was.
func (r *Registry) DeleteConfig(ctx context.Context, subject string) (SubjectConfig, error) {
	return SubjectConfig{}, errNotBuilt
}

// SetMode sets a mode; nil removes it.
func (r *Registry) SetMode(ctx context.Context, subject string, mode *string, force bool) error {
	return errNotBuilt
}

// DeleteMode removes a mode, with recursive also those of everything in its scope, and tells what it was: "" if only
// others had one.
func (r *Registry) DeleteMode(ctx context.Context, subject string, recursive bool) (string, error) {
	return "", errNotBuilt
}

// DeleteContext removes an empty context.
func (r *Registry) DeleteContext(ctx context.Context, name string) error { return errNotBuilt }
