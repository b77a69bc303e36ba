package connect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/store"
)

// The members of a sink's offsets.
const (
	kafkaTopic     = "kafka_topic"
	kafkaPartition = "kafka_partition"
	kafkaOffset    = "kafka_offset"
)

// groupKey is the setting of a sink that names the group of its tasks.
const groupKey = "consumer.override.group.id"

// sinkGroup is the consumer group of a sink's tasks.
func sinkGroup(name string, props map[string]string) string {
	return cmp.Or(strings.TrimSpace(props[groupKey]), "connect-"+name)
}

// Offsets tells where a connector stands: a source by what is stored for it, a sink by what its group has committed.
func (w *Worker) Offsets(ctx context.Context, name string) ([]plugin.Offset, error) {
	c, err := w.connector(ctx, name)
	if err != nil {
		return nil, err
	}
	return w.offsets(ctx, c)
}

func (w *Worker) offsets(ctx context.Context, c *store.Connector) ([]plugin.Offset, error) {
	if _, err := w.Class(c.Props[classKey]); err != nil {
		return nil, refuse(failed, "The connector has offsets of a kind that is not known: %v.", err)
	}
	if w.isSource(c) {
		if err := w.store.FreshOffsets(ctx); err != nil {
			return nil, storeFault(err)
		}
		return w.store.Offsets(c.Name), nil
	}
	props, err := w.herd.resolve(c.Props)
	if err != nil {
		return nil, refuse(failed, "The group of the connector cannot be told: %v.", err)
	}
	group := sinkGroup(c.Name, props)
	committed, err := w.cfg.Client.Committed(ctx, group, false)
	if err != nil {
		return nil, groupError(group, err)
	}
	var out []plugin.Offset
	for i := range committed {
		if o := &committed[i]; o.Err == nil && o.Offset >= 0 {
			out = append(out, sinkOffset(o.TopicPartition, o.Offset))
		}
	}
	return out, nil
}

func sinkOffset(at client.TopicPartition, offset int64) plugin.Offset {
	return plugin.Offset{
		Partition: map[string]any{kafkaTopic: at.Topic, kafkaPartition: int64(at.Partition)},
		Offset:    map[string]any{kafkaOffset: offset},
	}
}

// AlterOffsets sets offsets of a stopped connector, and forgets those that are nil. Numbers may be of any type that
// JSON is decoded to. The text is for whoever asked.
func (w *Worker) AlterOffsets(ctx context.Context, name string, offsets []plugin.Offset) (text string, err error) {
	if len(offsets) == 0 {
		return "", refuse(badRequest, "The request has no offsets.")
	}
	c, err := w.stopped(ctx, name)
	if err != nil {
		return "", err
	}
	agreed, err := w.alter(ctx, c, offsets, false)
	return told("altered", agreed), err
}

// ResetOffsets forgets all offsets of a stopped connector.
func (w *Worker) ResetOffsets(ctx context.Context, name string) (text string, err error) {
	c, err := w.stopped(ctx, name)
	if err != nil {
		return "", err
	}
	var offsets []plugin.Offset // of a sink none stand for all, of which its database may know more than its group
	if w.isSource(c) {
		if err := w.fence(ctx, c); err != nil { // what tasks were about to store is stored then, or never
			return "", err
		}
		if offsets, err = w.offsets(ctx, c); err != nil {
			return "", err
		}
	}
	for i := range offsets {
		offsets[i].Offset = nil
	}
	agreed, err := w.alter(ctx, c, offsets, true)
	return told("reset", agreed), err
}

// told is what is said of a change of offsets that was made.
func told(done string, agreed bool) string {
	if agreed {
		return "The offsets of the connector were " + done + "."
	}
	return "The offsets that are kept for the connector were " + done + ". The connector did not say whether it keeps " +
		"more elsewhere; if it does, as in the system that it reads or writes, those are to be " + done + " there."
}

// stopped is a connector that must be stopped.
func (w *Worker) stopped(ctx context.Context, name string) (*store.Connector, error) {
	c, err := w.connector(ctx, name)
	if err == nil && !isStopped(c) {
		err = refuse(badRequest, "The offsets of a connector may be changed only while it is stopped: "+
			"PUT /connectors/{connector}/stop comes first.")
	}
	return c, err
}

