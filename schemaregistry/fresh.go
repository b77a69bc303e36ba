package schemaregistry

import "context"

// Fresh waits until all that was written before is read. Where the log's end cannot be told in time it returns all the
// same: what is read may be old then. It is an error that nothing was read yet.
func (r *Registry) Fresh(ctx context.Context) error {
	_, err := r.fresh(ctx)
	return err
}

// fresh is Fresh, and tells why what is read may be old; nil if it is not.
func (r *Registry) fresh(ctx context.Context) (doubt, err error) {
	if r.cfg.Flaws.SkipFresh && r.tail.Loaded() {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.Limits.FreshWait)
	defer cancel()
	if doubt = r.tail.ReachEnd(bounded); doubt == nil || r.tail.Loaded() {
		return doubt, nil
	}
	bounded, cancel = context.WithTimeout(ctx, r.cfg.Limits.WriteWait)
	defer cancel()
	if err := r.AwaitRead(bounded); err != nil {
		return doubt, &Error{
			Code: CodeStoreFailed, Message: "the registry is still reading " + r.cfg.Topic + "; ask again", Cause: err,
		}
	}
	return doubt, nil
}

// notFound is the answer for a schema that is not in memory: an id that was given to somebody is never said not to be
// there only because this node has not read of it.
func (r *Registry) notFound(doubt error, format string, args ...any) *Error {
	e := refuse(CodeSchemaNotFound, format, args...)
	if doubt != nil {
		e = refuse(CodeStoreFailed, format+" that this node has read of, and the leader of "+r.cfg.Topic+
			" does not tell what it has not read; ask again", args...)
		e.Cause = doubt
	}
	return e
}