// alter changes offsets. All says that they are all that there are.
func (w *Worker) alter(ctx context.Context, c *store.Connector, offsets []plugin.Offset, all bool) (bool, error) {
	class, err := w.Class(c.Props[classKey])
	if err != nil {
		return false, &Error{Status: failed, Message: "The offsets cannot be changed: " + err.Error() + "."}
	}
	props, err := w.herd.resolve(c.Props)
	if err != nil {
		return false, refuse(failed, "The offsets cannot be changed: %v.", err)
	}
	source := class.Kind == plugin.SourceKind
	if offsets, err = normal(offsets); err != nil {
		return false, err
	}
	var moves []move
	if !source {
		if moves, err = movesOf(offsets); err != nil {
			return false, err
		}
		for i := range moves {
			offsets[i] = moves[i].offset()
		}
	}
	agreed, err := w.consent(ctx, class, c, props, offsets)
	if err != nil {
		return false, err
	}
	if source {
		err = w.alterSource(ctx, c, offsets)
	} else {
		err = w.alterSink(ctx, sinkGroup(c.Name, props), moves, all)
	}
	if err != nil {
		return false, err
	}
	if now, err := w.connector(ctx, c.Name); err != nil || !isStopped(now) || now.Offset != c.Offset {
		return false, refuse(conflict, "The connector was changed meanwhile: its tasks may have started before the offsets "+
			"were changed. Stop it and look at its offsets.")
	}
	return agreed, nil
}

// consentTime bounds how long a connector may take over a change of its offsets: its database may not answer.
const consentTime = 15 * time.Second

// consent asks a connector for a change of its offsets.
func (w *Worker) consent(
	ctx context.Context, class *plugin.Class, c *store.Connector, props map[string]string, offsets []plugin.Offset,
) (agreed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, consentTime)
	defer cancel()
	if agreed, err = class.New().AlterOffsets(ctx, props, offsets); err == nil {
		return agreed, nil
	}
	why := w.hidden(c.Props).Replace(err.Error())
	if plugin.IsRetriable(err) || errors.Is(err, context.DeadlineExceeded) {
		return false, refuse(unavailable, "The connector cannot change its offsets now: %s. Try again.", why)
	}
	return false, refuse(failed, "The connector refuses the change of its offsets: %s", why)
}

// normal are offsets of the types that JSON has, each of a partition of its own.
func normal(offsets []plugin.Offset) ([]plugin.Offset, error) {
	out := make([]plugin.Offset, len(offsets))
	seen := make(map[string]bool, len(offsets))
	for i, o := range offsets {
		if o.Partition == nil {
			return nil, refuse(badRequest, "Each offset needs a partition, and number %d has none.", i+1)
		}
		partition, err := plain(o.Partition)
		if err != nil {
			return nil, refuse(badRequest, "Partition number %d: %v.", i+1, err)
		}
		out[i].Partition = partition.(map[string]any)
		text, err := json.Marshal(partition) // its keys are in order
		if err != nil {
			return nil, refuse(badRequest, "Partition number %d: %v.", i+1, err)
		}
		if seen[string(text)] {
			return nil, refuse(badRequest, "Number %d is of the same partition as another one.", i+1)
		}
		seen[string(text)] = true
		if o.Offset == nil {
			continue
		}
		offset, err := plain(o.Offset)
		if err != nil {
			return nil, refuse(badRequest, "Offset number %d: %v.", i+1, err)
		}
		out[i].Offset = offset.(map[string]any)
	}
	return out, nil
}

// plain is a value of the types that a plugin.Offset has.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
		return v, nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		return f, err
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = plain(v[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			var err error
			if out[key], err = plain(v[key]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T is none of JSON", v)
}

// alterSource stores offsets of a source. What its former tasks, wherever they may run yet, had under way is stored
// before that, or never.
func (w *Worker) alterSource(ctx context.Context, c *store.Connector, offsets []plugin.Offset) error {
	if err := w.fence(ctx, c); err != nil {
		return err
	}
	if len(offsets) == 0 {
		return nil
	}
	if err := w.store.FreshOffsets(ctx); err != nil { // keys are written as they are
		return storeFault(err)
	}
	if err := w.store.PutOffsets(ctx, c.Name, offsets); err != nil {
		return storeFault(err)
	}
	return nil
}

// fence ends all that former tasks of a source could write.
func (w *Worker) fence(ctx context.Context, c *store.Connector) error {
	if err := w.herd.runner.Fence(ctx, c.Name, c.Fenced); err != nil {
		return &Error{
			Status: unavailable, Cause: err,
			Message: "Former tasks of the connector could not be fenced; no offset was changed: " + err.Error() + ".",
		}
	}
	return nil
}

// move is a change of a sink's offsets.
type move struct {
	client.TopicPartition
	to int64 // -1: forget it
}

func (m *move) offset() plugin.Offset {
	o := sinkOffset(m.TopicPartition, m.to)
	if m.to < 0 {
		o.Offset = nil
	}
	return o
}

// movesOf are the changes that offsets of a sink ask for.
func movesOf(offsets []plugin.Offset) ([]move, error) {
	out := make([]move, len(offsets))
	seen := make(map[client.TopicPartition]bool, len(offsets))
	for i, o := range offsets {
		m := &out[i]
		topic, ok := o.Partition[kafkaTopic].(string)
		if !ok || topic == "" || len(o.Partition) != 2 {
			return nil, refuse(badRequest, "A partition of a sink is {%q: the name, %q: the number}, and that of number %d is "+
				"not.", kafkaTopic, kafkaPartition, i+1)
		}
		number, err := whole(o.Partition[kafkaPartition], math.MaxInt32)
		if err != nil {
			return nil, refuse(badRequest, "%s of number %d %v.", kafkaPartition, i+1, err)
		}
		m.Topic, m.Partition, m.to = topic, int32(number), -1
		if seen[m.TopicPartition] {
			return nil, refuse(badRequest, "Number %d is of the same partition as another one.", i+1)
		}
		seen[m.TopicPartition] = true
		if o.Offset == nil {
			continue
		}
		if _, ok := o.Offset[kafkaOffset]; !ok || len(o.Offset) != 1 {
			return nil, refuse(badRequest, "An offset of a sink is {%q: the number}, and number %d is not.", kafkaOffset, i+1)
		}
		if m.to, err = whole(o.Offset[kafkaOffset], math.MaxInt64); err != nil {
			return nil, refuse(badRequest, "%s of number %d %v.", kafkaOffset, i+1, err)
		}
	}
	return out, nil
}

// whole is a number from 0, which may be written as text.
func whole(v any, most int64) (n int64, err error) {
	switch v := v.(type) {
	case int64:
		n = v
	case string:
		if n, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64); err != nil {
			return 0, errors.New("is no whole number")
		}
	default:
		return 0, errors.New("is no whole number")
	}
	if n < 0 || n > most {
		return 0, errors.New("is out of range")
	}
	return n, nil
}

// alterSink sets what a group has committed, or forgets it. All says that nothing is to be left.
func (w *Worker) alterSink(ctx context.Context, group string, moves []move, all bool) error {
	c := w.cfg.Client
	if all {
		err := c.DeleteGroup(ctx, group)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return groupError(group, err)
		}
		return nil
	}
	commit := client.GroupCommit{Group: group, Epoch: -1}
	var gone []client.TopicPartition
	for i := range moves {
		if m := &moves[i]; m.to < 0 {
			gone = append(gone, m.TopicPartition)
		} else {
			commit.Offsets = append(commit.Offsets, client.CommittedOffset{
				TopicPartition: m.TopicPartition, Offset: m.to, LeaderEpoch: -1,
			})
		}
	}
	var faults []error
	if len(commit.Offsets) > 0 {
		errs, err := c.CommitOffsets(ctx, commit)
		faults = append(append(faults, errs...), err)
	}
	if len(gone) > 0 && errors.Join(faults...) == nil {
		errs, err := c.DeleteOffsets(ctx, group, gone)
		faults = append(append(faults, errs...), err)
	}
	for _, err := range faults {
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return groupError(group, err)
		}
	}
	return nil
}

// groupError is why offsets of a group could not be read or changed.
func groupError(group string, err error) error {
	out := &Error{Status: failed, Cause: err}
	switch {
	case hasMembers(err):
		out.Message = fmt.Sprintf("The group %q still has members: tasks of the connector are about to stop. Try again "+
			"in a moment.", group)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		out.Status = badRequest
		out.Message = fmt.Sprintf("The offsets of group %q cannot be changed: %v.", group, err)
	case errors.Is(err, client.ErrNoAnswer), kerr.IsRetriable(err):
		out.Status = unavailable
		out.Message = fmt.Sprintf("The offsets of group %q cannot be reached now: %v. Try again.", group, err)
	default:
		out.Message = fmt.Sprintf("The offsets of group %q cannot be read or changed: %v.", group, err)
	}
	return out
}

// hasMembers says whether a change of a group's offsets was refused because it has members.
func hasMembers(err error) bool {
	return slices.ContainsFunc([]*kerr.Error{
		kerr.NonEmptyGroup, kerr.UnknownMemberID, kerr.GroupSubscribedToTopic, kerr.RebalanceInProgress,
		kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch,
	}, func(k *kerr.Error) bool { return errors.Is(err, k) })
}
